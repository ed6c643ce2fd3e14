"""Ensembles: several models answer at once, and their answers are joined."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from remit.kernel.canonical import canonical_json
from remit.kernel.errors import RemitError
from remit.kernel.exchange import PromptRequest, PromptResponse
from remit.kernel.json_text import JsonTextError, load_answer
from remit.routing.calls import JUDGE_PART, Answer, Calls
from remit.routing.candidate import Candidate
from remit.routing.errors import ModelCallError
from remit.routing.intent import text_asked
from remit.routing.options import EnsembleOptions

JUDGE_CONTRACT = "PRC-JUDGE-001"
"""The contract under which a model judges answers."""


async def ask_ensemble(
    calls: Calls, chain: Sequence[Candidate], task: str, request: PromptRequest
) -> tuple[Answer | None, dict[str, Any]]:
    """Ask the best candidates at once; return the joined answer and its summary for the decision.

    Calls that have not ended within the ensemble's time limit are cancelled. If no member answers,
    the other candidates are tried in order, provided that time is left and no bound on money is
    set.

    Args:
        calls: makes the calls.
        chain: the candidates, best first.
        task: the task and the needs of the call.
        request: the request.

    Returns:
        The winning candidate with the response, None if nobody answered; then ``join``,
        ``members``, ``answered``, ``joined`` (the rule that decided) and, for a vote, ``agreed``.

    Raises:
        LedgerWriteError: a call could not be recorded.
    """
    options = calls.options.ensemble
    members = await _members(calls, chain, task, request, options)
    loop = asyncio.get_running_loop()
    end = loop.time() + options.timeout_s
    tasks = {
        asyncio.ensure_future(calls.call(member, request, part=_part_of(member))): member
        for member in members
    }
    answers = await _gather(calls, tasks, options.timeout_s)
    ordered = [
        (candidate, answers[candidate.model_id])
        for candidate in members
        if candidate.model_id in answers
    ]
    summary: dict[str, Any] = {
        "join": options.join,
        "members": [candidate.model_id for candidate in members],
        "answered": [candidate.model_id for candidate, _ in ordered],
    }
    if not ordered:
        return await _from_the_rest(calls, chain, members, task, request, end), summary
    (winner, response), text, joined = await _join(calls, ordered, request)
    summary["joined"] = joined
    if joined == "vote":
        said = _plain_answer(response.content)
        summary["agreed"] = [
            candidate.model_id
            for candidate, other in ordered
            if _plain_answer(other.content) == said
        ]
    # Without the provider's own answer, which is of one call alone.
    changes: dict[str, Any] = {} if text is None else {"content": text, "content_blocks": None}
    return (winner, replace(response, reply=None, **changes)), summary


def _part_of(candidate: Candidate) -> str:
    return f"member {candidate.model_id}"


async def _from_the_rest(
    calls: Calls,
    chain: Sequence[Candidate],
    members: Sequence[Candidate],
    task: str,
    request: PromptRequest,
    end: float,
) -> Answer | None:
    """Return an answer of the candidates that were no members; None without one."""
    left_s = end - asyncio.get_running_loop().time()
    known = {candidate.model_id for candidate in members} | {
        candidate.model_id for candidate in calls.failed
    }
    rest = [candidate for candidate in chain if candidate.model_id not in known]
    if calls.options.ensemble.max_usd is not None or calls.final or left_s <= 0 or not rest:
        return None
    try:
        async with asyncio.timeout(left_s):
            return await calls.first_answer(rest, task, request, part="instead")
    except TimeoutError:
        return None


async def _members(
    calls: Calls,
    chain: Sequence[Candidate],
    task: str,
    request: PromptRequest,
    options: EnsembleOptions,
) -> list[Candidate]:
    """Return the first candidates that can be called, as many as size and money allow."""
    found: list[Candidate] = []
    left = None if options.max_usd is None else round(options.max_usd * 1e9)
    for candidate in chain:
        if len(found) >= options.size:
            break
        obstacle = await calls.obstacle(candidate, task)
        if obstacle is not None:
            calls.fail(candidate, obstacle)
            continue
        if left is not None:
            bound = calls.options.gateway.cost_bound(
                request, candidate.provider_id, candidate.provider_model
            )
            if bound is None or bound > left:
                why = "its price is unknown" if bound is None else (
                    f"it may cost {bound / 1e9:.6f} USD, and {left / 1e9:.6f} are left"
                )  # fmt: skip
                error = ModelCallError(
                    "ENSEMBLE_BUDGET", f"{candidate.model_id} is left out: {why}"
                )
                calls.fail(candidate, error)
                continue
            left -= bound
        found.append(candidate)
    return found


async def _gather(
    calls: Calls,
    tasks: Mapping[asyncio.Task[PromptResponse | None], Candidate],
    timeout_s: float,
) -> dict[str, PromptResponse]:
    """Return the answers that came in time, keyed by model; late calls are cancelled and noted."""
    if not tasks:
        return {}
    try:
        _, late = await asyncio.wait(tasks, timeout=timeout_s)
    except asyncio.CancelledError:
        await _cancel(tasks)
        raise
    await _cancel(late)
    answers: dict[str, PromptResponse] = {}
    errors: list[BaseException] = []
    for task, candidate in tasks.items():
        if task.cancelled():
            calls.late(candidate, _part_of(candidate), timeout_s)
        elif (error := task.exception()) is not None:
            errors.append(error)
        elif (response := task.result()) is not None:
            answers[candidate.model_id] = response
    if errors:  # every task has ended; the record could not be made
        raise errors[0]
    return answers


async def _cancel(tasks: Any) -> None:
    """Cancel calls and wait until their ends are recorded."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _join(
    calls: Calls, answers: Sequence[Answer], request: PromptRequest
) -> tuple[Answer, str | None, str]:
    """Return the winning answer, a text that replaces its own (or None), and the rule that
    decided.
    """
    texts = [response.content for _, response in answers]
    calls_tools = any(
        block.get("type") == "tool_use"
        for _, response in answers
        for block in response.content_blocks or ()
    )
    if len(answers) == 1 or calls_tools:
        return answers[0], None, "best_scored"
    join = calls.options.ensemble.join
    if join == "fields":
        found = join_by_fields(texts)
        if found is not None:
            return answers[found[0]], found[1], "fields"
        return answers[join_by_vote(texts)], None, "vote"
    if join == "judge":
        place = await _judged(calls, answers, request)
        if place is not None:
            return answers[place], None, "judge"
        return answers[0], None, "best_scored"
    return answers[join_by_vote(texts)], None, "vote"


