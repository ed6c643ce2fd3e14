"""One process that writes entries, by either design; started by :mod:`benchmarks.cluster.log`.

    python -m benchmarks.cluster.writers lock|pending URL PLACE CALLERS SECONDS RATE

RATE is in entries a second; at 0 all callers write again as soon as they can.

``lock`` is Remit's ledger as it is. ``pending`` is the prototype: an entry is prepared as ever, and
inserted into a table ``pending``, with all others that wait in this process, in one statement that
commits by itself and takes no lock; :mod:`benchmarks.cluster.sequencer` does the rest. Where more
than 1,024 are pending, writers wait.
"""

from __future__ import annotations

import asyncio
import itertools
import pickle
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import Any, cast

from benchmarks.appends import entry
from benchmarks.cluster.inside import Batches
from benchmarks.cluster.programs import give, wait_to_go
from remit.kernel.settings import default_settings
from remit.ledger import LedgerClient
from remit.ledger.group_commit import GroupCommitter
from remit.ledger.postgres.connection import Writer
from remit.ledger.record_builder import prepare
from remit.ledger.store import Store, Unit

PENDING = (
    "CREATE TABLE pending (id bigserial PRIMARY KEY, payload bytea NOT NULL, "
    "at timestamptz NOT NULL DEFAULT clock_timestamp())"
)
_INSERT = "INSERT INTO pending (payload) SELECT unnest($1::bytea[])"
_BEHIND = "SELECT coalesce(max(id) - min(id), 0) FROM pending"
_MOST_PENDING = 1024  # above it writers wait: what is acknowledged is soon in the log
_PAUSE_S = 0.02
_APART = 10_000_000  # entries of one process
_WARM = 0.2  # of the window, before it

Write = Callable[[int], Awaitable[Any]]


class PendingStore:
    """As much of a store as :class:`~remit.ledger.group_commit.GroupCommitter` needs."""

    def __init__(self, url: str) -> None:
        self._writer = Writer(url, statement_s=60.0)
        self._writer.connect()
        self.sizes: list[int] = []
        self._behind = 0

    def run(self, units: Sequence[Unit]) -> list[Any]:
        """Durable when it returns; the next one waits where the sequencer is behind."""
        while self._behind > _MOST_PENDING:
            time.sleep(_PAUSE_S)
            ((self._behind,),) = self._writer.fetch(_BEHIND)
        self._writer.put(_INSERT, [[unit.step for unit in units]])
        ((self._behind,),) = self._writer.fetch(_BEHIND)
        self.sizes.append(len(units))
        return [None] * len(units)

    def close(self) -> None:
        """End the connection."""
        self._writer.drop()


async def acknowledged(
    write: Write, callers: int, seconds: float, rate: float
) -> tuple[float, list[float]]:
    """Write for so long, so many at once; when the window began, seconds since 1970, and the ms of
    each that ended in it."""
    numbers, took = itertools.count(), list[float]()
    began = time.time() + _WARM * seconds
    begin = time.perf_counter() + _WARM * seconds
    end = begin + seconds

    async def call(place: int) -> None:
        due = time.perf_counter() + (place / rate if rate else 0.0)
        while (started := time.perf_counter()) < end:
            if rate and (early := due - started) > 0:
                await asyncio.sleep(early)
                started = time.perf_counter()
            due += callers / rate if rate else 0.0
            await write(next(numbers))
            if begin <= (done := time.perf_counter()) < end:
                took.append(1000 * (done - started))

    await asyncio.gather(*(call(place) for place in range(callers)))
    return began, took


async def _run(
    design: str, url: str, place: int, callers: int, seconds: float, rate: float
) -> None:
    batches = Batches()
    if design == "lock":
        batches.watch()
        ledger = LedgerClient(url, create=False)
        cpu = wait_to_go()
        began, took = await acknowledged(
            lambda number: ledger.submit([entry(place * _APART + number)]), callers, seconds, rate
        )
        sizes = [one.entries for one in batches.held]
        ledger.close()
    else:
        keys, store = frozenset(default_settings().ledger.content_keys), PendingStore(url)
        committer = GroupCommitter(cast(Store, store))
        cpu = wait_to_go()

        def put(number: int) -> Awaitable[Any]:
            payload = pickle.dumps(prepare(entry(place * _APART + number), keys), 5)
            return committer.submit(Unit(step=payload, opener=_none))

        began, took = await acknowledged(put, callers, seconds, rate)
        sizes = store.sizes
        committer.close()
        store.close()
    give({
        "began": began,
        "took_ms": took,
        "all": sum(sizes),
        "sizes": sizes,
        "cpu_s": time.process_time() - cpu,
        "held": [asdict(one) for one in batches.held],
    })  # fmt: skip


def _none(*_: Any) -> Any:
    """The opener of a unit whose result is what the store gave."""


if __name__ == "__main__":
    _design, _url, _place, _callers, _seconds, _rate = sys.argv[1:]
    asyncio.run(_run(_design, _url, int(_place), int(_callers), float(_seconds), float(_rate)))
