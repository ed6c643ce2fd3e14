"""Recorded answers: of calls that repeat an idempotency key, and of replayed runs."""

from __future__ import annotations

import hashlib
from typing import Any

from remit.gateway.validation import Sent
from remit.gateway.values import Call
from remit.kernel.exchange import PromptRequest, PromptResponse, Reply, RouteOutcome
from remit.kernel.json_text import dump
from remit.ledger import Erased, LedgerClient, LedgerEntry, call_answer

_MISMATCH = "IDEMPOTENCY_MISMATCH"
_DELIVERY = ("stream", "stream_options")

_NEEDED = ("context_hash", "response", "answer", "replied")
_JSON = (("content-type", "application/json"),)
_STATUSES = {
    "RATE_LIMITED": 429, "INVALID_REQUEST": 400, "CONTEXT_LENGTH": 400, "CONTENT_FILTERED": 400,
    "AUTH_ERROR": 401, "TIMEOUT": 504,
}  # fmt: skip


def asked_hash(request: PromptRequest, sent: Sent) -> str:
    """Return the SHA-256, 64 hex digits, of a request without its delivery options such as
    ``stream``.

    For a request without a body or an idempotency key, and for a form, the result is
    ``sent.context_hash``.

    Args:
        request: the request.
        sent: the request, encoded.

    Raises:
        JsonTextError: the body is nested too deep.
    """
    body = request.body
    if body is None or not request.idempotency_key or body.endpoint.form:
        return sent.context_hash
    asked = {name: value for name, value in body.value.items() if name not in _DELIVERY}
    return hashlib.sha256(dump(asked)).hexdigest()


def recorded_answer(
    ledger: LedgerClient, exchange_entry_id: str, call: Call
) -> PromptResponse | tuple[str, str]:
    """Return the response in an ``EXCHANGE`` if it answers this call. Blocks.

    The response has no cost, and ``replayed`` is set. ``cost_incurred`` is 0 and ``attempts`` too.
    Nothing is written.

    Args:
        ledger: the ledger.
        exchange_entry_id: the ``EXCHANGE`` of the earlier call.
        call: the call that repeats its idempotency key.

    Returns:
        The response; or code and message of the refusal: ``IDEMPOTENCY_ERASED`` if the answer was
        erased, ``IDEMPOTENCY_MISMATCH`` if the earlier call had another request.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    entry = ledger.read(exchange_entry_id)
    meta: dict[str, Any] = entry.metadata
    request = call.request
    if any(isinstance(meta.get(name), Erased) for name in _NEEDED):
        return "IDEMPOTENCY_ERASED", (
            "the call with this idempotency key was answered, and the answer was erased; to make "
            "the call again, send another key"
        )
    tools = [dict(tool) for tool in request.tools or ()]
    same = meta.get("request_hash", meta["context_hash"]) == call.request_hash
    if not same or (request.body is None and meta.get("tools", []) != tools):
        return _MISMATCH, (
            "this idempotency key was used for a different request; send another key"
        )
    response = recorded_response(ledger, entry)
    response.cost_incurred, response.cost_known, response.replayed = 0.0, True, True
    response.provider_id = response.provider_id or request.provider_id or ""
    response.fallback_from, response.attempts = (), 0
    return response


def recorded_response(ledger: LedgerClient, entry: LedgerEntry) -> PromptResponse:
    """Return the response of the call that an ``EXCHANGE`` records, an answer or a failure.

    Headers and statuses of providers are not recorded: a reply has only the content type of JSON,
    and the status 200, or that for which the error code stands. A failed stream has no reply.
    Blocks.

    Args:
        ledger: the ledger; only read.
        entry: the entry, with its content.

    Raises:
        LedgerError: the ledger cannot be read, or the answer was erased.
    """
    meta = entry.metadata
    failed = meta["outcome"] != "success"
    status, reply = _STATUSES.get(meta.get("error_code", ""), 500) if failed else 200, None
    if "wire" in meta and "answer" in meta:
        reply = Reply(meta["wire"], status, _JSON, call_answer(ledger, entry.id))
        if "replied" in meta:  # The client received a converted answer.
            replied = ledger.exact(entry.id, ("replied",))["replied"]
            assert isinstance(replied, bytes)
            reply = Reply("openai.responses", status, _JSON, replied)
    if failed and "stream" in meta:
        reply = None  # The recorded answer is the part of a stream that came.
    blocks, dropped = meta.get("content_blocks"), meta.get("dropped")
    return PromptResponse(
        content=meta["response"],
        outcome=RouteOutcome(meta["outcome"]),
        input_tokens=meta["input_tokens"],
        output_tokens=meta["output_tokens"],
        model_id=meta["model_id"],
        provider_id=meta.get("provider_id", ""),
        latency_ms=meta["latency_ms"],
        timestamp=entry.timestamp,
        exchange_entry_id=entry.id,
        dispatch_entry_id=meta["dispatch_entry_id"],
        context_hash=meta["context_hash"],
        error_code=meta.get("error_code"),
        error_message=meta.get("error_message"),
        cost_incurred=meta.get("cost_usd") or 0.0,
        cost_known="cost_usd" in meta,
        cost_certainty=meta.get("cost_certainty", ""),
        finish_reason=meta["finish_reason"],
        content_blocks=tuple(blocks) if isinstance(blocks, list) and blocks else None,
        cached_input_tokens=meta.get("cached_input_tokens", 0),
        reasoning_tokens=meta.get("reasoning_tokens", 0),
        reply=reply,
        fallback_from=tuple(
            (one["model_id"], one["error_code"]) for one in meta.get("fallback_from") or ()
        ),
        attempts=meta.get("attempt", 1),
        replayed="cached_from" in meta,
        dropped=dropped if isinstance(dropped, list) else (),
    )