async def _judged(calls: Calls, answers: Sequence[Answer], request: PromptRequest) -> int | None:
    """Return the place of the answer that a judge prefers; None without a usable verdict.

    The judge has the time limit of the members.
    """
    options = calls.options
    if options.prompts is None:
        return None
    question, _ = text_asked(request.prompt if request.messages is None else request.messages)
    variables = {"question": question, "answers": [response.content for _, response in answers]}
    try:
        asked = options.prompts.request(request, JUDGE_CONTRACT, variables)
    except RemitError:
        return None
    judges = options.ensemble.judge or [candidate for candidate, _ in answers]
    try:
        async with asyncio.timeout(options.ensemble.timeout_s):
            found = await calls.first_answer(judges, "any", asked, part=JUDGE_PART)
    except TimeoutError:
        return None
    if found is None:
        return None
    try:
        best = load_answer(found[1].content)["best"]
    except (JsonTextError, KeyError, TypeError, IndexError):
        return None
    return best - 1 if type(best) is int and 1 <= best <= len(answers) else None


def join_by_vote(answers: Sequence[str]) -> int:
    """Return the place, from 0, of the most frequent answer; case and white space are ignored.

    Args:
        answers: the answers, those of the best-scored models first.

    Returns:
        The place of the first answer of the largest group of equal answers. Of equal groups, the
        group of the best-scored model counts.
    """
    plain = [_plain_answer(answer) for answer in answers]
    votes = Counter(text for text in plain if text) or Counter(plain)  # blank: no vote
    most = max(votes.values())
    return next(place for place, text in enumerate(plain) if votes[text] == most)


def _plain_answer(answer: str) -> str:
    """Return an answer in the form that is compared: without extra white space, in lower case."""
    return " ".join(answer.split()).casefold()


def join_by_fields(answers: Sequence[str]) -> tuple[int, str] | None:
    """Join JSON objects into one with the most frequent value of each field.

    A field that most answers lack is left out. Of equally frequent values the best-scored one
    counts. Answers that are not JSON objects are ignored.

    Args:
        answers: the answers, those of the best-scored models first.

    Returns:
        The place, from 0, of the first answer that agrees with the result in most fields, and the
        result as JSON; None if no answer is a JSON object.
    """
    parsed: list[tuple[int, dict[str, bytes], dict[str, Any]]] = []
    for place, answer in enumerate(answers):
        value = _object(answer)
        if value is not None:
            encoded = {name: canonical_json(item) for name, item in value.items()}
            parsed.append((place, encoded, value))
    if not parsed:
        return None
    joined: dict[str, Any] = {}
    chosen: dict[str, bytes | None] = {}
    for name in dict.fromkeys(name for _, fields, _ in parsed for name in fields):
        values = [fields.get(name) for _, fields, _ in parsed]
        votes = Counter(values)
        most = max(votes.values())
        winner = chosen[name] = next(value for value in values if votes[value] == most)
        if winner is not None:
            joined[name] = next(v[name] for _, f, v in parsed if f.get(name) == winner)
    agreeing = [sum(fields.get(name) == value for name, value in chosen.items())
                for _, fields, _ in parsed]  # fmt: skip
    best = agreeing.index(max(agreeing))
    return parsed[best][0], orjson.dumps(joined).decode()


def _object(answer: str) -> dict[str, Any] | None:
    try:
        value = load_answer(answer)
        canonical_json(value)
    except RemitError:
        return None
    return value if isinstance(value, dict) else None
