"""Reading, proving and verifying ledgers of ten thousand, a hundred thousand, a million entries.

The ledgers are those of :mod:`benchmarks.ledgers`, built on first use (minutes).
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks import ledgers
from benchmarks.memory import peak
from benchmarks.rounds import ROUNDS
from benchmarks.scan import scan
from benchmarks.table import Comparison, Figure
from remit.ledger import LedgerClient

QUERIES = 40
LIMIT = 50
PROOFS = 50
VERIFY_ROUNDS = 3

GREAT = ledgers.GREAT

Line = Comparison | Figure


def compare(scratch: Path) -> Iterator[Line]:
    """Queries, opening, proofs, verification, memory."""
    paths = {n: str(ledgers.sqlite_ledger(n)) for n in (ledgers.SMALL, ledgers.MIDDLE, GREAT)}
    with ledgers.server() as server:
        urls = {n: ledgers.postgres_ledger(server, n) for n in (ledgers.SMALL, ledgers.MIDDLE)}
        if server.has(f"ledger_{GREAT}"):
            urls[GREAT] = server.url(f"ledger_{GREAT}")
        for engine, addresses in (("SQLite", paths), ("PostgreSQL", urls)):
            yield from queries(engine, addresses)
            greatest = max(addresses)
            yield from opening_and_proofs(f"{engine}, {greatest:,}", addresses[greatest])
        yield from verification(Path(paths[ledgers.MIDDLE]), ledgers.MIDDLE)
        yield from memory("SQLite", paths[GREAT], scratch)
        if GREAT in urls:
            yield from memory("PostgreSQL", urls[GREAT], scratch)


def queries(engine: str, addresses: dict[int, str]) -> Iterator[Line]:
    """Each kind of query on each size, against the smallest; the sizes take turns."""
    for name, run in QUERY_KINDS.items():
        figures: dict[int, list[float]] = {n: [] for n in addresses}
        for _ in range(ROUNDS):
            for entries, address in addresses.items():
                figures[entries].append(median_query_ms(address, entries, run))
        small = figures.pop(min(figures))
        for entries, times in figures.items():
            aim = "<= 3.00" if entries == max(figures) else ""
            yield Comparison(f"{engine} {name}, {entries:,} vs 10k", small, times, 0, aim)


def median_query_ms(
    address: str, entries: int, run: Callable[[LedgerClient, random.Random, int], int]
) -> float:
    """Median time of a query, in milliseconds; the first few are not counted."""
    source = random.Random(entries)
    with LedgerClient(address, create=False) as ledger:
        times = []
        for _ in range(QUERIES + 5):
            started = time.perf_counter()
            found = run(ledger, source, entries)
            times.append((time.perf_counter() - started) * 1000)
            assert found
    return statistics.median(times[5:])


def by_session(ledger: LedgerClient, source: random.Random, entries: int) -> int:
    """The entries of any session."""
    session = ledgers.session_of(source.randrange(entries))
    return len(list(ledger.query(session_id=session, limit=LIMIT)))


def by_event(ledger: LedgerClient, source: random.Random, entries: int) -> int:
    """Fifty of one event type, behind any entry."""
    event, after = source.choice(ledgers.EVENTS), source.randrange(entries // 2)
    return len(list(ledger.query(event_type=event, after=after, limit=LIMIT)))


def latest(ledger: LedgerClient, source: random.Random, entries: int) -> int:
    """The last ten."""
    return len(list(ledger.query(order="desc", limit=10)))


QUERY_KINDS = {"one session": by_session, "one event type": by_event, "latest 10": latest}


def opening_and_proofs(where: str, address: str) -> Iterator[Line]:
    """How long opening takes, and a proof."""
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        ledger = LedgerClient(address, create=False)
        times.append((time.perf_counter() - started) * 1000)
        ledger.close()
    yield Figure(f"open ({where})", times, "ms", "< 50 ms")
    source = random.Random(0)
    with LedgerClient(address, create=False, signer=ledgers.signer()) as ledger:
        entries = ledger.count()
        times = []
        for _ in range(PROOFS):
            entry_id = f"LED-{source.randrange(entries):08x}"
            started = time.perf_counter()
            proof = ledger.prove(entry_id)
            times.append((time.perf_counter() - started) * 1000)
            assert proof
    yield Figure(f"proof ({where})", times, "ms", "< 5 ms")


def verification(path: Path, entries: int) -> Iterator[Line]:
    """Entries per second against the bare scan, with one process and with two."""
    with LedgerClient(path, create=False, verifier_key=ledgers.signer().verifier_key) as ledger:

        def verify(jobs: int, deep: bool) -> None:
            report = ledger.verify(jobs=jobs, deep=deep)
            assert report.verified
            assert report.entries == entries

        for jobs in (1, 2):
            bare: list[float] = []
            shallow: list[float] = []
            deep: list[float] = []
            for _ in range(VERIFY_ROUNDS):
                bare.append(_rate(entries, partial(scan, path, jobs)))
                shallow.append(_rate(entries, partial(verify, jobs, False)))
                deep.append(_rate(entries, partial(verify, jobs, True)))
            name = f"verify {entries:,}, {jobs} {'process' if jobs == 1 else 'processes'}"
            yield Comparison(f"{name}, deep=False", bare, shallow, 1, ">= 0.50")
            yield Comparison(f"{name}, deep=True", bare, deep, 1, ">= 0.50")


def _rate(entries: int, call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return entries / (time.perf_counter() - started)


def memory(engine: str, address: str, scratch: Path) -> Iterator[Line]:
    """Peaks at a million entries."""
    for name, jobs in (("1 process", "1"), ("2 processes", "2")):
        own, child, seconds = peak("verify", jobs, address)
        name = f"{engine} verify 1,000,000, {name}"
        yield Figure(f"{name}: peak", [own], "MB", "< 200 MB")
        if jobs != "1":
            yield Figure(f"{name}: peak of a child", [child], "MB", "< 200 MB")
        yield Figure(f"{name}: time", [seconds], "s")
    target = scratch / "export.jsonl"
    own, _, seconds = peak("export", str(target), address)
    target.unlink()
    yield Figure(f"{engine} export 1,000,000: peak", [own], "MB", "< 200 MB")
    yield Figure(f"{engine} export 1,000,000: time", [seconds], "s")
