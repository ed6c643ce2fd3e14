"""The one door to models: authenticated, budgeted, recorded before and after (SPEC 4)."""

from remit.exchange import PromptRequest, PromptResponse, RouteOutcome
from remit.gateway.breaker import CircuitBreaker, CircuitState
from remit.gateway.config import CircuitBreakerConfig, RouterConfig
from remit.gateway.gateway import LLMGateway
from remit.gateway.inflight import InFlightCalls, LeaseLostError

PromptRouter = LLMGateway

__all__ = [
    "CircuitBreaker",
    "CircuitBreakerConfig",
    "CircuitState",
    "InFlightCalls",
    "LLMGateway",
    "LeaseLostError",
    "PromptRequest",
    "PromptResponse",
    "PromptRouter",
    "RouteOutcome",
    "RouterConfig",
]
