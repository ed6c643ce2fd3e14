"""Workers as the database knows them: each holds a lease of its own while it works.

What a worker runs is its, as long as its lease is; when it is gone, others take its orders over: at
once where its process has surely ended, else when the lease has run out.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass
from typing import Any

from remit.agents.queue import rows
from remit.agents.queue.attempts import set_aside
from remit.agents.queue.order import Row
from remit.gateway.leases import LeaseManager
from remit.ledger import LedgerClient, Transaction

__all__ = ["Seats", "WorkerStatus", "new_seat"]

_PREFIX = "worker:"
_WORKERS = "SELECT DISTINCT worker FROM orders WHERE state = 'running'"
_RUNNING = f"SELECT {rows.COLUMNS} FROM orders WHERE state = 'running' AND worker = ?"
_STOPS = "SELECT order_id FROM orders WHERE state = 'running' AND worker = ? AND stop = 1"
_LOST = "The worker ended in the middle of it, each time."


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A worker that is at work.

    Attributes:
        worker: its name.
        queues: whose orders it takes.
        host: its machine; empty where that is not known.
        pid: its process there.
        running: how many orders it runs.
        draining: whether it was asked to end.
    """

    worker: str
    queues: tuple[str, ...]
    host: str
    pid: int
    running: int
    draining: bool

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def new_seat(queues: tuple[str, ...]) -> str:
    """The name of the lease of a worker that is about to begin."""
    return f"{_PREFIX}{secrets.token_hex(4)}/{','.join(queues)}"


class Seats:
    """The workers of one ledger.

    Args:
        ledger: has their leases in its database.
        leases: grants them.
    """

    def __init__(self, ledger: LedgerClient, leases: LeaseManager) -> None:
        self._ledger = ledger
        self._leases = leases

    def working(self) -> list[WorkerStatus]:
        """The workers that are at work."""
        running = dict(
            self._ledger.select(
                "SELECT worker, count(*) FROM orders WHERE state = 'running' GROUP BY worker"
            )
        )
        stopped = {
            name for (name,) in self._ledger.select("SELECT name FROM leases WHERE stop <> 0")
        }
        found = []
        for seat, owner in self._leases.holders(_PREFIX).items():
            name, _, queues = seat.removeprefix(_PREFIX).partition("/")
            host, pid = (owner.host, owner.pid) if owner is not None else ("", 0)
            found.append(
                WorkerStatus(
                    name, tuple(queues.split(",")), host, pid, running.get(seat, 0),
                    seat in stopped,
                )
            )  # fmt: skip
        return found

    def drain(self, worker: str = "") -> int:
        """Ask a worker to end when its turns have, or all; how many there were."""
        seats = self._leases.holders(f"{_PREFIX}{worker}")
        return sum(self._leases.request_stop(seat) for seat in seats)

    def stops(self, seat: str) -> list[str]:
        """The orders of a worker that somebody asked to stop."""
        return [name for (name,) in self._ledger.select(_STOPS, (seat,))]

    def abandoned(self) -> list[str]:
        """The workers that are gone, and have left orders; reads only."""
        workers = [name for (name,) in self._ledger.select(_WORKERS)]
        return [name for name in workers if not self._leases.is_held(name)]

    def take_over(self, tx: Transaction, worker: str) -> list[Row]:
        """Put back what a worker has left; what it has tried too often is set aside.

        Returns the orders as they were.
        """
        if self._leases.is_held(worker, tx):
            return []
        left = rows.rows_of(tx.execute(_RUNNING, (worker,)))
        for row in left:
            if row.attempts >= row.max_attempts:
                set_aside(tx, row, "worker_lost", _LOST)
            else:
                rows.change(tx, row, state="delayed", due_ms=0, worker="")
        return left
