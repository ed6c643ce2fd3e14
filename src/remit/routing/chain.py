"""One model after the other, until one answers (SPEC 7.1)."""

from __future__ import annotations

from collections.abc import Sequence

from remit.kernel.exchange import PromptRequest, PromptResponse
from remit.routing.calling import Asking, Listeners
from remit.routing.candidate import Candidate

__all__ = ["walk"]


async def walk(
    asking: Asking,
    chain: Sequence[Candidate],
    task: str,
    request: PromptRequest,
    listeners: Listeners | None = None,
    *,
    part: str = "",
) -> tuple[Candidate, PromptResponse] | None:
    """The first candidate of the chain that answers, and its answer.

    A stream that has begun is nobody else's to go on with; a refusal that no other model would
    change ends the chain too.
    """
    heard = listeners or Listeners()
    before: PromptResponse | None = None
    number = 1
    for one in chain:
        obstacle = await asking.obstacle(one, task)
        if obstacle is not None:
            asking.skip(one, obstacle)
            continue
        response = await asking.ask(
            one, request, listeners=heard, part=part, number=number, retry_of=before
        )
        if response is not None:
            return one, response
        if asking.last is not None and asking.last.dispatch_entry_id:
            before, number = asking.last, number + 1
        if heard.began or asking.final is not None:
            return None
    return None
