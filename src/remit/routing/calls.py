"""The calls of one routed request, and the candidates that were tried or skipped."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from remit.gateway import Beside, CircuitState, Dispatched, FinishCall, Routed
from remit.gateway.auth import Identity
from remit.kernel.exchange import PromptRequest, PromptResponse, RouteOutcome, TextSink
from remit.providers import EventSink
from remit.routing.candidate import Candidate
from remit.routing.errors import ModelCallError, RouteAttempt
from remit.routing.exploration import Drawn
from remit.routing.options import RouteOptions
from remit.routing.scores import unmet_need

JUDGE_PART = "judge"
"""What the calls of an ensemble's judge are called among the attempts."""

Answer = tuple[Candidate, PromptResponse]
"""Who answered, and what."""

Deciding = Callable[[Candidate, list[dict[str, Any]], FinishCall], Beside | None]
"""Takes who answers, all calls with that one, and the step that puts the answer on record."""

# Refusals that no other model would change: of the request itself, or of who sends it.
_FINAL = frozenset(
    {
        "INVALID_INPUT", "AUTH_ERROR", "SESSION_NOT_YOURS", "TURN_LIMIT", "RATE_LIMITED",
        "NOT_ALLOCATED", "IDEMPOTENCY_CONFLICT", "IDEMPOTENCY_MISMATCH",
        "IDEMPOTENCY_ERASED",
    }
)  # fmt: skip

_OUTCOMES = {outcome: outcome.value for outcome in RouteOutcome}
_SUCCESS = _OUTCOMES[RouteOutcome.SUCCESS]

# Costs are as certain as the least certain of them.
_WEAKEST = ("unpriced", "upper_bound", "estimated", "measured")


class Listeners:
    """The listeners of a stream.

    Args:
        on_text: receives the answer's text; None for no listener.
        sink: receives every event; None for no listener.

    Attributes:
        began: True once a listener received content.
    """

    def __init__(self, on_text: TextSink | None = None, sink: EventSink | None = None) -> None:
        self.began = False
        self._on_text, self._sink = on_text, sink
        self.on_text = None if on_text is None else self._text
        if sink is not None:
            self.pass_on = sink.pass_on  # only what follows an event that was taken

    def _text(self, text: str) -> None:
        self.began = True
        assert self._on_text is not None
        self._on_text(text)

    @property
    def sink(self) -> EventSink | None:
        """This object if there is a sink, else None."""
        return None if self._sink is None else self

    async def take(self, event: Any) -> bool | None:
        """Pass one event to the sink and return the sink's result."""
        assert self._sink is not None
        passed = await self._sink.take(event)
        if type(event) is not Dispatched and passed is not False:
            self.began = True
        return passed


_NOTHING: Mapping[str, Any] = {}
_NOBODY = Listeners()


