"""Errors of routing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remit.kernel.errors import RemitError
from remit.kernel.exchange import PromptResponse


class RoutingError(RemitError):
    """A model could not be chosen, or a model of the chain gave no answer.

    Args:
        message: the fault, as a sentence.
        next_step: advice; empty if there is none.
        code: as the attribute.

    Attributes:
        code: if a model gave no answer, the gateway's error code, such as ``TIMEOUT`` or
            ``BUDGET_EXHAUSTED``, or one of routing: ``CIRCUIT_OPEN`` if the model failed
            repeatedly, ``NO_ADAPTER`` if its provider is not registered or the model lacks a needed
            capability, ``ENSEMBLE_BUDGET`` or ``CONTRACT_ERROR``. Empty otherwise.
    """

    def __init__(self, message: str, *, next_step: str = "", code: str = "") -> None:
        super().__init__(message, next_step=next_step)
        self.code = code


# Earlier names, for programs that catch them; they end with version 1.0.
ModelCallError = CircuitOpenError = NoAdapterError = RoutingError


class WeightsError(RoutingError, ValueError):
    """The rules of scoring cannot be used."""


class ErasedHeadError(WeightsError):
    """The learned head of a decision was erased, because it was learned from erased content."""


@dataclass(frozen=True, slots=True)
class RouteAttempt:
    """A model of the chain that did not answer.

    Attributes:
        model_id: its name in the registry.
        provider_id: its provider.
        error: the reason.
        response: the gateway's response; None if the gateway was not asked.
    """

    model_id: str
    provider_id: str
    error: RoutingError
    response: PromptResponse | None = None

    @property
    def skipped(self) -> bool:
        """True if nothing was sent to the model."""
        return self.response is None or not self.response.dispatch_entry_id


class FallbackChainExhaustedError(RoutingError):
    """No model of the chain answered.

    Attributes:
        attempts: each model and its error, in the order of the chain.
        decision_id: the recorded decision; empty without one.
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
