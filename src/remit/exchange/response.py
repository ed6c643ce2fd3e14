"""What the gateway answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

__all__ = ["PromptResponse", "RouteOutcome"]


class RouteOutcome(StrEnum):
    """How a call ended."""

    SUCCESS = "success"
    REJECTED = "rejected"
    TIMEOUT = "timeout"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class PromptResponse:
    """The outcome of one :class:`~remit.exchange.PromptRequest` (SPEC 4.1).

    Attributes:
        exchange_entry_id: ledger id of the ``EXCHANGE``, or of the ``PROMPT_REJECTED``.
        dispatch_entry_id: ledger id of the ``DISPATCH``; empty when nothing was sent.
        latency_ms: from dispatch to answer of the last attempt, in milliseconds.
        output_valid: whether the output satisfied ``output_schema``; ``None`` without one.
        context_hash: SHA-256 (64 hex) of what was sent.
        cost_incurred: US dollars; 0.0 as long as no price is known.
        budget_remaining: tokens left on the narrowest limit; ``None`` without one.
        finish_reason: the provider's, in neutral words: ``stop``, ``length``, ``tool_use``.
        content_blocks: the provider's blocks when it sent any (text, tool_use).
    """

    content: str
    outcome: RouteOutcome
    input_tokens: int
    output_tokens: int
    model_id: str
    provider_id: str
    latency_ms: float
    timestamp: str
    exchange_entry_id: str
    dispatch_entry_id: str = ""
    output_valid: bool | None = None
    output_validation_errors: list[str] = field(default_factory=list)
    context_hash: str = ""
    error_code: str | None = None
    error_message: str | None = None
    cost_incurred: float = 0.0
    budget_remaining: int | None = None
    finish_reason: str = "stop"
    content_blocks: tuple[dict[str, Any], ...] | None = None
