"""Asking one candidate, through the gateway, and noting what came of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from remit.exchange import PromptRequest, PromptResponse, RouteOutcome, TextSink
from remit.gateway import CircuitState, Dispatched, Routed
from remit.providers import EventSink, UsageTold
from remit.routing.candidate import Candidate
from remit.routing.errors import CircuitOpenError, ModelCallError, NoAdapterError, RouteAttempt
from remit.routing.options import RouteOptions
from remit.routing.scoring import unmet_need

__all__ = ["Asking", "Listeners"]

# Refusals that no other model would change: of the request itself, or of who sends it.
_FINAL = frozenset(
    {
        "INVALID_INPUT", "AUTH_ERROR", "SESSION_NOT_YOURS", "TURN_LIMIT", "RATE_LIMITED",
        "NOT_ALLOCATED", "IDEMPOTENCY_CONFLICT", "IDEMPOTENCY_MISMATCH",
    }
)  # fmt: skip


class Listeners:
    """Passes a stream on, and knows whether any of it has been heard.

    Args:
        on_text: wants the answer's text.
        on_event: wants everything.
    """

    def __init__(self, on_text: TextSink | None = None, on_event: EventSink | None = None) -> None:
        self.began = False
        self.on_text = self._heard(on_text)
        self.on_event = self._heard(on_event)

    def _heard(self, listener: Callable[[Any], None] | None) -> Callable[[Any], None] | None:
        if listener is None:
            return None

        def hear(what: Any) -> None:
            if not isinstance(what, (Dispatched, UsageTold)):
                self.began = True
            listener(what)

        return hear


@dataclass(slots=True)
class Asking:
    """The calls of one routed request.

    Attributes:
        timeout_s: the longest that one model may take.
        failed: what stood against those that did not answer, in order.
        asked: every model that something was sent to, with what came of it.
        last: the response of the latest call.
        final: a refusal that no other model would change.
        cost_usd: of all calls; ``input_tokens`` and ``output_tokens`` likewise.
    """

    options: RouteOptions
    decision_id: str
    timeout_s: float
    failed: list[RouteAttempt] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    last: PromptResponse | None = None
    final: PromptResponse | None = None
    cost_usd: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def tried(self) -> int:
        """How many models were asked."""
        return len({one["model_id"] for one in self.asked})

    async def obstacle(self, one: Candidate, task: str) -> CircuitOpenError | NoAdapterError | None:
        """What forbids asking a candidate just now, before anything is written."""
        gateway = self.options.gateway
        if one.provider_id not in gateway.providers:
            return NoAdapterError(f"no provider {one.provider_id!r} is registered")
        if need := unmet_need(one, task):
            return NoAdapterError(f"{one.model_id} takes no {need}, and the call has some")
        state, retry_after_s = await gateway.circuit(one.provider_id, one.provider_model)
        if state is CircuitState.OPEN:
            later = f"; it is tried again in {retry_after_s:.1f} s" if retry_after_s else ""
            return CircuitOpenError(f"{one.model_id} failed repeatedly{later}")
        return None

    def skip(self, one: Candidate, error: CircuitOpenError | NoAdapterError) -> None:
        """Note that a candidate is passed over."""
        self.failed.append(RouteAttempt(one.model_id, one.provider_id, error))

    async def ask(
        self,
        one: Candidate,
        request: PromptRequest,
        *,
        listeners: Listeners | None = None,
        timeout_s: float | None = None,
        part: str = "",
        number: int = 1,
        retry_of: PromptResponse | None = None,
    ) -> PromptResponse | None:
        """One attempt: the answer, or ``None`` when there is none.

        Args:
            one: who is asked.
            request: what.
            listeners: hear the stream.
            timeout_s: instead of the model's own limit, where that is longer.
            part: which part of the whole this is, where one request makes several calls.
            number: which try of that part it is.
            retry_of: the call before it, of which it is another try.
        """
        options = self.options
        heard = listeners or Listeners()
        named = replace(
            request,
            provider_id=one.provider_id,
            model_id=one.provider_model,
            idempotency_key=_key_of(request.idempotency_key, part),
        )
        routed = Routed(
            decision_id=self.decision_id,
            asked_model_id=options.route or one.model_id,
            timeout_s=min(self.timeout_s, timeout_s or self.timeout_s),
            number=number,
            retry_of="" if retry_of is None else retry_of.exchange_entry_id,
            opens_turn=not self.asked,
        )
        noted: dict[str, Any] = {"model_id": one.model_id, "provider_id": one.provider_id}
        if part:
            noted["part"] = part
        self.asked.append(noted)
        try:
            response = await options.gateway.aroute(
                named,
                on_text=heard.on_text,
                on_event=heard.on_event,
                identity=options.identity,
                routed=routed,
            )
        except BaseException:
            noted["outcome"] = "cancelled"
            raise
        self.last = response
        self.cost_usd += response.cost_incurred
        self.input_tokens += response.input_tokens
        self.output_tokens += response.output_tokens
        if response.outcome is RouteOutcome.SUCCESS:
            noted.update(_told(response))
            return response
        error = ModelCallError(response.error_code or "ERROR", response.error_message or "")
        self.failed.append(RouteAttempt(one.model_id, one.provider_id, error, response))
        if response.dispatch_entry_id:
            noted.update(_told(response), error_code=error.code, error_message=error.message)
        else:
            self.asked = [other for other in self.asked if other is not noted]
            if response.error_code in _FINAL:
                self.final = response
        return None

    def skipped(self) -> list[dict[str, Any]]:
        """Candidates that nothing was sent to, and why."""
        return [
            {
                "model_id": one.model_id,
                "provider_id": one.provider_id,
                "code": one.error.code,
                "reason": one.error.message,
                **({"rejection_entry_id": one.response.exchange_entry_id} if one.response else {}),
            }
            for one in self.failed
            if one.skipped
        ]


def _told(response: PromptResponse) -> dict[str, Any]:
    return {
        "outcome": str(response.outcome),
        "latency_ms": response.latency_ms,
        "exchange_entry_id": response.exchange_entry_id,
    }


def _key_of(key: str | None, part: str) -> str | None:
    """The idempotency key of one part of a request that makes several calls."""
    if key is None or not part:
        return key
    return f"part-{hashlib.sha256(f'{part}|{key}'.encode('utf-8', 'replace')).hexdigest()}"
