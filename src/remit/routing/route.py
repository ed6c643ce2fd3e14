"""The routing of one request: rank the candidates, choose, and record the decision."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from remit.gateway import Parts
from remit.kernel.exchange import PromptResponse
from remit.kernel.loops import blocking
from remit.routing.candidate import Candidate
from remit.routing.candidate_order import Ranking, rank
from remit.routing.choice import RouteChoice, circuits_of, models_of
from remit.routing.ensemble import ensemble
from remit.routing.errors import FallbackChainExhaustedError
from remit.routing.options import RouteOptions, RouteResult, model_timeout_s
from remit.routing.pipeline import pipeline
from remit.routing.request import Asked, Prompt, asked_of
from remit.routing.scores import ScoringInputs, task_of
from remit.routing.weights import Rules

_log = logging.getLogger("remit.routing")


async def aroute_request(prompt: Prompt, options: RouteOptions) -> RouteResult:
    """Choose a model for ``prompt`` and return its answer; if it fails, try the next best.

    Each call is recorded by the gateway. The emitter of the options gets the decision, also if no
    model answered.

    Args:
        prompt: a text, or the messages of a conversation.
        options: candidates, rules, mode, and the gateway that makes the calls.

    Raises:
        FallbackChainExhaustedError: no model answered; the error names each model and its failure.
        RoutingError: the scoring function failed; nothing was sent.
        InvalidInputError: the prompt or an option cannot be used; nothing was sent.
        LedgerError: a canary or an exploring route cannot read the ledger; nothing was sent.
        LedgerWriteError: a call could not be recorded.
    """
    asked = asked_of(prompt, options.request)
    asked.emitter, asked.identity = options.decision_emitter, options.identity
    asked.on_text, asked.sink = options.on_text, options.sink
    return (await route(asked, options))[0]


route_request = blocking(aroute_request)


async def route(asked: Asked, options: RouteOptions) -> tuple[RouteResult, RouteChoice]:
    """Do as :func:`aroute_request` for a prepared request; return the choice too.

    If nothing was sent, one ``PROMPT_REJECTED`` is recorded.

    Args:
        asked: the request, its prompt and its listeners.
        options: candidates, rules, mode and gateway.

    Raises:
        FallbackChainExhaustedError: no model answered.
        RoutingError: the scoring function failed; nothing was sent.
        InvalidInputError: an option cannot be used; nothing was sent.
        LedgerError: a canary or an exploring route cannot read the ledger; nothing was sent.
        LedgerWriteError: a call could not be recorded.
    """
    started = time.perf_counter()
    choice = await choose(asked, options)
    request = asked.request
    if options.route:
        request = replace(request, model_id=options.route)
    await options.gateway.aroute(
        request, on_text=asked.on_text, sink=asked.sink, identity=asked.identity, choice=choice
    )
    if choice.answer is None:
        raise FallbackChainExhaustedError(choice.failed, decision_id=choice.id)
    chosen, response = choice.answer
    result = RouteResult(
        model_id=chosen.model_id,
        response=replace(response, decision_entry_id=""),  # an emitter changes no result
        scores=choice.ranking.scores,
        fallback_attempts=max(0, models_of(choice.made) - 1),
        latency_ms=round((time.perf_counter() - started) * 1000, 3),
        cost_usd=choice.cost_usd,
        decision_id=choice.id,
    )
    return result, choice


async def choose(asked: Asked, options: RouteOptions) -> RouteChoice:
    """Return the models to ask for a request, best first, and what to record. Sends nothing.

    A canary and an exploring route read the ledger. A call of a canary does not explore.

    Args:
        asked: the request and its prompt.
        options: candidates, rules and mode.

    Raises:
        InvalidInputError: an option cannot be used.
        RoutingError: the scoring function failed.
        LedgerError: a canary or an exploring route cannot read the ledger.
    """
    task = task_of(options.task, asked.needs)
    ranking = _rank(options, options.candidates, asked, task)
    choice = RouteChoice(options, asked, ranking)
    if choice.timeout_s is None:
        choice.timeout_s = model_timeout_s()
    if options.mode == "pipeline":
        plan = [
            (
                stage,
                _rank(options, stage.candidates, asked, task) if stage.candidates else ranking,
            )
            for stage in options.stages
        ]
        choice.make_parts = functools.partial(pipeline, stages=plan, request=asked.request)
    elif options.mode == "ensemble":
        open_circuits = await circuits_of(options, ranking.chain)
        choice.make_parts = functools.partial(_joined, asked=asked, open_circuits=open_circuits)
    elif options.canary is not None or options.exploration is not None:
        inputs = _inputs(options, options.candidates, asked, task)
        if options.canary is not None and await options.canary.enter(choice, inputs):
            return choice
        if (exploration := options.exploration) is not None:
            bounds = await _bounds(choice)
            drawn = await exploration.draw(choice.id, inputs, ranking.chain, bounds)
            choice.draw, choice.release = drawn, exploration.ended
            choice.models = choice.models_of(options, drawn.chain, task)
    return choice


def _joined(choice: RouteChoice, asked: Asked, open_circuits: Mapping[str, float | None]) -> Parts:
    """Do as :func:`ensemble`, and pass the joined answer to the text listener at once."""
    response: PromptResponse | None = yield from ensemble(choice, asked.request, open_circuits)
    if asked.on_text is not None and choice.answer is not None and choice.answer[1].content:
        try:
            asked.on_text(choice.answer[1].content)
        except Exception as error:  # noqa: BLE001 - a listener must not change the result
            _log.warning("the listener of an answer raised %s", type(error).__name__)
    return response


async def _bounds(choice: RouteChoice) -> dict[str, float]:
    """Return the upper bound in US dollars of each candidate that can be called now.

    The keys are names of candidates. A candidate without a bound is left out.
    """
    options, request = choice.options, choice.asked.request
    open_circuits = await circuits_of(options, choice.ranking.chain)
    found = {}
    for model in choice.models:
        if model.obstacle is None and model.name not in open_circuits:
            bound = options.gateway.cost_bound(request, model.provider_id, model.model_id)
            if bound is not None:
                found[model.name] = bound / 1e9
    return found


def _rank(
    options: RouteOptions, candidates: Sequence[Candidate], asked: Asked, task: str
) -> Ranking:
    return rank(_inputs(options, candidates, asked, task), options.scoring_fn)


def _inputs(
    options: RouteOptions, candidates: Sequence[Candidate], asked: Asked, task: str
) -> ScoringInputs:
    weights = (options.rules or Rules.shipped()).weights
    return ScoringInputs(
        asked.prompt,
        task,
        options.operator_preference,
        candidates,
        weights,
        asked.balance_nano,
        asked.warm_nano,
    )
