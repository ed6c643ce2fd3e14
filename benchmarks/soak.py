"""``python -m benchmarks.soak [MINUTES]``: is anything ever lost, doubled or damaged?

A ledger on SQLite and one on PostgreSQL at the same time, three writer processes of four threads
on each. A writer notes each entry in a file of its own as soon as ``write`` has returned. Every
few seconds one of the writers is killed (``SIGKILL``) and started again, except one on each
ledger whose memory is watched; halfway the PostgreSQL server is killed too. Every minute another
process verifies each ledger, held against the checkpoint that the verify before it saw. At the
end all that was noted must be there, once, with the hash that was noted.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing.process import BaseProcess
from pathlib import Path
from queue import Empty
from typing import Any

from benchmarks.ledgers import text
from benchmarks.machine import describe_machine
from benchmarks.postgres import PostgresServer
from remit.kernel.errors import RemitError
from remit.ledger import LedgerClient, LedgerEntry
from remit.ledger.tlog import SignedCheckpoint, Signer, VerifierKey, verify_consistency

ORIGIN = "example.com/soak"
WRITERS = 3  # of each ledger; the first is never killed
THREADS = 4
PAUSE_S = 0.02  # after a write, in the mean; or verifying ever more would be all there is
KILL_S = (2.0, 6.0)
VERIFY_S = 60.0
WARM_S = 20.0
PAGE = 5_000

_SPAWN = multiprocessing.get_context("spawn")


# -- writers --------------------------------------------------------------------------------


def write_on(address: str, pem: Path, notes: Path) -> None:
    """A writer process: writes until it is killed, or until the file ``stop`` is there."""
    out = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    stop = notes.parent / "stop"
    signer = Signer.from_pem(ORIGIN, pem.read_bytes())
    ledger = open_patiently(address, signer)

    def work(thread: int) -> None:
        source = random.Random()
        session = f"SES-{uuid.uuid4().hex[:12]}"
        history: list[dict[str, str]] = []
        while not stop.exists():
            token = uuid.uuid4().hex
            history.append({"role": "user", "content": text(token)})
            entry = LedgerEntry(
                event_type="EXCHANGE" if source.random() < 0.5 else "TOOL_CALL",
                submission_id=token,
                decision="DONE",
                reason="Written by the soak",
                metadata={"session_id": session, "result": text(f"result {token}")},
            )
            if entry.event_type == "EXCHANGE":
                entry.metadata["prompt"] = list(history)
            try:
                entry_id = ledger.write(entry)
            except RemitError as error:
                os.write(out, f"error {type(error).__name__} {error}".encode()[:300] + b"\n")
                time.sleep(0.5)
            else:
                os.write(out, f"{entry_id} {entry.entry_hash} {token}\n".encode())
            if len(history) > 20:
                session, history = f"SES-{uuid.uuid4().hex[:12]}", []
            time.sleep(source.uniform(0, 2 * PAUSE_S))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ledger.close()


def open_patiently(address: str, signer: Signer) -> LedgerClient:
    """Open the ledger; the server may be down for a moment."""
    end = time.monotonic() + 60
    while True:
        try:
            return LedgerClient(address, signer=signer)
        except RemitError:
            if time.monotonic() > end:
                raise
            time.sleep(0.5)


# -- verifying ------------------------------------------------------------------------------


@dataclass
class Verified:
    """What one verify said."""

    entries: int
    seconds: float
    problems: list[str]
    checkpoint: str


def verify_once(address: str, key: str, outside: str, answers: Any) -> None:
    """A verifying process: one verify, its result into the queue."""
    started = time.perf_counter()
    try:
        with LedgerClient(address, create=False, verifier_key=VerifierKey.parse(key)) as ledger:
            latest = ledger.checkpoints.latest()
            report = ledger.verify(checkpoint=outside or None)
            problems = [str(problem) for problem in report.problems]
            if outside and report.checkpoint != "outside":
                problems.append(f"checkpoint: {report.checkpoint}")
            answers.put(
                Verified(report.entries, time.perf_counter() - started, problems, str(latest or ""))
            )
    except RemitError as error:
        answers.put(Verified(0, time.perf_counter() - started, [f"raised: {error}"], outside))


# -- one ledger under test ------------------------------------------------------------------


@dataclass
class Side:
    """A ledger, its writers and what became of them."""

    name: str
    address: str
    pem: Path
    key: str
    notes: Path
    writers: list[BaseProcess] = field(default_factory=list)
    started: int = 0
    kills: int = 0
    verifies: list[Verified] = field(default_factory=list)
    outside: str = ""
    memory: list[float] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def start_writer(self, place: int) -> None:
        """Start a writer, in place of one that is gone where there was one."""
        self.started += 1
        process = _SPAWN.Process(
            target=write_on,
            args=(self.address, self.pem, self.notes / f"{self.started}.notes"),
            daemon=True,
        )
        process.start()
        self.writers[place : place + 1] = [process]

    def kill_writer(self, source: random.Random) -> None:
        """Kill any but the first, start another."""
        place = source.randrange(1, WRITERS)
        process = self.writers[place]
        if process.exitcode is not None:
            self.violations.append(f"a writer ended by itself with {process.exitcode}")
        process.kill()
        process.join()
        self.kills += 1
        self.start_writer(place)

    def note_memory(self) -> None:
        """MB of the writer that is never killed."""
        pages = Path(f"/proc/{self.writers[0].pid}/statm").read_text().split()[1]
        self.memory.append(int(pages) * os.sysconf("SC_PAGE_SIZE") / 2**20)

    def verify(self) -> None:
        """In a further process."""
        answers = _SPAWN.Queue()
        process = _SPAWN.Process(
            target=verify_once, args=(self.address, self.key, self.outside, answers), daemon=True
        )
        process.start()
        while True:
            try:
                verified = answers.get(timeout=5)
                break
            except Empty:
                if process.exitcode is not None:
                    verified = Verified(0, 0, [f"ended with {process.exitcode}"], self.outside)
                    break
        process.join()
        self.verifies.append(verified)
        self.violations.extend(f"verify: {problem}" for problem in verified.problems)
        self.outside = verified.checkpoint
        print(
            f"  {self.name}: {verified.entries:,} entries verified in {verified.seconds:.1f} s"
            f"{''.join(f'; {problem}' for problem in verified.problems)}",
            flush=True,
        )

    def noted(self) -> Iterator[tuple[str, str, str]]:
        """Id, hash and token of every entry that a writer was told is durable."""
        for path in self.notes.glob("*.notes"):
            for line in path.read_text().splitlines(keepends=True):
                parts = line.split()
                if line.startswith("LED-") and line.endswith("\n"):
                    yield parts[0], parts[1], parts[2]

    def errors(self) -> dict[str, int]:
        """How often which error was raised to a writer."""
        found: dict[str, int] = {}
        for path in self.notes.glob("*.notes"):
            for line in path.read_text().splitlines():
                if line.startswith("error "):
                    name = line.split()[1]
                    found[name] = found.get(name, 0) + 1
        return found

    def judge(self) -> str:
        """Look at everything; one line of the table."""
        self.verify()
        acknowledged = list(self.noted())
        wanted = {entry_id: (entry_hash, token) for entry_id, entry_hash, token in acknowledged}
        doubled = len(acknowledged) - len(wanted)
        tokens: set[str] = set()
        entries = 0
        checkpoints = 0
        with LedgerClient(
            self.address, create=False, verifier_key=VerifierKey.parse(self.key)
        ) as ledger:
            seq = -1
            while rows := ledger.select(
                "SELECT seq, id, entry_hash, submission_id FROM entries WHERE seq > ? "
                f"ORDER BY seq LIMIT {PAGE}",
                (seq,),
            ):
                seq = rows[-1][0]
                for _, entry_id, entry_hash, token in rows:
                    entries += 1
                    doubled += token in tokens
                    tokens.add(token)
                    if wanted.get(entry_id) == (entry_hash, token):
                        del wanted[entry_id]
            notes = ledger.select("SELECT note FROM checkpoints ORDER BY size")
            heads = [SignedCheckpoint.parse(note) for (note,) in notes]
            for head in heads:
                checkpoints += 1
                head.verify(VerifierKey.parse(self.key))
            for old, new in pairwise(head.checkpoint for head in heads):
                proof = ledger.checkpoints.prove_consistency(old.size, new.size)
                verify_consistency(old.size, new.size, proof, old.root, new.root)
        if wanted:
            self.violations.append(f"lost: {sorted(wanted)[:5]}")
        if doubled:
            self.violations.append(f"doubled: {doubled}")
        times = [verified.seconds for verified in self.verifies]
        return (
            f"| {self.name} | {len(acknowledged):,} | {entries:,} | {self.kills} | "
            f"{len(self.verifies)} ({min(times):.0f} to {max(times):.0f} s) | "
            f"{checkpoints} | {len(wanted)} | "
            f"{doubled} | {self.memory[0]:.0f} to {self.memory[-1]:.0f} MB |"
        )


def soak(minutes: float, sides: list[Side], server: PostgresServer) -> None:
    """Write, kill and verify for so many minutes; then let all writers end."""
    source = random.Random()
    begun = time.monotonic()
    for side in sides:
        for place in range(WRITERS):
            side.start_writer(place)
    over = threading.Event()

    def verify_now_and_then() -> None:
        while not over.wait(min(VERIFY_S, minutes * 15)):
            for side in sides:
                side.verify()

    verifier = threading.Thread(target=verify_now_and_then)
    verifier.start()
    server_killed = False
    warm = False
    while (passed := time.monotonic() - begun) < minutes * 60:
        time.sleep(source.uniform(*KILL_S))
        source.choice(sides).kill_writer(source)
        if not warm and passed > min(WARM_S, minutes * 20):
            warm = True
            for side in sides:
                side.note_memory()
        if not server_killed and passed > minutes * 30:
            server_killed = True
            server.kill()
            server.start()
            print(f"  PostgreSQL killed and started again at {passed:.0f} s", flush=True)
    over.set()
    verifier.join()
    for side in sides:
        side.note_memory()
        (side.notes / "stop").touch()
    for side in sides:
        for writer in side.writers:
            writer.join(60)
            if writer.exitcode != 0:
                side.violations.append(f"a writer did not end well: {writer.exitcode}")
                writer.kill()


def main() -> None:
    """Run, print the table, end with 1 where anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("minutes", nargs="?", type=float, default=10.0)
    minutes = parser.parse_args().minutes
    scratch = Path(tempfile.mkdtemp(prefix="soak-"))
    try:
        print(describe_machine(scratch), flush=True)
        signer = Signer.generate(ORIGIN)
        pem = scratch / "key.pem"
        pem.write_bytes(signer.to_pem())
        with PostgresServer(scratch / "postgres") as server, server.database() as url:
            sides = []
            for name, address in (("SQLite", str(scratch / "ledger.db")), ("PostgreSQL", url)):
                notes = scratch / f"notes-{name}"
                notes.mkdir()
                sides.append(Side(name, address, pem, str(signer.verifier_key), notes))
            soak(minutes, sides, server)
            lines = [side.judge() for side in sides]
            print(
                "\n| Store | Acknowledged | Entries | Kills | Verifies | Checkpoints | Lost | "
                "Doubled | Memory |\n|---|---|---|---|---|---|---|---|---|"
            )
            print("\n".join(lines))
            for side in sides:
                for name, number in side.errors().items():
                    print(f"{side.name}: {number} writes raised {name}")
        violations = [f"{side.name}: {item}" for side in sides for item in side.violations]
        print("\n".join(violations) or "Nothing lost, doubled or damaged.")
        sys.exit(1 if violations else 0)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
