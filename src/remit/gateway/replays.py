"""Recorded answers for calls that repeat an idempotency key."""

from __future__ import annotations

import hashlib
from typing import Any

from remit.gateway.validation import Sent
from remit.gateway.values import Call
from remit.kernel.exchange import PromptRequest, PromptResponse, Reply, RouteOutcome
from remit.kernel.json_text import dump
from remit.ledger import Erased, LedgerClient

__all__ = ["asked_hash", "recorded_answer"]

_MISMATCH = "IDEMPOTENCY_MISMATCH"
_DELIVERY = ("stream", "stream_options")

_NEEDED = ("context_hash", "response", "answer", "replied")
_JSON = (("content-type", "application/json"),)


def asked_hash(request: PromptRequest, sent: Sent) -> str:
    """Return the SHA-256, 64 hex, of a request without its delivery options such as ``stream``."""
    body = request.body
    if body is None or not request.idempotency_key or body.endpoint.form:
        return sent.context_hash
    asked = {name: value for name, value in body.value.items() if name not in _DELIVERY}
    return hashlib.sha256(dump(asked)).hexdigest()


def recorded_answer(
    ledger: LedgerClient, exchange_entry_id: str, call: Call
) -> PromptResponse | tuple[str, str]:
    """Return the response in an ``EXCHANGE`` if it answers this call. Blocks.

    The response has no cost, and ``replayed`` is set.

    Args:
        ledger: the ledger.
        exchange_entry_id: the ``EXCHANGE`` of the earlier call.
        call: the call that repeats its idempotency key.

    Returns:
        The response; or code and message of the refusal: ``IDEMPOTENCY_ERASED`` if the answer was
        erased, ``IDEMPOTENCY_MISMATCH`` if the earlier call had another request.
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
    reply = None
    if "wire" in meta:
        answer = ledger.exact(exchange_entry_id)["answer"]
        assert isinstance(answer, bytes)
        reply = Reply(meta["wire"], 200, _JSON, answer)
    if "replied" in meta:  # The client received a converted answer.
        replied = ledger.exact(exchange_entry_id)["replied"]
        assert isinstance(replied, bytes)
        reply = Reply("openai.responses", 200, _JSON, replied)
    blocks = meta.get("content_blocks")
    return PromptResponse(
        content=meta["response"],
        outcome=RouteOutcome.SUCCESS,
        input_tokens=meta["input_tokens"],
        output_tokens=meta["output_tokens"],
        model_id=meta["model_id"],
        provider_id=meta.get("provider_id", request.provider_id or ""),
        latency_ms=meta["latency_ms"],
        timestamp=entry.timestamp,
        exchange_entry_id=entry.id,
        dispatch_entry_id=meta["dispatch_entry_id"],
        context_hash=meta["context_hash"],
        cost_incurred=0.0,
        cost_known=True,
        cost_certainty=meta.get("cost_certainty", ""),
        finish_reason=meta["finish_reason"],
        content_blocks=tuple(blocks) if isinstance(blocks, list) and blocks else None,
        cached_input_tokens=meta.get("cached_input_tokens", 0),
        reasoning_tokens=meta.get("reasoning_tokens", 0),
        reply=reply,
        replayed=True,
        dropped=dropped if isinstance(dropped := meta.get("dropped"), list) else (),
    )
