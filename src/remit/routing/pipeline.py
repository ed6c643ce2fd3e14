"""Pipelines: named stages in order, each with its own chain, such as draft, critique, revise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from remit.kernel.errors import RemitError
from remit.kernel.exchange import PromptRequest, PromptResponse
from remit.routing.calls import Answer, Calls, Listeners
from remit.routing.candidate_order import Ranking
from remit.routing.errors import ModelCallError
from remit.routing.intent import text_asked
from remit.routing.options import Stage


async def run_stages(
    calls: Calls,
    stages: Sequence[tuple[Stage, Ranking]],
    request: PromptRequest,
    listeners: Listeners,
) -> tuple[Answer | None, Ranking, list[dict[str, Any]]]:
    """Run the stages in order. Only the last is streamed.

    Stages without a contract get the caller's tools. An answer that calls a tool ends the pipeline,
    because the caller has to run the tool.

    Args:
        calls: makes the calls.
        stages: each stage with its ranked candidates.
        request: the caller's request.
        listeners: listeners of the last stage's stream.

    Returns:
        The answering candidate and its response, None if a stage failed; the candidates of the last
        stage that ran; the record of each stage for the decision.
    """
    question, _ = text_asked(request.prompt if request.messages is None else request.messages)
    done: list[dict[str, Any]] = []
    notes: list[dict[str, str]] = []
    answer: Answer | None = None
    for number, (stage, ranking) in enumerate(stages):
        found = None
        draft = answer[1].content if answer else ""
        stage_request = _request(
            calls, stage, ranking, request, {"question": question, "draft": draft, "notes": notes}
        )
        if stage_request is not None:
            found = await calls.first_answer(
                ranking.chain,
                ranking.task,
                stage_request,
                listeners if number == len(stages) - 1 else Listeners(),
                part=f"stage {stage.name}",
            )
        done.append(
            {
                "stage": stage.name,
                "model_id": found[0].model_id if found else "",
                "candidates_considered": [candidate.model_id for candidate in ranking.chain],
                "exchange_entry_id": found[1].exchange_entry_id if found else "",
            }
        )
        if found is None:
            return None, ranking, done
        if stage.revises or answer is None:
            answer = found
            if _calls_a_tool(found[1]):
                break
        else:
            notes.append({"stage": stage.name, "text": found[1].content})
    assert answer is not None
    # Without the provider's own answer, which is of the last call alone.
    return (answer[0], replace(answer[1], reply=None)), ranking, done


def _request(
    calls: Calls,
    stage: Stage,
    ranking: Ranking,
    request: PromptRequest,
    variables: dict[str, Any],
) -> PromptRequest | None:
    """Return the request of a stage; None if its contract cannot be used, which is noted."""
    if not stage.contract_id:
        return request
    assert calls.options.prompts is not None
    try:
        return calls.options.prompts.request(request, stage.contract_id, variables)
    except RemitError as error:
        message = f"stage {stage.name}: {error.message}"
        calls.fail(ranking.chain[0], ModelCallError("CONTRACT_ERROR", message))
        return None


def _calls_a_tool(response: PromptResponse) -> bool:
    return any(block.get("type") == "tool_use" for block in response.content_blocks or ())
