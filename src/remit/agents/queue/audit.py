"""The rows of the queue, held against what is on record of their orders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from remit.agents.queue import rows
from remit.agents.queue.order import LIVE, Row
from remit.ledger import (
    Finding,
    LedgerClient,
    LedgerEntry,
    Select,
    imported_size,
    is_authentic,
)

__all__ = ["check_orders", "is_on_record"]

_SAID = (
    "SELECT seq, event_type, record FROM entries WHERE event_type IN "
    "('ORDER_SUBMITTED', 'ORDER_CHANGED', 'ORDER_ENDED') ORDER BY seq"
)
_BEGUN_BEFORE = (
    "SELECT 1 FROM entries WHERE session_id = ? AND event_type = 'SESSION_START' AND seq < ? "
    "LIMIT 1"
)
_STATED = ("queue", "kind", "agent_id", "priority", "max_attempts", "key_id", "model_id")


def is_on_record(ledger: LedgerClient, claim: Row) -> bool:
    """Whether agent, kind and session of a row are what is on record of its order. A worker asks
    before it acts on them: a row may have been edited past Remit."""
    said = ledger.query(submission_id=claim.order_id, with_content=False)
    known = [
        entry.metadata
        for entry in said
        if entry.event_type.startswith("ORDER_") and is_authentic(entry)
    ]
    if not known or claim.session_id != known[-1]["session_id"]:
        return False
    return (claim.agent_id, claim.kind) == (known[0]["agent_id"], known[0]["kind"])


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
        if other := _not_its_own(select, seq, said, order):
            yield seq, f"orders: {order_id} went on with {other}"
        order["session_id"] = metadata["session_id"]
        if decision == "STOPPED":
            order["stop"], order["is"] = 1, "LIVE"
        else:
            if decision == "RETRIED":
                order["stop"] = 0
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


def _not_its_own(select: Select, seq: int, said: dict[str, Any], order: dict[str, Any]) -> str:
    """What an order went on with that was not its own, as where its row was edited and a worker
    then took it; empty where all was."""
    session_id, agent_id = said["metadata"]["session_id"], said["metadata"]["agent_id"]
    if agent_id != order["agent_id"]:
        return f"the agent {agent_id!r}, not {order['agent_id']!r}"
    if session_id == order["session_id"]:
        return ""
    if said["decision"] == "RETRIED" and not select(_BEGUN_BEFORE, (session_id, seq)):
        return ""
    return f"a session that is not its own, {session_id!r}"


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
