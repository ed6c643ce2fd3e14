"""Several models at once, their answers made one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from remit.kernel.errors import RemitError
from remit.kernel.exchange import PromptRequest, PromptResponse
from remit.routing.calling import Asking
from remit.routing.candidate import Candidate
from remit.routing.chain import walk
from remit.routing.errors import ModelCallError, RouteAttempt
from remit.routing.explaining import JUDGE_PART
from remit.routing.intent import text_asked
from remit.routing.joining import join_by_fields, join_by_vote, plain_answer
from remit.routing.options import EnsembleOptions

__all__ = ["JUDGE_CONTRACT", "ask_ensemble"]

JUDGE_CONTRACT = "PRC-JUDGE-001"
"""The contract under which a model judges answers."""

Answer = tuple[Candidate, PromptResponse]


async def ask_ensemble(
    asking: Asking, chain: Sequence[Candidate], task: str, request: PromptRequest
) -> tuple[Answer | None, dict[str, Any]]:
    """Ask the best of the chain at once; the joined answer, and how it came about.

    Who cannot be asked makes room for the next; who does not answer in time does not count. Where
    nobody answers, the rest of the chain is tried one by one, if there is time and no bound of
    money.
    """
    options = asking.options.ensemble
    members = await _members(asking, chain, task, request, options)
    loop = asyncio.get_running_loop()
    end = loop.time() + options.timeout_s
    calls = {
        asyncio.ensure_future(asking.ask(one, request, part=_part_of(one))): one for one in members
    }
    answers = await _gather(asking, calls, options.timeout_s)
    ordered = [(one, answers[one.model_id]) for one in members if one.model_id in answers]
    told: dict[str, Any] = {
        "join": options.join,
        "members": [one.model_id for one in members],
        "answered": [one.model_id for one, _ in ordered],
    }
    if not ordered:
        return await _from_the_rest(asking, chain, members, task, request, end), told
    (winner, response), text, joined = await _join(asking, ordered, request)
    told["joined"] = joined
    if joined == "vote":
        said = plain_answer(response.content)
        told["agreed"] = [
            one.model_id for one, other in ordered if plain_answer(other.content) == said
        ]
    return (winner, _as_one(response, text)), told


def _part_of(one: Candidate) -> str:
    return f"member {one.model_id}"


async def _from_the_rest(
    asking: Asking,
    chain: Sequence[Candidate],
    members: Sequence[Candidate],
    task: str,
    request: PromptRequest,
    end: float,
) -> Answer | None:
    """An answer of those that were no members, when no member gave one."""
    left_s = end - asyncio.get_running_loop().time()
    known = {one.model_id for one in members} | {one.model_id for one in asking.failed}
    rest = [one for one in chain if one.model_id not in known]
    if asking.options.ensemble.max_usd is not None or asking.final or left_s <= 0 or not rest:
        return None
    try:
        async with asyncio.timeout(left_s):
            return await walk(asking, rest, task, request, part="instead")
    except TimeoutError:
        return None


async def _members(
    asking: Asking,
    chain: Sequence[Candidate],
    task: str,
    request: PromptRequest,
    options: EnsembleOptions,
) -> list[Candidate]:
    """The first of the chain that can be asked, as many as size and money allow."""
    found: list[Candidate] = []
    left = None if options.max_usd is None else round(options.max_usd * 1e9)
    for one in chain:
        if len(found) >= options.size:
            break
        obstacle = await asking.obstacle(one, task)
        if obstacle is not None:
            asking.skip(one, obstacle)
            continue
        if left is not None:
            bound = asking.options.gateway.cost_bound(request, one.provider_id, one.provider_model)
            if bound is None or bound > left:
                why = "nobody knows its price" if bound is None else (
                    f"it may cost {bound / 1e9:.6f} USD, and {left / 1e9:.6f} are left"
                )  # fmt: skip
                error = ModelCallError("ENSEMBLE_BUDGET", f"{one.model_id} is left out: {why}")
                asking.failed.append(RouteAttempt(one.model_id, one.provider_id, error))
                continue
            left -= bound
        found.append(one)
    return found


async def _gather(
    asking: Asking,
    calls: Mapping[asyncio.Task[PromptResponse | None], Candidate],
    timeout_s: float,
) -> dict[str, PromptResponse]:
    """The answers that came in time, by model; calls that are cut off are on record as such."""
    if not calls:
        return {}
    try:
        _, late = await asyncio.wait(calls, timeout=timeout_s)
    except asyncio.CancelledError:
        await _cancel(calls)
        raise
    await _cancel(late)
    answers: dict[str, PromptResponse] = {}
    errors: list[BaseException] = []
    for call, one in calls.items():
        if call.cancelled():
            asking.late(one, _part_of(one), timeout_s)
        elif (error := call.exception()) is not None:
            errors.append(error)
        elif (response := call.result()) is not None:
            answers[one.model_id] = response
    if errors:  # all have been heard of; the record could not be made
        raise errors[0]
    return answers


async def _cancel(calls: Any) -> None:
    """End calls, and wait until their end is on record."""
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


async def _join(
    asking: Asking, answers: Sequence[Answer], request: PromptRequest
) -> tuple[Answer, str | None, str]:
    """The answer that counts, another text for it, and by what it was found."""
    texts = [response.content for _, response in answers]
    calls_tools = any(
        block.get("type") == "tool_use"
        for _, response in answers
        for block in response.content_blocks or ()
    )
    if len(answers) == 1 or calls_tools:
        return answers[0], None, "best_scored"
    join = asking.options.ensemble.join
    if join == "fields":
        found = join_by_fields(texts)
        if found is not None:
            return answers[found[0]], found[1], "fields"
        return answers[join_by_vote(texts)], None, "vote"
    if join == "judge":
        place = await _judged(asking, answers, request)
        if place is not None:
            return answers[place], None, "judge"
        return answers[0], None, "best_scored"
    return answers[join_by_vote(texts)], None, "vote"


async def _judged(asking: Asking, answers: Sequence[Answer], request: PromptRequest) -> int | None:
    """Which answer a model prefers; ``None`` where it cannot be asked or says nothing usable.

    It has as long as the members had.
    """
    options = asking.options
    if options.prompts is None:
        return None
    question, _ = text_asked(request.prompt if request.messages is None else request.messages)
    variables = {"question": question, "answers": [response.content for _, response in answers]}
    try:
        asked = options.prompts.request(request, JUDGE_CONTRACT, variables)
    except RemitError:
        return None
    judges = options.ensemble.judge or [one for one, _ in answers]
    try:
        async with asyncio.timeout(options.ensemble.timeout_s):
            found = await walk(asking, judges, "any", asked, part=JUDGE_PART)
    except TimeoutError:
        return None
    if found is None:
        return None
    try:
        best = orjson.loads(found[1].content)["best"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    return best - 1 if type(best) is int and 1 <= best <= len(answers) else None


def _as_one(response: PromptResponse, text: str | None) -> PromptResponse:
    """The answer that counts; told anew, since the provider's own speaks of one call alone."""
    changes: dict[str, Any] = {} if text is None else {"content": text, "content_blocks": None}
    return replace(response, wire=None, **changes)
