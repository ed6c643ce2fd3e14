"""Commands that look at the whole ledger: their reports, progress, marks, limits and segments."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remit.agents.sessions import SessionManager
from remit.gateway.leases import LeaseManager
from remit.kernel.errors import NotFoundError
from remit.kernel.root import Root
from remit.kernel.settings import default_settings, load_settings
from remit.ledger import LedgerClient, LedgerEntry, ledger_key, open_root_ledger
from tests.cli.conftest import Run, at_terminal
from tests.ledger.mutations import bounded
from tests.ledger.segments.writing import sessions
from tests.support.commands import require_said, run_remit
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


def _json(*arguments: object, remit: Run, code: int = 0) -> Any:
    done = remit(*map(str, arguments), "--json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_old_entries_are_moved_read_checked_exported_and_erased(remit: Run, work: Path) -> None:
    root, archive = work / "root", work / "archive"
    assert remit("init", "--bare", str(root)).returncode == 0

    def ledger(*arguments: object) -> tuple[object, ...]:
        return ("ledger", *arguments, "--root", root)

    with open_root_ledger(Root(root), load_settings(Root(root).config).settings.ledger) as client:
        own = SessionManager(client)
        own.start()
        asyncio.run(own.aadd_turn("hi", "hello"))
        sessions(client, 70)
        conversation(client, "SES-NEW", 1)
        client.write_many([LedgerEntry("NOTE", "S", "D", "r") for _ in range(100)])
    whole = _json(*ledger("query"), remit=remit)["entries"]
    for given in (
        (),
        ("--before", "300"),
        ("--finish", "--before", "300"),
        ("--convert", work, "--finish"),
    ):
        assert remit(*map(str, ledger("segment", *given))).returncode == 2
    require_said(
        remit(*map(str, ledger("segment", "--before", "soon", "--out", archive))),
        "is not a time",
        code=2,
    )
    # The earlier name, with an option that has no meaning any more.
    old = ("archive", "--before", "511", "--out", archive, "--format", "jsonl")
    done = _json(*ledger(*old), remit=remit)
    assert (done["first"], done["end"], done["entries"] > 240) == (0, 256, True)
    again = remit(*map(str, ledger("segment", "--before", "511", "--out", archive)))
    assert again.stderr.startswith("Nothing to move: entries are moved 256 at a time")
    assert again.stdout == ""
    converted = _json(*ledger("segment", "--convert", archive), remit=remit)
    assert converted == {"converted": 0}
    assert _json(*ledger("query", "--archive", archive), remit=remit)["entries"][:-1] == whole
    here = remit(*map(str, ledger("query", "--limit", "3")))
    assert "add --archive DIR to read them" in here.stderr
    gone = next(one for one in whole if one["metadata"].get("session_id") == "SES-4")
    require_said(remit(*map(str, ledger("show", gone["id"]))), "was archived")
    shown = _json(*ledger("show", gone["id"], "--archive", archive), remit=remit)
    assert shown == gone
    record = remit(*map(str, ledger("show", gone["id"], "--record", "--archive", archive)))
    assert f'"id":"{gone["id"]}"' in record.stdout
    assert remit(*map(str, ledger("prove", gone["id"]))).returncode == 0
    checked = remit(*map(str, ledger("verify")))
    assert re.search(r"archived: 2\d\d more entries", checked.stdout)
    assert "add --archive DIR to read them" in checked.stderr
    assert _json(*ledger("verify", "--archive", archive), remit=remit)["verified"]
    with (
        open_root_ledger(Root(root), load_settings(Root(root).config).settings.ledger) as client,
        pytest.raises(NotFoundError, match="was archived and cannot continue"),
    ):
        SessionManager(client, own.session_id).require()
    listed = remit("session", "show", own.session_id, "--root", str(root))
    assert "archived; " in listed.stdout
    # Erasure and retention ask for the archive.
    for given in (("erase", "--session", "SES-4"), ("retain",)):
        refused = remit(*map(str, ledger(*given)))
        assert refused.returncode
        assert "--archive DIR" in refused.stderr
    asked = ("--yes", "--reason", "asked", "--archive", archive)
    erased = _json(*ledger("erase", "--session", "SES-4", *asked), remit=remit)
    assert erased["values"] == 6 + 6 + 5 + 6
    assert _json(*ledger("retain", "--archive", archive), remit=remit) == {"erasures": []}
    assert _json(*ledger("verify", "--archive", archive), remit=remit)["verified"]
    with (
        open_root_ledger(Root(root), load_settings(Root(root).config).settings.ledger) as client,
        LeaseManager(client, default_settings().leases).hold_blocking("archive"),
    ):
        for given in (
            ("segment", "--before", "511", "--out", archive), ("archive", "--finish"),
            ("erase", "--session", "SES-5", *asked), ("retain", "--archive", archive),
        ):  # fmt: skip
            refused = remit(*map(str, ledger(*given)))
            assert refused.returncode == 1, refused.stdout
            assert (
                f"Another process is working on archive: process {os.getpid()} on" in refused.stderr
            )
    file = work / "all.jsonl"
    exported = remit(*map(str, ledger("export", "--out", file, "--archive", archive)))
    assert exported.returncode == 0, exported.stderr
    assert b'"leaf"' not in file.read_bytes()
    found = _json(
        *ledger("query", "--text", '"question 0 of SES-5"', "--archive", archive), remit=remit
    )
    assert found["entries"]
    finished = _json(*ledger("segment", "--finish", "--archive", archive), remit=remit)
    assert finished == {"removed": 0, "purged": 0, "remainder": None}
    (segment,) = archive.glob("*.db")
    segment.write_bytes(segment.read_bytes()[:-5000])
    broken = _json(*ledger("verify", "--archive", archive), remit=remit, code=1)
    assert segment.name in broken["problems"][0]
    assert broken["entries"] > 200
    finished = _json(*ledger("archive", "--finish"), remit=remit)
    assert finished == {"removed": 0, "purged": 0, "remainder": None}
