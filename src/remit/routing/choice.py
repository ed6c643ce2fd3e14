"""The choice of a router for one request: models in order, and the decision that is recorded.

The gateway makes the calls and tells the choice about each result. A choice does no I/O, except to
record its decision at the end.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from remit.gateway import Choice, CircuitState, DecisionStep, IsErased, Model, Parts, Refusal
from remit.kernel.errors import RemitError
from remit.kernel.exchange import PromptRequest, PromptResponse, RouteOutcome
from remit.ledger import EncodedValue, Prepared
from remit.routing.canary import Trial
from remit.routing.candidate import Candidate
from remit.routing.candidate_order import Ranking, name_of
from remit.routing.decision import (
    DecisionForm,
    RoutingDecision,
    RoutingMode,
    build_routing_decision_record,
    new_decision_id,
)
from remit.routing.emitters import NO_OP_DECISION_EMITTER, ThoughtRecordEmitter, emit
from remit.routing.errors import RouteAttempt, RoutingError
from remit.routing.exploration import Drawn
from remit.routing.options import RouteOptions
from remit.routing.request import Asked, as_it_came
from remit.routing.scores import unmet_need
from remit.routing.trail import ThoughtRecord
from remit.routing.weights import Rules

_log = logging.getLogger("remit.routing")

Answer = tuple[Candidate, PromptResponse]
"""The candidate that answered, and the response."""

# Refusals that no other model would change: of the request itself, or of its caller.
_FINAL = frozenset({
    "INVALID_INPUT", "AUTH_ERROR", "SESSION_NOT_YOURS", "TURN_LIMIT", "RATE_LIMITED",
    "NOT_ALLOCATED", "IDEMPOTENCY_CONFLICT", "IDEMPOTENCY_MISMATCH", "IDEMPOTENCY_ERASED",
})  # fmt: skip
# If nothing was sent, the first of these codes that a model was refused with is reported.
_REASONS = ("BUDGET_BUSY", "BUDGET_EXHAUSTED", "ENSEMBLE_BUDGET", "MODEL_NOT_ALLOWED",
            "CIRCUIT_OPEN")  # fmt: skip
_CODES = {"ENSEMBLE_BUDGET": "BUDGET_EXHAUSTED", "NO_ADAPTER": "PROVIDER_NOT_FOUND"}
_NOT_DRAWN = {"propensity": 1.0}
_NOTHING: Mapping[str, Any] = {}
_OUTCOMES = {outcome: outcome.value for outcome in RouteOutcome}
_SUCCESS = _OUTCOMES[RouteOutcome.SUCCESS]

# Costs are as certain as the least certain of them.
_WEAKEST = ("unpriced", "upper_bound", "estimated", "measured")


class _Routed(Choice):
    """The common rules of all choices of a router: each model is tried once, whatever fails."""

    is_routed = True

    def ends_call(self, code: str, *, by_budget: bool, is_first: bool) -> bool:
        """Return True if the request or its caller was refused, rather than the model."""
        return code in _FINAL

    def falls_back(self, code: str) -> bool:
        """Return True: any other model may be asked."""
        return True

    def circuit_open_text(self, model: Model, retry_after_s: float | None) -> str:
        """Return the reason for passing over a model whose circuit is open."""
        later = "" if retry_after_s is None else f"; the next attempt is in {retry_after_s:.1f} s"
        return f"{model.name} failed repeatedly{later}"


class RouteChoice(_Routed):
    """The choice for one routed request: the models to try, their results, and the decision.

    The gateway makes the calls. Each model is tried once; only a refusal in :attr:`final` ends the
    request early.

    Args:
        options: the options of the route.
        asked: the request, its prompt and its emitter.
        ranking: the candidates, best first.

    Attributes:
        ranking: the candidates in the order of the decision.
        decision_id: the decision; empty if the request has no emitter.
        failed: the candidates that did not answer or were skipped, in order.
        made: the calls made, for the decision's record.
        responses: the response of each recorded call.
        final: a refusal that another model would not change.
        stages: the record of stages or of an ensemble, for the decision.
        answer: the candidate that answered, and the response; None without an answer.
        draw: the draw of the candidates' order, or of the route; None if nothing was drawn.
        release: called with the decision when the choice is closed; None for no call.
        rules: the rules of the ranking.
        emitted: the result of the decision's emitter; None without an emitter or if it failed.
    """

    def __init__(self, options: RouteOptions, asked: Asked, ranking: Ranking) -> None:
        self.id = new_decision_id()
        registered = tuple(options.gateway.providers)
        models = ranking.models.get(registered)
        if models is None:
            models = self.models_of(options, ranking.chain, ranking.task)
            ranking.models[registered] = models
        super().__init__(models, options.route)
        self.options = options
        self.asked = asked
        self.ranking = ranking
        # An exchange names no decision that nobody records.
        self.decision_id = "" if asked.emitter is NO_OP_DECISION_EMITTER else self.id
        self.timeout_s = options.model_timeout_s
        self.failed: list[RouteAttempt] = []
        self.made: list[dict[str, Any]] = []
        self.responses: list[PromptResponse] = []
        self.final: Refusal | None = None
        self._waits_s: dict[str, float] = {}  # the shortest wait, keyed by the code of a refusal
        self.stages: Sequence[Mapping[str, Any]] = ()
        self.answer: Answer | None = None
        self.draw: Drawn | Trial | None = None
        self.release: Callable[[str], None] | None = None
        self.rules = options.rules or Rules.shipped()
        self.emitted: Any = None
        self.make_parts: Callable[[RouteChoice], Parts] | None = None
        self._step: DecisionStep | None = None

    @staticmethod
    def models_of(options: RouteOptions, candidates: Sequence[Candidate], task: str) -> list[Model]:
        """Return candidates as models, each with code and reason if it cannot be asked."""
        providers = options.gateway.providers
        return [
            Model(
                one.provider_id, one.provider_model, one.model_id,
                _obstacle(one, one.provider_id in providers, task),
            )
            for one in candidates
        ]  # fmt: skip

    @property
    def cost_usd(self) -> float:
        """Cost of all calls in US dollars."""
        return sum((one.cost_incurred for one in self.responses), 0.0)

    @property
    def entry_id(self) -> str:
        """The ledger entry of the decision; empty if it was not recorded."""
        return self.emitted.entry_id if isinstance(self.emitted, ThoughtRecord) else ""

    def parts(self) -> Parts | None:
        """Return the calls to make for an ensemble or a pipeline; None for one call."""
        return None if self.make_parts is None else self.make_parts(self)

    def drawn(self, model: Model, number: int) -> Mapping[str, Any]:
        """Return the metadata of an attempt that follows from the draw."""
        return _NOTHING if self.draw is None else self.draw.of_exchange(model.name, number)

    def follow(self, ranking: Ranking, rules: Rules) -> None:
        """Take the order of another route."""
        self.ranking, self.rules = ranking, rules
        self.models = self.models_of(self.options, ranking.chain, ranking.task)

    def decide(self, model: Model, latency_ms: float, exchange: Prepared) -> DecisionStep | None:
        """Return the step that records the decision with the answer; None for another emitter."""
        emitter = self.asked.emitter
        if not isinstance(emitter, ThoughtRecordEmitter):
            return None
        answered = {**_named(model), "outcome": _SUCCESS, "latency_ms": latency_ms}
        made = [*self.made, answered]
        decision = self._decision(model.name, made, exact=as_it_came(self.asked, exchange))
        self._step = emitter.with_answer(decision)
        return self._step

    def pass_over(self, model: Model, refusal: Refusal, response: PromptResponse) -> None:
        """Note a model that did not answer, for the decision and the error of the request.

        A rejection that another model would not change becomes :attr:`final`. Nothing is written.
        ``response`` is that of the call, sent or refused.
        """
        if refusal.code == "CIRCUIT_OPEN" and not response.dispatch_entry_id:
            self.note_open(model, refusal.retry_after_s)
            return
        error = RoutingError(_plain(refusal.message), code=refusal.code or "ERROR")
        self.fail(model, error, None if model.obstacle else response, refusal.retry_after_s)
        if response.outcome is RouteOutcome.REJECTED and refusal.code in _FINAL:
            self.final = refusal

    def _note_refused(self, response: PromptResponse, model: Model | None = None) -> None:
        """Note the refusal of a whole call in which no model was refused, for its first model."""
        code = response.error_code or ""
        if response.outcome is RouteOutcome.REJECTED and code in _FINAL and self.final is None:
            refused = Refusal(code, response.error_message or "", None, response.retry_after_s)
            self.pass_over(model or self.models[0], refused, response)

    def fail(
        self, model: Model, error: RoutingError, response: PromptResponse | None = None,
        wait_s: float | None = None,
    ) -> None:  # fmt: skip
        """Note a candidate that did not answer or was skipped, and how long to wait for it."""
        if wait_s is not None:
            self._waits_s[error.code] = min(self._waits_s.get(error.code, wait_s), wait_s)
        self.failed.append(RouteAttempt(model.name, model.provider_id, error, response))

    def note_open(self, model: Model, retry_after_s: float | None) -> None:
        """Note a candidate that is skipped because its circuit is open."""
        text = self.circuit_open_text(model, retry_after_s)
        self.fail(model, RoutingError(text, code="CIRCUIT_OPEN"), None, retry_after_s)

    def answered(self, candidate: Candidate, response: PromptResponse) -> PromptResponse:
        """Note the answer of a request that several calls were made for; return its response."""
        self.answer = candidate, response
        return response

    def note_recorded(self, model: Model, response: PromptResponse, part: str = "") -> None:
        """Add a recorded call to :attr:`made` and :attr:`responses`, also if no longer awaited.

        A successful call without a part becomes :attr:`answer`. Nothing is written.

        Args:
            model: the model.
            response: the response, with any outcome.
            part: the part of the request that the call made; empty if there is only one.
        """
        noted: dict[str, Any] = _named(model)
        if part:
            noted["part"] = part
        if response.replayed:
            noted["replayed"] = True
        noted["outcome"] = _OUTCOMES[response.outcome]
        noted["latency_ms"] = response.latency_ms
        noted["exchange_entry_id"] = response.exchange_entry_id
        if response.outcome is not RouteOutcome.SUCCESS:
            noted["error_code"] = response.error_code or "ERROR"
            noted["error_message"] = _plain(response.error_message or "")
        self.made.append(noted)
        self.responses.append(response)
        if not part and response.outcome is RouteOutcome.SUCCESS:
            for candidate in self.ranking.chain:
                if candidate.model_id == model.name:
                    self.answer = candidate, response

    def refusal(self, refusals: Sequence[Refusal]) -> Refusal:
        """Return the refusal to record if nothing was sent. ``refusals`` is ignored.

        :attr:`final` comes first. Else the code is the first of ``BUDGET_BUSY``,
        ``BUDGET_EXHAUSTED``, ``MODEL_NOT_ALLOWED`` and ``CIRCUIT_OPEN`` that a candidate has, else
        that of the last failed one, else ``PROVIDER_NOT_FOUND``, with the message of its first
        candidate and the shortest of their waits.
        """
        if (final := self.final) is not None:
            return Refusal(final.code or "REJECTED", final.message, None, final.retry_after_s)
        errors = {failed.error.code: failed.error.message for failed in reversed(self.failed)}
        first = next(iter(errors), "NO_ADAPTER")
        code = next((name for name in _REASONS if name in errors), first)
        message = errors.get(code, "no model is available")
        return Refusal(_CODES.get(code, code), message, None, self._waits_s.get(code))

    async def ended(self, response: PromptResponse, is_erased: IsErased) -> PromptResponse:
        """Emit the decision unless it was recorded with the answer; return the whole response.

        Nothing is emitted without an emitter, if all calls were replayed, if the request itself was
        refused before any call, or if an erasure may reach the request. A failure to emit is
        logged. After several calls the response has their tokens, cost and attempts together. Its
        ``decision_entry_id`` is set.
        """
        self._note_refused(response)
        step, emitter = self._step, self.asked.emitter
        if step is not None and step.result is not None:
            self.emitted = step.result
        elif (
            emitter is not NO_OP_DECISION_EMITTER
            and self._is_decided(response)
            and not await is_erased()
        ):
            chosen = self.answer[0].model_id if self.answer is not None else ""
            try:
                decision = self._decision(chosen, self.made)
                self.emitted = await emit(emitter, decision, self.options.emitter_timeout_s)
            except RemitError as error:  # the answer counts in any case
                _log.error("the decision %s is not emitted: %s", self.id, error.message)
        if len(self.made) > 1:
            response = self._with_all(response)
        if self.answer is not None:
            self.answer = self.answer[0], response
        response.decision_entry_id = self.entry_id
        return response

    async def abandon(self, is_erased: IsErased) -> None:
        """Emit the decision of a cancelled request if one of its calls was recorded."""
        if self.responses:
            await self.ended(self.responses[-1], is_erased)

    def close(self) -> None:
        """Release the upper bound that the draw holds."""
        if self.release is not None:
            self.release(self.id)

    def _is_decided(self, response: PromptResponse) -> bool:
        """Return False for replayed calls, and for a request refused by ``PROMPT_REJECTED``."""
        if self.made:
            return not all(call.get("replayed") for call in self.made)
        refused = response.error_code in _FINAL or any(
            failed.response is not None and failed.response.outcome is RouteOutcome.REJECTED
            for failed in self.failed
        )
        return not refused

    def skipped(self) -> list[dict[str, Any]]:
        """Return the candidates that nothing was sent to, in order.

        The keys of each are ``model_id``, ``provider_id``, ``code`` and ``reason``.
        """
        return [
            {"model_id": attempt.model_id, "provider_id": attempt.provider_id,
             "code": attempt.error.code, "reason": attempt.error.message}
            for attempt in self.failed
            if attempt.skipped
        ]  # fmt: skip

    def last_failure(self) -> PromptResponse | None:
        """Return the response of a request whose parts have no answer; None without recorded calls.

        The response is that of the last candidate that was asked and failed, else of the last call.
        A successful one becomes an error with the code ``ROUTE_FAILED`` and no content.
        """
        if not self.made:
            return None
        responses = [failed.response for failed in self.failed if failed.response is not None]
        sent = [response for response in responses if response.outcome is not RouteOutcome.REJECTED]
        last = sent[-1] if sent else self.responses[-1]
        if last.outcome is RouteOutcome.SUCCESS:  # a stage answered, a later one found no model
            last = replace(
                last, content="", content_blocks=None, reply=None, outcome=RouteOutcome.ERROR,
                error_code="ROUTE_FAILED", error_message="no model answered a stage of the route",
            )  # fmt: skip
        return last

    def _with_all(self, response: PromptResponse) -> PromptResponse:
        """Return a response with the attempts, the tokens and the cost of all calls together."""
        made = self.responses
        certainties = {each.cost_certainty for each in made}
        return replace(
            response,
            input_tokens=sum(each.input_tokens for each in made),
            output_tokens=sum(each.output_tokens for each in made),
            cost_incurred=self.cost_usd,
            cost_known=all(each.cost_known for each in made),
            cost_certainty=next((name for name in _WEAKEST if name in certainties), ""),
            attempts=sum(not each.replayed for each in made),
        )

    def _decision(
        self, chosen: str, made: list[dict[str, Any]], exact: Sequence[EncodedValue] = ()
    ) -> RoutingDecision:
        """Return the decision for the emitter; ``chosen`` is empty if no model answered."""
        options, ranking, asked = self.options, self.ranking, self.asked
        mode: RoutingMode = options.mode if chosen else "fail"
        tried = max(0, models_of(made) - 1) if chosen else len(self.failed)
        key = (mode, chosen, tried, version := self.rules.version_hash)
        form = ranking.forms.get(key)
        if form is None:
            record = build_routing_decision_record(
                routing_mode=mode,
                chosen_model_id=chosen,
                candidates_considered=[candidate.model_id for candidate in ranking.chain],
                scores=ranking.scores,
                fallback_attempts=tried,
                rule_version_hash=version,
                decision_hash="0" * 64,  # each decision has its own
            )
            form = ranking.forms[key] = DecisionForm(record, ranking.encoded["context"].encoded)
        found, text = form.of(asked.encoded)
        return RoutingDecision(
            decision_id=self.id,
            record=found,
            prompt=asked.prompt,
            context=ranking.context,
            profiles=ranking.profiles,
            skipped=self.skipped() if self.failed else (),
            attempts=made,
            stages=self.stages,
            scoring=name_of(options.scoring_fn),
            route=options.route,
            session_id=asked.request.session_id,
            subject_id=asked.request.subject_id,
            drawn=_NOT_DRAWN if self.draw is None else self.draw.of_decision,
            encoded=ranking.encoded,
            exact=exact,
            text=text,
        )


class PartChoice(_Routed):
    """The models of one part of a routed request, such as a stage; without its own decision.

    Args:
        whole: the choice of the request, which is told about each result.
        name: the part, as the decision lists it.
        candidates: the models, in order.
        task: the task and the needs of the call.

    Attributes:
        answer: the candidate that answered, and the response; None without an answer.
    """

    is_part = True

    def __init__(
        self, whole: RouteChoice, name: str, candidates: Sequence[Candidate], task: str
    ) -> None:
        super().__init__(whole.models_of(whole.options, candidates, task), whole.asked_model_id)
        self.whole = whole
        self.name = name
        self.decision_id = whole.decision_id
        self.timeout_s = whole.timeout_s
        self.passed_over = [(one.model_id, one.error.code) for one in whole.failed]
        self.candidates = candidates
        self.answer: Answer | None = None

    def pass_over(self, model: Model, refusal: Refusal, response: PromptResponse) -> None:
        """Note a model that did not answer in the choice of the whole request."""
        self.whole.pass_over(model, refusal, response)

    def refusal(self, refusals: Sequence[Refusal]) -> Refusal:
        """Return the refusal of the whole request, which alone is recorded."""
        return self.whole.refusal(refusals)

    def note_recorded(self, model: Model, response: PromptResponse) -> None:
        """Note a recorded call of this part in the choice of the whole request."""
        self.whole.note_recorded(model, response, self.name)
        if response.outcome is RouteOutcome.SUCCESS:
            chosen = next(one for one in self.candidates if one.model_id == model.name)
            self.answer = chosen, response

    async def ended(self, response: PromptResponse, is_erased: IsErased) -> PromptResponse:
        """Note a refusal of the part's request in the choice of the whole; return the response."""
        self.whole._note_refused(response, self.models[0])
        return response

    def request(self, request: PromptRequest) -> PromptRequest:
        """Return the request with an idempotency key of the part's own, if it has a key."""
        if not request.idempotency_key:
            return request
        text = f"{self.name}|{request.idempotency_key}".encode("utf-8", "replace")
        return replace(request, idempotency_key=f"part-{hashlib.sha256(text).hexdigest()}")

    def note_late(self, timeout_s: float) -> None:
        """Note that the call was cancelled after ``timeout_s`` seconds.

        In the decision it is a ``TIMEOUT``, also with a recorded answer. The ledger is unchanged.
        """
        error = RoutingError(f"no answer within {timeout_s:g} s", code="TIMEOUT")
        failed: dict[str, Any] = {"error_code": error.code, "error_message": error.message}
        response = None
        for noted, recorded in zip(self.whole.made, self.whole.responses, strict=True):
            if noted.get("part") == self.name:
                noted |= {"outcome": "timeout", **failed}
                response = replace(recorded, outcome=RouteOutcome.TIMEOUT, **failed)
        self.whole.fail(self.models[0], error, response)


