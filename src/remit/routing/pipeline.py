"""Named stages, one after the other, each with its own chain: draft, critique, revise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from remit.kernel.errors import RemitError
from remit.kernel.exchange import PromptRequest, PromptResponse
from remit.routing.calling import Asking, Listeners
from remit.routing.candidate import Candidate
from remit.routing.chain import walk
from remit.routing.considering import Considered
from remit.routing.errors import ModelCallError, RouteAttempt
from remit.routing.intent import text_asked
from remit.routing.options import Stage

__all__ = ["StageRun", "run_stages"]


@dataclass(frozen=True, slots=True)
class StageRun:
    """What a pipeline came to.

    Attributes:
        answer: who gave the answer, and it; ``None`` when a stage failed.
        considered: the candidates of the last stage that ran.
        stages: what each stage did.
    """

    answer: tuple[Candidate, PromptResponse] | None
    considered: Considered
    stages: list[dict[str, Any]]


async def run_stages(
    asking: Asking,
    stages: Sequence[tuple[Stage, Considered]],
    request: PromptRequest,
    listeners: Listeners,
) -> StageRun:
    """Run the stages in order. Only the last is heard as it comes.

    Tools are offered to stages without a contract; an answer that calls a tool ends the pipeline:
    it is for the caller to run it.
    """
    question, _ = text_asked(request.prompt if request.messages is None else request.messages)
    told: list[dict[str, Any]] = []
    notes: list[dict[str, str]] = []
    draft = ""
    answer: tuple[Candidate, PromptResponse] | None = None
    considered = stages[0][1]
    for number, (stage, considered) in enumerate(stages):
        asked = request
        if stage.contract_id:
            variables = {"question": question, "draft": draft, "notes": notes}
            made = _made(asking, stage, considered, request, variables)
            if made is None:
                return StageRun(None, considered, [*told, _told(stage, considered, None)])
            asked = made
        heard = listeners if number == len(stages) - 1 else Listeners()
        found = await walk(
            asking, considered.chain, considered.task, asked, heard, part=f"stage {stage.name}"
        )
        told.append(_told(stage, considered, found))
        if found is None:
            return StageRun(None, considered, told)
        if stage.revises or answer is None:
            answer, draft = found, found[1].content
            if _calls_a_tool(found[1]):
                break
        else:
            notes.append({"stage": stage.name, "text": found[1].content})
    assert answer is not None
    candidate, response = answer
    # Told anew, since the provider's own answer speaks of the last call alone.
    return StageRun((candidate, replace(response, wire=None)), considered, told)


def _made(
    asking: Asking,
    stage: Stage,
    considered: Considered,
    request: PromptRequest,
    variables: dict[str, Any],
) -> PromptRequest | None:
    """The request that a stage's contract makes; ``None`` where it cannot, which is noted."""
    assert asking.options.prompts is not None
    try:
        return asking.options.prompts.request(request, stage.contract_id, variables)
    except RemitError as error:
        first = considered.chain[0]
        failure = ModelCallError("CONTRACT_ERROR", f"stage {stage.name}: {error.message}")
        asking.failed.append(RouteAttempt(first.model_id, first.provider_id, failure))
        return None


def _told(
    stage: Stage, considered: Considered, found: tuple[Candidate, PromptResponse] | None
) -> dict[str, Any]:
    """What a decision keeps of a stage."""
    return {
        "stage": stage.name,
        "model_id": found[0].model_id if found else "",
        "candidates_considered": [one.model_id for one in considered.chain],
        "exchange_entry_id": found[1].exchange_entry_id if found else "",
    }


def _calls_a_tool(response: PromptResponse) -> bool:
    return any(block.get("type") == "tool_use" for block in response.content_blocks or ())
