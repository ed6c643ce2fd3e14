"""What a batch does on PostgreSQL, seen from inside of the process that writes it.

    python -m benchmarks.cluster.inside serve …     any ``remit`` command, watched

With ``REMIT_BENCH_BATCHES=FILE`` all batches are written there as JSON when the process ends.
"""

from __future__ import annotations

import atexit
import json
import os
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from remit.ledger.postgres import PostgresStore, schema, transaction
from remit.ledger.postgres.connection import Answer, Writer

VARIABLE = "REMIT_BENCH_BATCHES"
_CLOCK = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"


@dataclass(frozen=True, slots=True)
class Held:
    """One transaction under the lock.

    Attributes:
        at: when its commit was answered, seconds since 1970.
        wait_ms: from asking for the lock to having it, by the server's clock.
        held_ms: from there until the commit was answered.
        cpu_ms: of the writing thread, the reading before the lock included.
        entries: that it appended.
    """

    at: float
    wait_ms: float
    held_ms: float
    cpu_ms: float
    entries: int


class Batches:
    """Watches all stores of this process that write to PostgreSQL.

    Attributes:
        held: every transaction under the lock.
    """

    def __init__(self) -> None:
        self.held: list[Held] = []
        self._here = threading.local()  # a store's writer is one thread

    def watch(self) -> Self:
        """Begin."""
        run, made = PostgresStore.run, transaction.PostgresBatch.__init__

        def watched_run(store: PostgresStore, units: Sequence[Any]) -> list[Any]:
            cpu = time.thread_time()
            results = run(store, units)
            self._note(time.time(), time.thread_time() - cpu)
            return results

        def watched_init(self_: transaction.PostgresBatch, *arguments: Any) -> None:
            made(self_, *arguments)
            self._here.batch, self._here.first = self_, self_.seq

        def begin(writer: Writer) -> None:
            writer.put(schema._BEGIN, ())
            asked = writer.ask(_CLOCK)
            writer.put(schema._LOCK, ())
            self._here.clocks = asked, writer.ask(_CLOCK)

        replaced: tuple[tuple[Any, str, Any], ...] = (
            (PostgresStore, "run", watched_run),
            (transaction.PostgresBatch, "__init__", watched_init),
            (transaction, "begin", begin),
        )
        for owner, name, ours in replaced:
            setattr(owner, name, ours)
        return self

    def _note(self, now: float, cpu_s: float) -> None:
        asked, locked = (_seconds(clock) for clock in self._here.clocks)
        entries = self._here.batch.seq - self._here.first
        self.held.append(
            Held(now, 1000 * (locked - asked), 1000 * (now - locked), 1000 * cpu_s, entries)
        )

    def write(self, path: Path) -> None:
        """Every one, as JSON."""
        path.write_text(json.dumps([asdict(one) for one in self.held]))


def _seconds(clock: Answer) -> float:
    ((microseconds,),) = clock
    return float(microseconds) / 1e6


def read(path: Path) -> list[Held]:
    """What a process has written."""
    return [Held(**one) for one in json.loads(path.read_text())]


@dataclass(frozen=True, slots=True)
class Serial:
    """The part of the work on one log that nobody can do beside another.

    Attributes:
        entries: of a batch, the mean.
        wait_ms, wait_p99_ms: for the lock.
        held_ms: the mean; ``held_p50_ms`` the median.
        each_us: for which an entry keeps the lock; ``cpu_us`` of it the writing thread works.
        busy: part of the window for which somebody had the lock.
        fixed_ms, entry_us: a batch's time under the lock as a line: so much, and so much an entry.
    """

    entries: float
    wait_ms: float
    wait_p99_ms: float
    held_ms: float
    held_p50_ms: float
    each_us: float
    cpu_us: float
    busy: float
    fixed_ms: float
    entry_us: float

    @classmethod
    def of(cls, held: Sequence[Held], seconds: float) -> Self | None:
        """Of all batches of one log in a window; nothing of one in which nobody wrote."""
        held = [one for one in held if one.entries]
        if len(held) < 2:
            return None
        entries = sum(one.entries for one in held)
        total = sum(one.held_ms for one in held)
        waits = sorted(one.wait_ms for one in held)
        slope, fixed = _line([one.entries for one in held], [one.held_ms for one in held])
        return cls(
            entries / len(held), statistics.median(waits), waits[int(len(waits) * 0.99)],
            total / len(held), statistics.median(one.held_ms for one in held),
            1000 * total / entries, 1000 * sum(one.cpu_ms for one in held) / entries,
            total / 1000 / seconds, fixed, 1000 * slope,
        )  # fmt: skip

    def most(self, added_ms: float = 0.0) -> float:
        """Entries a second of one log, were its lock never free: in batches as these were.

        Args:
            added_ms: a longer round trip to the server.
        """
        return 1000 * self.entries / (self.held_ms + added_ms)


def _line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Slope and start of the straight line through points; flat where all are of one size."""
    try:
        slope, start = statistics.linear_regression(x, y)
    except statistics.StatisticsError:
        return 0.0, statistics.mean(y)
    return slope, start


def main() -> None:
    """Watch, and be ``remit``."""
    from remit.cli import main as remit

    batches = Batches().watch()
    atexit.register(batches.write, Path(os.environ[VARIABLE]))
    remit()


if __name__ == "__main__":
    main()
