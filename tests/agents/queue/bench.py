"""A queue with workers that tests have act step by step, on a ledger alone."""

from __future__ import annotations

import functools
import itertools
from typing import Any

from remit.agents.queue import (
    ORDERS,
    OrderQueue,
    Row,
    Seats,
    Submission,
    TableEngine,
    cancel_attempt,
    complete_attempt,
    fail_attempt,
    park_attempt,
)
from remit.gateway.leases import LeaseManager, Owner
from remit.kernel.loops import run_blocking
from remit.kernel.settings import QueueSettings, WorkerSettings, default_settings
from remit.ledger import LedgerClient, check_tables

_TAKE = "INSERT INTO leases (name, owner, until_ms, stop) VALUES (?, ?, ?, 0)"


def settings(*, orders: dict[str, Any] | None = None, **queues: dict[str, int]) -> WorkerSettings:
    """Of a worker: no waits between attempts, and these limits by queue."""
    made = default_settings().worker
    changed = made.orders.model_copy(update={"retry_base_s": 0.0, **(orders or {})})
    limits = {name: QueueSettings.model_validate(values) for name, values in queues.items()}
    return made.model_copy(update={"orders": changed, "queues": limits})


class Bench:
    """Workers that hold their leases as long as the test says."""

    def __init__(self, ledger: LedgerClient, worker: WorkerSettings | None = None) -> None:
        worker = worker or settings()
        self.ledger = ledger
        self.queue = OrderQueue(ledger, worker, TableEngine(ledger, worker))
        self.engine = TableEngine(ledger, worker)
        self._ends = {
            "completed": functools.partial(complete_attempt, ledger),
            "cancelled": functools.partial(cancel_attempt, ledger),
            "failed": functools.partial(fail_attempt, ledger, worker.orders),
            "waiting": functools.partial(park_attempt, ledger),
        }
        self.seats = Seats(ledger, LeaseManager(ledger, default_settings().leases))
        self._numbers = itertools.count(1)

    def submit(self, task: str = "Do it.", **options: Any) -> str:
        key = options.pop("key", "")
        return self.queue.submit(
            Submission(agent_id="clerk", task=task, **options), by="t", key=key
        )

    def worker(self) -> str:
        """A worker that is at work, until :meth:`leave`."""
        seat = f"worker:{next(self._numbers):04}/default"
        until = self.ledger.now_ms + 3_600_000
        owner = Owner.current().encode()
        self.ledger.transact(lambda tx: tx.execute_many(_TAKE, [(seat, owner, until)]))
        return seat

    def leave(self, worker: str) -> None:
        self.ledger.transact(
            lambda tx: tx.execute_many("DELETE FROM leases WHERE name = ?", [(worker,)])
        )

    def claim(self, worker: str, most: int = 1, *queues: str) -> list[Row]:
        return self.ledger.transact(
            lambda tx: self.engine.claim(tx, worker, queues or ("default",), most)
        )

    def end(self, claim: Row, how: str = "completed", *values: Any, **options: Any) -> bool:
        return run_blocking(self._ends[how](claim, *values, **options))

    def fail(self, claim: Row, *, again: bool = True, **options: Any) -> bool:
        return self.end(claim, "failed", "SERVER_ERROR", "down", again=again, **options)

    def take_over(self) -> int:
        """As each worker does now and then; how many orders were left."""
        return sum(
            len(self.ledger.transact(lambda tx, worker=worker: self.seats.take_over(tx, worker)))
            for worker in self.seats.abandoned()
        )

    def state(self, order_id: str) -> str:
        return self.queue.get(order_id).state

    def check(self) -> None:
        """The rows are what the record says."""
        assert list(check_tables(self.ledger, (ORDERS,))) == []