@dataclass(slots=True)
class Calls:
    """The calls of one routed request.

    Attributes:
        options: the options of the route.
        decision_id: the decision; empty if it is not recorded.
        timeout_s: longest wait for one model, in seconds.
        identity: the caller, if already authenticated.
        failed: the candidates that did not answer, in order.
        made: the calls made, for the decision's record.
        last: the response of the latest call.
        final: a refusal that another model would not change.
        retry_after_s: seconds until the first open circuit may be retried.
        responses: the response of each recorded call.
        deciding: called when an answer is about to be recorded; returns the step of the decision.
        drawn: the draw of the candidates' order; None without exploration.
    """

    options: RouteOptions
    decision_id: str
    timeout_s: float
    identity: Identity | None = None
    failed: list[RouteAttempt] = field(default_factory=list)
    made: list[dict[str, Any]] = field(default_factory=list)
    last: PromptResponse | None = None
    final: PromptResponse | None = None
    retry_after_s: float | None = None
    responses: list[PromptResponse] = field(default_factory=list)
    deciding: Deciding | None = None
    drawn: Drawn | None = None

    @property
    def cost_usd(self) -> float:
        """Cost of all calls in US dollars."""
        return sum((response.cost_incurred for response in self.responses), 0.0)

    @property
    def tried(self) -> int:
        """Number of models that were called."""
        return models_of(self.made)

    @property
    def only_replayed(self) -> bool:
        """True if every answer came from the ledger, so that nothing was decided now."""
        return bool(self.made) and all(call.get("replayed") for call in self.made)

    async def obstacle(self, candidate: Candidate, task: str) -> ModelCallError | None:
        """Return the reason why a candidate cannot be called now; None if it can.

        The reasons are an unregistered provider, an unmet need of the call, and an open circuit.

        Args:
            candidate: the candidate.
            task: the task and the needs of the call.
        """
        gateway = self.options.gateway
        if candidate.provider_id not in gateway.providers:
            return ModelCallError(
                "NO_ADAPTER", f"no provider {candidate.provider_id!r} is registered"
            )
        if "+" in task and (need := unmet_need(candidate, task)):
            message = f"{candidate.model_id} takes no {need}, and the call has some"
            return ModelCallError("NO_ADAPTER", message)
        if gateway.is_closed(candidate.provider_id, candidate.provider_model):
            return None
        state, retry_after_s = await gateway.circuit(
            candidate.provider_id, candidate.provider_model
        )
        if state is CircuitState.OPEN:
            later = ""
            if retry_after_s is not None:
                later = f"; the next attempt is in {retry_after_s:.1f} s"
                self.retry_after_s = min(self.retry_after_s or retry_after_s, retry_after_s)
            return ModelCallError("CIRCUIT_OPEN", f"{candidate.model_id} failed repeatedly{later}")
        return None

    async def bounds(
        self, chain: Sequence[Candidate], task: str, request: PromptRequest
    ) -> dict[str, float]:
        """Return the upper bound in US dollars of each candidate that can be called now.

        The keys are names of candidates. A candidate without a bound is left out.

        Args:
            chain: the candidates.
            task: the task and the needs of the call.
            request: the request.
        """
        found = {}
        for one in chain:
            if await self.obstacle(one, task) is not None:
                continue
            bound = self.options.gateway.cost_bound(request, one.provider_id, one.provider_model)
            if bound is not None:
                found[one.model_id] = bound / 1e9
        return found

    def fail(
        self,
        candidate: Candidate,
        error: ModelCallError,
        response: PromptResponse | None = None,
    ) -> None:
        """Note a candidate that did not answer or was skipped."""
        attempt = RouteAttempt(candidate.model_id, candidate.provider_id, error, response)
        self.failed.append(attempt)

    async def first_answer(
        self,
        chain: Sequence[Candidate],
        task: str,
        request: PromptRequest,
        listeners: Listeners | None = None,
        *,
        part: str = "",
    ) -> Answer | None:
        """Call the candidates in order; return the first that answers and its response, else None.

        A stream that has begun ends the chain, as no other model can continue it. A refusal that
        another model would not change ends the chain too.

        Args:
            chain: the candidates.
            task: the task and the needs of the call.
            request: the request.
            listeners: listeners of the stream; None for none.
            part: the part of the request that the call makes; empty if there is only one.
        """
        listeners = listeners or _NOBODY
        before: PromptResponse | None = None
        number = 1
        for candidate in chain:
            obstacle = await self.obstacle(candidate, task)
            if obstacle is not None:
                self.fail(candidate, obstacle)
                continue
            response = await self.call(
                candidate, request, listeners=listeners, part=part, number=number, retry_of=before
            )
            if response is not None:
                return candidate, response
            if self.last is not None and self.last.dispatch_entry_id:
                before, number = self.last, number + 1
            if listeners.began or self.final is not None:
                return None
        return None

    async def call(
        self,
        candidate: Candidate,
        request: PromptRequest,
        *,
        listeners: Listeners | None = None,
        part: str = "",
        number: int = 1,
        retry_of: PromptResponse | None = None,
    ) -> PromptResponse | None:
        """Make one attempt and return the answer; None if it failed, which is noted.

        The gateway records the attempt.

        Args:
            candidate: the model.
            request: the request.
            listeners: listeners of the stream; None for none.
            part: the part of the request that the call makes; empty if there is only one.
            number: number of the attempt at that part, from 1.
            retry_of: the response of the attempt before; None for the first.

        Raises:
            LedgerError: the call could not be recorded.
        """
        options = self.options
        listeners = listeners or _NOBODY
        if part and request.idempotency_key:
            request = replace(request, idempotency_key=_key_of(request.idempotency_key, part))
        noted: dict[str, Any] = {
            "model_id": candidate.model_id,
            "provider_id": candidate.provider_id,
        }
        if part:
            noted["part"] = part
        routed = Routed(
            decision_id=self.decision_id,
            asked_model_id=options.route or candidate.model_id,
            to=(candidate.provider_id, candidate.provider_model),
            model_name=candidate.model_id,
            timeout_s=self.timeout_s,
            number=number,
            retry_of="" if retry_of is None else retry_of.exchange_entry_id,
            fallback_from=tuple([(made.model_id, made.error.code) for made in self.failed]),
            drawn=_NOTHING if self.drawn is None else self._drawn(self.drawn, candidate, number),
            on_answer=functools.partial(self._answered, candidate, noted),
            on_record=functools.partial(self._recorded, noted),
        )
        response = await options.gateway.aroute(
            request,
            on_text=listeners.on_text,
            sink=listeners.sink,
            identity=self.identity,
            routed=routed,
        )
        self.last = response
        if response.replayed:
            noted["replayed"] = True
            self._recorded(noted, response)
        if response.outcome is RouteOutcome.SUCCESS:
            return response
        error = ModelCallError(response.error_code or "ERROR", _plain(response.error_message or ""))
        self.fail(candidate, error, response)
        if response.outcome is RouteOutcome.REJECTED and response.error_code in _FINAL:
            self.final = response
        return None

    def _drawn(self, drawn: Drawn, candidate: Candidate, number: int) -> Mapping[str, Any]:
        first = number == 1 and candidate is drawn.first
        return drawn.of_exchange if first else _NOTHING

    def late(self, candidate: Candidate, part: str, timeout_s: float) -> None:
        """Note a call that was cancelled at its time limit.

        Its record in :attr:`made` becomes a timeout.

        Args:
            candidate: the model.
            part: the part of the request that the call made.
            timeout_s: the limit in seconds.
        """
        error = ModelCallError("TIMEOUT", f"no answer within {timeout_s:g} s")
        failed: dict[str, Any] = {"error_code": error.code, "error_message": error.message}
        response = None
        for noted, recorded in zip(self.made, self.responses, strict=True):
            if noted.get("part") == part:
                noted |= {"outcome": "timeout", **failed}
                response = replace(recorded, outcome=RouteOutcome.TIMEOUT, **failed)
        self.fail(candidate, error, response)

    def skipped(self) -> list[dict[str, Any]]:
        """Return the candidates that nothing was sent to, with reasons."""
        return [
            {
                "model_id": attempt.model_id,
                "provider_id": attempt.provider_id,
                "code": attempt.error.code,
                "reason": attempt.error.message,
            }
            for attempt in self.failed
            if attempt.skipped
        ]

    def with_all(self, response: PromptResponse) -> PromptResponse:
        """Return a response with the tokens and the cost of all calls together."""
        if len(self.made) <= 1:
            return response
        made = self.responses
        certainties = {each.cost_certainty for each in made}
        return replace(
            response,
            input_tokens=sum(each.input_tokens for each in made),
            output_tokens=sum(each.output_tokens for each in made),
            cost_incurred=self.cost_usd,
            cost_known=all(each.cost_known for each in made),
            cost_certainty=next((name for name in _WEAKEST if name in certainties), ""),
        )

    def _answered(
        self, candidate: Candidate, noted: dict[str, Any], step: FinishCall, latency_ms: float
    ) -> Beside | None:
        if self.deciding is None:
            return None
        answered = {**noted, "outcome": _SUCCESS, "latency_ms": latency_ms}
        return self.deciding(candidate, [*self.made, answered], step)

    def _recorded(self, noted: dict[str, Any], response: PromptResponse) -> None:
        """Note a recorded call, also if its result is no longer awaited."""
        noted["outcome"] = _OUTCOMES[response.outcome]
        noted["latency_ms"] = response.latency_ms
        noted["exchange_entry_id"] = response.exchange_entry_id
        if response.outcome is not RouteOutcome.SUCCESS:
            noted["error_code"] = response.error_code or "ERROR"
            noted["error_message"] = _plain(response.error_message or "")
        self.made.append(noted)
        self.responses.append(response)


def models_of(calls: Sequence[Mapping[str, Any]]) -> int:
    """Return the number of different models in ``calls``."""
    return 1 if len(calls) == 1 else len({call["model_id"] for call in calls})


def _plain(text: str) -> str:
    """Return a provider's text without characters that a record cannot contain."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")


def _key_of(key: str, part: str) -> str:
    """Return the idempotency key of one part of a request that makes several calls."""
    return f"part-{hashlib.sha256(f'{part}|{key}'.encode('utf-8', 'replace')).hexdigest()}"
