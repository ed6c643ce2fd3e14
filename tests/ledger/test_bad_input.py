"""What cannot be recorded is refused, clearly, and the next write is unharmed."""

from __future__ import annotations

import asyncio
import math
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import pytest

from remit.kernel.errors import InvalidInputError
from remit.ledger import (
    EntryNotFoundError,
    LedgerClient,
    LedgerEntry,
    LedgerFormatError,
    LedgerWriteError,
    Transaction,
    content,
)
from tests.support.postgres import PostgresServer
from tests.support.stores import SIGNER, conversation, outside

REFUSED: list[dict[Any, Any]] = [
    {"n": math.nan},
    {"deep": [{"n": -math.inf}]},
    {"text": "\ud800"},
    {"map": {1: "one"}},
    {"arguments": {None: 1}},  # in content
    {"n": 2**60},
    {"blob": b"raw"},
    {"thing": object()},
    {"things": {1, 2}},
    {"note": "x" * 70_000},
    {"$content": "forged"},
    {"map": {"$messages": "forged"}},
    {"session_id": "SES-\x00"},  # in a column
    {"map": OrderedDict({"$content": "forged"})},
    {"map": MappingProxyType({"prompt": "secret"})},  # a mapping that is no dict
]
WRONG_FIELDS = [
    LedgerEntry("", "S", "D", "r"),
    LedgerEntry(7, "S", "D", "r"),  # type: ignore[arg-type]
    LedgerEntry("E", None, "D", "r"),  # type: ignore[arg-type]
    LedgerEntry("E", "S", "D", "\ud800"),
    LedgerEntry("E\x00", "S", "D", "r"),
    LedgerEntry("E", "S", "D", "r", [1]),  # type: ignore[list-item]
    LedgerEntry("E", "S", "D", "r", "PRM-X-001"),  # type: ignore[arg-type]
    LedgerEntry("E", "S", content("secret"), "r"),
    LedgerEntry("E", content("secret"), "D", "r"),
    LedgerEntry("E", "S", "D", "r", metadata=[1]),  # type: ignore[arg-type]
]


def test_refused(ledger: LedgerClient) -> None:
    made = [LedgerEntry("BAD", "S", "D", "r", metadata=metadata) for metadata in REFUSED]
    for entry in (*made, *WRONG_FIELDS):
        with pytest.raises(InvalidInputError):
            ledger.write(entry)
        ledger.write(LedgerEntry("AFTER", "S", "D", "r"))
    assert ledger.count_by_event() == {"AFTER": len(made) + len(WRONG_FIELDS)}
    assert ledger.verify().verified


@pytest.mark.parametrize("value", [None, 0, -1, b"LED-00000000", [], 1.5, True])
def test_only_a_text_names_an_entry(ledger: LedgerClient, value: Any) -> None:
    ledger.write(LedgerEntry("E", "S", "D", "r"))
    for method in (ledger.read, ledger.prove, ledger.read_record):
        with pytest.raises(EntryNotFoundError):
            method(value)


