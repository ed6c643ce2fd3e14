"""The explanation of one model call: its name, changes, failures and cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from remit.gateway import call_bound, owner_by_prefix
from remit.kernel.errors import NotFoundError, RemitError, excerpt
from remit.kernel.json_text import JsonTextError, load
from remit.kernel.message_text import dollars
from remit.ledger import Erased, LedgerClient, LedgerEntry, call_body, is_authentic
from remit.providers.prices import PriceTable
from remit.providers.wire import ENDPOINTS

_CALLS = ("DISPATCH", "EXCHANGE", "EXCHANGE_ORPHANED", "PROMPT_REJECTED")
_LOOKED_AT = 500  # entries of a session, to find what became of a call
_LONGEST_CHAIN = 100
_TRANSLATED = "translated from "
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


def explain_call(
    ledger: LedgerClient, entry: LedgerEntry, prefixes: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return what happened to a call, and why, as JSON.

    Args:
        ledger: the ledger.
        entry: an entry of the call: ``DISPATCH``, ``EXCHANGE``, ``EXCHANGE_ORPHANED`` or
            ``PROMPT_REJECTED``.
        prefixes: the present provider of each model name prefix; None for none.

    Returns:
        Of every call: ``entry_id`` (the latest entry of a ``DISPATCH``), ``event_type``,
        ``timestamp``, ``session_id``, ``agent_id``, ``outcome`` (of the exchange, or ``rejected``,
        ``orphaned``, ``under_way``), ``error_code``, ``error_message``, ``why`` (sentences). Of a
        call that was sent: ``provider_id``, ``model_id``. Of an exchange alone: ``asked_for`` and
        ``named_by`` (``provider/model``, ``registry``, ``prefix``, ``default``, ``name``,
        ``route``, ``caller``); ``answered_by``; ``decision_id``; ``key``; ``passed_over``;
        ``attempts``, oldest first; ``tried_again_by``; ``wire``, ``translated_from``, ``changed``,
        ``erased`` (the changes); ``bound``, ``tokens``, ``cost``. Unknown values are empty or None.

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
        "error_message": _text(meta.get("error_message", "")),
    }
    if entry.event_type == "PROMPT_REJECTED":
        refused = f"The call was refused, {call['error_code']}: {_cut(call['error_message'])}."
        return {**call, "why": [refused, "Nothing was sent, reserved or charged."]}
    provider_id, model_id = _sent_to(ledger, entry)
    call |= {"provider_id": provider_id, "model_id": model_id}
    if entry.event_type != "EXCHANGE":
        return {**call, "why": [*_without_answer(entry, provider_id, model_id)]}
    asked, decision_id = _asked_for(meta, model_id), meta.get("decision_id")
    call |= {
        "asked_for": asked,
        "named_by": _named_by(meta, asked, provider_id, model_id, prefixes),
        "answered_by": meta.get("model_id", ""),
        "decision_id": decision_id if isinstance(decision_id, str) else "",
        "key": _key(ledger, entry),
        "passed_over": [
            {**row, "why": _SKIPPED.get(str(row.get("error_code")), _FAILED)}
            for row in _rows(meta.get("fallback_from"))
        ],
        "attempts": _attempts(ledger, entry),
        "tried_again_by": _tried_again_by(ledger, entry),
        "wire": meta.get("wire", ""),
        "translated_from": "",
        "changed": _rows(meta.get("changed")),
        "erased": isinstance(meta.get("changed"), Erased),
        "bound": _bound(ledger, entry, provider_id, model_id),
        "tokens": {"input": meta.get("input_tokens"), "output": meta.get("output_tokens")},
        "cost": {
            "usd": meta.get("cost_usd"),
            "certainty": meta.get("cost_certainty", ""),
            "price_version": meta.get("price_version", ""),
            "over_bound": meta.get("over_bound"),
        },
    }
    for change in call["changed"]:
        if (reason := _text(change.get("reason"))).startswith(_TRANSLATED):
            call["translated_from"] = reason.removeprefix(_TRANSLATED)
    return {**call, "why": [*_why(call, meta, prefixes or {})]}


_OUTCOMES = {
    "PROMPT_REJECTED": "rejected",
    "EXCHANGE_ORPHANED": "orphaned",
    "DISPATCH": "under_way",
}


# -- what is on record ---------------------------------------------------------------------------


def _outcome_of(ledger: LedgerClient, dispatch: LedgerEntry) -> LedgerEntry:
    """Return the entry that ended a call; its ``DISPATCH`` if none has yet."""
    for event in ("EXCHANGE", "EXCHANGE_ORPHANED"):
        for entry in _later(ledger, dispatch, event):
            if entry.metadata.get("dispatch_entry_id") == dispatch.id:
                return ledger.read(entry.id)
    return dispatch


def _later(ledger: LedgerClient, entry: LedgerEntry, event: str) -> Iterator[LedgerEntry]:
    return ledger.query(
        event_type=event, session_id=str(entry.metadata.get("session_id", "")), after=entry.id,
        limit=_LOOKED_AT, with_content=False,
    )  # fmt: skip


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
    for change in _rows(meta.get("changed")):
        if change.get("path") == "/model" and isinstance(was := change.get("was"), str):
            try:
                return str(load(was.encode()))
            except JsonTextError:
                break
    return str(meta.get("requested_model_id") or model_id)


def _named_by(
    meta: Mapping[str, Any],
    asked: str,
    provider_id: str,
    model_id: str,
    prefixes: Mapping[str, str] | None,
) -> str:
    if meta.get("decision_id"):
        return "route"
    if "provider_id" not in meta:
        return "caller"
    first = model_id if not meta.get("fallback_from") else str(meta.get("requested_model_id"))
    if asked.endswith(f"/{first}"):
        return "provider/model"
    if asked != first:
        return "registry"
    if prefixes is None:
        return "name"
    owner = owner_by_prefix(prefixes, asked)
    if owner and owner != provider_id and not meta.get("fallback_from"):
        return "registry"
    return "prefix" if owner else "default"


def _key(ledger: LedgerClient, entry: LedgerEntry) -> dict[str, Any] | None:
    """The key of a call, and the models that it was made for."""
    key_id = entry.metadata.get("key_id")
    if not isinstance(key_id, str) or not key_id:
        return None
    key: dict[str, Any] = {"key_id": key_id, "name": "", "models": None}
    for made in filter(is_authentic, ledger.query(event_type="KEY_CREATED", submission_id=key_id)):
        models = made.metadata.get("models")
        key |= {"name": made.metadata.get("name", ""), "models": models if models else []}
    return key


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
                "error_message": _text(meta.get("error_message", "")),
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


def _tried_again_by(ledger: LedgerClient, entry: LedgerEntry) -> str:
    if entry.metadata.get("outcome") == "success":
        return ""
    later = _later(ledger, entry, "EXCHANGE")
    return next((one.id for one in later if one.metadata.get("retry_of") == entry.id), "")


def _bound(
    ledger: LedgerClient, entry: LedgerEntry, provider_id: str, model_id: str
) -> dict[str, Any] | None:
    """The most that the call could use, computed again; of money only by the same prices."""
    wire = entry.metadata.get("wire")
    if not isinstance(wire, str) or wire not in ENDPOINTS:
        return None
    try:
        raw = call_body(ledger, entry.id)
        body = load(raw)
    except (RemitError, JsonTextError):  # erased
        return None
    if not isinstance(body, dict):
        return None
    prices = PriceTable.shipped()
    price = prices.find(provider_id, model_id)
    bound = call_bound(wire, body, len(raw), price, model=(provider_id, model_id))
    same = entry.metadata.get("price_version") == prices.version
    known = same and price is not None and bound.amount.bounded
    return {
        "input_tokens": bound.tokens[0],
        "output_tokens": bound.tokens[1],
        "usd": (bound.amount.nano or 0) / 1e9 if known else None,
    }


# -- in words ------------------------------------------------------------------------------------


def _without_answer(entry: LedgerEntry, provider_id: str, model_id: str) -> Iterator[str]:
    yield f"The call was sent to {provider_id}/{model_id}."
    if entry.event_type == "DISPATCH":
        yield "No answer is recorded: the call is in flight or waits for recovery."
        return
    settled = _SETTLED.get(str(entry.metadata.get("settlement")), "the call was settled")
    yield f"The process died before it recorded an answer; {settled}."


def _why(
    call: Mapping[str, Any], meta: Mapping[str, Any], prefixes: Mapping[str, str]
) -> Iterator[str]:
    sent_to = f"{call['provider_id']}/{call['model_id']}"
    passed = call["passed_over"]
    first = str(passed[0].get("model_id")) if passed else ""
    yield _about_name(call, sent_to, first, prefixes)
    yield _about_key(call["key"], meta)
    failed = {str(row["model_id"]): row for row in call["attempts"][:-1]}
    for row in passed:
        attempt = failed.get(str(row.get("model_id")))
        reason = _cut((attempt or {}).get("error_message") or row["why"])
        code = row.get("error_code")
        verb = "was skipped" if attempt is None and code in _UNTRIED else "failed"
        known = code if reason == _FAILED else f"{code}: {reason}"
        yield f"{row.get('model_id')} {verb} ({known})."
    for number, row in enumerate(call["attempts"][:-1], 1):
        yield (
            f"Attempt {number}, {row['entry_id']}, at {row['provider_id']}/{row['model_id']}: "
            f"{row['error_code'] or row['outcome']}."
        )
    yield _about_answer(call, sent_to, meta)
    yield _about_body(call)
    yield from _about_cost(call, meta)


def _about_name(
    call: Mapping[str, Any], sent_to: str, first: str, prefixes: Mapping[str, str]
) -> str:
    asked, by = call["asked_for"], call["named_by"]
    means = first or sent_to
    owner = owner_by_prefix(prefixes, asked) if by == "prefix" else ""
    found = [one for one in prefixes if asked.casefold().startswith(one.casefold())]
    names = f"names beginning with {max(found, key=len)}" if found else "such names"
    default = "the default provider" if first else f"{call['provider_id']}, the default provider"
    routed = f"sent the call to {sent_to}"
    if first:
        routed = f"put {first} first; this is attempt {len(call['attempts'])}, at {sent_to}"
    return {
        "route": f"{asked} was requested from a route; {call['decision_id']} {routed}.",
        "caller": f"The caller requested a provider and a model: {means}.",
        "provider/model": f"{asked} was requested, which gives provider and model.",
        "registry": f"{asked} was requested, a name in the registry for {means}.",
        "prefix": f"{asked} was requested; {names} go to {owner}.",
        "default": f"{asked} was requested; no prefix matches, so it went to {default}.",
    }.get(by, f"{asked} was requested by its own name.")


def _about_key(key: Mapping[str, Any] | None, meta: Mapping[str, Any]) -> str:
    if key is None:
        user = meta.get("user_id")
        return f"{user or 'The caller'} made the call without a Remit key."
    name = f"{key['name']} ({key['key_id']})" if key["name"] else str(key["key_id"])
    if key["models"] is None:
        return f"The call used the key {name}, whose creation is not recorded."
    may = f"only {', '.join(map(str, key['models']))}" if key["models"] else "any model"
    return f"The call used the key {name}, which may use {may}."


def _about_answer(call: Mapping[str, Any], sent_to: str, meta: Mapping[str, Any]) -> str:
    took = meta.get("latency_ms")
    after = f" after {took:g} ms" if isinstance(took, (int, float)) else ""
    if call["outcome"] == "success":
        named = str(call["answered_by"])
        own = f" as {named}" if named not in ("", call["model_id"]) else ""
        lost = isinstance(meta.get("answer"), str) and not meta.get("response")
        unread = "; Remit could not read the answer" if lost else ""
        return f"{sent_to} answered{after.replace('after', 'in')}{own}{unread}."
    again = call["tried_again_by"]
    more = f" The call was retried: {again}." if again else ""
    return f"{sent_to} failed{after} ({call['error_code']}): {_cut(call['error_message'])}.{more}"


def _about_body(call: Mapping[str, Any]) -> str:
    if not call["wire"]:
        return "The caller sent no body; Remit built it from the recorded prompt or messages."
    if call["erased"]:
        return f"A body was sent ({call['wire']}); the list of changes to it was erased."
    changes = [
        f"{change.get('path')} ({_text(change.get('reason'))})"
        for change in call["changed"]
        if change.get("path")
    ]
    more = ", ".join(changes)
    if call["translated_from"]:
        also = f"; changed: {more}" if more else ""
        return f"The body was translated from {call['translated_from']} to {call['wire']}{also}."
    if more:
        return f"The client's body was sent ({call['wire']}) with these changes: {more}."
    return f"The client's body was sent unchanged, byte for byte ({call['wire']})."


def _about_cost(call: Mapping[str, Any], meta: Mapping[str, Any]) -> Iterator[str]:
    bound, cost = call["bound"], call["cost"]
    if bound is not None:
        money = "" if bound["usd"] is None else f", {dollars(bound['usd'])}"
        yield (
            f"The upper bound was {bound['input_tokens']:,} input and {bound['output_tokens']:,} "
            f"output tokens{money}."
        )
    tokens = (meta.get("input_tokens"), meta.get("output_tokens"))
    if call["outcome"] != "success" and tokens == (0, 0) and not cost["usd"]:
        yield "Nothing was charged: the call failed without an answer."
        return
    used = "an unknown number of tokens"
    if all(isinstance(one, int) for one in tokens):
        used = f"{tokens[0]:,} input and {tokens[1]:,} output tokens"
    certainty = _CERTAINTY.get(str(cost["certainty"]), "")
    paid = cost["usd"]
    usd = f", {dollars(paid)}" if isinstance(paid, (int, float)) else ""
    yield f"The charge was {used}{usd}" + (f" ({certainty})." if certainty else ".")
    if cost["over_bound"]:
        yield "The usage exceeded the upper bound and was charged in full."


def _rows(value: Any) -> list[dict[str, Any]]:
    listed = value if isinstance(value, list) else []
    return [dict(row) for row in listed if isinstance(row, Mapping)]


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "(erased)" if isinstance(value, Erased) else ""


def _cut(text: str) -> str:
    plain = " ".join(text.split()).rstrip(".?!")
    return excerpt(plain)
