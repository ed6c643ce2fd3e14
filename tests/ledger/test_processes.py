"""Several processes on one ledger, and processes that die."""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from remit.ledger import LedgerClient, LedgerEntry, LedgerWriteError, Transaction
from remit.ledger.imports import Import
from remit.ledger.postgres import batch, store
from tests.support.postgres import PostgresServer
from tests.support.processes import Program

_WRITER = """
import sys, threading
from remit.ledger import LedgerClient, LedgerEntry
path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
ledger = LedgerClient(path)
lock = threading.Lock()
def work(thread):
    for number in range(count):
        entry_id = ledger.write(LedgerEntry("LOAD", name, "DONE", "load", metadata={
            "session_id": f"SES-{name}", "n": number, "thread": thread, "prompt": "p" * 200}))
        with lock:
            sys.stdout.write(f"{entry_id} {thread} {number}\\n")
            sys.stdout.flush()
threads = [threading.Thread(target=work, args=(t,)) for t in range(int(sys.argv[4]))]
for t in threads: t.start()
for t in threads: t.join()
ledger.close()
"""

_READER = """
import sqlite3, sys
ledger = sqlite3.connect(sys.argv[1])
ledger.execute("SELECT count(*) FROM entries").fetchone()
ledger.close()
"""


def _start(path: Path, name: str, count: int, threads: int) -> Program:
    numbers = map(str, (count, threads))
    return Program("-c", _WRITER, str(path), name, *numbers, environment=os.environ)


def test_four_processes_write_one_unforked_chain(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"  # not there yet: all four try to make it
    writers = [_start(path, f"P{n}", 500, 1) for n in range(4)]
    for writer in writers:
        with writer:
            writer.stdout.read()
        assert writer.returncode == 0
    with LedgerClient(path) as client:
        report = client.verify()
        assert report.verified, report.problems
        assert report.entries == client.count() == 2000
        for n in range(4):
            numbers = [e.metadata["n"] for e in client.query(submission_id=f"P{n}")]
            assert numbers == list(range(500))  # each process's own order is kept


def test_nothing_acknowledged_is_lost_at_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    chance = random.Random(20261121)
    acknowledged: set[str] = set()
    for round_number in range(20):
        writer = _start(path, f"R{round_number}", 100_000, 4)
        first = writer.stdout.readline()  # under way
        time.sleep(chance.uniform(0.0, 0.25))
        writer.send_signal(signal.SIGKILL)
        with writer:
            out = first + writer.stdout.read()
        lines = out.split("\n")[:-1]  # the last may be cut short
        acknowledged.update(line.split()[0] for line in lines)
        with LedgerClient(path) as client:
            before = client.count()
            client.write(LedgerEntry("AFTER", "S", "D", "the next write works"))
            assert client.count() == before + 1
    with LedgerClient(path) as client:
        report = client.verify()
        assert report.verified, report.problems
        there = {entry.id for entry in client.query(event_type="LOAD", with_content=False)}
    assert acknowledged <= there
    assert len(acknowledged) > 100


def test_turns_are_a_courtesy(tmp_path: Path) -> None:
    other = os.open(tmp_path, os.O_RDONLY)
    try:
        with LedgerClient(tmp_path / "ledger.db") as client:
            fcntl.flock(other, fcntl.LOCK_EX)
            client.write(LedgerEntry("E", "S", "D", "another process is suspended in its turn"))
            fcntl.flock(other, fcntl.LOCK_UN)
            with pytest.raises(LedgerWriteError):
                client.transact(lambda tx: tx.execute("no SQL"))
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)  # was given back
            assert client.count() == 1
    finally:
        os.close(other)


def test_verification_leaves_the_locks_of_its_process(tmp_path: Path) -> None:
    """A file that is opened and closed past the engine loses them: the next process to close the
    ledger then takes itself for the last, and removes the log that this one writes to."""
    path = tmp_path / "ledger.db"
    with LedgerClient(path) as ledger:
        ledger.write(LedgerEntry("LOAD", "a", "DONE", "load"))
        assert ledger.verify().verified
        log = (tmp_path / "ledger.db-wal").stat().st_ino
        subprocess.run([sys.executable, "-c", _READER, str(path)], check=True)
        assert (tmp_path / "ledger.db-wal").stat().st_ino == log
        ledger.write(LedgerEntry("LOAD", "b", "DONE", "load"))


# -- A long import into PostgreSQL is no writer that stands still --------------------------------


