"""What a turn takes beside the model, early and late in a session.

The machine's speed drifts while a session grows to 300 turns. So its last turns alternate
with the first turns of another session, in another root.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from benchmarks.appends import bytes_on_record
from benchmarks.floor import BareCommitter, payload_of
from benchmarks.provider import InstantProvider
from benchmarks.rounds import ROUNDS, new_directory
from benchmarks.table import Comparison
from remit.ledger.sqlite import SqliteStore
from remit.runtime import Conversation, Runtime

TURNS = 300
COMPARED = 10
WARM_UP = 10


def compare(scratch: Path) -> Iterator[Comparison]:
    """The first ten turns against bare commits, and the last ten against the first ten."""
    commits, size = commits_of_a_turn(new_directory(scratch))
    bare: list[float] = []
    early: list[float] = []
    late: list[float] = []
    for _ in range(ROUNDS):
        with (
            warm_runtime(new_directory(scratch)) as short,
            warm_runtime(new_directory(scratch)) as long,
            BareCommitter(new_directory(scratch) / "floor.db") as committer,
            short.session() as beginning,
            long.session() as grown,
        ):

            def commit(committer: BareCommitter = committer) -> None:
                for number in range(commits):
                    committer.submit(payload_of(number, size)).result()

            for _ in range(TURNS - COMPARED):
                take_turn(grown)
            times = [
                (ms(commit), ms(lambda: take_turn(beginning)), ms(lambda: take_turn(grown)))
                for _ in range(COMPARED)
            ]
        for figures, column in zip((bare, early, late), zip(*times, strict=True), strict=True):
            figures.append(statistics.median(column))
    yield Comparison(f"turns 1-10, against {commits} bare commits", bare, early)
    yield Comparison("turns 291-300, against turns 1-10", early, late, aim="<= 1.30")


@contextmanager
def warm_runtime(directory: Path) -> Iterator[Runtime]:
    """A runtime over a new root, in which one short session has been."""
    flags = {"model.default": "openai"}
    with Runtime.open(directory / "root", create=True, flags=flags) as runtime:
        runtime.gateway.register_provider("openai", InstantProvider())
        with runtime.session() as conversation:
            for _ in range(WARM_UP):
                take_turn(conversation)
        yield runtime


def take_turn(conversation: Conversation) -> None:
    """One turn that must succeed."""
    number = conversation.turn_count + 1
    result = conversation.turn(f"This is question {number}, as long as questions usually are.")
    assert result.quality_gate_passed
    assert not result.degraded


def ms(call: Callable[[], None]) -> float:
    """Milliseconds that ``call`` takes."""
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1000


def commits_of_a_turn(directory: Path) -> tuple[int, int]:
    """How many commits a turn makes, and how many bytes each puts on record in the mean."""
    with warm_runtime(directory) as runtime, runtime.session() as conversation:
        size = bytes_on_record(runtime.ledger)
        with patch.object(SqliteStore, "run", autospec=True, side_effect=SqliteStore.run) as run:
            take_turn(conversation)
        return run.call_count, (bytes_on_record(runtime.ledger) - size) // run.call_count
