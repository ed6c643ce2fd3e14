"""Answers read back from the record, for calls made again under one idempotency key."""

from __future__ import annotations

from typing import Any

from remit.gateway.records import sent_parameters
from remit.gateway.validation import Sent
from remit.kernel.exchange import PromptRequest, PromptResponse, RouteOutcome
from remit.ledger import Erased, LedgerEntry

__all__ = ["recorded_answer"]


def recorded_answer(
    entry: LedgerEntry, request: PromptRequest, sent: Sent, model_named: str | None
) -> tuple[PromptResponse | None, str]:
    """The answer in an ``EXCHANGE``, when it is one to this request; else why it is not."""
    meta: dict[str, Any] = entry.metadata
    if any(isinstance(meta.get(name), Erased) for name in ("context_hash", "response")):
        return None, "the recorded answer of this idempotency key has been erased"
    asked = sent_parameters(request, model_named) if request.parameters is not None else None
    tools = [dict(tool) for tool in request.tools or ()]
    if (
        meta["context_hash"] != sent.context_hash
        or meta.get("parameters") != asked
        or meta.get("tools", []) != tools
    ):
        return None, "this idempotency key belongs to a call that asked something else"
    blocks = meta.get("content_blocks")
    return (
        PromptResponse(
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
            context_hash=sent.context_hash,
            cost_incurred=0.0,
            cost_known=True,
            cost_certainty=meta.get("cost_certainty", ""),
            finish_reason=meta["finish_reason"],
            content_blocks=tuple(blocks) if isinstance(blocks, list) and blocks else None,
            cached_input_tokens=meta.get("cached_input_tokens", 0),
            reasoning_tokens=meta.get("reasoning_tokens", 0),
            replayed=True,
        ),
        "",
    )