@pytest.mark.parametrize(
    "arguments",
    [{"limit": 1.5}, {"limit": "1"}, {"limit": True}, {"since": 5}, {"until": b"2026"},
     {"after": []}, {"after": 1.5}, {"after": True}],
)  # fmt: skip
def test_only_texts_and_integers_filter(ledger: LedgerClient, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        list(ledger.query(**arguments))


@pytest.mark.parametrize("is_database", [False, True])
def test_a_file_that_is_no_ledger(tmp_path: Path, is_database: bool) -> None:
    path = tmp_path / "other.db"
    path.write_text("" if is_database else "dear diary, " * 200)
    if is_database:
        outside(str(path), "CREATE TABLE mine (x)")
    before = path.read_bytes()
    with pytest.raises(LedgerFormatError, match="not a ledger"):
        LedgerClient(path)
    assert path.read_bytes() == before


def test_a_full_disk_loses_only_what_was_refused(tmp_path: Path) -> None:
    with LedgerClient(tmp_path / "ledger.db") as client:
        client.write(LedgerEntry("E", "S", "D", "r", metadata={"n": 1}))
        writer = client._store._writer  # type: ignore[attr-defined]
        ((pages,),) = client.select("SELECT * FROM pragma_page_count")
        client.transact(lambda tx: tx.execute(f"PRAGMA max_page_count={pages + 2}"))
        written = 1
        with pytest.raises(LedgerWriteError, match="full"):
            for _ in range(200):
                client.write(LedgerEntry("E", "S", "D", "r", metadata={"prompt": "x" * 3_000}))
                written += 1
        assert client.count() == written
        assert client.verify().verified
        writer.execute("PRAGMA max_page_count=1000000")
        client.write(LedgerEntry("E", "S", "D", "r", metadata={"n": 2}))
        assert client.count() == written + 1
        assert client.verify().verified


def test_secure_delete_and_incremental_vacuum_are_on_from_the_first_write(tmp_path: Path) -> None:
    with LedgerClient(tmp_path / "ledger.db") as client:
        assert client.select("SELECT * FROM pragma_auto_vacuum") == [(2,)]
        assert client.select("SELECT * FROM pragma_journal_mode") == [("wal",)]
        assert client.select("SELECT * FROM pragma_secure_delete") == [(1,)]
        assert client.transact(lambda tx: tx.execute("PRAGMA secure_delete")) == [(1,)]
        assert client.transact(lambda tx: tx.execute("PRAGMA synchronous")) == [(2,)]
    assert (tmp_path / "ledger.db").stat().st_mode & 0o777 == 0o600


def test_content_inside_subclasses_is_content_too(ledger: LedgerClient) -> None:
    pair = namedtuple("pair", "a b")
    metadata = {"map": OrderedDict(prompt="secret"), "pair": pair(1, {"response": "secret"})}
    entry_id = ledger.write(LedgerEntry("E", "S", "D", "r", metadata=metadata))
    assert b"secret" not in ledger.read_record(entry_id)
    assert ledger.read(entry_id).metadata["map"] == {"prompt": "secret"}
    assert ledger.verify().verified


def test_a_bad_statement_harms_only_its_own_caller(ledger: LedgerClient) -> None:
    import threading

    failures: list[BaseException] = []

    def bad() -> None:
        for _ in range(20):
            try:
                ledger.transact(lambda tx: tx.execute("SELECT nonsense FROM nowhere"))
            except LedgerWriteError as error:
                failures.append(error)

    def stop(_: Transaction) -> None:
        raise StopIteration

    thread = threading.Thread(target=bad)
    thread.start()
    for number in range(50):
        ledger.write(LedgerEntry("E", "S", "D", "r", metadata={"n": number}))
    thread.join()
    assert len(failures) == 20
    with pytest.raises(RuntimeError, match="StopIteration"):
        ledger.transact(stop)
    assert ledger.count() == 50


async def test_closing_twice_at_once_loses_nothing(tmp_path: Path) -> None:
    client = LedgerClient(tmp_path / "ledger.db")
    together = threading.Barrier(2)
    close = client._store.close

    def slowly() -> None:
        with pytest.raises(threading.BrokenBarrierError):  # nobody else is here
            together.wait(0.05)
        together.reset()
        close()

    client._store.close = slowly  # type: ignore[method-assign]
    entries = [LedgerEntry("E", "S", "D", "r", metadata={"n": n}) for n in range(200)]
    waiting = [client.submit([entry]) for entry in entries]
    with ThreadPoolExecutor(3) as closers:
        for closed in [closers.submit(client.close) for _ in range(3)]:
            closed.result()
    assert await asyncio.gather(*waiting) == [[entry.id] for entry in entries]
    with LedgerClient(tmp_path / "ledger.db") as again:
        assert again.count() == 200


# An auditor's medium: what cannot be written is opened, verified, searched, proved, exported.


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


@pytest.mark.parametrize("how", ["searched", "never searched"])
def test_a_closed_file(place: Path, how: str) -> None:
    medium = place / "medium"
    medium.mkdir()
    _fill(str(medium / "ledger.db"), searched=how != "never searched")
    before = _seal(medium)
    said = _audit(str(medium / "ledger.db"), place / "out")
    if how == "never searched":
        assert "is missing or incomplete" in said
        assert said.count("\n") == _SOUND.count("\n")
    else:
        assert said == _SOUND.format(text=_FOUND)
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


@pytest.mark.parametrize("how", ["role", "setting"])
def test_a_database(postgres: PostgresServer, place: Path, how: str) -> None:
    url = postgres.database()
    _fill(url, searched=True)
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
    assert said == _SOUND.format(text=_FOUND)
