"""Calls that something else chose the model for: what it says of them, and how it is asked."""

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
    """One call of a routed request: one attempt at one model, no fallbacks, no retries.

    Attributes:
        decision_id: of the decision that it belongs to.
        asked_model_id: what the caller asked for, such as ``auto``.
        to: provider and model that are asked.
        model_name: the chosen model's name in the registry.
        timeout_s: the longest that an answer may take, in seconds, and the first piece of a
            stream; for the rest of it the gateway's own limit holds.
        number: which try of the same it is, from 1; a first try counts as a turn.
        retry_of: the ``EXCHANGE`` of the try before it.
        fallback_from: the models that were passed over, and the error code of each.
        drawn: metadata of its exchange that say how it was drawn.
        on_answer: called with the step that will put an answer on record, and how long the answer
            took in milliseconds; gives what goes on record right after it.
        on_record: called with the outcome once it is on record, also when the caller has gone away.
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
        """:attr:`on_answer`. What fails in it does not concern the call."""
        if self.on_answer is None:
            return None
        try:
            return self.on_answer(step, latency_ms)
        except Exception:  # noqa: BLE001 - see above
            _log.exception("a routed answer could not be noted with its exchange")
            return None


class RequestRouter(Protocol):
    """Answers requests that name a route instead of a model."""

    def knows(self, name: str) -> bool:
        """Whether ``name`` is a route."""
        ...

    def named(self, name: str) -> tuple[str, str] | None:
        """Provider and model behind a name of the registry; ``None`` where it is none."""
        ...

    async def aroute(
        self,
        request: PromptRequest,
        *,
        on_text: TextSink | None = None,
        sink: EventSink | None = None,
        identity: Identity | None = None,
    ) -> PromptResponse:
        """Choose a model and have it answer; each call goes through the gateway again."""
        ...

    def capabilities(self, request: PromptRequest) -> ModelCapabilities:
        """What the models that may get ``request`` can do."""
        ...
