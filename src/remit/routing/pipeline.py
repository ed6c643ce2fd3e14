"""Named stages, one after the other, each with its own chain: draft, critique, revise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from remit.errors import InvalidInputError
from remit.exchange import PromptRequest, PromptResponse
from remit.routing.calling import Asking, Listeners
from remit.routing.candidate import Candidate
from remit.routing.chain import walk
from remit.routing.considering import Considered
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

    Raises:
        InvalidInputError: a stage has a contract, and nothing here makes prompts.
    """
    question, _ = text_asked(request.prompt if request.messages is None else request.messages)
    told: list[dict[str, Any]] = []
    notes: list[dict[str, str]] = []
    draft = ""
    made: list[PromptResponse] = []
    answer: tuple[Candidate, PromptResponse] | None = None
    considered = stages[0][1]
    for number, (stage, considered) in enumerate(stages):
        asked = request
        if stage.contract_id:
            if asking.options.prompts is None:
                raise InvalidInputError("Stages with a contract need something that makes prompts.")
            variables = {"question": question, "draft": draft, "notes": notes}
            asked = asking.options.prompts.request(request, stage.contract_id, variables)
        heard = listeners if number == len(stages) - 1 else Listeners()
        found = await walk(
            asking, considered.chain, considered.task, asked, heard, part=f"stage {stage.name}"
        )
        told.append(
            {
                "stage": stage.name,
                "model_id": found[0].model_id if found else "",
                "candidates_considered": [one.model_id for one in considered.chain],
                "exchange_entry_id": found[1].exchange_entry_id if found else "",
            }
        )
        if found is None:
            return StageRun(None, considered, told)
        made.append(found[1])
        if stage.revises or answer is None:
            answer, draft = found, found[1].content
            if _calls_a_tool(found[1]):
                break
        else:
            notes.append({"stage": stage.name, "text": found[1].content})
    assert answer is not None
    candidate, response = answer
    whole = replace(
        response,
        input_tokens=sum(one.input_tokens for one in made),
        output_tokens=sum(one.output_tokens for one in made),
        wire=None,
    )
    return StageRun((candidate, whole), considered, told)


def _calls_a_tool(response: PromptResponse) -> bool:
    return any(block.get("type") == "tool_use" for block in response.content_blocks or ())
