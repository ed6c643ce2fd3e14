"""The port of a router that chooses models, and its decision for one call."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from remit.gateway.auth import Identity
from remit.gateway.steps import Beside, FinishCall
from remit.kernel.exchange import ModelCapabilities, PromptRequest, PromptResponse, TextSink
from remit.providers import EventSink

__all__ = ["RequestRouter", "Routed"]

_log = logging.getLogger("remit.gateway")


@dataclass(slots=True)
class Routed:
    """A router's decision for one call: one attempt at one model, without fallbacks or retries.

    Attributes:
        decision_id: the routing decision.
        asked_model_id: the name that the caller asked for, such as ``auto``.
        to: provider and model.
        model_name: the chosen model's name in the registry.
        timeout_s: longest wait for an answer, or for the first piece of a stream, in seconds. The
            rest of a stream has the gateway's own limit.
        number: number of the attempt, from 1; the first counts as a turn.
        retry_of: the ``EXCHANGE`` of the attempt before.
        fallback_from: the models that did not answer, each with its error code.
        drawn: metadata of the exchange that state how the model was drawn at random.
        on_answer: called with the step that records an answer and the latency in milliseconds;
            returns a step to commit right after it.
        on_record: called with the response once it is recorded, also if the caller has gone away.
    """

    decision_id: str
    asked_model_id: str
    to: tuple[str, str]
    model_name: str
    timeout_s: float
    number: int = 1
    retry_of: str = ""
    fallback_from: tuple[tuple[str, str], ...] = ()
    drawn: Mapping[str, Any] = field(default_factory=dict)
    on_answer: Callable[[FinishCall, float], Beside | None] | None = None
    on_record: Callable[[PromptResponse], None] | None = None

    def answered(self, step: FinishCall, latency_ms: float) -> Beside | None:
        """Return the result of :attr:`on_answer`; None without one or if it fails, which is
        logged.
        """
        if self.on_answer is None:
            return None
        try:
            return self.on_answer(step, latency_ms)
        except Exception:  # noqa: BLE001 - see above
            _log.exception("a routed answer could not be recorded with its exchange")
            return None


class RequestRouter(Protocol):
    """Answers requests that name a route instead of a model."""

    def knows(self, name: str) -> bool:
        """Return True if ``name`` is a route."""
        ...

    def named(self, name: str) -> tuple[str, str] | None:
        """Return provider and model of a name in the registry; None for any other name."""
        ...

    async def aroute(
        self,
        request: PromptRequest,
        *,
        on_text: TextSink | None = None,
        sink: EventSink | None = None,
        identity: Identity | None = None,
    ) -> PromptResponse:
        """Choose a model and return its answer. Each attempt goes through the gateway again.

        Args:
            request: the request, whose ``model_id`` names a route.
            on_text: receives the answer's text; None to receive none.
            sink: receives every event of the stream; None to receive none.
            identity: the caller; None if unauthenticated.

        Raises:
            RemitError: the route cannot be used for this request.
        """
        ...

    def capabilities(self, request: PromptRequest) -> ModelCapabilities:
        """Return the capabilities of the models that may get ``request``."""
        ...
