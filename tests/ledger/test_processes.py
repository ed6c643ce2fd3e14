"""Several processes on one ledger, and processes that die."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from remit.ledger import LedgerClient, LedgerEntry, LedgerWriteError
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


def test_a_process_suspended_in_its_turn_stops_no_writer(tmp_path: Path) -> None:
    other = os.open(tmp_path, os.O_RDONLY)
    with LedgerClient(tmp_path / "ledger.db") as client:
        fcntl.flock(other, fcntl.LOCK_EX)
        client.write(LedgerEntry("E", "S", "D", "r"))
        fcntl.flock(other, fcntl.LOCK_UN)
        with pytest.raises(LedgerWriteError):
            client.transact(lambda tx: tx.execute("no SQL"))
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)  # was given back
        assert client.count() == 1
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
