"""The table ``orders``: reading and changing rows, in the ledger's transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from remit.agents.queue.order import Row
from remit.ledger import Transaction

__all__ = [
    "COLUMNS", "Engine", "Taker", "any_decided", "change", "delete", "has_begun", "held", "insert",
    "promote", "read_row", "rows_of", "wake",
]  # fmt: skip

COLUMNS = ", ".join(Row._fields)
_INSERT = f"INSERT INTO orders ({COLUMNS}) VALUES ({', '.join('?' * len(Row._fields))})"
_MOST_DUE = 200  # orders that become ready in one transaction
_DUE = (
    f"SELECT {COLUMNS} FROM orders WHERE state = 'delayed' AND due_ms <= ? "
    f"ORDER BY due_ms LIMIT {_MOST_DUE}"
)
_BEGUN = "SELECT 1 FROM entries WHERE session_id = ? AND event_type = 'SESSION_START' LIMIT 1"
_DECIDED = "('APPROVAL_GRANTED', 'APPROVAL_DENIED')"
_ONE_DECIDED = f"SELECT 1 FROM entries WHERE submission_id = ? AND event_type IN {_DECIDED} LIMIT 1"
_WAKE = (
    "UPDATE orders SET state = 'delayed', due_ms = 0, waits_for = '' "
    "WHERE state = 'waiting' AND waits_for LIKE ?"
)


class Taker(Protocol):
    """A worker, as an engine sees it; from the worker's own loop."""

    seat: str
    queues: Sequence[str]
    at_once: int
    draining: bool

    def room(self) -> int:
        """How many more orders it can take now."""
        ...

    def begin(self, claim: Row) -> asyncio.Task[None]:
        """Do an order that it has taken; done when what became of it is on record."""
        ...

    async def nudged(self, timeout_s: float | None) -> None:
        """Wait until it has room again, or is to end, or the time is over."""
        ...


class Engine(Protocol):
    """Has orders that are ready begin, each by one worker."""

    def announce(self, tx: Transaction, row: Row) -> None:
        """An order is ready; in the transaction that says so."""
        ...

    async def hand_out(self, worker: Taker) -> None:
        """Have a worker take orders until it is draining."""
        ...


def promote(tx: Transaction, engine: Engine) -> None:
    """Orders that are due are ready."""
    for row in rows_of(tx.execute(_DUE, (tx.now_ms,))):
        engine.announce(tx, change(tx, row, state="ready"))


def insert(tx: Transaction, row: Row) -> None:
    """A new row."""
    tx.execute_many(_INSERT, [row])


def delete(tx: Transaction, order_id: str) -> None:
    """The row of an order that has ended."""
    tx.execute_many("DELETE FROM orders WHERE order_id = ?", [(order_id,)])


def change(tx: Transaction, row: Row, **values: Any) -> Row:
    """Set columns of a row; gives the row as it is then."""
    sets = ", ".join(f"{name} = ?" for name in values)
    tx.execute_many(
        f"UPDATE orders SET {sets} WHERE order_id = ?", [(*values.values(), row.order_id)]
    )
    return row._replace(**values)


def rows_of(found: Sequence[tuple[Any, ...]]) -> list[Row]:
    """Rows from what a statement gave."""
    return [Row(*row) for row in found]


def read_row(tx: Transaction, order_id: str) -> Row | None:
    """The row of an order; ``None`` where it has none any more."""
    found = rows_of(tx.execute(f"SELECT {COLUMNS} FROM orders WHERE order_id = ?", (order_id,)))
    return found[0] if found else None


def held(tx: Transaction, claim: Row) -> Row | None:
    """The row of an order that runs, where it is still this claim's: it may have been taken over
    meanwhile."""
    row = read_row(tx, claim.order_id)
    same = row is not None and (row.state, row.worker, row.attempts) == (
        "running", claim.worker, claim.attempts,
    )  # fmt: skip
    return row if same else None


def has_begun(tx: Transaction, session_id: str) -> bool:
    """Whether anything of an order was done in its session."""
    return bool(tx.execute(_BEGUN, (session_id,)))


def any_decided(tx: Transaction, request_ids: Sequence[str]) -> bool:
    """Whether a person has decided one of these requests."""
    return any(tx.execute(_ONE_DECIDED, (name,)) for name in request_ids)


def wake(tx: Transaction, request_id: str) -> None:
    """A person has decided a request: the orders that wait for it are due, on any worker."""
    tx.execute_many(_WAKE, [(f"%{request_id}%",)])
