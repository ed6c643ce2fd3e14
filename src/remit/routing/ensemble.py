"""Ensembles: several models answer at once, and their answers are joined."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from remit.gateway import Part, Parts
from remit.kernel.canonical import canonical_json
from remit.kernel.errors import RemitError
from remit.kernel.exchange import PromptRequest
from remit.kernel.json_text import JsonTextError, load_answer
from remit.kernel.message_text import fixed
from remit.routing.candidate import Candidate
from remit.routing.choice import Answer, PartChoice, RouteChoice
from remit.routing.errors import RoutingError
from remit.routing.intent import text_asked

JUDGE_CONTRACT = "PRC-JUDGE-001"
"""The contract under which a model judges answers."""

JUDGE_PART = "judge"
"""The part that the calls of an ensemble's judge have among the attempts."""


def ensemble(
    choice: RouteChoice, request: PromptRequest, open_circuits: Mapping[str, float | None]
) -> Parts:
    """Yield the calls of an ensemble, and return the joined answer, without a provider's own form.

    The members' calls are yielded together; a judge's call follows. Calls that have not ended
    within the ensemble's time limit are cancelled. ``choice`` gets the answer, and a summary for
    the decision with ``join``, ``members``, ``answered``, ``joined`` (the rule that decided) and,
    for a vote, ``agreed``. If no member answers, the response of the last failure is returned, or
    None if no call was recorded.

    Args:
        choice: the choice of the request.
        request: the request.
        open_circuits: candidates whose circuit is open: seconds until a retry, keyed by name.
    """
    options = choice.options.ensemble
    members = _members(choice, request, open_circuits)
    asked = [_part(choice, request, f"member {one.model_id}", [one]) for one in members]
    if asked:
        yield [part for part, _ in asked], options.timeout_s
    for part, own in asked:
        if part.is_late:
            own.note_late(options.timeout_s)
    ordered = [own.answer for part, own in asked if own.answer is not None and not part.is_late]
    summary: dict[str, Any] = {
        "join": options.join,
        "members": [candidate.model_id for candidate in members],
        "answered": [candidate.model_id for candidate, _ in ordered],
    }
    choice.stages = [summary]
    if not ordered:
        return choice.last_failure()
    (winner, response), text, joined = yield from _join(choice, ordered, request)
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
    return choice.answered(winner, replace(response, reply=None, **changes))


def _part(
    choice: RouteChoice, request: PromptRequest, name: str, candidates: Sequence[Candidate],
    task: str | None = None,
) -> tuple[Part, PartChoice]:  # fmt: skip
    """Return a call to make, and its choice."""
    own = PartChoice(choice, name, candidates, choice.ranking.task if task is None else task)
    return Part(own.request(request), own), own


def _members(
    choice: RouteChoice, request: PromptRequest, open_circuits: Mapping[str, float | None]
) -> list[Candidate]:
    """Return the first candidates that can be called, as many as size and money allow."""
    options = choice.options.ensemble
    found: list[Candidate] = []
    left = None if options.max_usd is None else round(options.max_usd * 1e9)
    for candidate, model in zip(choice.ranking.chain, choice.models, strict=True):
        if len(found) >= options.size:
            break
        if model.obstacle is not None:
            code, message = model.obstacle
            choice.fail(model, RoutingError(message, code=code))
            continue
        if candidate.model_id in open_circuits:
            choice.note_open(model, open_circuits[candidate.model_id])
            continue
        if left is not None:
            bound = choice.options.gateway.cost_bound(request, model.provider_id, model.model_id)
            if bound is None or bound > left:
                why = "its price is unknown" if bound is None else (
                    f"it may cost {fixed(bound / 1e9)} USD, and {fixed(left / 1e9)} are left"
                )  # fmt: skip
                message = f"{candidate.model_id} is left out: {why}"
                choice.fail(model, RoutingError(message, code="ENSEMBLE_BUDGET"))
                continue
            left -= bound
        found.append(candidate)
    return found


_Joined = tuple[Answer, str | None, str]


def _join(
    choice: RouteChoice, answers: Sequence[Answer], request: PromptRequest
) -> Generator[Any, Any, _Joined]:
    """Return the winning answer, a text that replaces its own (or None), and the rule that
    decided. Yields the call of a judge if the ensemble has one.
    """
    texts = [response.content for _, response in answers]
    calls_tools = any(
        block.get("type") == "tool_use"
        for _, response in answers
        for block in response.content_blocks or ()
    )
    if len(answers) == 1 or calls_tools:
        return answers[0], None, "best_scored"
    join = choice.options.ensemble.join
    if join == "fields":
        found = join_by_fields(texts)
        if found is not None:
            return answers[found[0]], found[1], "fields"
        return answers[join_by_vote(texts)], None, "vote"
    if join == "judge":
        place = yield from _judged(choice, answers, request)
        if place is not None:
            return answers[place], None, "judge"
        return answers[0], None, "best_scored"
    return answers[join_by_vote(texts)], None, "vote"


def _judged(
    choice: RouteChoice, answers: Sequence[Answer], request: PromptRequest
) -> Generator[Any, Any, int | None]:
    """Yield the call of a judge; return the place of the answer that the judge prefers, or None.

    The judge has the time limit of the members.
    """
    options = choice.options
    if options.prompts is None:
        return None
    question, _ = text_asked(request.prompt if request.messages is None else request.messages)
    variables = {"question": question, "answers": [response.content for _, response in answers]}
    try:
        asked = options.prompts.request(request, JUDGE_CONTRACT, variables)
    except RemitError:
        return None
    judges = options.ensemble.judge or [candidate for candidate, _ in answers]
    part, own = _part(choice, asked, JUDGE_PART, judges, "any")
    yield [part], options.ensemble.timeout_s
    if own.answer is None or part.is_late:
        return None
    try:
        best = load_answer(own.answer[1].content)["best"]
    except (JsonTextError, KeyError, TypeError, IndexError):
        return None
    return best - 1 if type(best) is int and 1 <= best <= len(answers) else None


def join_by_vote(answers: Sequence[str]) -> int:
    """Return the place, from 0, of the most frequent answer; case and white space are ignored.

    A blank answer has no vote, unless all are blank.

    Args:
        answers: at least one answer, those of the best-scored models first.

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

    Lacking a field counts as a value, which leaves the field out if it is the most frequent. Of
    equally frequent values the best-scored one counts. Answers that are not JSON objects are
    ignored.

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
