"""How an order fails."""

from __future__ import annotations

from remit.kernel.errors import RemitError
from remit.kernel.exchange import PromptResponse, RouteOutcome

__all__ = ["WorkFailedError", "WorkLostError", "WorkParkedError", "failure_of"]

_OWN_WORDS = {
    "BUDGET_EXHAUSTED": "budget_exhausted",
    "UNPRICED": "budget_exhausted",
    "UNBOUNDED": "budget_exhausted",
    "NOT_ALLOCATED": "budget_exhausted",
    "TURN_LIMIT": "turn_limit_exceeded",
}


class WorkFailedError(RemitError):
    """The order cannot be completed.

    Attributes:
        code: one of the failure codes of SPEC 8.3, or the gateway's own.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class WorkLostError(RemitError):
    """Somebody else may be working on the order: this worker must not go on."""


class WorkParkedError(RemitError):
    """The order cannot go on before a person has decided something.

    Attributes:
        request_ids: ids of the ``APPROVAL_REQUESTED`` entries that wait.
    """

    def __init__(self, request_ids: tuple[str, ...]) -> None:
        super().__init__(f"Waiting for {', '.join(request_ids)}.")
        self.request_ids = request_ids


def failure_of(response: PromptResponse) -> WorkFailedError:
    """What an unsuccessful response means for the order."""
    code = response.error_code or ""
    if response.outcome is RouteOutcome.TIMEOUT:
        name = "timeout"
    else:
        name = _OWN_WORDS.get(code, code or "gateway_error")
    return WorkFailedError(name, response.error_message or "the gateway gave no answer")
