"""The explanation of one model call: its name, changes, failures and cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from remit.kernel.errors import NotFoundError, RemitError, excerpt
from remit.kernel.json_text import JsonTextError, load
from remit.kernel.message_text import fixed
from remit.ledger import Erased, LedgerClient, LedgerEntry
from remit.routing.decision_replay import rows_of

_CALLS = ("DISPATCH", "EXCHANGE", "EXCHANGE_ORPHANED", "PROMPT_REJECTED")
_LOOKED_AT = 500  # entries of a session, to find what became of a call
_LONGEST_CHAIN = 100
_SKIPPED = {
    "CIRCUIT_OPEN": "earlier calls failed repeatedly",
    "MODEL_NOT_ALLOWED": "the key may not use this model",
    "PROVIDER_NOT_FOUND": "the provider was not configured",
    "INVALID_INPUT": "the model does not support this request",
    "INVALID_REQUEST": "the model does not support this request",
    "BUDGET_EXHAUSTED": "the remaining budget was less than the possible cost",
    "CONTEXT_LENGTH": "the prompt is longer than the context window",
    "RATE_LIMITED": "the rate limit was reached",
    "TIMEOUT": "no answer in time",
}
_FAILED = "failed"
_UNTRIED = frozenset(
    {"CIRCUIT_OPEN", "MODEL_NOT_ALLOWED", "PROVIDER_NOT_FOUND", "INVALID_INPUT",
     "BUDGET_EXHAUSTED", "BUDGET_BUSY", "UNPRICED", "UNBOUNDED", "CONTEXT_LENGTH"}
)  # fmt: skip
_CERTAINTY = {
    "measured": "measured: the provider reported the usage",
    "estimated": "estimated: the provider reported no usage, or ran a tool without a price",
    "upper_bound": "upper bound: the provider reported no usage",
    "unpriced": "unpriced: the price of this model is unknown",
}
_SETTLED = {"charge": "the reservation was charged", "release": "the reservation was released"}


def explain_call(ledger: LedgerClient, entry: LedgerEntry) -> dict[str, Any]:
    """Return what happened to a call, and why, as JSON.

    Args:
        ledger: the ledger.
        entry: an entry of the call: ``DISPATCH``, ``EXCHANGE``, ``EXCHANGE_ORPHANED`` or
            ``PROMPT_REJECTED``.

    Returns:
        Of every call: ``entry_id`` (the latest entry of a ``DISPATCH``), ``event_type``,
        ``timestamp``, ``session_id``, ``agent_id``, ``outcome`` (of the exchange, or ``rejected``,
        ``orphaned``, ``under_way``), ``error_code``, ``error_message``, ``why`` (sentences). Of a
        call that was sent: ``provider_id``, ``model_id``. Of an exchange alone: ``asked_for``;
        ``decision_id``; ``key_id``; ``passed_over``; ``attempts``, oldest first; ``wire``,
        ``changed``, ``erased`` (the changes); ``tokens``, ``cost``. Unknown values are empty or
        None.

    Raises:
        NotFoundError: the entry belongs to no call.
        LedgerError: the ledger cannot be read.
    """
    if entry.event_type not in _CALLS:
        raise NotFoundError(
            f"{entry.id} has the event type {entry.event_type}, so it is neither a routing "
            "decision nor a model call.",
            next_step="Give a decision (DEC-…), its entry, or an EXCHANGE; `remit ledger query "
            "--event-type EXCHANGE` lists them.",
        )
    if entry.event_type == "DISPATCH":
        entry = _outcome_of(ledger, entry)
    meta = entry.metadata
    call: dict[str, Any] = {
        "entry_id": entry.id,
        "event_type": entry.event_type,
        "timestamp": entry.timestamp,
        "session_id": meta.get("session_id", ""),
        "agent_id": meta.get("agent_id", ""),
        "outcome": _OUTCOMES.get(entry.event_type) or meta.get("outcome", ""),
        "error_code": meta.get("error_code", ""),
        "error_message": text_of(meta.get("error_message", "")),
    }
    if entry.event_type == "PROMPT_REJECTED":
        refused = f"The call was refused, {call['error_code']}: {cut(call['error_message'])}."
        return {**call, "why": [refused, "Nothing was sent, reserved or charged."]}
    provider_id, model_id = _sent_to(ledger, entry)
    call |= {"provider_id": provider_id, "model_id": model_id}
    if entry.event_type != "EXCHANGE":
        return {**call, "why": [*_without_answer(entry, provider_id, model_id)]}
    decision_id = meta.get("decision_id")
    call |= {
        "asked_for": _asked_for(meta, model_id),
        "decision_id": decision_id if isinstance(decision_id, str) else "",
        "key_id": meta.get("key_id", ""),
        "passed_over": [
            {**row, "why": _SKIPPED.get(str(row.get("error_code")), _FAILED)}
            for row in rows_of(meta, "fallback_from")
        ],
        "attempts": _attempts(ledger, entry),
        "wire": meta.get("wire", ""),
        "changed": rows_of(meta, "changed"),
        "erased": isinstance(meta.get("changed"), Erased),
        "tokens": {"input": meta.get("input_tokens"), "output": meta.get("output_tokens")},
        "cost": {
            "usd": meta.get("cost_usd"),
            "certainty": meta.get("cost_certainty", ""),
            "price_version": meta.get("price_version", ""),
            "over_bound": meta.get("over_bound"),
        },
    }
    return {**call, "why": [*_why(call)]}


_OUTCOMES = {
    "PROMPT_REJECTED": "rejected",
    "EXCHANGE_ORPHANED": "orphaned",
    "DISPATCH": "under_way",
}


# -- what is on record ---------------------------------------------------------------------------


def _outcome_of(ledger: LedgerClient, dispatch: LedgerEntry) -> LedgerEntry:
    """Return the entry that ended a call; its ``DISPATCH`` if none has yet."""
    session_id = str(dispatch.metadata.get("session_id", ""))
    for event in ("EXCHANGE", "EXCHANGE_ORPHANED"):
        for entry in ledger.query(
            event_type=event, session_id=session_id, after=dispatch.id, limit=_LOOKED_AT,
            with_content=False,
        ):  # fmt: skip
            if entry.metadata.get("dispatch_entry_id") == dispatch.id:
                return ledger.read(entry.id)
    return dispatch


def _sent_to(ledger: LedgerClient, entry: LedgerEntry) -> tuple[str, str]:
    """Provider and model that a call was sent to, as its ``DISPATCH`` says."""
    dispatch = entry
    if entry.event_type != "DISPATCH":
        named = entry.metadata.get("dispatch_entry_id")
        try:
            dispatch = ledger.read(str(named))
        except RemitError:  # an import may leave it out
            return str(entry.metadata.get("provider_id", "")), str(entry.metadata.get("model_id"))
    provider_id, _, model_id = dispatch.reason.removeprefix("Dispatching to ").partition("/")
    return provider_id, model_id


def _asked_for(meta: Mapping[str, Any], model_id: str) -> str:
    """The model's name as the client gave it, as far as the record tells."""
    for change in rows_of(meta, "changed"):
        if change.get("path") == "/model" and isinstance(was := change.get("was"), str):
            try:
                return str(load(was.encode()))
            except JsonTextError:
                break
    return str(meta.get("requested_model_id") or model_id)


