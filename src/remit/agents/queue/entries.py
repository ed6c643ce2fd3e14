"""What the record says of submitted orders (``docs/events.md``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from remit.agents.queue.order import ENDED, OrderState, OrderStatus, Row, Submission
from remit.ledger import LedgerEntry, LedgerFormatError, content, entry_id, is_authentic

__all__ = ["changed", "ended", "status_of", "status_of_row", "submitted"]


def submitted(
    order_id: str, session_id: str, wanted: Submission, most: int, by: str, forked_from: str
) -> LedgerEntry:
    """The ``ORDER_SUBMITTED``."""
    further = {
        "key_id": wanted.key_id, "user_id": wanted.user_id, "model_id": wanted.model_id,
        "due": wanted.due.isoformat() if wanted.due else "",
        "tokens": wanted.tokens, "usd": wanted.usd, "forked_from": forked_from,
    }  # fmt: skip
    return _entry(
        "ORDER_SUBMITTED", order_id, "SUBMITTED", session_id,
        queue=wanted.queue, kind=wanted.kind, agent_id=wanted.agent_id, task=content(wanted.task),
        priority=wanted.priority, max_attempts=most, by=by,
        **{name: value for name, value in further.items() if value not in ("", None)},
    )  # fmt: skip


def changed(row: Row, decision: str, by: str, error_code: str = "") -> LedgerEntry:
    """The ``ORDER_CHANGED``."""
    further = {"error_code": error_code} if error_code else {}
    return _entry(
        "ORDER_CHANGED", row.order_id, decision, row.session_id,
        agent_id=row.agent_id, by=by, **further,
    )  # fmt: skip


def ended(row: Row, decision: str, **further: Any) -> LedgerEntry:
    """The ``ORDER_ENDED``."""
    further = {name: value for name, value in further.items() if value}
    return _entry(
        "ORDER_ENDED", row.order_id, decision, row.session_id,
        agent_id=row.agent_id, attempts=row.attempts, **further,
    )  # fmt: skip


def _entry(
    event_type: str, order_id: str, decision: str, session_id: str, **metadata: Any
) -> LedgerEntry:
    return LedgerEntry(
        event_type=event_type,
        submission_id=order_id,
        decision=decision,
        reason=f"Order {decision.lower()}",
        metadata={"session_id": session_id, **metadata},
    )


def status_of_row(row: Row, submitted_at: str, due: str) -> OrderStatus:
    """How an order stands that has not ended, by its row alone."""
    return OrderStatus(
        order_id=row.order_id, state=cast(OrderState, row.state), queue=row.queue, kind=row.kind,
        agent_id=row.agent_id, session_id=row.session_id, priority=row.priority,
        attempts=row.attempts, max_attempts=row.max_attempts, submitted=submitted_at,
        submitted_entry_id=entry_id(row.seq), key_id=row.key_id, model_id=row.model_id, due=due,
        worker=row.worker, held_by=row.held_by, waits_for=row.request_ids, stopping=bool(row.stop),
    )  # fmt: skip


def status_of(entries: Sequence[LedgerEntry], row: Row | None, due: str = "") -> OrderStatus | None:
    """How an order stands, by its entries in ledger order and its row, if it has one."""
    known = [entry for entry in entries if is_authentic(entry)]
    first = next((one for one in known if one.event_type == "ORDER_SUBMITTED"), None)
    last = next((one for one in reversed(known) if one.event_type == "ORDER_ENDED"), None)
    if first is None:
        return None
    if row is not None and row.state != "failed":
        return status_of_row(row, first.timestamp, due)
    if last is None:
        raise LedgerFormatError(
            f"The order {first.submission_id} is open on record, and has no row.",
            next_step="Run `remit ledger verify`; `remit order fork` submits it again.",
        )
    said, end = first.metadata, last.metadata
    return OrderStatus(
        order_id=first.submission_id, state=cast(OrderState, ENDED[last.decision]),
        queue=said["queue"], kind=said["kind"], agent_id=said["agent_id"],
        session_id=end["session_id"], priority=said["priority"], attempts=end["attempts"],
        max_attempts=said["max_attempts"],
        submitted=first.timestamp, submitted_entry_id=first.id, key_id=said.get("key_id", ""),
        model_id=said.get("model_id", ""), ended=last.timestamp, ended_entry_id=last.id,
        turn_entry_id=end.get("turn_entry_id", ""), figures=end.get("figures"),
        error_code=end.get("error_code", ""),
    )  # fmt: skip
