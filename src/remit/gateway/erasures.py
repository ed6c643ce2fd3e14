"""Erasures that come while a call waits, or between its attempts.

The content of such a call must not be recorded after the erasure. Each call has at most two marks,
ids of entries: after the first, an erasure that may reach the request refuses the call; after the
second, any erasure makes the call read its history again. A first attempt without a history that
did not wait has no mark and is not checked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from remit.gateway.values import Refusal
from remit.kernel.errors import RemitError
from remit.kernel.exchange import PromptResponse
from remit.ledger import Transaction, entry_id, erasures_after, parse_entry_id


class ErasedMeanwhileError(RemitError):
    """An erasure may reach the content of a call that was read, recorded or held before.

    Args:
        history_erased_at: id of the newest ``ERASURE`` if it cannot reach the request itself but
            may reach the history, which must be read again; empty if the call is refused.

    Attributes:
        history_erased_at: the same id.
    """

    def __init__(self, history_erased_at: str = "") -> None:
        super().__init__(
            "content of this session or person was erased meanwhile, so the request is not sent; "
            "repeat it without the erased content"
        )
        self.history_erased_at = history_erased_at


def check_erasures(tx: Transaction, session_id: str, since: str, read_after: str) -> None:
    """Raise ErasedMeanwhileError if an erasure may reach the content of a call.

    Args:
        tx: the transaction that begins an attempt.
        session_id: the session of the call.
        since: the mark of the request; empty for none.
        read_after: the mark of the history; empty for none.

    Raises:
        ErasedMeanwhileError: see above.
        LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
    """
    own, read = parse_entry_id(since), parse_entry_id(read_after)
    marks = [mark for mark in (own, read) if mark is not None]
    found = erasures_after(tx, min(marks, default=0), session_id)
    if own is not None and any(reached and seq > own for seq, reached in found):
        raise ErasedMeanwhileError
    if read is not None and found and found[0][0] > read:
        raise ErasedMeanwhileError(entry_id(found[0][0]))


def newest_entry(execute: Callable[..., Any]) -> str:
    """Return the id of the newest entry; empty for an empty ledger.

    Args:
        execute: runs an SQL statement; its errors are raised.
    """
    rows = execute("SELECT id FROM entries ORDER BY seq DESC LIMIT 1", ())
    return str(rows[0][0]) if rows else ""


def not_retried(failed: PromptResponse | None, refusal: Refusal) -> PromptResponse | None:
    """Return the response of a failed attempt with the reason why no other attempt follows.

    Args:
        failed: the response of the attempt; None without one, which is returned.
        refusal: the reason.
    """
    if failed is None:
        return None
    said = f"{failed.error_message}; no further attempt: {refusal.message}"
    return replace(failed, error_message=said, reply=None)
