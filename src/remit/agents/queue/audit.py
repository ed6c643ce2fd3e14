"""The audit of the queue's rows against the ledger's entries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from remit.agents.queue import rows
from remit.agents.queue.order import ACTIVE_STATES, Row
from remit.ledger import (
    Finding,
    LedgerClient,
    LedgerEntry,
    Select,
    imported_size,
    is_authentic,
)

__all__ = ["check_orders", "row_matches_ledger"]

_ORDER_ENTRIES = (
    "SELECT seq, event_type, record FROM entries WHERE event_type IN "
    "('ORDER_SUBMITTED', 'ORDER_CHANGED', 'ORDER_ENDED') ORDER BY seq"
)
_EARLIER_SESSION = (
    "SELECT 1 FROM entries WHERE session_id = ? AND event_type = 'SESSION_START' AND seq < ? "
    "LIMIT 1"
)
_SUBMITTED_FIELDS = ("queue", "kind", "agent_id", "priority", "max_attempts", "key_id", "model_id")


def row_matches_ledger(ledger: LedgerClient, claim: Row) -> bool:
    """Return True if a row's agent, kind and session are the recorded ones of its order.

    A worker checks this before it executes an order, because a row can be edited outside Remit.
    False also if the ledger has no authentic entry of the order. Read-only.

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


def check_orders(select: Select) -> Iterator[Finding]:
    """Yield findings about rows of ``orders`` that differ from the ledger's entries.

    Each finding is a sequence number (None if no entry is concerned) and a sentence. Reported are
    open orders without a row, rows without an open order, fields that differ, and orders that
    continued with another agent or session. Imported orders are not checked. Read-only.

    Args:
        select: runs a query on the ledger's database.
    """
    known: dict[str, dict[str, Any]] = {}
    imported = imported_size(select)
    for seq, event_type, record in select(_ORDER_ENTRIES, ()):
        entry = orjson.loads(record)
        order_id, metadata = entry["submission_id"], entry["metadata"]
        if not is_authentic(LedgerEntry(event_type, "", "", "", metadata=metadata)):
            continue
        if event_type == "ORDER_SUBMITTED":
            if order_id not in known and seq >= imported:
                expected = {name: metadata.get(name, "") for name in _SUBMITTED_FIELDS}
                known[order_id] = {
                    **expected, "seq": seq, "session_id": metadata["session_id"], "state": "LIVE",
                    "stop": 0,
                }  # fmt: skip
            continue
        if (order := known.get(order_id)) is None:
            continue
        decision = entry["decision"]
        if other := _foreign_resource(select, seq, entry, order):
            yield seq, f"orders: {order_id} continued with {other}"
        order["session_id"] = metadata["session_id"]
        if decision == "STOPPED":
            order["stop"], order["state"] = 1, "LIVE"
        else:
            if decision == "RETRIED":
                order["stop"] = 0
            order["state"] = "LIVE" if decision in ("RESUMED", "RETRIED") else decision
            if decision in ("COMPLETED", "CANCELLED"):
                del known[order_id]
    found = rows.rows_of(select(f"SELECT {rows.COLUMNS} FROM orders ORDER BY seq", ()))
    for row in found:
        order = known.pop(row.order_id, None)
        if order is None:
            yield None, f"orders: the ledger shows no open order {row.order_id!r}"
        elif wrong := [*_differences(row, order)]:
            yield (
                order["seq"],
                f"orders: {' and '.join(wrong)} of {row.order_id} differ from the ledger",
            )
    for order_id, order in known.items():
        yield order["seq"], f"orders: {order_id} is open in the ledger, but has no row"


def _foreign_resource(
    select: Select, seq: int, entry: dict[str, Any], order: dict[str, Any]
) -> str:
    """Return the other agent or session with which an order continued; empty if there was none.

    A worker that executes an edited row records such an entry.
    """
    session_id, agent_id = entry["metadata"]["session_id"], entry["metadata"]["agent_id"]
    if agent_id != order["agent_id"]:
        return f"the agent {agent_id!r}, not {order['agent_id']!r}"
    if session_id == order["session_id"]:
        return ""
    if entry["decision"] == "RETRIED" and not select(_EARLIER_SESSION, (session_id, seq)):
        return ""
    return f"the session {session_id!r}, which is not the order's"


def _differences(row: Row, order: dict[str, Any]) -> Iterator[str]:
    for name in ("seq", "session_id", "stop", *_SUBMITTED_FIELDS):
        if getattr(row, name) != order[name]:
            yield name
    states = {"LIVE": ACTIVE_STATES, "PAUSED": ("paused",), "FAILED": ("failed",)}[order["state"]]
    if row.state not in states:
        yield "state"
    for name, state in (("worker", "running"), ("waits_for", "waiting"), ("held_by", "held")):
        if bool(getattr(row, name)) != (row.state == state):
            yield name