def _attempts(ledger: LedgerClient, entry: LedgerEntry) -> list[dict[str, Any]]:
    """The tries of a call up to this one, the first first."""
    found: list[dict[str, Any]] = []
    while True:
        meta = entry.metadata
        provider_id, model_id = _sent_to(ledger, entry)
        found.append(
            {
                "entry_id": entry.id,
                "provider_id": provider_id,
                "model_id": model_id,
                "outcome": meta.get("outcome", ""),
                "error_code": meta.get("error_code", ""),
                "error_message": text_of(meta.get("error_message", "")),
                "latency_ms": meta.get("latency_ms"),
                "cost_usd": meta.get("cost_usd"),
            }
        )
        before = meta.get("retry_of")
        if not isinstance(before, str) or not before or len(found) == _LONGEST_CHAIN:
            return found[::-1]
        try:
            entry = ledger.read(before)
        except RemitError:
            return found[::-1]


# -- in words ------------------------------------------------------------------------------------


def _without_answer(entry: LedgerEntry, provider_id: str, model_id: str) -> Iterator[str]:
    yield f"The call was sent to {provider_id}/{model_id}."
    if entry.event_type == "DISPATCH":
        yield "No answer is recorded: the call is in flight or waits for recovery."
        return
    settled = _SETTLED.get(str(entry.metadata.get("settlement")), "the call was settled")
    yield f"The process died before it recorded an answer; {settled}."


def _why(call: Mapping[str, Any]) -> Iterator[str]:
    sent_to = f"{call['provider_id']}/{call['model_id']}"
    chose = f"; {call['decision_id']} chose {sent_to}" if call["decision_id"] else ""
    yield f"{call['asked_for']} was requested{chose}."
    failed = {str(row["model_id"]): row for row in call["attempts"][:-1]}
    for row in call["passed_over"]:
        attempt = failed.get(str(row.get("model_id")))
        reason = cut((attempt or {}).get("error_message") or row["why"])
        code = row.get("error_code")
        verb = "was skipped" if attempt is None and code in _UNTRIED else "failed"
        known = code if reason == _FAILED else f"{code}: {reason}"
        yield f"{row.get('model_id')} {verb} ({known})."
    for number, row in enumerate(call["attempts"][:-1], 1):
        yield (
            f"Attempt {number}, {row['entry_id']}, at {row['provider_id']}/{row['model_id']}: "
            f"{row['error_code'] or row['outcome']}."
        )
    took = call["attempts"][-1]["latency_ms"]
    time = f"{took:g} ms" if isinstance(took, (int, float)) else "an unknown time"
    if call["outcome"] == "success":
        yield f"{sent_to} answered in {time}."
    else:
        error = f"({call['error_code']}): {cut(call['error_message'])}"
        yield f"{sent_to} failed after {time} {error}."
    changes = [
        f"{one.get('path')} ({text_of(one.get('reason'))})".strip() for one in call["changed"]
    ]
    if changes:
        wire = f" ({call['wire']})" if call["wire"] else ""
        yield f"The body was sent{wire} with these changes: {', '.join(changes)}."
    used = f"{call['tokens']['input']} input and {call['tokens']['output']} output tokens"
    paid = call["cost"]["usd"]
    usd = f", {fixed(paid)} USD" if isinstance(paid, (int, float)) else ""
    certainty = _CERTAINTY.get(str(call["cost"]["certainty"]), "")
    yield f"The charge was {used}{usd}" + (f" ({certainty})." if certainty else ".")
    if call["cost"]["over_bound"]:
        yield "The usage exceeded the upper bound and was charged in full."


def text_of(value: Any) -> str:
    """Return a recorded text; ``(erased)`` for erased content, empty for any other value."""
    if isinstance(value, str):
        return value
    return "(erased)" if isinstance(value, Erased) else ""


def cut(reason: str) -> str:
    """Return a reason as the end of a sentence: on one line, shortened, without a full stop."""
    return excerpt(" ".join(reason.split()).rstrip(".?!"))
