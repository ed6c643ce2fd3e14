"""The table ``orders``: reading and changing rows within the ledger's transactions."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any, Protocol

from remit.agents.queue.submission import Row
from remit.kernel.errors import InvalidInputError
from remit.ledger import Transaction, parse_entry_id

COLUMNS = ", ".join(Row._fields)
_INSERT = f"INSERT INTO orders ({COLUMNS}) VALUES ({', '.join('?' * len(Row._fields))})"
# Maximum number of due orders that become ready in one transaction.
_MAX_DUE = 200
_DUE = (
    f"SELECT {COLUMNS} FROM orders WHERE state = 'delayed' AND due_ms <= ? "
    f"ORDER BY due_ms LIMIT {_MAX_DUE}"
)
_SESSION_START = (
    "SELECT 1 FROM entries WHERE session_id = ? AND event_type = 'SESSION_START' LIMIT 1"
)
_DECISION_EVENTS = "('APPROVAL_GRANTED', 'APPROVAL_DENIED')"
_DECISION = (
    f"SELECT 1 FROM entries WHERE submission_id = ? AND event_type IN {_DECISION_EVENTS} LIMIT 1"
)
_WAKE = (
    "UPDATE orders SET state = 'delayed', due_ms = 0, waits_for = '' "
    "WHERE state = 'waiting' AND waits_for LIKE ?"
)


class Taker(Protocol):
    """A worker, as an engine sees it. Methods are called in the worker's event loop.

    The engine asks for :meth:`room`, starts orders by :meth:`begin`, and waits by :meth:`nudged`.

    Attributes:
        seat: the name of its lease.
        queues: the queues that it serves, in order of preference.
        at_once: maximum number of concurrent orders.
        draining: True if it takes no more orders.
    """

    seat: str
    queues: Sequence[str]
    at_once: int
    draining: bool

    def room(self) -> int:
        """Return how many more orders the worker can take now."""

    def begin(self, claim: Row) -> asyncio.Task[None]:
        """Start a claimed order in a task, and return the task without waiting.

        The task ends when the order's result is recorded.

        Args:
            claim: the row as it was claimed.
        """

    async def nudged(self, timeout_s: float | None) -> None:
        """Wait until the worker has room, is to end, or the time is over (None: no limit).

        Args:
            timeout_s: longest wait, in seconds.
        """


class Engine(Protocol):
    """The component that hands out each ready order to one worker.

    An engine only announces and claims; the ledger and the table ``orders`` hold the orders.
    :meth:`announce` is called in the transaction that makes an order ready, and :meth:`hand_out`
    runs as long as a worker does.
    """

    def announce(self, tx: Transaction, row: Row) -> None:
        """Announce to the engine, inside a transaction, that an order becomes ready.

        Anything written is part of the transaction.

        Args:
            tx: the transaction, which may still be rolled back.
            row: the row of the ready order.

        Raises:
            LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
        """

    async def hand_out(self, worker: Taker) -> None:
        """Give orders to a worker until the worker drains; claim each by changing its row.

        Errors of the database are logged, and the claim is tried again. Started orders may still
        run after the return.

        Args:
            worker: receives the claimed orders.

        Raises:
            InvalidInputError: a library of the engine is not installed.
        """


def promote(tx: Transaction, engine: Engine) -> None:
    """Make delayed orders of all queues ready that are due, at most the 200 that were due first,
    and announce each to the engine.

    Args:
        tx: the transaction.
        engine: receives the announcements.

    Raises:
        LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
    """
    for row in rows_of(tx.execute(_DUE, (tx.now_ms,))):
        engine.announce(tx, change(tx, row, state="ready"))


def insert(tx: Transaction, row: Row) -> None:
    """Insert a row into the table ``orders``, in a transaction.

    Args:
        tx: the transaction.
        row: the row; its id must be new.

    Raises:
        LedgerWriteError: the id exists, or the statement is refused; raised to the submitter of the
            transaction.
    """
    tx.execute_many(_INSERT, [row])


def delete(tx: Transaction, order_id: str) -> None:
    """Delete the row of an order; do nothing if it has none.

    Args:
        tx: a transaction of the ledger.
        order_id: id of the order.

    Raises:
        LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
    """
    tx.execute_many("DELETE FROM orders WHERE order_id = ?", [(order_id,)])


def change(tx: Transaction, row: Row, **values: Any) -> Row:
    """Set columns of an order's row; return the given row with the new values.

    Other columns are not written. A row that is missing is not noticed.

    Args:
        tx: the transaction.
        row: the row as it was read; names the order.
        values: new values, keyed by column.

    Raises:
        LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
    """
    sets = ", ".join(f"{name} = ?" for name in values)
    tx.execute_many(
        f"UPDATE orders SET {sets} WHERE order_id = ?", [(*values.values(), row.order_id)]
    )
    return row._replace(**values)


def rows_of(found: Sequence[tuple[Any, ...]]) -> list[Row]:
    """Return the rows of a query that selected :data:`COLUMNS`."""
    return [Row(*row) for row in found]


def read_row(tx: Transaction, order_id: str) -> Row | None:
    """Return the row of an order; None if there is none.

    Args:
        tx: a transaction of the ledger.
        order_id: id of the order.

    Raises:
        LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
    """
    found = rows_of(tx.execute(f"SELECT {COLUMNS} FROM orders WHERE order_id = ?", (order_id,)))
    return found[0] if found else None


def claimed_row(tx: Transaction, claim: Row) -> Row | None:
    """Return the present row of a claimed order; None if the claim was taken over.

    The claim holds while the order runs on the same worker in the same attempt.

    Args:
        tx: a transaction of the ledger.
        claim: the row as the worker claimed it.

    Raises:
        LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
    """
    row = read_row(tx, claim.order_id)
    is_claimed = row is not None and (row.state, row.worker, row.attempts) == (
        "running", claim.worker, claim.attempts,
    )  # fmt: skip
    return row if is_claimed else None


def session_started(tx: Transaction, session_id: str) -> bool:
    """Return True if the ledger has a ``SESSION_START`` of a session.

    Args:
        tx: a transaction of the ledger.
        session_id: id of the session.

    Raises:
        LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
    """
    return bool(tx.execute(_SESSION_START, (session_id,)))


def any_decided(tx: Transaction, request_ids: Sequence[str]) -> bool:
    """Return True if a person has granted or denied one of these requests. False for an empty list.

    Args:
        tx: a transaction of the ledger.
        request_ids: ids of the ``APPROVAL_REQUESTED`` entries.

    Raises:
        LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
    """
    return any(tx.execute(_DECISION, (name,)) for name in request_ids)


def wake(tx: Transaction, request_id: str) -> None:
    """Make the orders due that wait for a request, for any worker.

    Sets each such row from waiting to delayed with a due time in the past. Does nothing if no order
    waits.

    Args:
        tx: the transaction.
        request_id: id of the request for approval.

    Raises:
        LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
    """
    tx.execute_many(_WAKE, [(f"%{request_id}%",)])


def parsed_cursor(cursor: str) -> tuple[int, int]:
    """Return the priority and the sequence number of a cursor.

    Args:
        cursor: the cursor of a list of orders, ``PRIORITY/LED-…``.

    Raises:
        InvalidInputError: the text is no such cursor.
    """
    priority, _, submitted = cursor.partition("/")
    seq = parse_entry_id(submitted)
    if seq is None or not re.fullmatch(r"-?[0-9]{1,4}", priority):
        raise InvalidInputError("The cursor is unknown.", next_step="Start again without a cursor.")
    return int(priority), seq
