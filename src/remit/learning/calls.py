"""Learning's own calls about exchanges: on whose terms they are made, and which they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.gateway import TokenBudgeter
from remit.kernel.budget import BudgetScope
from remit.ledger import LedgerClient, LedgerEntry, parse_entry_id

__all__ = ["is_own", "open_account", "terms_of"]

_ACCOUNT = BudgetScope("learning")
_OWN = frozenset(_ACCOUNT.path)
_SUBJECT = (
    "SELECT p.subject_id FROM shown_contents AS s JOIN content_subjects AS p "
    "ON p.content_id = s.content_id WHERE s.seq = ? ORDER BY p.subject_id LIMIT 1"
)


def open_account(budgeter: TokenBudgeter, by: str) -> None:
    """Make the account `session:learning` where there is none; `remit budget` limits it."""
    if not budgeter.status(_ACCOUNT):
        budgeter.allocate(_ACCOUNT, by=by)


def is_own(metadata: Mapping[str, Any]) -> bool:
    """Whether learning itself made an `EXCHANGE`: a replay, a judge's call, a reflection.

    Such a call counts against learning's account, which the gateway's callers cannot name; the id
    of its agent, anyone could. It says nothing of how the contract does that it repeats.
    """
    return not _OWN.isdisjoint(metadata.get("charged_to") or ())


def terms_of(ledger: LedgerClient, exchange: LedgerEntry) -> dict[str, Any]:
    """Fields of a request that repeats an exchange's content.

    It has the exchange's session and person, so that an erasure of either reaches the copy, and
    counts against the account `session:learning` too.
    """
    subject = ledger.select(_SUBJECT, (parse_entry_id(exchange.id),))
    return {
        "session_id": str(exchange.metadata.get("session_id") or ""),
        "subject_id": str(subject[0][0]) if subject else None,
        "charged_to": _ACCOUNT.path,
    }
