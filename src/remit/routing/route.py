"""The routing of one request: rank the candidates, call them, record the decision."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from remit.gateway import Beside, FinishCall
from remit.kernel.exchange import PromptRequest, PromptResponse, RouteOutcome
from remit.kernel.loops import blocking
from remit.ledger import EncodedValue
from remit.routing.calls import Calls, Listeners, models_of
from remit.routing.candidate import Candidate
from remit.routing.candidate_order import Ranking, name_of, rank
from remit.routing.decision import (
    DecisionForm,
    RoutingDecision,
    RoutingMode,
    build_routing_decision_record,
    new_decision_id,
)
from remit.routing.emitters import (
    NO_OP_DECISION_EMITTER,
    NotTogetherError,
    ThoughtRecordEmitter,
    emit,
    outcome_of,
)
from remit.routing.ensemble import ask_ensemble
from remit.routing.errors import FallbackChainExhaustedError
from remit.routing.options import RouteOptions, RouteResult, model_timeout_s
from remit.routing.pipeline import run_stages
from remit.routing.request import Asked, Prompt, as_it_came, asked_of
from remit.routing.scores import ScoringInputs, task_of
from remit.routing.trail import ThoughtRecord
from remit.routing.weights import Rules

_log = logging.getLogger("remit.routing")

_NOT_DRAWN = {"propensity": 1.0}

# Of the reasons why nothing was sent, those that say most, in this order.
_REASONS = ("BUDGET_EXHAUSTED", "ENSEMBLE_BUDGET", "MODEL_NOT_ALLOWED", "CIRCUIT_OPEN")
_CODES = {"ENSEMBLE_BUDGET": "BUDGET_EXHAUSTED", "NO_ADAPTER": "PROVIDER_NOT_FOUND"}


@dataclass(slots=True)
class Outcome:
    """The outcome of a routed request.

    Attributes:
        result: the result; None if no model answered.
        failure: the error if no model answered; else None.
        calls: the calls made.
        emitted: the result of the decision's emitter; None without an emitter or if it failed.
        refusal: the recorded refusal of a request of which nothing was sent; else None.
    """

    result: RouteResult | None
    failure: FallbackChainExhaustedError | None
    calls: Calls
    emitted: Any
    refusal: PromptResponse | None = None

    @property
    def entry_id(self) -> str:
        """The ledger entry of the decision; empty if it was not recorded."""
        return self.emitted.entry_id if isinstance(self.emitted, ThoughtRecord) else ""

    def response(self) -> PromptResponse:
        """Return the response for the caller of the gateway, with the cost of all calls together.

        Without an answer the response is the refusal, or the last failure that was sent.
        """
        calls = self.calls
        if self.result is not None:
            response = self.result.response
            response.decision_entry_id = self.entry_id
            return response
        if self.refusal is not None:
            return replace(self.refusal, decision_entry_id=self.entry_id)
        # The last that was really sent says most.
        responses = [failed.response for failed in calls.failed if failed.response is not None]
        sent = [response for response in responses if response.outcome is not RouteOutcome.REJECTED]
        last = sent[-1] if sent else calls.responses[-1]
        if last.outcome is RouteOutcome.SUCCESS:  # a stage answered, a later one found no model
            last = replace(
                last, content="", content_blocks=None, reply=None, outcome=RouteOutcome.ERROR,
                error_code="ROUTE_FAILED", error_message="no model answered a stage of the route",
            )  # fmt: skip
        return replace(calls.with_all(last), decision_entry_id=self.entry_id)


async def aroute_request(prompt: Prompt, options: RouteOptions) -> RouteResult:
    """Choose a model for ``prompt`` and return its answer; if it fails, try the next best.

    Each call is recorded by the gateway. The emitter of the options gets the decision, also if no
    model answered.

    Args:
        prompt: a text, or the messages of a conversation.
        options: candidates, rules, mode, and the gateway that makes the calls.

    Raises:
        FallbackChainExhaustedError: no model answered; the error names each model and its failure.
        InvalidInputError: the prompt or an option cannot be used; nothing was sent.
        LedgerWriteError: a call could not be recorded.
    """
    asked = asked_of(prompt, options.request)
    asked.emitter, asked.identity = options.decision_emitter, options.identity
    asked.on_text, asked.sink = options.on_text, options.sink
    outcome = await route(asked, options)
    if outcome.failure is not None:
        raise outcome.failure
    assert outcome.result is not None
    return outcome.result


route_request = blocking(aroute_request)


async def route(asked: Asked, options: RouteOptions) -> Outcome:
    """Do as :func:`aroute_request`, but return a failure instead of raising it.

    If nothing was sent, one ``PROMPT_REJECTED`` is recorded.

    Args:
        asked: the request, its prompt and its listeners.
        options: candidates, rules, mode and gateway.

    Raises:
        InvalidInputError: an option cannot be used; nothing was sent.
        LedgerWriteError: a call could not be recorded.
    """
    started = time.perf_counter()
    request, prompt = asked.request, asked.prompt
    task = task_of(options.task, asked.needs)
    ranking = _rank(options, options.candidates, prompt, task)
    timeout_s = options.model_timeout_s or model_timeout_s()
    decision_id = new_decision_id()
    # Where nothing emits it, no exchange names a decision that is nowhere.
    named = "" if asked.emitter is NO_OP_DECISION_EMITTER else decision_id
    calls = Calls(options, named, timeout_s, asked.identity)
    listeners = Listeners(asked.on_text, asked.sink)
    emitter = asked.emitter
    beside: Beside | None = None
    stages: list[dict[str, Any]] = []
    if options.mode == "pipeline":
        plan = [
            (stage, _rank(options, stage.candidates, prompt, task) if stage.candidates else ranking)
            for stage in options.stages
        ]
        answer, ranking, stages = await run_stages(calls, plan, request, listeners)
    elif options.mode == "ensemble":
        answer, summary = await ask_ensemble(calls, ranking.chain, task, request)
        stages = [summary]
        if answer is not None:
            _pass_on(asked, answer[1].content)
    else:
        if isinstance(emitter, ThoughtRecordEmitter):

            def decide(
                chosen: Candidate, made: list[dict[str, Any]], step: FinishCall
            ) -> Beside | None:
                nonlocal beside
                exact = as_it_came(asked, step)
                decision = _decision(options, calls, ranking, asked, chosen, made, exact=exact)
                beside = emitter.with_answer(decision, step)
                return beside

            calls.deciding = decide
        chain, exploration = ranking.chain, options.exploration
        if exploration is None:
            answer = await calls.first_answer(chain, task, request, listeners)
        else:
            inputs = _inputs(options, options.candidates, prompt, task)
            bounds = await calls.bounds(chain, task, request)
            try:
                calls.drawn = await exploration.draw(decision_id, inputs, chain, bounds)
                answer = await calls.first_answer(calls.drawn.chain, task, request, listeners)
            finally:
                exploration.ended(decision_id)
    refusal = await _refusal(options, calls, request) if answer is None else None
    emitted = None
    if beside is not None and beside.future is not None:
        try:
            emitted = await outcome_of(beside.future, calls.decision_id, options.emitter_timeout_s)
        except NotTogetherError:
            beside = None
    if (beside is None or beside.future is None) and (
        emitter is not NO_OP_DECISION_EMITTER
        and not calls.only_replayed
        and (calls.made or not _was_refused(calls))
    ):
        chosen_one = answer[0] if answer is not None else None
        decision = _decision(options, calls, ranking, asked, chosen_one, calls.made, stages)
        emitted = await emit(emitter, decision, options.emitter_timeout_s)
    if answer is None:
        failure = FallbackChainExhaustedError(calls.failed, decision_id=decision_id)
        return Outcome(None, failure, calls, emitted, refusal)
    chosen, response = answer
    result = RouteResult(
        model_id=chosen.model_id,
        response=calls.with_all(response),
        scores=ranking.scores,
        fallback_attempts=max(0, calls.tried - 1),
        latency_ms=round((time.perf_counter() - started) * 1000, 3),
        cost_usd=calls.cost_usd,
        decision_id=decision_id,
    )
    return Outcome(result, None, calls, emitted)


async def _refusal(
    options: RouteOptions, calls: Calls, request: PromptRequest
) -> PromptResponse | None:
    """Record one ``PROMPT_REJECTED`` if nothing was sent, and return the refusal; else None."""
    if calls.made:
        return None
    named = replace(request, model_id=options.route or request.model_id)
    errors = {failed.error.code: failed.error.message for failed in reversed(calls.failed)}
    if calls.final is not None:
        code = calls.final.error_code or "REJECTED"
        message, wait_s = calls.final.error_message or "", calls.final.retry_after_s
    else:
        first = next(iter(errors), "NO_ADAPTER")
        code = next((name for name in _REASONS if name in errors), first)
        message = errors.get(code, "no model is available")
        wait_s = calls.retry_after_s if code == "CIRCUIT_OPEN" else None
    return await options.gateway.reject(
        named, _CODES.get(code, code), message, retry_after_s=wait_s, identity=calls.identity
    )


def _was_refused(calls: Calls) -> bool:
    """Return True if the gateway refused a call, so that the caller may not write a decision."""
    return any(
        failed.response is not None and failed.response.outcome is RouteOutcome.REJECTED
        for failed in calls.failed
    )


def _pass_on(asked: Asked, text: str) -> None:
    """Pass a joined answer to the text listener at once. A failure of the listener is logged."""
    if asked.on_text is None or not text:
        return
    try:
        asked.on_text(text)
    except Exception as error:  # noqa: BLE001 - a listener must not change the result
        _log.warning("the listener of an answer raised %s", type(error).__name__)


def _rank(
    options: RouteOptions, candidates: Sequence[Candidate], prompt: Prompt, task: str
) -> Ranking:
    return rank(_inputs(options, candidates, prompt, task), options.scoring_fn)


def _inputs(
    options: RouteOptions, candidates: Sequence[Candidate], prompt: Prompt, task: str
) -> ScoringInputs:
    weights = (options.rules or Rules.shipped()).weights
    return ScoringInputs(prompt, task, options.operator_preference, candidates, weights)


def _decision(
    options: RouteOptions,
    calls: Calls,
    ranking: Ranking,
    asked: Asked,
    answered: Candidate | None,
    made: list[dict[str, Any]],
    stages: Sequence[Mapping[str, Any]] = (),
    exact: Sequence[EncodedValue] = (),
) -> RoutingDecision:
    """Return the decision for the emitter."""
    chosen = answered.model_id if answered is not None else ""
    mode: RoutingMode = options.mode if answered is not None else "fail"
    tried = max(0, models_of(made) - 1) if answered is not None else len(calls.failed)
    version = (options.rules or Rules.shipped()).version_hash
    key = (mode, chosen, tried, version)
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
    request = asked.request
    return RoutingDecision(
        decision_id=calls.decision_id,
        record=found,
        prompt=asked.prompt,
        context=ranking.context,
        profiles=ranking.profiles,
        skipped=calls.skipped() if calls.failed else (),
        attempts=made,
        stages=stages,
        scoring=name_of(options.scoring_fn),
        route=options.route,
        session_id=request.session_id,
        subject_id=request.subject_id,
        drawn=_NOT_DRAWN if calls.drawn is None else calls.drawn.of_decision,
        encoded=ranking.encoded,
        exact=exact,
        text=text,
    )
