"""Several answers to one question made one: pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import orjson

from remit.kernel.canonical import canonical_json
from remit.kernel.errors import RemitError

__all__ = ["join_by_fields", "join_by_vote", "plain_answer"]


def join_by_vote(answers: Sequence[str]) -> int:
    """Which answer most give, white space and the case of letters aside.

    Args:
        answers: those of the best-scored models first.

    Returns:
        The place of the best-scored of those that agree; of several equal groups, of the one that
        the best-scored belongs to.
    """
    plain = [plain_answer(answer) for answer in answers]
    votes = Counter(text for text in plain if text) or Counter(plain)  # a blank one says nothing
    most = max(votes.values())
    return next(place for place, text in enumerate(plain) if votes[text] == most)


def plain_answer(answer: str) -> str:
    """An answer as votes are counted: white space and the case of letters aside."""
    return " ".join(answer.split()).casefold()


def join_by_fields(answers: Sequence[str]) -> tuple[int, str] | None:
    """JSON objects made one: for each field the value that most give.

    A field that most leave out is left out. Of equal numbers the value of the best-scored counts.

    Args:
        answers: those of the best-scored models first.

    Returns:
        The place of the best-scored answer that agrees with the result in most fields, and the
        result as JSON; ``None`` where no answer is a JSON object.
    """
    told: list[tuple[int, dict[str, bytes], dict[str, Any]]] = []
    for place, answer in enumerate(answers):
        value = _object(answer)
        if value is not None:
            told.append((place, {name: canonical_json(one) for name, one in value.items()}, value))
    if not told:
        return None
    joined: dict[str, Any] = {}
    chosen: dict[str, bytes | None] = {}
    for name in dict.fromkeys(name for _, fields, _ in told for name in fields):
        values = [fields.get(name) for _, fields, _ in told]
        votes = Counter(values)
        most = max(votes.values())
        winner = chosen[name] = next(value for value in values if votes[value] == most)
        if winner is not None:
            joined[name] = next(v[name] for _, f, v in told if f.get(name) == winner)
    agreeing = [sum(fields.get(name) == value for name, value in chosen.items())
                for _, fields, _ in told]  # fmt: skip
    best = agreeing.index(max(agreeing))
    return told[best][0], orjson.dumps(joined).decode()


def _object(answer: str) -> dict[str, Any] | None:
    text = answer.strip()
    if text.startswith("```"):  # models like to fence what they were asked for
        text = text.partition("\n")[2].rpartition("```")[0]
    try:
        value = orjson.loads(text)
        canonical_json(value)
    except (orjson.JSONDecodeError, RemitError):
        return None
    return value if isinstance(value, dict) else None
