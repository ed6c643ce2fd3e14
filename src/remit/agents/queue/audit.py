"""The rows of the queue, held against what is on record of their orders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from remit.agents.queue import rows
from remit.agents.queue.order import LIVE, Row
from remit.ledger import Finding, LedgerEntry, Select, imported_size, is_authentic

__all__ = ["check_orders"]

_SAID = (
    "SELECT seq, event_type, record FROM entries WHERE event_type IN "
    "('ORDER_SUBMITTED', 'ORDER_CHANGED', 'ORDER_ENDED') ORDER BY seq"
)
_STATED = ("queue", "kind", "agent_id", "priority", "max_attempts", "key_id", "model_id")


def check_orders(select: Select) -> Iterator[Finding]:
    """What of ``orders`` is not what the record says: an order that is lost, done twice, or not the
    one that was submitted."""
    known: dict[str, dict[str, Any]] = {}
    imported = imported_size(select)
    for seq, event_type, record in select(_SAID, ()):
        said = orjson.loads(record)
        if not is_authentic(LedgerEntry(event_type, "", "", "", metadata=said["metadata"])):
            continue
        order_id, metadata = said["submission_id"], said["metadata"]
        if event_type == "ORDER_SUBMITTED":
            if order_id not in known and seq >= imported:
                expected = {name: metadata.get(name, "") for name in _STATED}
                known[order_id] = {
                    **expected, "seq": seq, "session_id": metadata["session_id"], "is": "LIVE",
                    "stop": 0,
                }  # fmt: skip
            continue
        if (order := known.get(order_id)) is None:
            continue
        decision = said["decision"]
        order["session_id"] = metadata["session_id"]
        if decision == "STOPPED":
            order["stop"] = 1
        else:
            order["is"] = "LIVE" if decision in ("RESUMED", "RETRIED") else decision
            if decision in ("COMPLETED", "CANCELLED"):
                del known[order_id]
    found = rows.rows_of(select(f"SELECT {rows.COLUMNS} FROM orders ORDER BY seq", ()))
    for row in found:
        order = known.pop(row.order_id, None)
        if order is None:
            yield None, f"orders: no order {row.order_id!r} is open on record"
        elif wrong := [*_differences(row, order)]:
            yield (
                order["seq"],
                f"orders: {' and '.join(wrong)} of {row.order_id} is not on record so",
            )
    for order_id, order in known.items():
        yield order["seq"], f"orders: {order_id} is open on record, and has no row"


def _differences(row: Row, order: dict[str, Any]) -> Iterator[str]:
    for name in ("seq", "session_id", "stop", *_STATED):
        if getattr(row, name) != order[name]:
            yield name
    states = {"LIVE": LIVE, "PAUSED": ("paused",), "FAILED": ("failed",)}[order["is"]]
    if row.state not in states:
        yield "state"
    for name, state in (("worker", "running"), ("waits_for", "waiting"), ("held_by", "held")):
        if bool(getattr(row, name)) != (row.state == state):
            yield name
