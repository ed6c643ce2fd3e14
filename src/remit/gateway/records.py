"""The gateway's ledger entries, and the bill that an ``EXCHANGE`` states.

docs/events.md lists the keys of the entries.
"""

from __future__ import annotations

import base64
import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

from remit.gateway.billing import Bill, estimated_output
from remit.gateway.config import RouterConfig
from remit.gateway.values import Attempt, Call, Failure, Refusal
from remit.kernel.canonical import MAX_SAFE_INTEGER
from remit.kernel.errors import InvalidInputError
from remit.kernel.exchange import MAX_ID_CHARS, PromptRequest, PromptResponse, RouteOutcome
from remit.kernel.json_text import JsonTextError, load, sound_text
from remit.ledger import EXACT, Content, LedgerClient, LedgerEntry, Prepared, content, utc_now
from remit.providers import Body, Outgoing, ProviderResponse
from remit.providers.dialects import reported

_PARTS = (
    "cached_input_tokens", "cache_write_tokens", "reasoning_tokens", "audio_input_tokens",
    "audio_output_tokens", "audio_seconds",
)  # fmt: skip


def dispatch_entry(
    provider_id: str,
    model_id: str,
    contract_id: str,
    agent_id: str,
    session_id: str,
    prompt_pack_id: str,
) -> LedgerEntry:
    """Return the ``DISPATCH`` of an attempt, not yet written.

    The entry must be durable before anything is sent.

    Args:
        provider_id: the provider, named in the reason.
        model_id: the model, named in the reason; may be empty.
        contract_id: the contract, which is the entry's submission.
        agent_id: the agent.
        session_id: the session.
        prompt_pack_id: the prompt pack; empty for none.
    """
    return LedgerEntry(
        event_type="DISPATCH",
        submission_id=contract_id,
        decision="DISPATCHED",
        reason=f"Dispatching to {provider_id}/{model_id}".removesuffix("/"),
        prompts_used=_prompts(prompt_pack_id),
        metadata={
            "contract_id": contract_id, "agent_id": agent_id or "", "session_id": session_id,
        },
    )  # fmt: skip


def bill_of(
    call: Call, attempt: Attempt, result: ProviderResponse | Failure, config: RouterConfig
) -> Bill:
    """Return the bill of an attempt: nothing, as reported, estimated, or at the upper bound.

    A cached answer, and a failure that the provider did not bill, cost nothing, as does a free
    endpoint, unless its answer names no batch. An unusable report counts as the upper bound. A
    stream that broke off is billed as reported, else estimated from what arrived, or at the bound
    if other usage is possible.

    Args:
        call: the call.
        attempt: the attempt.
        result: its answer or failure.
        config: the rules of estimates.
    """
    to, tap = attempt.to, call.tap
    tariff = to.tariff
    if attempt.cached is not None:
        return tariff.nothing()
    held = attempt.hold or to.amount
    asked: Mapping[str, Any] = {}
    is_text = True
    if to.outgoing is not None:
        endpoint = to.outgoing.body.endpoint
        asked, is_text = to.outgoing.body.value, bool(endpoint.output_limit)
        if endpoint.is_unpriced:
            is_billed = isinstance(result, ProviderResponse) or result.billing != "nothing"
            return tariff.unpriced() if is_billed else tariff.nothing()
    if isinstance(result, ProviderResponse):
        if to.outgoing is not None and to.outgoing.body.endpoint.free:
            # Of a batch that the provider did not name nothing more will be heard.
            named = call.on_record is not None and call.on_record.keeps_hold(result)
            if named or not held.tokens:
                return tariff.nothing()
            return tariff.at_bound(held, to.bound)
        return tariff.answered(result, asked, to.bound) or tariff.at_bound(held, to.bound)
    had = result.answer
    if had is not None and (had.output_tokens or result.billing == "bound"):
        # The provider put something out and says how much, or answered without a stated error.
        return tariff.answered(had, asked, to.bound) or tariff.at_bound(held, to.bound)
    if result.billing == "nothing":
        return tariff.nothing()
    if (usage := tap.final_usage) is not None:
        stated = ProviderResponse("", "", **reported(usage))
        return tariff.answered(stated, asked, to.bound) or tariff.at_bound(held, to.bound)
    ran_tools = to.bound[2] is not None
    if result.billing == "bound" or not is_text or ran_tools or tariff.thinks_unseen(asked):
        # Unseen thinking is billed like what arrived. The tokens of sound and pictures, and the
        # uses of the provider's tools with the model runs after them, are unknown.
        return tariff.at_bound(held, to.bound)
    tokens_in = tap.input_tokens
    if tokens_in is None or not tariff.is_credible(tokens_in, to.bound[0]):
        tokens_in = to.bound[0]
    tokens_out = estimated_output(config, tap.size, tap.pieces, to.bound[1])
    return tariff.assumed((tokens_in, tokens_out), "estimated", asked)


