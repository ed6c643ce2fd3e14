"""Calls that learning makes about exchanges: their account, their cost and their recognition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.gateway import LLMGateway, TokenBudgeter
from remit.kernel.budget import LEARNING
from remit.kernel.errors import InvalidInputError
from remit.kernel.exchange import PromptRequest, PromptResponse
from remit.ledger import LedgerClient, LedgerEntry, LedgerReader, parse_entry_id

__all__ = ["bound_of", "cost_of", "is_evidence", "is_own_call", "open_account", "terms_of"]

_OWN = frozenset(LEARNING.path)
_NANO = 1_000_000_000
_SUBJECT = (
    "SELECT p.subject_id FROM shown_contents AS s JOIN content_subjects AS p "
    "ON p.content_id = s.content_id WHERE s.seq = ? ORDER BY p.subject_id LIMIT 1"
)


def open_account(budgeter: TokenBudgeter, by: str) -> None:
    """Open the budget account ``session:learning`` if there is none.

    `remit budget` limits the account. An existing account stays as it is.

    Args:
        budgeter: the budgeter of the root.
        by: the acting person or program, for the record.
    """
    if not budgeter.status(LEARNING):
        budgeter.allocate(LEARNING, by=by)


def is_own_call(metadata: Mapping[str, Any]) -> bool:
    """Return True if learning made an ``EXCHANGE``: a replay, a judge's call, or a reflection.

    Such a call is charged to learning's account, which callers of the gateway cannot name. Its
    outcome says nothing about the contract that it repeats.

    Args:
        metadata: metadata of the ``EXCHANGE``.
    """
    return not _OWN.isdisjoint(metadata.get("charged_to") or ())


def is_evidence(metadata: Mapping[str, Any]) -> bool:
    """Return True if an ``EXCHANGE`` shows how a model answers a caller.

    Learning's own calls do not, and answers from the answer cache do not: they repeat an answer
    that counts already, at no cost and without the model.

    Args:
        metadata: metadata of the ``EXCHANGE``.
    """
    return "cached_from" not in metadata and not is_own_call(metadata)


def terms_of(ledger: LedgerClient, exchange: LedgerEntry) -> dict[str, Any]:
    """Return the fields of a request that repeats an exchange's content.

    The request has the session and person of the exchange, so that an erasure of either reaches the
    copy. The request is charged to the account ``session:learning`` too. The fields are
    ``session_id``, ``subject_id`` (``None`` if no person is recorded) and ``charged_to``.

    Args:
        ledger: the ledger of the exchange.
        exchange: the ``EXCHANGE`` entry.
    """
    subject = ledger.select(_SUBJECT, (parse_entry_id(exchange.id),))
    return {
        "session_id": str(exchange.metadata.get("session_id") or ""),
        "subject_id": str(subject[0][0]) if subject else None,
        "charged_to": LEARNING.path,
    }


def bound_of(gateway: LLMGateway, request: PromptRequest) -> int:
    """Return the highest possible cost of a call, in nano-dollars.

    No call is made.

    Args:
        gateway: the gateway that knows the prices.
        request: the request, which names provider and model.

    Raises:
        InvalidInputError: the call has no upper bound, because its model has no price or
            ``max_tokens`` is missing.
    """
    bound = gateway.cost_bound(request, request.provider_id or "", request.model_id or "")
    if bound is None:
        raise InvalidInputError(
            f"The cost of a call of {request.provider_id}/{request.model_id} has no upper bound.",
            next_step="Set its price with `remit price set`, and give max_tokens.",
        )
    return bound


def cost_of(ledger: LedgerReader, response: PromptResponse, bound: int) -> int:
    """Return the cost of a call that counts against a learning budget, in nano-dollars.

    Args:
        ledger: the record.
        response: the response; one answered from the record counts its original cost.
        bound: the highest possible cost, counted if the real cost is unknown.
    """
    usd = response.cost_incurred if response.cost_known else None
    if response.replayed:
        usd = ledger.read(response.exchange_entry_id).metadata.get("cost_usd")
    return bound if usd is None else round(usd * _NANO)
