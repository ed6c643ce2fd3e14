"""The limits of a queue over all workers: concurrent orders, and starts per minute.

Each limited key or model is a lane. An order whose lane is full is held by that lane, and later
orders pass it. When the lane has room again, its first held orders become ready.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from remit.agents.queue.rows import COLUMNS, Engine, change, rows_of
from remit.agents.queue.submission import Row
from remit.kernel.settings import QueueSettings
from remit.ledger import Transaction

_NONE = QueueSettings.model_validate({})
_UNLIMITED = 1_000_000
# Maximum number of orders that a lane releases in one transaction.
_MAX_RELEASED = 200
_MINUTE_MS = 60_000
_RUNNING = (
    "SELECT key_id, model_id, count(*) FROM orders WHERE state = 'running' AND queue = ? "
    "GROUP BY key_id, model_id"
)
_NEXT_HELD = "SELECT min(held_by) FROM orders WHERE state = 'held' AND queue = ? AND held_by > ?"
_HELD = (
    f"SELECT {COLUMNS} FROM orders WHERE state = 'held' AND queue = ? AND held_by = ? "
    "ORDER BY priority, seq LIMIT ?"
)
_NEXT_START = "SELECT next_ms FROM order_starts WHERE lane = ?"
_SET_NEXT_START = (
    "INSERT INTO order_starts (lane, next_ms) VALUES (?, ?) "
    "ON CONFLICT (lane) DO UPDATE SET next_ms = excluded.next_ms"
)


class Lanes:
    """The limits of one queue within one transaction; one lane for each limited key or model.

    Making the object releases held orders whose lanes have room: their rows become ready. At most
    200 orders are released for each lane. :meth:`full` and :meth:`room` read the limits,
    :meth:`take` counts a start in memory, :meth:`write` stores the starts. Later changes of other
    transactions are not seen.

    Args:
        tx: the transaction.
        queue: the queue's name.
        queues: ``[worker.queues]``: settings keyed by queue.
        engine: receives the orders that a lane releases.

    Raises:
        LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
    """

    def __init__(
        self, tx: Transaction, queue: str, queues: Mapping[str, QueueSettings], engine: Engine
    ) -> None:
        settings = queues.get(queue, _NONE)
        self._tx, self._queue, self._settings, self._engine = tx, queue, settings, engine
        self._running: Counter[str] = Counter()
        self._next: dict[str, int] = {}
        self._started: dict[str, int] = {}
        if settings != _NONE:
            for key_id, model_id, number in tx.execute(_RUNNING, (queue,)):
                for lane in ("all", f"key:{key_id}", f"model:{model_id}"):
                    self._running[lane] += number
        self._release()

    def room(self) -> int:
        """Return how many orders may start now by the queue's ``at_once``.

        The number is 1,000,000 if the queue has no such limit.
        """
        limit = self._settings.at_once
        return max(0, limit - self._running["all"]) if limit else _UNLIMITED

    def full(self, row: Row) -> str:
        """Return the first full lane of an order, as recorded in ``held_by``; empty if none is.

        Args:
            row: the order's row; nothing is counted.

        Raises:
            LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
        """
        return next((lane for lane in self._lanes(row) if not self._room_of(lane)), "")

    def take(self, row: Row) -> None:
        """Count an order that starts against the limits of its queue, key and model.

        Each limit per minute postpones the lane's next start by its share of a minute. Changes only
        this object; :meth:`write` stores the starts. Whether a limit allows the start is not
        checked.

        Args:
            row: the order's row.

        Raises:
            LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
        """
        for lane in ("all", f"key:{row.key_id}", f"model:{row.model_id}"):
            self._running[lane] += 1
        for lane in self._lanes(row):
            _, kind, _ = lane.split("/", 2)
            if kind.endswith("_per_minute"):
                interval_ms = _MINUTE_MS // getattr(self._settings, kind)
                self._started[lane] = max(self._start(lane), self._tx.now_ms) + interval_ms
                self._next[lane] = self._started[lane]

    def write(self) -> None:
        """Store the next permitted start of each lane that a started order used, in the
        transaction.

        Call it once, after the last :meth:`take`; nothing is stored without a started order.

        Raises:
            LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
        """
        self._tx.execute_many(_SET_NEXT_START, list(self._started.items()))

    def _release(self) -> None:
        """Make the first held orders ready for which their lanes have room."""
        lane = ""
        while (lane := self._tx.execute(_NEXT_HELD, (self._queue, lane))[0][0]) is not None:
            room = min(self._room_of(lane), _MAX_RELEASED)
            found = self._tx.execute(_HELD, (self._queue, lane, room)) if room else []
            for row in rows_of(found):
                self._engine.announce(self._tx, change(self._tx, row, state="ready", held_by=""))

    def _lanes(self, row: Row) -> Iterator[str]:
        for kind in ("key_at_once", "model_at_once", "key_per_minute", "model_per_minute"):
            name = row.key_id if kind.startswith("key") else row.model_id
            if name and getattr(self._settings, kind):
                yield f"{self._queue}/{kind}/{name}"

    def _room_of(self, lane: str) -> int:
        _, kind, name = lane.split("/", 2)
        limit = getattr(self._settings, kind, 0)
        if not limit:  # The limit was removed from the settings.
            return _UNLIMITED
        if kind.endswith("_per_minute"):
            return int(self._start(lane) <= self._tx.now_ms)
        return max(0, limit - self._running[f"{kind.removesuffix('_at_once')}:{name}"])

    def _start(self, lane: str) -> int:
        """Return the time at which the next order of a lane may start, in milliseconds."""
        if lane not in self._next:
            found = self._tx.execute(_NEXT_START, (lane,))
            self._next[lane] = found[0][0] if found else 0
        return self._next[lane]