def exchange_entry(
    call: Call,
    attempt: Attempt,
    result: ProviderResponse | Failure,
    usage: tuple[int, int],
    billed: Mapping[str, Any],
    epoch: int,
) -> LedgerEntry:
    """Return the ``EXCHANGE`` of an attempt, not yet written.

    Success and failure have the same keys; a failure has ``error_code`` and ``error_message`` too.
    Keys that would state nothing are omitted.

    Args:
        call: the call.
        attempt: the attempt.
        result: its answer or failure.
        usage: charged input and output tokens.
        billed: the keys that state the bill.
        epoch: the policy epoch; 0 before any was adopted.
    """
    to = attempt.to
    request, identity = to.request, call.identity
    if isinstance(result, Failure):
        finish, text = "error", attempt.streamed
        decision = "TIMEOUT" if result.outcome is RouteOutcome.TIMEOUT else "ERROR"
        reason = content(f"{result.code}: {result.message}")
        outcome, model_id = str(result.outcome), to.model_id
    else:
        finish, text = result.finish_reason, result.content
        decision, reason, outcome = "SUCCESS", "Exchange completed", "success"
        model_id = result.model or to.model_id
    metadata: dict[str, Any] = {
        "agent_id": request.agent_id or "",
        "session_id": request.session_id,
        "work_order_id": request.work_order_id or "",
        "tier": request.tier or "",
        "contract_id": request.contract_id,
        "framework_id": request.framework_id or "",
        "prompt": "",
        "response": Content(text),
        "outcome": outcome,
        "input_tokens": usage[0],
        "output_tokens": usage[1],
        "dispatch_entry_id": attempt.dispatch_entry_id,
        "model_id": model_id,
        "finish_reason": finish,
        "latency_ms": attempt.latency_ms,
    }
    # Readers compute the hash of the caller's request from a request that was sent unchanged.
    given, is_derived = request.body, not to.sent.is_exact
    if given is not None:
        sent = None if to.outgoing is None else to.outgoing.body
        is_derived = type(sent) is type(given) is Body and sent.raw == given.raw
    if not is_derived:
        metadata["context_hash"] = Content(to.sent.context_hash)
    if isinstance(result, Failure):
        metadata["error_code"] = result.code
        metadata["error_message"] = Content(result.message)
    metadata.update(billed)
    if identity is not None:
        if identity.key_id:
            metadata["key_id"] = identity.key_id
        else:  # the owner is on the key's own record
            for name in ("user_id", "team_id", "organisation_id"):
                if value := getattr(identity, name):
                    metadata[name] = value
    if request.user_id and not (identity is not None and identity.user_id):
        metadata["user_id"] = request.user_id
    if request.contract_version:
        metadata["contract_version"] = request.contract_version
    if request.charged_to:
        metadata["charged_to"] = list(request.charged_to)
    if attempt.first_after_ms is not None:
        metadata["time_to_first_token_ms"] = attempt.first_after_ms
    if request.provider_id != to.provider_id or attempt.decision_id:
        metadata["provider_id"] = to.provider_id
    if model_id != attempt.asked_model_id:
        metadata["requested_model_id"] = attempt.asked_model_id
    if attempt.decision_id:
        metadata["decision_id"] = attempt.decision_id
        if attempt.drawn:
            metadata.update(attempt.drawn)
    if epoch:
        metadata["policy_epoch"] = epoch
    if attempt.number > 1:
        metadata["attempt"] = attempt.number
        metadata["retry_of"] = attempt.retry_of
    if attempt.fallback_from:
        metadata["fallback_from"] = [
            {"model_id": model, "error_code": code} for model, code in attempt.fallback_from
        ]
    if isinstance(result, ProviderResponse):
        if attempt.cached is not None:
            metadata["cached_from"] = attempt.cached.exchange_entry_id
        for name in () if attempt.cached is not None else _PARTS:
            if (value := getattr(result, name)) is not None:
                metadata[name] = value
        if result.server_tool_uses and attempt.cached is None:
            metadata["server_tool_uses"] = dict(result.server_tool_uses)
    if request.body is not None and to.outgoing is not None:
        _add_wire(metadata, call, to.outgoing)
        _add_answer(metadata, attempt, result)
        if call.tap.wire:
            _add_stream(metadata, call.tap.wire)
            if to.outgoing.body.endpoint is not request.body.endpoint:
                metadata["created"] = call.tap.created  # The translated stream states it.
    else:
        _add_neutral(metadata, attempt, result)
    return LedgerEntry(
        event_type="EXCHANGE",
        submission_id=request.contract_id,
        decision=decision,
        reason=reason,
        prompts_used=_prompts(request.prompt_pack_id) if request.prompt_pack_id else [],
        metadata=metadata,
    )


