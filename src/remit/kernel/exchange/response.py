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
    """The outcome of one :class:`~remit.kernel.exchange.PromptRequest` (SPEC 4.1).

    Attributes:
        exchange_entry_id: ledger id of the ``EXCHANGE``, or of the ``PROMPT_REJECTED``.
        dispatch_entry_id: ledger id of the ``DISPATCH``; empty when nothing was sent.
        latency_ms: from dispatch to answer of the last attempt, in milliseconds.
        output_valid: whether the output satisfied ``output_schema``; ``None`` without one.
        context_hash: SHA-256 (64 hex) of what was sent.
        cost_incurred: US dollars; 0.0 where no price is known (``cost_certainty`` tells).
        budget_remaining: tokens left on the narrowest limit; ``None`` without one.
        finish_reason: the provider's, in neutral words: ``stop``, ``length``, ``tool_use``.
        content_blocks: the provider's blocks when it sent any (text, tool_use).
        cost_certainty: ``measured``, ``estimated``, ``upper_bound``, ``unpriced``; empty without
            budgets.
        cost_known: whether ``cost_incurred`` is what a price says.
        retry_after_s: when a refused call may be tried again, in seconds.
        wire: the provider's answer as it came, and its dialect.
        replayed: the answer was read from the record; nothing was sent or charged.
        decision_entry_id: the entry of the decision that chose the model; empty when none did.
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
    cost_certainty: str = ""
    cost_known: bool = False
    retry_after_s: float | None = None
    cached_input_tokens: int = 0
    reasoning_tokens: int = 0
    wire: tuple[str, bytes] | None = field(default=None, repr=False)
    replayed: bool = False
    decision_entry_id: str = ""
