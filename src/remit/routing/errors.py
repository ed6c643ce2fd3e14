"""What can go wrong when a model is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remit.kernel.errors import RemitError
from remit.kernel.exchange import PromptResponse


class RoutingError(RemitError):
    """A model could not be chosen."""


class WeightsError(RoutingError, ValueError):
    """The rules of scoring cannot be used."""


class CircuitOpenError(RoutingError):
    """The model failed repeatedly and is not asked just now."""

    code = "CIRCUIT_OPEN"


class NoAdapterError(RoutingError):
    """Nothing here can put this call to the model: no provider, or not with what it needs."""

    code = "NO_ADAPTER"


class ModelCallError(RoutingError):
    """A model was asked, or was about to be, and gave no answer.

    Attributes:
        code: the gateway's, such as ``TIMEOUT`` or ``BUDGET_EXHAUSTED``.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class RouteAttempt:
    """One model of the chain, and why it is not the one that answered.

    Attributes:
        error: what stood against it.
        response: what the gateway said of it; ``None`` where it was skipped.
    """

    model_id: str
    provider_id: str
    error: CircuitOpenError | NoAdapterError | ModelCallError
    response: PromptResponse | None = None

    @property
    def skipped(self) -> bool:
        """Whether nothing was sent to it."""
        return self.response is None or not self.response.dispatch_entry_id


class FallbackChainExhaustedError(RoutingError):
    """Every model of the chain was tried or skipped, and none answered.

    Attributes:
        attempts: each model and its error, in the order of the chain.
        decision_id: of the decision that says so.
    """

    def __init__(self, attempts: Sequence[RouteAttempt], *, decision_id: str = "") -> None:
        self.attempts = tuple(attempts)
        self.decision_id = decision_id
        tried = ", ".join(f"{attempt.model_id} ({attempt.error.code})" for attempt in self.attempts)
        super().__init__(
            f"No model answered: {tried}." if tried else "No model is available.",
            next_step=(
                "`remit route status` shows which models are reachable and whose circuits are open."
            ),
        )
