"""Workers in the database: each holds a lease while it works.

The orders of a worker are its own while it holds the lease. Afterwards other workers take them
over: at once if the worker's process has certainly ended, otherwise when the lease expires.
"""

from __future__ import annotations

import secrets
from typing import Any

from remit.agents.queue import rows
from remit.agents.queue.attempts import set_aside
from remit.agents.queue.submission import Row
from remit.gateway.leases import LeaseManager
from remit.ledger import LedgerClient, Transaction

_PREFIX = "worker:"
_WORKERS = "SELECT DISTINCT worker FROM orders WHERE state = 'running'"
_RUNNING = f"SELECT {rows.COLUMNS} FROM orders WHERE state = 'running' AND worker = ?"
_STOP_REQUESTS = "SELECT order_id FROM orders WHERE state = 'running' AND worker = ? AND stop = 1"
_LOST_MESSAGE = "The worker ended during every attempt."


def new_seat(queues: tuple[str, ...]) -> str:
    """Return the lease name of a new worker: ``worker:NAME/QUEUE,QUEUE``.

    The name is eight random hexadecimal digits.

    Args:
        queues: names of the queues that the worker serves.
    """
    return f"{_PREFIX}{secrets.token_hex(4)}/{','.join(queues)}"


class Seats:
    """The workers of a ledger: which hold a lease, and which running orders are of dead ones.

    A seat is the lease name of a worker. The object takes no seat and holds no state of its own;
    every method reads the database.

    Args:
        ledger: the ledger, with the leases in its database.
        leases: grants the leases.
    """

    def __init__(self, ledger: LedgerClient, leases: LeaseManager) -> None:
        self._ledger = ledger
        self._leases = leases

    def workers(self) -> list[dict[str, Any]]:
        """Return the workers that hold a lease now, as JSON data. Read-only.

        Each has ``worker`` (its name), ``queues``, ``host`` (empty if unknown), ``pid`` (0 if
        unknown), ``running`` (number of its orders) and ``draining`` (True if it was asked to end).
        A worker that ended is absent. A dead one is absent at once if its process has certainly
        ended, else once its lease has expired. Ordered by lease name.

        Raises:
            LedgerError: the ledger cannot be read.
        """
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
                {
                    "worker": name, "queues": tuple(queues.split(",")), "host": host, "pid": pid,
                    "running": running.get(seat, 0), "draining": seat in stopped,
                }
            )  # fmt: skip
        return found

    def drain(self, worker: str = "") -> int:
        """Ask a worker, or all, to end after their running orders; return how many were asked.

        Marks the workers' leases and does not wait. Workers asked before count again. 0 if no
        worker has such a name.

        Args:
            worker: beginning of the worker's name; empty for all.

        Raises:
            LedgerError: the ledger cannot be read or written.
        """
        seats = self._leases.holders(f"{_PREFIX}{worker}")
        return sum(self._leases.request_stop(seat) for seat in seats)

    def stop_requests(self, seat: str) -> list[str]:
        """Return the ids of a worker's running orders that were asked to stop.

        Args:
            seat: lease name of the worker.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        return [name for (name,) in self._ledger.select(_STOP_REQUESTS, (seat,))]

    def abandoned(self) -> list[str]:
        """Return the lease names of workers without a lease that have running orders. Read-only.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        workers = [name for (name,) in self._ledger.select(_WORKERS)]
        return [name for name in workers if not self._leases.is_held(name)]

    def take_over(self, tx: Transaction, worker: str) -> list[Row]:
        """Release the running orders of a dead worker; return their rows from before.

        Nothing happens, and the list is empty, if the worker still holds its lease. Orders become
        delayed and due at once, without an entry. An order without a further attempt is set aside:
        its row becomes failed, and ``ORDER_ENDED`` is appended as failed with ``worker_lost``.

        Args:
            tx: the transaction.
            worker: the dead worker's lease name.

        Raises:
            LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
        """
        if self._leases.is_held(worker, tx):
            return []
        orphans = rows.rows_of(tx.execute(_RUNNING, (worker,)))
        for row in orphans:
            if row.attempts >= row.max_attempts:
                set_aside(tx, row, "worker_lost", _LOST_MESSAGE)
            else:
                rows.change(tx, row, state="delayed", due_ms=0, worker="")
        return orphans
