"""The engine that hands out orders from the table: a worker claims ready orders in a transaction.

PostgreSQL locks the rows with ``FOR UPDATE SKIP LOCKED``; on SQLite the single writer's transaction
suffices. A claim reads about as many rows as it takes, however long the queue is. Orders held by a
limit are marked once and return when the limit has room.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Sequence

from remit.agents.queue import rows
from remit.agents.queue.limits import Lanes
from remit.agents.queue.submission import Row
from remit.kernel.errors import RemitError
from remit.kernel.settings import WorkerSettings
from remit.ledger import LedgerClient, Transaction

_log = logging.getLogger("remit.worker")

# Interval at which an idle worker looks for orders, seconds.
_POLL_S = 0.2
# Pause before a database that does not answer is tried again, seconds.
_RETRY_S = 1.0
# Maximum number of orders of a queue that one transaction reads beyond those it takes.
_MAX_SKIPPED = 64
_READY = (
    f"SELECT {rows.COLUMNS} FROM orders WHERE state = 'ready' AND queue = ? "
    "ORDER BY priority, seq LIMIT ?"
)
_TAKEN = f"SELECT {rows.COLUMNS} FROM orders WHERE state = 'running' AND worker = ?"
_RUN = "UPDATE orders SET state = 'running', worker = ?, attempts = attempts + 1 WHERE order_id = ?"
_HOLD = "UPDATE orders SET state = 'held', held_by = ? WHERE order_id = ?"
# An order's id, and the number of the attempt.
_Attempt = tuple[str, int]


class TableEngine:
    """An engine that hands out orders from the table ``orders``.

    :meth:`announce` does nothing, because a claim finds ready rows by itself.

    Args:
        ledger: the ledger, with the table in its database.
        settings: ``[worker]``, with the limits of the queues.
    """

    def __init__(self, ledger: LedgerClient, settings: WorkerSettings) -> None:
        self._ledger = ledger
        self._queues = settings.queues
        self._ready = _READY if ledger.is_of_one_machine else f"{_READY} FOR UPDATE SKIP LOCKED"

    def announce(self, tx: Transaction, row: Row) -> None:
        """Do nothing: workers find the order by its row."""

    async def hand_out(self, worker: rows.Taker) -> None:
        """Give orders to a worker until the worker drains.

        Claims orders by changing their rows, and starts each by :meth:`Taker.begin`. Logs errors of
        the ledger and tries again after a second; raises none. Returns without waiting for the
        started orders. An idle worker polls every 0.2 s; a full one waits until it has room. After
        an error, orders of a claim whose answer was lost are found and started.

        Args:
            worker: the worker; orders begin in its event loop.
        """
        tasks: dict[asyncio.Task[None], _Attempt] = {}
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
                        self.claim, worker=worker.seat, queues=worker.queues, limit=room
                    )
                    taken = await self._ledger.submit(claim)
            except RemitError as error:
                _log.warning("orders cannot be taken: %s", error.message)
                in_doubt = True  # The commit may have succeeded, although its answer was lost.
                await asyncio.sleep(_RETRY_S)
            for row in taken:
                task = worker.begin(row)
                tasks[task] = (row.order_id, row.attempts)
                task.add_done_callback(tasks.pop)
            if len(taken) < room or room <= 0:
                await worker.nudged(None if room <= 0 else _POLL_S)

    def _taken(self, seat: str, begun: Sequence[_Attempt], tx: Transaction) -> list[Row]:
        """Return orders that a worker claimed in a commit whose answer was lost."""
        found = rows.rows_of(tx.execute(_TAKEN, (seat,)))
        return [row for row in found if (row.order_id, row.attempts) not in begun]

    def has_work(self, queues: Sequence[str]) -> bool:
        """Return True if a claim may find a ready, held or due order. Read-only.

        Args:
            queues: names of the queues. A delayed order counts whatever its queue.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        marks = ", ".join("?" * len(queues))
        rest = f"AND queue IN ({marks}) LIMIT 1"
        select = self._ledger.select
        for state in ("ready", "held"):
            if select(f"SELECT 1 FROM orders WHERE state = '{state}' {rest}", queues):
                return True
        due = select("SELECT min(due_ms) FROM orders WHERE state = 'delayed'")[0][0]
        return due is not None and due <= self._ledger.now_ms

    def claim(self, tx: Transaction, worker: str, queues: Sequence[str], limit: int) -> list[Row]:
        """Claim orders for a worker, and return their rows as running.

        Queues are served in the given order, and each queue by priority and age. First at most 200
        due orders of any queue, and the held orders of these queues whose limit has room again,
        become ready. Rows of claimed orders are set to running, with one more attempt.
        Rows of orders whose limit is reached are set to held, but not of orders asked to stop. At
        most 64 rows of a queue are read beyond the number that it may take.

        Args:
            tx: the transaction.
            worker: name of the lease that the worker holds.
            queues: the queues.
            limit: maximum number of orders.

        Raises:
            LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
        """
        rows.promote(tx, self)
        taken: list[Row] = []
        for queue in queues:
            if len(taken) < limit:
                taken += self._claim_of(tx, worker, queue, limit - len(taken))
        return taken

    def _claim_of(self, tx: Transaction, worker: str, queue: str, limit: int) -> list[Row]:
        lanes = Lanes(tx, queue, self._queues, self)
        room = min(limit, lanes.room())
        readable = room + _MAX_SKIPPED
        taken: list[Row] = []
        while room > len(taken) and readable > 0:
            wanted = min(room - len(taken), readable)
            found = rows.rows_of(tx.execute(self._ready, (queue, wanted)))
            readable -= wanted
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
