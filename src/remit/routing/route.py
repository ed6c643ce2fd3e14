"""One request, routed: scored, asked for, decided, told (SPEC 7.1)."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from remit.kernel.canonical import canonical_json
from remit.kernel.errors import InvalidInputError
from remit.kernel.exchange import PromptRequest, PromptResponse, RouteOutcome, check_messages
from remit.kernel.loops import run_blocking
from remit.routing.calling import Asking, Listeners
from remit.routing.candidate import Candidate
from remit.routing.chain import walk
from remit.routing.considering import Considered, consider, name_of
from remit.routing.decision import (
    RoutingDecision,
    RoutingMode,
    build_routing_decision_record,
    hash_decision,
    new_decision_id,
)
from remit.routing.emitting import NO_OP_DECISION_EMITTER, emit
from remit.routing.ensemble import ask_ensemble
from remit.routing.errors import FallbackChainExhaustedError
from remit.routing.options import RouteOptions, RouteResult, model_timeout_s
from remit.routing.pipeline import run_stages
from remit.routing.scoring import ScoringInputs, task_of

__all__ = ["Outcome", "aroute_request", "needs_of", "route_and_tell", "route_request"]

Prompt = str | Sequence[Mapping[str, Any]]

_CONTRACT = "PRC-PASSTHROUGH-001"
_log = logging.getLogger("remit.routing")

# Of the reasons why nothing was sent, the one that tells the caller most.
_TELLING = ("BUDGET_EXHAUSTED", "ENSEMBLE_BUDGET", "MODEL_NOT_ALLOWED", "CIRCUIT_OPEN")
_CODES = {"ENSEMBLE_BUDGET": "BUDGET_EXHAUSTED", "NO_ADAPTER": "PROVIDER_NOT_FOUND"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a routed request, and what the emitter gave back for its decision.

    Attributes:
        result: ``None`` when no model answered.
        failure: why, then.
        asking: the calls that were made.
        told: what the emitter gave back; ``None`` without one, or when it failed.
        refusal: the one ``PROMPT_REJECTED`` of a request of which nothing was sent.
    """

    result: RouteResult | None
    failure: FallbackChainExhaustedError | None
    asking: Asking
    told: Any
    refusal: PromptResponse | None = None


def route_request(prompt: Prompt, options: RouteOptions) -> RouteResult:
    """:func:`aroute_request` for callers without an event loop."""
    return run_blocking(aroute_request(prompt, options))


async def aroute_request(prompt: Prompt, options: RouteOptions) -> RouteResult:
    """Choose a model for ``prompt`` and have it answer; the next best where one fails.

    Args:
        prompt: a text, or the messages of a conversation.
        options: candidates, rules, mode, and the gateway that every call goes through.

    Raises:
        FallbackChainExhaustedError: no model answered; it names each and its error.
        InvalidInputError: the prompt or an option cannot be used; nothing was sent.
        LedgerWriteError: a call could not be recorded.
    """
    outcome = await route_and_tell(prompt, options)
    if outcome.failure is not None:
        raise outcome.failure
    assert outcome.result is not None
    return outcome.result


async def route_and_tell(prompt: Prompt, options: RouteOptions) -> Outcome:
    """:func:`aroute_request` that gives a failure back instead of raising it."""
    started = time.perf_counter()
    request = _request(prompt, options)
    sent: Any = prompt if isinstance(prompt, str) else request.messages
    encoded = canonical_json(sent)  # what cannot be recorded is refused whoever is told
    task = task_of(options.task, needs_of(request))
    whole = _consider(options, options.candidates, prompt, task)
    timeout_s = options.model_timeout_s or model_timeout_s()
    asking = Asking(options, new_decision_id(), timeout_s)
    listeners = Listeners(options.on_text, options.on_event, request.dialect)
    stages: list[dict[str, Any]] = []
    if options.mode == "pipeline":
        plan = [
            (stage, _consider(options, stage.candidates, prompt, task) if stage.candidates
             else whole)
            for stage in options.stages
        ]  # fmt: skip
        run = await run_stages(asking, plan, request, listeners)
        answer, whole, stages = run.answer, run.considered, run.stages
    elif options.mode == "ensemble":
        answer, told = await ask_ensemble(asking, whole.chain, task, request)
        stages = [told]
        if answer is not None:
            _tell_whole(options, answer[1].content)
    else:
        answer = await walk(asking, whole.chain, task, request, listeners)
    refusal = await _refusal(options, asking, request) if answer is None else None
    emitted = None
    if (
        options.decision_emitter is not NO_OP_DECISION_EMITTER
        and not asking.only_replayed
        and (asking.asked or not _was_refused(asking))
    ):
        decision = _decision(options, asking, whole, (sent, encoded), request, answer, stages)
        emitted = await emit(options.decision_emitter, decision, options.emitter_timeout_s)
    if answer is None:
        failure = FallbackChainExhaustedError(asking.failed, decision_id=asking.decision_id)
        return Outcome(None, failure, asking, emitted, refusal)
    chosen, response = answer
    result = RouteResult(
        model_id=chosen.model_id,
        response=asking.with_all(response),
        scores=whole.scores,
        fallback_attempts=max(0, asking.tried - 1),
        latency_ms=round((time.perf_counter() - started) * 1000, 3),
        cost_usd=asking.cost_usd,
        decision_id=asking.decision_id,
    )
    return Outcome(result, None, asking, emitted)


