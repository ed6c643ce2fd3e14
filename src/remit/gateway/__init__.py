"""The one way to models: authenticated, budgeted, recorded before and after."""

from remit.gateway.auth import Identity, KeyStore
from remit.gateway.breaker import CircuitState
from remit.gateway.breakers import CircuitBreaker
from remit.gateway.budget import (
    BudgetCheckResult,
    BudgetLimits,
    BudgetScope,
    DebitResult,
    TokenBudgeter,
    TokenUsage,
)
from remit.gateway.call import CallReport
from remit.gateway.config import CircuitBreakerConfig, RouterConfig
from remit.gateway.gateway import LLMGateway
from remit.gateway.inflight import InFlightCalls
from remit.gateway.naming import owner_by_prefix, split_name
from remit.gateway.neutral import in_neutral_form
from remit.gateway.routed import RequestRouter, Routed
from remit.gateway.steps import Beside, FinishCall, IdempotencyKeyUsedError, LeaseLostError
from remit.gateway.stream_tap import KEY_ENDED, SHUTTING_DOWN, STOPPED_READING
from remit.gateway.validation import MAX_ID_CHARS
from remit.kernel.exchange import PromptRequest, PromptResponse, RouteOutcome
from remit.providers import Dispatched

PromptRouter = LLMGateway

__all__ = [
    "KEY_ENDED",
    "MAX_ID_CHARS",
    "SHUTTING_DOWN",
    "STOPPED_READING",
    "Beside",
    "BudgetCheckResult",
    "BudgetLimits",
    "BudgetScope",
    "CallReport",
    "CircuitBreaker",
    "CircuitBreakerConfig",
    "CircuitState",
    "DebitResult",
    "Dispatched",
    "FinishCall",
    "IdempotencyKeyUsedError",
    "Identity",
    "InFlightCalls",
    "KeyStore",
    "LLMGateway",
    "LeaseLostError",
    "PromptRequest",
    "PromptResponse",
    "PromptRouter",
    "RequestRouter",
    "RouteOutcome",
    "Routed",
    "RouterConfig",
    "TokenBudgeter",
    "TokenUsage",
    "in_neutral_form",
    "owner_by_prefix",
    "split_name",
]
