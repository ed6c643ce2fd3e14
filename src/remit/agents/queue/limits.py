"""What the orders of a queue are held to, over all workers: how many run, and how many begin.

Each limit of a key or model is a lane. An order that finds a lane full waits beside the queue, held
by that lane; what comes after it in the queue passes. When the lane has room again, the first of
those that it holds come back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from remit.agents.queue.order import Row
from remit.agents.queue.rows import COLUMNS, Engine, change, rows_of
from remit.kernel.settings import QueueSettings
from remit.ledger import Transaction

__all__ = ["Limits"]

_NONE = QueueSettings.model_validate({})
_PLENTY = 1_000_000
_MOST_BACK = 200  # orders of a lane that come back in one transaction
_MINUTE_MS = 60_000
_RUNNING = (
    "SELECT key_id, model_id, count(*) FROM orders WHERE state = 'running' AND queue = ? "
    "GROUP BY key_id, model_id"
)
_NEXT_HELD = "SELECT min(held_by) FROM orders WHERE state = 'held' AND queue = ? AND held_by > ?"
_BACK = (
    f"SELECT {COLUMNS} FROM orders WHERE state = 'held' AND queue = ? AND held_by = ? "
    "ORDER BY priority, seq LIMIT ?"
)
_NEXT_START = "SELECT next_ms FROM order_starts WHERE lane = ?"
_STARTED = (
    "INSERT INTO order_starts (lane, next_ms) VALUES (?, ?) "
    "ON CONFLICT (lane) DO UPDATE SET next_ms = excluded.next_ms"
)


class Limits:
    """The limits of all queues.

    Args:
        queues: ``[worker.queues]``.
        engine: hears of what is ready again.
    """

    def __init__(self, queues: Mapping[str, QueueSettings], engine: Engine) -> None:
        self._queues = queues
        self._engine = engine

    def of(self, tx: Transaction, queue: str) -> Lanes:
        """Those of one queue in one transaction; what they held back and have room for comes
        back."""
        lanes = Lanes(tx, queue, self._queues.get(queue, _NONE), self._engine)
        lanes.let_back()
        return lanes


class Lanes:
    """The limits of a queue, within one transaction."""

    def __init__(
        self, tx: Transaction, queue: str, settings: QueueSettings, engine: Engine
    ) -> None:
        self._tx, self._queue, self._settings, self._engine = tx, queue, settings, engine
        self._running: Counter[str] = Counter()
        self._next: dict[str, int] = {}
        self._started: dict[str, int] = {}
        if settings != _NONE:
            for key_id, model_id, number in tx.execute(_RUNNING, (queue,)):
                for lane in ("all", f"key:{key_id}", f"model:{model_id}"):
                    self._running[lane] += number

    def room(self) -> int:
        """How many orders of the queue may begin now, its keys and models aside."""
        most = self._settings.at_once
        return max(0, most - self._running["all"]) if most else _PLENTY

    def full(self, row: Row) -> str:
        """The name of the first lane that holds an order back; empty where none does."""
        return next((lane for lane in self._lanes(row) if not self._room_of(lane)), "")

    def take(self, row: Row) -> None:
        """An order begins."""
        for lane in ("all", f"key:{row.key_id}", f"model:{row.model_id}"):
            self._running[lane] += 1
        for lane in self._lanes(row):
            _, kind, _ = lane.split("/", 2)
            if kind.endswith("_per_minute"):
                after = _MINUTE_MS // getattr(self._settings, kind)
                self._started[lane] = max(self._start(lane), self._tx.now_ms) + after
                self._next[lane] = self._started[lane]

    def write(self) -> None:
        """Keep what has begun."""
        self._tx.execute_many(_STARTED, list(self._started.items()))

    def let_back(self) -> None:
        """Put back what the lanes of the queue held and have room for."""
        lane = ""
        while (lane := self._tx.execute(_NEXT_HELD, (self._queue, lane))[0][0]) is not None:
            room = min(self._room_of(lane), _MOST_BACK)
            found = self._tx.execute(_BACK, (self._queue, lane, room)) if room else []
            for row in rows_of(found):
                self._engine.announce(self._tx, change(self._tx, row, state="ready", held_by=""))

    def _lanes(self, row: Row) -> Iterator[str]:
        for kind in ("key_at_once", "model_at_once", "key_per_minute", "model_per_minute"):
            name = row.key_id if kind.startswith("key") else row.model_id
            if name and getattr(self._settings, kind):
                yield f"{self._queue}/{kind}/{name}"

    def _room_of(self, lane: str) -> int:
        _, kind, name = lane.split("/", 2)
        most = getattr(self._settings, kind, 0)
        if not most:  # that limit is gone
            return _PLENTY
        if kind.endswith("_per_minute"):
            return int(self._start(lane) <= self._tx.now_ms)
        return max(0, most - self._running[f"{kind.removesuffix('_at_once')}:{name}"])

    def _start(self, lane: str) -> int:
        """When the next order of a lane may begin."""
        if lane not in self._next:
            found = self._tx.execute(_NEXT_START, (lane,))
            self._next[lane] = found[0][0] if found else 0
        return self._next[lane]