def test_an_import_outlasts_the_limit_for_frozen_writers(
    tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LedgerClient(tmp_path / "ledger.db") as source:
        for number in range(10):
            source.write(LedgerEntry("E", "S", "D", "r", metadata={"n": number}))
        source.export(tmp_path / "all.jsonl")
    line = Import._line

    def slow(self: Import, value: dict[str, object]) -> None:
        time.sleep(0.07)
        line(self, value)

    monkeypatch.setattr(Import, "_line", slow)
    monkeypatch.setattr(store, "FROZEN_S", 0.4)
    monkeypatch.setattr(batch, "_SILENT_NS", 50_000_000)
    with LedgerClient(postgres.database()) as target:
        assert target.import_jsonl(tmp_path / "all.jsonl").entries == 10


# -- Units that share a transaction: what is wrong with one is not the others' business ----------


_Work = Iterable[LedgerEntry] | Callable[[Transaction], Any]


def _entry(session_id: str = "SES-A", **metadata: object) -> LedgerEntry:
    return LedgerEntry("E", "S", "D", "r", metadata={"session_id": session_id, **metadata})


async def _together(client: LedgerClient, submit: Callable[[], Iterable[Any]]) -> list[Any]:
    """What work comes to that waits for one transaction."""
    go = threading.Event()
    before = client.submit(lambda _: go.wait(10))
    while client.select("SELECT 1") and client._committer._items:  # the writer has it
        await asyncio.sleep(0.001)
    work = list(submit())
    go.set()
    await before
    return await asyncio.gather(*work, return_exceptions=True)


async def _between(client: LedgerClient, work: _Work) -> list[Any]:
    first, last = _entry(prompt="a"), _entry(prompt="a", response="b")
    return await _together(
        client,
        lambda: [
            client.submit([first]),
            client.submit(work),  # type: ignore[arg-type]
            client.submit([last]),
        ],
    )


def _passes_over(tx: Transaction) -> str:
    try:
        tx.execute("SELECT nothing FROM nowhere")
    except Exception:
        return "passed over"
    return ""


class _Refused:
    """A stage whose rows the engine does not take."""

    def __init__(self, tx: Transaction, steps: Sequence[str]) -> None:
        self._tx = tx
        self._names: list[str] = []

    def do(self, step: str) -> str:
        self._names.append(step)
        return step

    def write(self) -> None:
        self._tx.execute_many("INSERT INTO holds VALUES (?, '')", [(name,) for name in self._names])
        self._names = []


async def test_rows_that_a_stage_cannot_write_fail_the_step_that_brought_them(
    ledger: LedgerClient,
) -> None:
    done = await _together(
        ledger,
        lambda: [
            ledger.submit([_entry(prompt="a")]),
            *[ledger.step(_Refused, name) for name in ("one", "two", "one", "three")],
            ledger.submit([_entry(prompt="a")]),
        ],
    )
    assert [done[0], *done[1:3], *done[4:]] == [
        ["LED-00000000"], "one", "two", "three", ["LED-00000001"],
    ]  # fmt: skip
    assert isinstance(done[3], LedgerWriteError)
    assert ledger.select("SELECT reservation_id FROM holds ORDER BY 1") == [
        ("one",), ("three",), ("two",),
    ]  # fmt: skip
    assert ledger.verify().verified


async def test_an_id_too_long_for_an_index_is_its_own_writers_error(ledger: LedgerClient) -> None:
    first, middle, last = await _between(ledger, [_entry(os.urandom(9_000).hex())])
    assert [first, last[0][:4]] == [["LED-00000000"], "LED-"]
    assert isinstance(middle, LedgerWriteError) or middle == ["LED-00000001"]
    assert ledger.verify().verified


@pytest.mark.parametrize("parameters", [(), (object(),), (1, 2)])
async def test_parameters_that_do_not_fit_are_their_own_units_error(
    ledger: LedgerClient, parameters: tuple[Any, ...]
) -> None:
    done = await _between(ledger, lambda tx: tx.execute("SELECT ?", parameters))
    assert [done[0], done[2]] == [["LED-00000000"], ["LED-00000001"]]
    assert isinstance(done[1], LedgerWriteError)


async def test_an_error_that_a_unit_passes_over_is_its_own(ledger: LedgerClient) -> None:
    done = await _between(ledger, _passes_over)
    assert [done[0], done[2]] == [["LED-00000000"], ["LED-00000001"]]
    assert done[1] == "passed over" or isinstance(done[1], LedgerWriteError)
