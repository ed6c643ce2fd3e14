"""An auditor's medium: what cannot be written is opened, verified, searched, proved, exported."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from remit.ledger import LedgerClient
from tests.support.postgres import PostgresServer
from tests.support.stores import SIGNER, conversation, outside

_NOBODY = 65534

_AUDIT = """
import contextlib, io, os, sys, tempfile
from pathlib import Path
from remit.ledger import LedgerClient, LedgerEntry, LedgerError, LedgerWriteError, NoSignerError
from remit.ledger.tlog import Signer, VerifierKey

target, out, user, key = sys.argv[1:]


def audit(target, out):
    try:
        ledger = LedgerClient(target, create=False, verifier_key=VerifierKey.parse(key))
    except LedgerError as error:
        print("CLOSED", error.message, error.next_step)
        return
    with ledger:
        report = ledger.verify()
        print("problems", [str(problem) for problem in report.problems])
        print("entries", report.entries, report.checkpoint, len(ledger.read_all()))
        print("by session", len(list(ledger.query(session_id="SES-A"))))
        try:
            print("text", len(list(ledger.query(text="question"))))
        except LedgerError as error:
            print("text", error.message, error.next_step)
        print("proof", ledger.prove("LED-00000001").splitlines()[0])
        try:
            ledger.prove("LED-00000004")
        except NoSignerError:
            print("no proof of what is not signed")
        print("exported", ledger.export(Path(out) / "all.jsonl"))
        try:
            ledger.write(LedgerEntry("E", "S", "D", "r"))
        except LedgerWriteError as error:
            print("not written")


if os.getuid() == 0 and int(user):
    # Whom modes hold back; all that is imported late may be out of reach then.
    with tempfile.TemporaryDirectory() as scratch, contextlib.redirect_stdout(io.StringIO()):
        with LedgerClient(scratch + "/l.db", signer=Signer.generate("x")) as made:
            made.write_many([LedgerEntry("E", "S", "D", "r") for _ in range(5)])
            made.checkpoint()
        with contextlib.suppress(LedgerError):
            audit(scratch + "/l.db", scratch)
    os.setuid(int(user))
audit(target, out)
"""
_SOUND = """problems []
entries 5 stored 5
by session 3
{text}
proof c2sp.org/tlog-proof@v1
no proof of what is not signed
exported 3
not written
"""
_FOUND = "text 5"


def _audit(target: str, out: Path, user: int = _NOBODY) -> str:
    out.chmod(0o777)
    done = subprocess.run(
        [sys.executable, "-c", _AUDIT, target, str(out), str(user), str(SIGNER.verifier_key)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert not done.stderr, done.stderr
    return done.stdout


def _fill(target: str, *, searched: bool) -> None:
    with LedgerClient(target, signer=SIGNER) as client:
        conversation(client, "SES-A", 3)
        client.checkpoint()
    with LedgerClient(target) as client:
        conversation(client, "SES-B", 2)
        if searched:
            assert len(list(client.query(text="question"))) == 5


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that others may enter, which pytest's own are not."""
    path = Path(tempfile.mkdtemp(prefix="remit-medium-"))
    path.chmod(0o755)
    (path / "out").mkdir()
    yield path
    for item in (path, *path.rglob("*")):
        item.chmod(0o755)
    shutil.rmtree(path)


def _seal(medium: Path) -> dict[str, bytes]:
    for item in medium.iterdir():
        item.chmod(0o444)
    medium.chmod(0o555)
    return {item.name: item.read_bytes() for item in medium.iterdir()}


@pytest.mark.parametrize("searched", [True, False], ids=["searched before", "never searched"])
def test_a_closed_file(place: Path, searched: bool) -> None:
    medium = place / "medium"
    medium.mkdir()
    _fill(str(medium / "ledger.db"), searched=searched)
    before = _seal(medium)
    said = _audit(str(medium / "ledger.db"), place / "out")
    if searched:
        assert said == _SOUND.format(text=_FOUND)
    else:
        assert "is missing or incomplete" in said
        assert said.count("\n") == _SOUND.count("\n")
    assert {item.name: item.read_bytes() for item in medium.iterdir()} == before


def test_a_file_that_was_not_closed_says_what_to_do(place: Path) -> None:
    medium, away = place / "medium", place / "away"
    medium.mkdir()
    _fill(str(medium / "ledger.db"), searched=True)
    with LedgerClient(medium / "ledger.db") as client:
        conversation(client, "SES-C", 1)
        shutil.copytree(medium, away)
        (away / "ledger.db-shm").unlink()
    before = _seal(away)
    assert "ledger.db-wal" in before
    said = _audit(str(away / "ledger.db"), place / "out")
    assert said.startswith("CLOSED")
    assert "copy both" in said
    assert {item.name: item.read_bytes() for item in away.iterdir()} == before


def test_a_file_with_an_empty_log_beside_it(place: Path) -> None:
    medium = place / "medium"
    medium.mkdir()
    _fill(str(medium / "ledger.db"), searched=True)
    (medium / "ledger.db-wal").touch()
    before = _seal(medium)
    assert _audit(str(medium / "ledger.db"), place / "out") == _SOUND.format(text=_FOUND)
    assert {item.name: item.read_bytes() for item in medium.iterdir()} == before


def test_a_file_of_another_in_a_directory_of_ones_own(place: Path) -> None:
    medium = place / "medium"
    medium.mkdir()
    _fill(str(medium / "ledger.db"), searched=True)
    (medium / "ledger.db").chmod(0o444)
    medium.chmod(0o777)
    assert _audit(str(medium / "ledger.db"), place / "out") == _SOUND.format(text=_FOUND)
    assert [item.name for item in medium.iterdir()] == ["ledger.db"]


@pytest.mark.parametrize("searched", [True, False], ids=["searched before", "never searched"])
@pytest.mark.parametrize("how", ["role", "setting"])
def test_a_database(postgres: PostgresServer, place: Path, how: str, searched: bool) -> None:
    url = postgres.database()
    _fill(url, searched=searched)
    name = urlsplit(url).path[1:]
    if how == "role":
        postgres.execute(f"CREATE ROLE auditor_{name} LOGIN")
        outside(
            url,
            f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO auditor_{name}",
            "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
            f"REVOKE TEMP ON DATABASE {name} FROM PUBLIC",
        )
        url = url.replace("postgres:@", f"auditor_{name}@")
    else:
        postgres.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    said = _audit(url, place / "out", 0)
    if searched:
        assert said == _SOUND.format(text=_FOUND)
    else:
        assert "is missing or incomplete" in said
        assert said.count("\n") == _SOUND.count("\n")
