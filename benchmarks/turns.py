"""What a turn takes beside the model, early and late in a session."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.appends import bytes_on_record
from benchmarks.floor import BareCommitter, payload_of
from benchmarks.provider import InstantProvider
from benchmarks.rounds import ROUNDS, new_directory
from benchmarks.table import Comparison
from remit.runtime import Conversation, Runtime

TURNS = 300
COMPARED = 10
WARM_UP = 10


def compare(scratch: Path) -> Iterator[Comparison]:
    """The first ten turns against bare commits, and the last ten against the first ten."""
    bare: list[float] = []
    early: list[float] = []
    late: list[float] = []
    for _ in range(ROUNDS):
        with Runtime.open(
            new_directory(scratch) / "root", create=True, flags={"model.default": "openai"}
        ) as runtime:
            runtime.gateway.register_provider("openai", InstantProvider())
            with runtime.session() as conversation:
                times_of_turns(conversation, WARM_UP)
            with runtime.session() as conversation:
                before = runtime.ledger.count(), bytes_on_record(runtime.ledger)
                first = times_of_turns(conversation, COMPARED)
                commits = (runtime.ledger.count() - before[0]) // COMPARED
                size = (bytes_on_record(runtime.ledger) - before[1]) // COMPARED // commits
                times_of_turns(conversation, TURNS - 2 * COMPARED)
                last = times_of_turns(conversation, COMPARED)
        bare.append(bare_ms(new_directory(scratch), commits, size))
        early.append(statistics.median(first))
        late.append(statistics.median(last))
    yield Comparison(f"turns 1-10 : {commits} commits of those bytes", bare, early)
    yield Comparison("turns 291-300 : turns 1-10", early, late, aim="<= 1.30")


def times_of_turns(conversation: Conversation, turns: int) -> list[float]:
    """Milliseconds of each of the next turns, as a caller waits for them."""
    times = []
    for number in range(conversation.turn_count + 1, conversation.turn_count + turns + 1):
        message = f"This is question {number}, as long as questions in a conversation are."
        started = time.perf_counter()
        result = conversation.turn(message)
        times.append((time.perf_counter() - started) * 1000)
        assert result.quality_gate_passed
        assert not result.degraded
    return times


def bare_ms(directory: Path, commits: int, size: int) -> float:
    """Milliseconds that as many bare commits take as a turn makes, one after the other."""
    times = []
    with BareCommitter(directory / "floor.db") as committer:
        for turn in range(WARM_UP + COMPARED):
            started = time.perf_counter()
            for _ in range(commits):
                committer.submit(payload_of(turn, size)).result()
            times.append((time.perf_counter() - started) * 1000)
    return statistics.median(times[WARM_UP:])
