"""Orders begin by the table itself: a worker takes what is ready, in one transaction.

On PostgreSQL rows are taken ``FOR UPDATE SKIP LOCKED``; on SQLite the transaction of the one writer
is enough. A claim reads as many rows as it takes, whatever the length of the queue; orders that a
limit holds back are set beside, once, and come back when the limit has room.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Sequence

from remit.agents.queue import rows
from remit.agents.queue.limits import Limits
from remit.agents.queue.order import Row
from remit.kernel.errors import RemitError
from remit.kernel.settings import WorkerSettings
from remit.ledger import LedgerClient, Transaction

__all__ = ["TableEngine"]

_log = logging.getLogger("remit.worker")

_POLL_S = 0.2  # how often an idle worker looks
_AWAY_S = 1.0  # until a database is tried again that does not answer
_MOST_LOOKED_AT = 64  # of a queue in one transaction, beyond those that are taken
_READY = (
    f"SELECT {rows.COLUMNS} FROM orders WHERE state = 'ready' AND queue = ? "
    "ORDER BY priority, seq LIMIT ?"
)
_TAKEN = f"SELECT {rows.COLUMNS} FROM orders WHERE state = 'running' AND worker = ?"
_RUN = "UPDATE orders SET state = 'running', worker = ?, attempts = attempts + 1 WHERE order_id = ?"
_HOLD = "UPDATE orders SET state = 'held', held_by = ? WHERE order_id = ?"
_Attempt = tuple[str, int]  # at an order; which of them


class TableEngine:
    """See the module.

    Args:
        ledger: has the table in its database.
        settings: ``[worker]``: what its queues are held to.
    """

    def __init__(self, ledger: LedgerClient, settings: WorkerSettings) -> None:
        self._ledger = ledger
        self._limits = Limits(settings.queues, self)
        self._ready = _READY if ledger.is_of_one_machine else f"{_READY} FOR UPDATE SKIP LOCKED"

    def announce(self, tx: Transaction, row: Row) -> None:
        """Nothing to do: the row says it."""

    async def hand_out(self, worker: rows.Taker) -> None:
        """Have a worker take orders until it is draining."""
        tasks: dict[asyncio.Task[None], _Attempt] = {}  # what it runs
        in_doubt = False
        while not worker.draining:
            taken: list[Row] = []
            room = worker.room()
            try:
                if in_doubt:
                    taken = await self._ledger.submit(
                        functools.partial(self._taken, worker.seat, tuple(tasks.values()))
                    )
                    in_doubt = False
                elif room > 0 and await asyncio.to_thread(self.has_work, worker.queues):
                    claim = functools.partial(
                        self.claim, worker=worker.seat, queues=worker.queues, most=room
                    )
                    taken = await self._ledger.submit(claim)
            except RemitError as error:
                _log.warning("orders cannot be taken: %s", error.message)
                in_doubt = True  # the commit may have taken place
                await asyncio.sleep(_AWAY_S)
            for row in taken:
                task = worker.begin(row)
                tasks[task] = (row.order_id, row.attempts)
                task.add_done_callback(tasks.pop)
            if len(taken) < room or room <= 0:
                await worker.nudged(None if room <= 0 else _POLL_S)

    def _taken(self, seat: str, begun: Sequence[_Attempt], tx: Transaction) -> list[Row]:
        """Orders that a worker took in a commit whose answer was lost: as long as it lives nobody
        else takes them."""
        found = rows.rows_of(tx.execute(_TAKEN, (seat,)))
        return [row for row in found if (row.order_id, row.attempts) not in begun]

    def has_work(self, queues: Sequence[str]) -> bool:
        """Whether a claim may find anything; reads only."""
        marks = ", ".join("?" * len(queues))
        rest = f"AND queue IN ({marks}) LIMIT 1"
        select = self._ledger.select
        if select(f"SELECT 1 FROM orders WHERE state = 'ready' {rest}", queues):
            return True
        if select(f"SELECT 1 FROM orders WHERE state = 'held' {rest}", queues):
            return True
        due = select("SELECT min(due_ms) FROM orders WHERE state = 'delayed'")[0][0]
        return due is not None and due <= self._ledger.now_ms

    def claim(self, tx: Transaction, worker: str, queues: Sequence[str], most: int) -> list[Row]:
        """Take orders for a worker: of the first queue first, in each by priority and age.

        Args:
            worker: the name of the lease that it holds.
            queues: whose orders.
            most: how many.
        """
        rows.promote(tx, self)
        taken: list[Row] = []
        for queue in queues:
            if len(taken) < most:
                taken += self._claim_of(tx, worker, queue, most - len(taken))
        return taken

    def _claim_of(self, tx: Transaction, worker: str, queue: str, most: int) -> list[Row]:
        lanes = self._limits.of(tx, queue)
        room = min(most, lanes.room())
        looked_at = room + _MOST_LOOKED_AT
        taken: list[Row] = []
        while room > len(taken) and looked_at > 0:
            wanted = min(room - len(taken), looked_at)
            found = rows.rows_of(tx.execute(self._ready, (queue, wanted)))
            looked_at -= wanted
            run, hold = [], []
            for row in found:
                lane = "" if row.stop else lanes.full(row)
                if lane:
                    hold.append((lane, row.order_id))
                    continue
                lanes.take(row)
                run.append((worker, row.order_id))
                taken.append(
                    row._replace(state="running", worker=worker, attempts=row.attempts + 1)
                )
            tx.execute_many(_RUN, run)
            tx.execute_many(_HOLD, hold)
            if len(found) < wanted:
                break
        lanes.write()
        return taken
