"""The decision trail: appends against plain writes of entries as large, and verification.

An append is one entry and one row, its hash computed and its link read in the transaction. The
floor of verification hashes the same canonical JSON in a bare loop, from memory.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.postgres import PostgresServer
from benchmarks.rounds import alternate, new_directory, rate_of_tasks
from benchmarks.table import Comparison
from remit.kernel.canonical import canonical_json
from remit.ledger import LedgerClient, LedgerEntry, content
from remit.routing.trail import (
    ThoughtInput,
    acreate_thought_record,
    iter_thought_records,
    verify_trail,
)

CHARACTERS = 400
RECORDS = 100_000
AT_ONCE = 1_000
VERIFY_ROUNDS = 3
WAYS = ((1, 1), (16, 1), (16, 16))


def compare(scratch: Path) -> Iterator[Comparison]:
    """Appends by one writer and by sixteen, on one task and on sixteen; verification."""
    for writers, tasks in WAYS:
        floor, ours = alternate(
            scratch,
            _on_file(write_rate, writers),
            _on_file(append_rate, writers, tasks),
        )
        yield Comparison(f"SQLite thoughts, {_way(writers, tasks)}", floor, ours, writers)
    with PostgresServer(scratch / "postgres") as server:
        for writers, tasks in WAYS:
            floor, ours = alternate(
                scratch,
                partial(_on_server, server, partial(write_rate, writers=writers)),
                partial(_on_server, server, partial(append_rate, writers=writers, tasks=tasks)),
            )
            yield Comparison(f"PostgreSQL thoughts, {_way(writers, tasks)}", floor, ours, writers)
    yield verification(scratch)


def _on_file(rate: Callable[..., float], *numbers: int) -> Callable[[Path], float]:
    return lambda directory: rate(str(directory / "ledger.db"), *numbers)


def write_rate(address: str, writers: int) -> float:
    """Plain entries of the same size per second, by so many tasks of one event loop."""
    with LedgerClient(address) as ledger:
        return rate_of_tasks(writers, lambda number: ledger.submit([entry(number)]))


def append_rate(address: str, writers: int, tasks: int) -> float:
    """Thoughts per second, by so many tasks of one event loop."""
    with LedgerClient(address) as ledger:
        return rate_of_tasks(writers, thinker(ledger, tasks))


def thinker(ledger: LedgerClient, tasks: int) -> Callable[[int], Awaitable[object]]:
    """Puts the thought of a number on record."""
    return lambda number: acreate_thought_record(
        ledger, ThoughtInput("analysis", f"TASK-{number % tasks}", "benchmark", text(number))
    )


def entry(number: int) -> LedgerEntry:
    """An entry as a thought's, which a caller could write without the trail."""
    return LedgerEntry(
        event_type="NOTE",
        submission_id="TASK-0",
        decision="analysis",
        reason="Thought recorded",
        metadata={
            "thought_id": f"THT-{number:032x}", "type": "analysis", "task_id": "TASK-0",
            "agent_id": "benchmark", "session_id": "", "position": number,
            "content": content(text(number)), "thought_timestamp": "2026-01-01T00:00:00.000000Z",
            "hash": content(hashlib.sha256(str(number).encode()).hexdigest()),
        },
    )  # fmt: skip


def text(number: int) -> str:
    """A thought that no other number gives."""
    return f"{number:<{CHARACTERS}}."


def verification(scratch: Path) -> Comparison:
    """Records per second, of a trail of sixteen tasks."""
    with LedgerClient(new_directory(scratch) / "ledger.db") as ledger:
        asyncio.run(_fill(thinker(ledger, 16)))
        hashed = [
            {
                name: getattr(record, name)
                for name in ("id", "type", "task_id", "content", "timestamp", "prev_hash")
            }
            for record in iter_thought_records(ledger)
        ]
        floor, ours = [], []
        for _ in range(VERIFY_ROUNDS):
            floor.append(_rate(lambda: _hash_all(hashed)))
            ours.append(_rate(lambda: _verify(ledger)))
    return Comparison(f"verify {RECORDS:,} thoughts", floor, ours, 1)


async def _fill(think: Callable[[int], Awaitable[object]]) -> None:
    for first in range(0, RECORDS, AT_ONCE):
        await asyncio.gather(*(think(number) for number in range(first, first + AT_ONCE)))


def _hash_all(hashed: list[dict[str, Any]]) -> None:
    for item in hashed:
        hashlib.sha256(canonical_json(item)).hexdigest()


def _verify(ledger: LedgerClient) -> None:
    report = verify_trail(ledger)
    assert report.verified
    assert report.records == RECORDS


def _rate(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return RECORDS / (time.perf_counter() - started)


def _on_server(server: PostgresServer, measure: Callable[[str], float], _: Path) -> float:
    with server.database() as url:
        return measure(url)


def _way(writers: int, tasks: int) -> str:
    return f"{writers} writer{'s' * (writers > 1)}, {tasks} task{'s' * (tasks > 1)}"
