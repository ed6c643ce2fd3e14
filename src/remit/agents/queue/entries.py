"""The ledger entries of orders, and an order's status from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from remit.agents.queue.rows import COLUMNS, rows_of
from remit.agents.queue.submission import END_STATES, OrderState, OrderStatus, Row, Submission
from remit.ledger import (
    Erased,
    LedgerClient,
    LedgerEntry,
    LedgerFormatError,
    content,
    entry_id,
    is_authentic,
)


def submitted(
    order_id: str, session_id: str, wanted: Submission, max_attempts: int, by: str, forked_from: str
) -> LedgerEntry:
    """Return the ``ORDER_SUBMITTED`` of a submission, not yet written.

    Optional fields are the key, user, model, due time, limits and ``forked_from``. The task becomes
    content.

    Args:
        order_id: the order.
        session_id: the order's session.
        wanted: the work; empty optional fields are left out.
        max_attempts: number of attempts before the order is set aside.
        by: the recorded name of the submitter.
        forked_from: id of the copied order; empty for none.
    """
    further = {
        "key_id": wanted.key_id, "user_id": wanted.user_id, "model_id": wanted.model_id,
        "due": wanted.due.isoformat() if wanted.due else "",
        "tokens": wanted.tokens, "usd": wanted.usd, "forked_from": forked_from,
    }  # fmt: skip
    return _entry(
        "ORDER_SUBMITTED", order_id, "SUBMITTED", session_id,
        queue=wanted.queue, kind=wanted.kind, agent_id=wanted.agent_id, task=content(wanted.task),
        priority=wanted.priority, max_attempts=max_attempts, by=by,
        **{name: value for name, value in further.items() if value not in ("", None)},
    )  # fmt: skip


def changed(row: Row, decision: str, by: str, error_code: str = "") -> LedgerEntry:
    """Return an ``ORDER_CHANGED``, not yet written.

    Args:
        row: the order's row, whose session and agent are recorded.
        decision: ``STOPPED``, ``PAUSED``, ``RESUMED`` or ``RETRIED``.
        by: the recorded name of the person or component that changed the order.
        error_code: error code of the failed attempt; recorded unless empty.
    """
    further = {"error_code": error_code} if error_code else {}
    return _entry(
        "ORDER_CHANGED", row.order_id, decision, row.session_id,
        agent_id=row.agent_id, by=by, **further,
    )  # fmt: skip


def ended(row: Row, decision: str, **further: Any) -> LedgerEntry:
    """Return an ``ORDER_ENDED``, not yet written.

    Args:
        row: the order's row, whose session, agent and attempts are recorded.
        decision: ``COMPLETED``, ``FAILED`` or ``CANCELLED``.
        further: more metadata; a false value, such as an empty text, None or 0, is omitted.
    """
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
    """Return the status of an order that has not ended, from its row.

    Args:
        row: the order's row.
        submitted_at: time of its ``ORDER_SUBMITTED``, in ISO 8601.
        due: time at which the order is due, in ISO 8601; empty unless delayed.
    """
    return OrderStatus(
        order_id=row.order_id, state=cast(OrderState, row.state), queue=row.queue, kind=row.kind,
        agent_id=row.agent_id, session_id=row.session_id, priority=row.priority,
        attempts=row.attempts, max_attempts=row.max_attempts, submitted=submitted_at,
        submitted_entry_id=entry_id(row.seq), key_id=row.key_id, model_id=row.model_id, due=due,
        worker=row.worker, held_by=row.held_by, waits_for=row.request_ids, stopping=bool(row.stop),
    )  # fmt: skip


def read_status(
    ledger: LedgerClient, order_id: str, due: Callable[[Row], str]
) -> OrderStatus | None:
    """Return an order's status; None if there is no such order.

    Entries that are not authentic are ignored. The row takes precedence over an ``ORDER_ENDED``,
    unless the order is set aside: such an order keeps its row.

    Args:
        ledger: the ledger with the order's row and entries.
        order_id: the order.
        due: returns the time at which an order is due, in ISO 8601; empty unless delayed.

    Raises:
        LedgerFormatError: the order is open in the ledger, but has no row.
        LedgerError: the ledger cannot be read.
    """
    try:
        return _read_status(ledger, order_id, due)
    except LedgerFormatError:  # The order was perhaps submitted after its row was read.
        return _read_status(ledger, order_id, due)


def _read_status(
    ledger: LedgerClient, order_id: str, due: Callable[[Row], str]
) -> OrderStatus | None:
    sql = f"SELECT {COLUMNS} FROM orders WHERE order_id = ?"
    row = next(iter(rows_of(ledger.select(sql, (order_id,)))), None)
    entries = ledger.query(submission_id=order_id, with_content=False)
    known = [entry for entry in entries if is_authentic(entry)]
    first = next((one for one in known if one.event_type == "ORDER_SUBMITTED"), None)
    last = next((one for one in reversed(known) if one.event_type == "ORDER_ENDED"), None)
    if first is None:
        return None
    if row is not None and row.state != "failed":
        return status_of_row(row, first.timestamp, due(row))
    if last is None:
        raise LedgerFormatError(
            f"The order {first.submission_id} is open in the ledger, but the queue has no row.",
            next_step="Run `remit ledger verify`; `remit order fork` submits the order again.",
        )
    submission, end = first.metadata, last.metadata
    return OrderStatus(
        order_id=first.submission_id, state=cast(OrderState, END_STATES[last.decision]),
        queue=submission["queue"], kind=submission["kind"], agent_id=submission["agent_id"],
        session_id=end["session_id"], priority=submission["priority"], attempts=end["attempts"],
        max_attempts=submission["max_attempts"],
        submitted=first.timestamp, submitted_entry_id=first.id, key_id=submission.get("key_id", ""),
        model_id=submission.get("model_id", ""), ended=last.timestamp, ended_entry_id=last.id,
        turn_entry_id=end.get("turn_entry_id", ""), figures=end.get("figures"),
        error_code=end.get("error_code", ""),
    )  # fmt: skip


def subject_of(submission: LedgerEntry) -> str:
    """Return the data subject of an ``ORDER_SUBMITTED`` entry.

    Empty if the entry names none, or if the name was erased.
    """
    found = submission.metadata.get("subject_id", "")
    return "" if isinstance(found, Erased) else str(found)