async def circuits_of(options: RouteOptions, chain: Sequence[Candidate]) -> dict[str, float | None]:
    """Return the open circuits of candidates: seconds until a retry, keyed by candidate's name."""
    found: dict[str, float | None] = {}
    gateway = options.gateway
    for one in chain:
        if not gateway.is_closed(one.provider_id, one.provider_model):
            state, wait_s = await gateway.circuit(one.provider_id, one.provider_model)
            if state is CircuitState.OPEN:
                found[one.model_id] = wait_s
    return found


def _obstacle(candidate: Candidate, is_registered: bool, task: str) -> tuple[str, str] | None:
    """Return code and reason why a candidate can never be called for a task; None if it can."""
    if not is_registered:
        return "NO_ADAPTER", f"no provider {candidate.provider_id!r} is registered"
    if "+" in task and (need := unmet_need(candidate, task)):
        return "NO_ADAPTER", f"{candidate.model_id} takes no {need}, and the call has some"
    return None


def _named(model: Model) -> dict[str, Any]:
    return {"model_id": model.name, "provider_id": model.provider_id}


def models_of(calls: Sequence[Mapping[str, Any]]) -> int:
    """Return the number of different models in ``calls``."""
    return 1 if len(calls) == 1 else len({call["model_id"] for call in calls})


def _plain(text: str) -> str:
    """Return a provider's text without characters that a record cannot contain."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")
