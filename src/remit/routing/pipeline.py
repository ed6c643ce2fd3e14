"""Pipelines: named stages in order, each with its own chain, such as draft, critique, revise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from remit.gateway import Part, Parts
from remit.kernel.errors import RemitError
from remit.kernel.exchange import PromptRequest, PromptResponse
from remit.routing.candidate_order import Ranking
from remit.routing.choice import Answer, PartChoice, RouteChoice
from remit.routing.errors import RoutingError
from remit.routing.intent import text_asked
from remit.routing.options import Stage


def pipeline(
    choice: RouteChoice, stages: Sequence[tuple[Stage, Ranking]], request: PromptRequest
) -> Parts:
    """Yield the call of each stage in order, and return the answer. Only the last is streamed.

    A stage without a contract gets the caller's request, tools included. The answer is that of the
    last stage that revises, without a provider's own form; the first answer is the draft in any
    case. A draft that calls a tool ends the pipeline, because the caller has to run the tool. A
    stage without an answer, or whose contract cannot be used, ends it with the last failure, or
    None if no call was recorded. ``choice`` gets the answer, the ranking of the last stage that
    ran, and the record of each stage for the decision.

    Args:
        choice: the choice of the request.
        stages: each stage with its ranked candidates.
        request: the caller's request.
    """
    question, _ = text_asked(request.prompt if request.messages is None else request.messages)
    done: list[dict[str, Any]] = []
    notes: list[dict[str, str]] = []
    answer: Answer | None = None
    choice.stages = done
    for number, (stage, ranking) in enumerate(stages):
        choice.ranking = ranking
        own = PartChoice(choice, f"stage {stage.name}", ranking.chain, ranking.task)
        draft = answer[1].content if answer else ""
        variables = {"question": question, "draft": draft, "notes": notes}
        stage_request = _request(choice, stage, own, request, variables)
        if stage_request is not None:
            yield [Part(own.request(stage_request), own, number == len(stages) - 1)], None
        found = own.answer
        done.append(
            {
                "stage": stage.name,
                "model_id": found[0].model_id if found else "",
                "candidates_considered": [candidate.model_id for candidate in ranking.chain],
                "exchange_entry_id": found[1].exchange_entry_id if found else "",
            }
        )
        if found is None:
            return choice.last_failure()
        if stage.revises or answer is None:
            answer = found
            if _calls_a_tool(found[1]):
                break
        else:
            notes.append({"stage": stage.name, "text": found[1].content})
    assert answer is not None
    # Without the provider's own answer, which is of the last call alone.
    return choice.answered(answer[0], replace(answer[1], reply=None))


def _request(
    choice: RouteChoice,
    stage: Stage,
    own: PartChoice,
    request: PromptRequest,
    variables: dict[str, Any],
) -> PromptRequest | None:
    """Return the request of a stage; None if its contract cannot be used, which is noted."""
    if not stage.contract_id:
        return request
    assert choice.options.prompts is not None
    try:
        return choice.options.prompts.request(request, stage.contract_id, variables)
    except RemitError as error:
        message = f"stage {stage.name}: {error.message}"
        choice.fail(own.models[0], RoutingError(message, code="CONTRACT_ERROR"))
        return None


def _calls_a_tool(response: PromptResponse) -> bool:
    return any(block.get("type") == "tool_use" for block in response.content_blocks or ())
