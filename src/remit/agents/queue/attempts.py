"""The four ways in which a worker's attempt at an order ends, each in one transaction.

Each function returns False and changes nothing if the order is no longer the claim's, because
another worker has taken the order over.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from remit.agents.queue import entries, rows
from remit.agents.queue.submission import Row
from remit.agents.sessions.manager import new_session_id
from remit.kernel.settings import OrderSettings
from remit.ledger import LedgerClient, Transaction

_ACTOR = "worker"


async def complete_attempt(
    ledger: LedgerClient,
    claim: Row,
    turn_entry_id: str = "",
    figures: Mapping[str, Any] | None = None,
) -> bool:
    """Delete the order's row and append its ``ORDER_ENDED`` as completed.

    Returns False, and changes nothing, if the claim was taken over; True otherwise.

    Args:
        ledger: the ledger.
        claim: the order's row as the worker claimed it.
        turn_entry_id: id of the ``TURN_RECORDED`` that answers the order; empty for none.
        figures: numbers and ids that an order of another kind than ``turn`` produced; None for
            none.

    Raises:
        LedgerError: the ledger cannot be written.
    """

    further = {"turn_entry_id": turn_entry_id, "figures": figures}
    return await _end(ledger, claim, functools.partial(_delete, "COMPLETED", further))


async def cancel_attempt(ledger: LedgerClient, claim: Row) -> bool:
    """Delete the order's row and append its ``ORDER_ENDED`` as cancelled.

    Returns False, and changes nothing, if the claim was taken over; True otherwise.

    Args:
        ledger: the ledger.
        claim: the order's row as the worker claimed it.

    Raises:
        LedgerError: the ledger cannot be written.
    """

    return await _end(ledger, claim, functools.partial(_delete, "CANCELLED", {}))


async def fail_attempt(
    ledger: LedgerClient,
    settings: OrderSettings,
    claim: Row,
    code: str,
    message: str,
    *,
    again: bool,
    new_session: bool = False,
) -> bool:
    """Schedule the next attempt after a wait, or set the order aside.

    The order is set aside if another attempt cannot help, all attempts are used, or the order was
    asked to stop: ``ORDER_ENDED`` is appended as failed, and the row stays. Otherwise the row
    becomes delayed, and an entry (``ORDER_CHANGED``) is appended only for a new session, with the
    code. Returns False, and changes nothing, if the claim was taken over; True otherwise.

    Args:
        ledger: the ledger.
        settings: the waits between attempts.
        claim: the order's row as the worker claimed it.
        code: error code of the failure; not recorded if only a wait is scheduled.
        message: the failure in words; content; recorded only if the order is set aside.
        again: True if another attempt can help.
        new_session: True to make the next attempt in a new session, because this session's turn has
            ended.

    Raises:
        LedgerError: the ledger cannot be written.
    """

    def act(tx: Transaction, row: Row) -> None:
        if not again or row.attempts >= row.max_attempts or row.stop:
            set_aside(tx, row, code, message)
            return
        if new_session:
            row = row._replace(session_id=new_session_id())
            tx.append(entries.changed(row, "RETRIED", _ACTOR, code))
        rows.change(
            tx, row, session_id=row.session_id, state="delayed", worker="",
            due_ms=tx.now_ms + backoff_ms(settings, row.attempts),
        )  # fmt: skip

    return await _end(ledger, claim, act)


async def park_attempt(ledger: LedgerClient, claim: Row, request_ids: Sequence[str]) -> bool:
    """Let the order wait for a person; a decision makes the order due again, on any worker.

    The row is set to waiting and the attempt does not count. No entry is appended. If a request was
    decided in the meantime, or the order was asked to stop, the order is due at once. Returns
    False, and changes nothing, if the claim was taken over; True otherwise.

    Args:
        ledger: the ledger.
        claim: the order's row as the worker claimed it.
        request_ids: ids of the requests for approval.

    Raises:
        LedgerError: the ledger cannot be written.
    """

    def act(tx: Transaction, row: Row) -> None:
        attempts = row.attempts - 1
        if row.stop or rows.any_decided(tx, request_ids):
            rows.change(tx, row, state="delayed", due_ms=0, worker="", attempts=attempts)
        else:
            waits = " ".join(request_ids)
            rows.change(tx, row, state="waiting", worker="", attempts=attempts, waits_for=waits)

    return await _end(ledger, claim, act)


def backoff_ms(settings: OrderSettings, attempts: int) -> int:
    """Return the wait after a number of attempts, in milliseconds.

    The first wait is ``retry_base_s``. Each attempt doubles it, up to ``retry_max_s``.

    Args:
        settings: ``[worker.orders]``.
        attempts: number of attempts so far, from 1.
    """
    wait_s = min(settings.retry_base_s * 2.0 ** min(attempts - 1, 30), settings.retry_max_s)
    return int(wait_s * 1000)


async def _end(ledger: LedgerClient, claim: Row, act: Callable[[Transaction, Row], None]) -> bool:
    def work(tx: Transaction) -> bool:
        row = rows.claimed_row(tx, claim)
        if row is None:
            return False
        act(tx, row)
        return True

    return await ledger.submit(work)


def _delete(decision: str, further: Mapping[str, Any], tx: Transaction, row: Row) -> None:
    rows.delete(tx, row.order_id)
    tx.append(entries.ended(row, decision, **further))


def set_aside(tx: Transaction, row: Row, code: str, message: str) -> None:
    """Append the order's ``ORDER_ENDED`` as failed, and set its row's state to ``failed``.

    The row stays, without a worker or a lane, until a person retries or cancels the order.

    Args:
        tx: the transaction.
        row: the order's row.
        code: error code of the failure.
        message: the failure in words; content.

    Raises:
        LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
    """
    tx.append(entries.ended(row, "FAILED", error_code=code, error_message=message))
    rows.change(tx, row, state="failed", worker="", held_by="")
