"""The table ``orders`` as a fold over the entries of orders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from remit.agents.queue.submission import ACTIVE_STATES, Row
from remit.ledger import (
    LedgerClient,
    LedgerEntry,
    Projection,
    Row as FoldedRow,
    Select,
    State,
    is_authentic,
)

_EARLIER_SESSION = (
    "SELECT 1 FROM entries WHERE session_id = ? AND event_type = 'SESSION_START' AND seq < ? "
    "LIMIT 1"
)
_STATED = (
    "queue", "kind", "agent_id", "session_id", "priority", "max_attempts", "key_id", "model_id",
)  # fmt: skip


def row_matches_ledger(ledger: LedgerClient, claim: Row) -> bool:
    """Return True if a row's agent, kind and session are the recorded ones of its order.

    Agent and kind are those of the order's first entry, the session that of its latest. A worker
    checks this before it executes an order, because a row can be edited outside Remit. False also
    if the ledger has no authentic entry of the order. Read-only.

    Args:
        ledger: the ledger.
        claim: the order's row.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    found = ledger.query(submission_id=claim.order_id, with_content=False)
    known = [
        entry.metadata
        for entry in found
        if entry.event_type.startswith("ORDER_") and is_authentic(entry)
    ]
    if not known or claim.session_id != known[-1]["session_id"]:
        return False
    return (claim.agent_id, claim.kind) == (known[0]["agent_id"], known[0]["kind"])


def stated(entry: LedgerEntry, seq: int) -> dict[str, Any]:
    """Return the columns of an order's row that follow from its ``ORDER_SUBMITTED`` alone.

    The columns are ``order_id``, ``seq``, ``queue``, ``kind``, ``agent_id``, ``session_id``,
    ``priority``, ``max_attempts``, ``key_id``, ``model_id``, and ``stop``, which is 0. A field that
    the entry lacks is empty.

    Args:
        entry: the ``ORDER_SUBMITTED``.
        seq: its sequence number, which is the row's.
    """
    values = {name: entry.metadata.get(name, "") for name in _STATED}
    return {"order_id": entry.submission_id, "seq": seq, "stop": 0, **values}


def _fold(rows: State, entry: LedgerEntry, seq: int) -> None:
    order = rows.get("orders", entry.submission_id)
    if entry.event_type == "ORDER_SUBMITTED":
        if order is None:
            rows.put("orders", {**stated(entry, seq), "entry_seq": seq})
        return
    if order is None:
        return
    decision, metadata = entry.decision, entry.metadata
    if other := _foreign_resource(rows.select, seq, entry, order):
        rows.report(seq, f"orders: {entry.submission_id} continued with {other}")
    if decision in ("COMPLETED", "CANCELLED"):
        rows.delete("orders", entry.submission_id)
        return
    order["session_id"] = metadata["session_id"]
    if decision in ("STOPPED", "RETRIED"):
        order["stop"] = int(decision == "STOPPED")
    # An active order has one of several states, which no entry states.
    order["state"] = {"PAUSED": "paused", "FAILED": "failed"}.get(decision)
    rows.put("orders", order)


def _foreign_resource(select: Select, seq: int, entry: LedgerEntry, order: FoldedRow) -> str:
    """Return the other agent or session with which an order continued; empty if there was none.

    A worker that executes an edited row records such an entry.
    """
    session_id, agent_id = entry.metadata["session_id"], entry.metadata["agent_id"]
    if agent_id != order["agent_id"]:
        return f"the agent {agent_id!r}, not {order['agent_id']!r}"
    if session_id == order["session_id"]:
        return ""
    if entry.decision == "RETRIED" and not select(_EARLIER_SESSION, (session_id, seq)):
        return ""
    return f"the session {session_id!r}, which is not the order's"


def _check(rows: State, live: FoldedRow, folded: FoldedRow) -> Iterator[str]:
    """Yield the columns that contradict the state of an order, or each other."""
    if folded["state"] is None and live["state"] not in ACTIVE_STATES:
        yield "state"
    for name, state in (("worker", "running"), ("waits_for", "waiting"), ("held_by", "held")):
        if bool(live[name]) != (live["state"] == state):
            yield name


ORDERS = Projection(
    "orders",
    ("order_id",),
    ("seq", "stop", *_STATED, "state", "worker", "waits_for", "held_by"),
    ("ORDER_SUBMITTED", "ORDER_CHANGED", "ORDER_ENDED"),
    _fold,
    check=_check,
)
"""The table of open orders. No entry gives the times, attempts and workers of its rows."""