async def _refusal(
    options: RouteOptions, asking: Asking, request: PromptRequest
) -> PromptResponse | None:
    """One ``PROMPT_REJECTED`` for the whole, where nothing was sent."""
    if asking.asked:
        return None
    named = replace(request, model_id=options.route or request.model_id)
    errors = {one.error.code: one.error.message for one in reversed(asking.failed)}
    if asking.final is not None:
        code = asking.final.error_code or "REJECTED"
        message, wait_s = asking.final.error_message or "", asking.final.retry_after_s
    else:
        first = next(iter(errors), "NO_ADAPTER")
        code = next((one for one in _TELLING if one in errors), first)
        message = errors.get(code, "there is no model to ask")
        wait_s = asking.retry_after_s if code == "CIRCUIT_OPEN" else None
    return await options.gateway.reject(
        named, _CODES.get(code, code), message, retry_after_s=wait_s, identity=options.identity
    )


def _was_refused(asking: Asking) -> bool:
    """Whether the gateway refused: then whoever asked may have no right to leave a trace."""
    return any(
        one.response is not None and one.response.outcome is RouteOutcome.REJECTED
        for one in asking.failed
    )


def _tell_whole(options: RouteOptions, text: str) -> None:
    """An answer that is there all at once, to who listens for its text."""
    if options.on_text is None or not text:
        return
    try:
        options.on_text(text)
    except Exception as error:  # noqa: BLE001 - a listener must not change the result
        _log.warning("the listener of an answer raised %s", type(error).__name__)


def needs_of(request: PromptRequest) -> list[str]:
    """What a call needs that not every model has: ``images``, ``tools``."""
    needs = ["tools"] if request.tools else []
    for message in request.messages or ():
        content = message.get("content")
        if not isinstance(content, str) and any(
            isinstance(block, Mapping) and block.get("type") == "image" for block in content or ()
        ):
            needs.append("images")
            break
    return needs


def _request(prompt: Prompt, options: RouteOptions) -> PromptRequest:
    """The request that candidates are asked, without a model."""
    base = options.request or PromptRequest(
        prompt="",
        prompt_pack_id="",
        contract_id=_CONTRACT,
        agent_id="",
        agent_class="RESIDENT",
        framework_id="",
        package_id="",
        work_order_id="",
        session_id=f"SES-{secrets.token_hex(8).upper()}",
        tier="ho1",
    )
    if isinstance(prompt, str):
        if not prompt.strip():
            raise InvalidInputError("The prompt is blank.")
        return replace(base, prompt=prompt, messages=None)
    if problem := check_messages(prompt):
        raise InvalidInputError(f"The messages cannot be sent: {problem}.")
    return replace(base, prompt="", messages=[dict(message) for message in prompt])


def _consider(
    options: RouteOptions, candidates: Sequence[Candidate], prompt: Prompt, task: str
) -> Considered:
    weights = options.rules_in_force.weights
    inputs = ScoringInputs(prompt, task, options.operator_preference, candidates, weights)
    return consider(inputs, options.scoring_fn)


def _decision(
    options: RouteOptions,
    asking: Asking,
    considered: Considered,
    prompt: tuple[Any, bytes],
    request: PromptRequest,
    answer: tuple[Candidate, PromptResponse] | None,
    stages: Sequence[Mapping[str, Any]],
) -> RoutingDecision:
    """The decision as it is told; the prompt comes with its canonical JSON."""
    chain = tuple(one.model_id for one in considered.chain)
    version = options.rules_in_force.version_hash
    chosen = answer[0].model_id if answer is not None else ""
    mode: RoutingMode = options.mode if answer is not None else "fail"
    # Canonical JSON, its keys in order: context and rules are the same for many decisions.
    inputs = b'{"candidates_considered":%b,"context":%b,"prompt":%b,"rule_version_hash":%b}' % (
        canonical_json(chain),
        considered.encoded["context"],
        prompt[1],
        canonical_json(version),
    )
    tried = max(0, asking.tried - 1) if answer is not None else len(asking.failed)
    record = build_routing_decision_record(
        routing_mode=mode,
        chosen_model_id=chosen,
        candidates_considered=chain,
        scores=considered.scores,
        fallback_attempts=tried,
        rule_version_hash=version,
        decision_hash=hash_decision(inputs, chosen),
    )
    return RoutingDecision(
        decision_id=asking.decision_id,
        record=record,
        prompt=prompt[0],
        context=considered.context,
        profiles=considered.profiles,
        skipped=asking.skipped(),
        attempts=asking.asked,
        stages=stages,
        scoring=name_of(options.scoring_fn),
        route=options.route,
        session_id=request.session_id,
        subject_id=request.subject_id,
        encoded=considered.encoded,
    )