def _add_wire(metadata: dict[str, Any], call: Call, outgoing: Outgoing) -> None:
    """Add the exact text of the request that was sent."""
    body = outgoing.body
    cut = body.cut()
    metadata["wire"] = body.endpoint.name
    for name, piece in cut.pieces.items():
        metadata[name] = Content(None, piece, EXACT)
    metadata["parameters"] = Content(None, cut.parameters, EXACT)
    # Pairs, not members: a member named prompt would be content.
    metadata["cut"] = [*map(list, cut.places.items())]
    if body.changed:
        metadata["changed"] = Content(body.changed)
    if outgoing.dropped:
        metadata["dropped"] = Content(list(outgoing.dropped))
    if outgoing.headers:
        metadata["headers"] = dict(outgoing.headers)
    if call.request.query and outgoing.path:
        metadata["request_line"] = Content(f"{outgoing.method} {outgoing.path}")
    if call.claim is not None:
        metadata["request_hash"] = Content(call.request_hash)
        metadata["claim"] = call.claim[2]


def _add_answer(
    metadata: dict[str, Any], attempt: Attempt, result: ProviderResponse | Failure
) -> None:
    """Add the exact text of the answer; as a text value if it is not JSON."""
    text, is_json, reply = attempt.arrived, True, result.reply
    if not text and reply is not None:
        text = reply.body
        # Of what a provider object says nothing is believed.
        known = None if attempt.to.outgoing is None else reply.is_json
        is_json = _is_json(text) if known is None else known
    if text:
        metadata["answer"] = (
            Content(None, text, EXACT) if is_json else Content(text.decode("utf-8", "replace"))
        )


def _add_stream(metadata: dict[str, Any], pieces: Sequence[bytes]) -> None:
    """Add the bytes of the stream; nothing if they are not UTF-8, as event streams must be."""
    with contextlib.suppress(UnicodeDecodeError):
        metadata["stream"] = Content(b"".join(pieces).decode())


def _is_json(text: bytes) -> bool:
    try:
        load(text)
    except JsonTextError:
        return False
    return True


def _add_neutral(
    metadata: dict[str, Any], attempt: Attempt, result: ProviderResponse | Failure
) -> None:
    """Add the request in neutral form, and the answer if it contains more than text."""
    request, sent = attempt.to.request, attempt.to.sent
    prompt = request.prompt if request.messages is None else list(sent.messages)
    # Messages that hold an integer beyond 2**53 are recorded as exact text.
    metadata["prompt"] = Content(prompt, None if sent.is_exact else sent.encoded)
    changed = attempt.to.outgoing.body.changed if attempt.to.outgoing is not None else []
    # Without a contract, a temperature of 0 is what nobody asked for.
    if changed and (request.contract_version or request.temperature):
        metadata["changed"] = Content(changed)
    if request.tools:
        metadata["tools"] = Content([dict(tool) for tool in request.tools])
        blocks = () if isinstance(result, Failure) else result.content_blocks
        metadata["content_blocks"] = Content(list(blocks))
    if isinstance(result, ProviderResponse) and result.more_than_text and result.reply is not None:
        metadata["wire_answer"] = result.reply.endpoint
        _add_answer(metadata, attempt, result)


def prepare_exchange(ledger: LedgerClient, entry: LedgerEntry, subject_id: str | None) -> Prepared:
    """Return an encoded ``EXCHANGE``. Writes nothing.

    Values that JSON cannot express are replaced by texts, in ``entry`` too.

    Args:
        ledger: encodes the entry.
        entry: the entry.
        subject_id: the person of whom the content speaks; None for nobody.

    Raises:
        InvalidInputError: the entry cannot be recorded even so.
    """
    try:
        return ledger.prepare(entry, subject_id=subject_id)
    except InvalidInputError:
        entry.metadata = {key: _recordable(value) for key, value in entry.metadata.items()}
        entry.reason = _recordable(entry.reason)
        return ledger.prepare(entry, subject_id=subject_id)


