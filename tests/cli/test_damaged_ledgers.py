"""Commands that look at the whole ledger: their reports, progress, marks and limits."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remit.kernel.root import Root
from remit.kernel.settings import default_settings, load_settings
from remit.ledger import LedgerClient, LedgerEntry, ledger_key, open_root_ledger
from tests.cli.conftest import at_terminal
from tests.ledger.mutations import bounded
from tests.support.commands import run_remit
from tests.support.roots import new_root
from tests.support.soak import sample
from tests.support.stores import conversation

_CPU_S = 60.0
_COMMANDS = {
    "verify": ("ledger", "verify", "--json"),
    "gates": ("gate", "check", "--all", "--json"),
    "budget": ("budget", "check", "--json"),
    "doctor": ("doctor", "--json"),
}
# One of each kind: a stored text or number by which a loop went on, a row that is missing, a value
# that is not of the column's type or encoding, a table that is not there, a file that is none.
_FAULTS = {
    "lower-cased time": "UPDATE entries SET timestamp = lower(timestamp) WHERE seq = 0",
    "time of another century": "UPDATE entries SET timestamp = '9998-12-31T23' WHERE seq = 1",
    "time as bytes": "UPDATE entries SET timestamp = CAST(timestamp AS BLOB) WHERE seq = 2",
    "no UTF-8": "UPDATE entries SET timestamp = CAST(x'ff' AS TEXT) WHERE seq = 2",
    "entry deleted": "DELETE FROM entries WHERE seq = 3",
    "last entry far off": "UPDATE entries SET seq = 4611686018427387904 "
    "WHERE seq = (SELECT max(seq) FROM entries)",
    "last entry at the end": "UPDATE entries SET seq = 9223372036854775807 "
    "WHERE seq = (SELECT max(seq) FROM entries)",
    "record as number": "UPDATE entries SET record = 5 WHERE event_type = 'EXCHANGE'",
    "table dropped": "DROP TABLE shown_contents",
    "usage renamed": "ALTER TABLE usage RENAME TO usage_old",
    "owner dropped": "DROP TABLE ledger_info",
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = new_root(tmp_path_factory.mktemp("sound") / "root")
    signer = ledger_key(Root(root), default_settings().ledger).signer()
    with LedgerClient(root / "ledger.db", signer=signer) as ledger:
        conversation(ledger, "SES-DAMAGE", 3)
        ledger.checkpoint()
    with contextlib.closing(sqlite3.connect(root / "ledger.db")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return root


@pytest.fixture
def root(sound: Path, tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "root"
    shutil.copytree(sound, place, symlinks=True)
    yield place
    shutil.rmtree(place)


def _edit(root: Path, sql: str) -> None:
    with contextlib.closing(sqlite3.connect(root / "ledger.db")) as connection:
        connection.executescript(sql)


def _report(root: Path, name: str) -> tuple[int, Any]:
    with bounded(_CPU_S):
        done = run_remit(*_COMMANDS[name], "--root", root)
    return done.returncode, json.loads(done.stdout)


def test_a_sound_ledger_passes(root: Path) -> None:
    assert _report(root, "verify")[0] == 0
    assert _report(root, "budget") == (0, _report(root, "budget")[1])


@pytest.mark.soak
@pytest.mark.parametrize("fault", sample(_FAULTS, 3))
def test_each_command_ends_with_its_report(root: Path, fault: str) -> None:
    _edit(root, _FAULTS[fault])
    code, report = _report(root, "verify")
    assert code == 1
    assert report["verified"] is False
    assert report["problems"]
    code, audit = _report(root, "budget")
    assert {"equal", "differences", "usage", "problems"} <= audit.keys()
    assert code == (0 if audit["equal"] else 1)
    code, doctor = _report(root, "doctor")
    assert code == 1
    assert any(not one["passed"] for one in doctor["checks"])
    code, gates = _report(root, "gates")
    assert len(gates["gates"]) == 8
    assert not {one["gate"]: one for one in gates["gates"]}["G6"]["passed"]


@pytest.mark.parametrize("fault", ["lower-cased time", "entry deleted", "last entry far off"])
def test_verify_ends_and_names_the_entry(root: Path, fault: str) -> None:
    _edit(root, _FAULTS[fault])
    code, report = _report(root, "verify")
    assert code == 1
    seq = {"lower-cased time": 0, "entry deleted": 3, "last entry far off": 4611686018427387904}
    assert any(str(seq[fault]) in problem for problem in report["problems"])


_NO_LEDGERS = {
    "empty": b"",
    "text": b"no database at all",
    "head": b"SQLite format 3" + bytes(5000),
}


@pytest.mark.parametrize("data", _NO_LEDGERS.values(), ids=_NO_LEDGERS)
def test_a_file_that_is_no_ledger_has_a_report(root: Path, data: bytes) -> None:
    (root / "ledger.db").write_bytes(data)
    code, report = _report(root, "verify")
    assert code == 1
    assert report["verified"] is False
    assert len(report["problems"]) == 1


def test_a_corrupt_page_has_a_report(root: Path) -> None:
    place = root / "ledger.db"
    data = bytearray(place.read_bytes())
    size = int.from_bytes(data[16:18], "big")
    for page in range(4, len(data) // size):
        data[page * size : page * size + 64] = b"\xff" * 64
    place.write_bytes(data)
    code, report = _report(root, "verify")
    assert code == 1
    assert report["problems"]


SESSIONS = 60


@pytest.fixture
def great(tmp_path: Path) -> Path:
    """A root with sessions, whose ledger counts as great."""
    place = new_root(tmp_path / "root", "[gates]\nfull_entries = 0\n")
    with open_root_ledger(Root(place), load_settings(Root(place).config).settings.ledger) as ledger:
        ledger.write_many(
            [
                LedgerEntry("SESSION_START", session, "S", "r", metadata={"session_id": session})
                for session in (f"SES-{number:08d}" for number in range(SESSIONS))
            ]
        )
    return place


@pytest.mark.parametrize(
    ("label", "command"),
    [
        ("verifying", ("ledger", "verify")),
        ("verifying", ("doctor",)),
        ("adding up", ("budget", "check")),
        ("G6 ledger", ("gate", "check", "--gate", "G6")),
    ],
)
def test_progress_is_at_the_terminal_and_json_alone_on_the_output(
    great: Path, label: str, command: tuple[str, ...]
) -> None:
    printed, shown = at_terminal(*command, "--json", "--root", great, output=subprocess.PIPE)
    assert isinstance(json.loads(printed), dict)
    assert f"{label} [{'':30}]   0%" in shown
    assert f"{label} [{'#' * 30}] 100%" in shown
