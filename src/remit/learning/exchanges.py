"""Exchanges that learning reads or repeats: recognition, keys, cost, held-out prompts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from remit.gateway import LLMGateway, TokenBudgeter
from remit.kernel.budget_values import LEARNING
from remit.kernel.canonical import exact_json, sha256_hex
from remit.kernel.errors import InvalidInputError
from remit.kernel.exchange import PromptRequest, PromptResponse
from remit.ledger import LedgerClient, LedgerEntry, LedgerReader, first_erased, parse_entry_id

_OWN = frozenset(LEARNING.path)
_NANO = 1_000_000_000
_SUBJECT = (
    "SELECT p.subject_id FROM shown_contents AS s JOIN content_subjects AS p "
    "ON p.content_id = s.content_id WHERE s.seq = ? ORDER BY p.subject_id LIMIT 1"
)


def open_account(budgeter: TokenBudgeter, by: str) -> None:
    """Open the budget account ``session:learning`` if there is none. `remit budget` limits it."""
    if not budgeter.status(LEARNING):
        budgeter.allocate(LEARNING, by=by)


def is_own_call(metadata: Mapping[str, Any]) -> bool:
    """Return True if learning made an ``EXCHANGE``: a replay, a judge's call, or a reflection.

    Such a call is charged to learning's account, which callers of the gateway cannot name.
    """
    return not _OWN.isdisjoint(metadata.get("charged_to") or ())


def is_evidence(metadata: Mapping[str, Any]) -> bool:
    """Return True if an ``EXCHANGE`` shows how a model answers a caller.

    Learning's own calls do not, and neither do answers from the answer cache.
    """
    return "cached_from" not in metadata and not is_own_call(metadata)


def terms_of(ledger: LedgerClient, exchange: LedgerEntry) -> dict[str, Any]:
    """Return the fields of a request that repeats an exchange's content.

    The fields ``session_id`` (may be empty) and ``subject_id`` (``None`` if nobody, the first by id
    of several) are those of the exchange, so that an erasure of either reaches the copy.
    ``charged_to`` is learning's account, ``session:learning``. LedgerError is raised if the ledger
    cannot be read.
    """
    subject = ledger.select(_SUBJECT, (parse_entry_id(exchange.id),))
    return {
        "session_id": str(exchange.metadata.get("session_id") or ""),
        "subject_id": str(subject[0][0]) if subject else None,
        "charged_to": LEARNING.path,
    }


def bound_of(gateway: LLMGateway, request: PromptRequest) -> int:
    """Return the highest possible cost of a call, in nano-dollars.

    Raises:
        InvalidInputError: the call has no upper bound, because its model has no price or
            ``max_tokens`` is missing; or the request has no canonical JSON.
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

    An answer from the record counts its original cost, and an unknown cost counts ``bound``.
    LedgerError is raised if the original exchange cannot be read.
    """
    usd = response.cost_incurred if response.cost_known else None
    if response.replayed:
        usd = ledger.read(response.exchange_entry_id).metadata.get("cost_usd")
    return bound if usd is None else round(usd * _NANO)


_HELD_OUT = 77  # Three in ten of the 256 values of the hash's first byte.


def prompt_key(prompt: Any) -> str:
    """Return the key that equal prompts share: SHA-256 (64 hex digits) of the canonical JSON.

    A prompt is a text or a list of messages. A single user message with text counts as that text,
    because a call may give either form. InvalidInputError is raised if the prompt has no canonical
    JSON, for example because a part was erased.
    """
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], dict):
        (message,) = prompt
        text = message.get("content")
        if message.keys() == {"role", "content"} and message["role"] == "user":
            prompt = text if isinstance(text, str) else prompt
    return sha256_hex(exact_json(prompt))


def is_held_out(prompt: Any) -> bool:
    """Return True if a prompt, as in :func:`prompt_key`, is held out each time that it is asked.

    Three in ten prompts are held out. A prompt is one of them if the first byte of the SHA-256 of
    ``remit held-out`` and the prompt's key, separated by a space, is below 77. InvalidInputError is
    raised if the prompt has no canonical JSON.
    """
    return int(sha256_hex(f"remit held-out {prompt_key(prompt)}".encode())[:2], 16) < _HELD_OUT


def held_out_sides(ledger: LedgerReader, exchange_ids: Iterable[str]) -> dict[str, bool]:
    """Return for each exchange, in the given order, True if its prompt is held out.

    Exchanges that are missing or archived, and those whose prompt or answer is empty or erased in
    part, are left out. LedgerError is raised if the ledger cannot be read.
    """
    ids = list(exchange_ids)
    entries = filter(is_whole_exchange, ledger.read_many(ids))
    known = {entry.id: is_held_out(entry.metadata["prompt"]) for entry in entries}
    return {one: known[one] for one in ids if one in known}


def is_erased(entry: LedgerEntry) -> bool:
    """Return True if a value of an entry's metadata, or an item of such a list, was erased."""
    return first_erased(entry.metadata.values()) is not None


def is_whole(content: Any) -> bool:
    """Return True if a prompt or an answer is recorded, not empty, and no part of it was erased.

    The parts are the items of a list, or the value itself; each must be a text or an object that is
    not empty.
    """
    parts = content if isinstance(content, list) else [content]
    return all(isinstance(one, str | dict) and one for one in parts or [""])


def is_whole_exchange(entry: LedgerEntry) -> bool:
    """Return True if an entry has a prompt and an answer, and no part of either was erased."""
    return all(is_whole(entry.metadata.get(name)) for name in ("prompt", "response"))