def prepare_refusal(
    ledger: LedgerClient, call: Call, provider_id: str, code: str, message: str
) -> Prepared:
    """Return the encoded ``PROMPT_REJECTED`` of a request that was refused. Writes nothing.

    Values of the request that cannot be recorded become empty or are cut.

    Args:
        ledger: encodes the entry.
        call: the call; under a virtual key the entry states its owner and the requested model.
        provider_id: the provider that would have been asked; empty if unknown.
        code: the error code.
        message: the reason of the refusal.

    Raises:
        InvalidInputError: the entry cannot be recorded.
    """
    request, identity = call.request, call.identity
    stated: dict[str, str] = {}
    if identity is not None and identity.key_id:
        stated = {
            "key_id": identity.key_id, "requested_model_id": _text(request.model_id),
            "provider_id": _text(provider_id), "user_id": identity.user_id,
            "team_id": identity.team_id,
        }  # fmt: skip
    entry = LedgerEntry(
        event_type="PROMPT_REJECTED",
        submission_id=_text(request.contract_id),
        decision="REJECTED",
        reason=content(f"{code}: {message}"),
        prompts_used=_prompts(request.prompt_pack_id),
        metadata=_refusal(request, code, message)
        | {name: value for name, value in stated.items() if value},
    )
    # The person may be what is wrong with the request.
    return ledger.prepare(entry, subject_id=_text(request.subject_id) or None)


def refused_response(call: Call, refusal: Refusal) -> PromptResponse:
    """Return the response of a refused call, without the id of an entry.

    Writes nothing.

    The outcome is ``rejected``; tokens, latency and cost are 0.

    Args:
        call: the call.
        refusal: the reason, whose fields the response states.
    """
    request, choice = call.request, call.choice
    return PromptResponse(
        content="",
        outcome=RouteOutcome.REJECTED,
        input_tokens=0,
        output_tokens=0,
        model_id=request.model_id or "",
        provider_id=request.provider_id or "",
        latency_ms=0.0,
        timestamp=utc_now(),
        exchange_entry_id="",
        context_hash=call.request_hash,
        error_code=refusal.code,
        error_message=refusal.message,
        error_param=refusal.param,
        budget_remaining=refusal.remaining,
        fallback_from=() if choice is not None and choice.is_routed else call.passed_over,
        retry_after_s=refusal.retry_after_s,
    )


def prepare_warning(
    ledger: LedgerClient, request: PromptRequest, code: str, message: str
) -> Prepared:
    """Return the encoded ``BUDGET_WARNING`` of a call over its limit, in the mode ``warn``.

    Writes nothing.

    Args:
        ledger: encodes the entry.
        request: the request, which is sent.
        code: the code with which the budget would have refused.
        message: the reason.

    Raises:
        InvalidInputError: the entry cannot be recorded.
    """
    entry = LedgerEntry(
        event_type="BUDGET_WARNING",
        submission_id=request.contract_id,
        decision="WARNED",
        reason=content(f"{code}: {message}"),
        metadata=_refusal(request, code, message),
    )
    return ledger.prepare(entry, subject_id=request.subject_id)


def _refusal(request: PromptRequest, code: str, message: str) -> dict[str, Any]:
    return {
        "agent_id": _text(request.agent_id),
        "session_id": _text(request.session_id),
        "contract_id": _text(request.contract_id),
        "error_code": code,
        "error_message": content(message),
    }


def _text(value: Any) -> str:
    """Return the recordable part of an id; a refused request may contain any value."""
    return str(_recordable(value))[:MAX_ID_CHARS] if isinstance(value, str) else ""


def _prompts(pack: str) -> list[str]:
    return [pack] if pack and (pack := _text(pack)) else []


def _recordable(value: Any) -> Any:
    """Return ``value`` with everything that JCS cannot express replaced by text."""
    if isinstance(value, Content):
        return value if value.form else Content(_recordable(value.value))
    if isinstance(value, str):
        kept = sound_text(value).replace("\x00", "\ufffd")
        return content(kept) if type(value) is not str else kept
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= MAX_SAFE_INTEGER else str(value)
    if isinstance(value, float):
        exact = math.isfinite(value) and not MAX_SAFE_INTEGER < abs(value) < 1e21
        return value if exact else str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(_recordable(str(key))): _recordable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_recordable(item) for item in value]
    return _recordable(repr(value))
