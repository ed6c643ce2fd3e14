"""Selection of texts that a turn shows the model, within a budget; omissions are recorded.

The latest turns of the conversation are shown complete and in order. Further candidates are open
threads of the session, and open threads of other sessions and adopted policy, which the tier above
supplies. Each candidate has a score of commitment, urgency and recency. The best are shown until
the budget is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from remit.agents.sessions import Turn
from remit.kernel.settings import AttentionSettings

_D = TypeVar("_D", datetime, None)
_COMMITMENT_WEIGHT = 1.0
_TIME_WEIGHT = 0.5
_RECENCY_WEIGHT = 0.5
_HALF_LIFE_HOURS = 48.0  # The recency of a candidate halves in this time.
_HORIZON_HOURS = 72.0  # Later deadlines add no urgency.
_MIN_SCORE = 0.2  # Candidates below are omitted.
_MAX_OMISSIONS = 20  # omissions that the record names
_BYTES_PER_TOKEN = 4  # An estimate; the budget counts the request exactly.


@dataclass(frozen=True, slots=True)
class Candidate:
    """A text that may be worth showing.

    Immutable.

    Attributes:
        kind: ``policy``, ``thread``, or ``session`` (an open thread of another session).
        ref: an entry id, a thread id, or a file.
        text: the text.
        commitment: how binding it is, 0 to 1.
        at: when it was stated, ISO 8601.
        due: its deadline, ISO 8601; empty without one.
    """

    kind: str
    ref: str
    text: str
    commitment: float
    at: str
    due: str = ""


def tokens_of(text: str) -> int:
    """Return the estimated number of tokens of a text: one for four bytes, rounded up."""
    return -(-len(text.encode()) // _BYTES_PER_TOKEN)


def choose(
    turns: Sequence[Turn],
    older_turns: int,
    candidates: Sequence[Candidate],
    settings: AttentionSettings,
    turn_tokens: int,
    now: datetime,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what to show of a conversation and its candidates, and the record of the selection.

    The first value is the ``assembled_context`` of templates: ``turns``, oldest first, ``threads``
    and ``pushed``, best first. ``threads`` has the chosen candidates of the kind ``thread``, each
    as ``id`` and ``title``; ``pushed`` has all others, each as ``kind`` and ``text``.

    The second has the number ``turns_shown``, the chosen candidates (``shown``), and the omissions
    (``left_out``, with ``why``: ``window``, ``budget`` or ``score``). Each item has ``kind`` and
    ``ref``, mostly ``tokens``, and a candidate its ``score``. At most 20 omissions are named;
    ``left_out_more`` counts the others.

    The latest turns that fit are shown, up to the first that does not. A score is the weighted sum
    of commitment, closeness of the deadline, and recency; a time without a zone is UTC, and an
    unreadable one counts as now, an unreadable deadline as none. A candidate with a score below
    0.2, or with more tokens than remain, is omitted; later ones may still fit.

    Args:
        turns: latest turns, oldest first.
        older_turns: number of earlier turns, which are not shown.
        candidates: candidates in any order.
        settings: the token budget of the candidates.
        turn_tokens: the token budget of the turns.
        now: the time for scores, with a time zone.
    """
    kept, dropped = _fitting(turns, turn_tokens)
    shown: list[dict[str, Any]] = []
    left_out: list[dict[str, Any]] = []
    if older_turns:
        left_out.append({"kind": "turn", "ref": f"{older_turns} before", "why": "window"})
    left_out += [
        {"kind": "turn", "ref": turn.entry_id, "why": "budget", "tokens": _turn_tokens(turn)}
        for turn in dropped
    ]
    chosen: list[Candidate] = []
    left = settings.tokens
    scored = sorted(
        ((_score(candidate, now), candidate) for candidate in candidates),
        key=lambda pair: (-pair[0], pair[1].kind, pair[1].ref),
    )
    for score, candidate in scored:
        tokens = tokens_of(candidate.text)
        row = {"kind": candidate.kind, "ref": candidate.ref, "score": score, "tokens": tokens}
        if score < _MIN_SCORE:
            left_out.append({**row, "why": "score"})
        elif tokens > left:
            left_out.append({**row, "why": "budget"})
        else:
            left -= tokens
            chosen.append(candidate)
            shown.append(row)
    more = max(0, len(left_out) - _MAX_OMISSIONS)
    record: dict[str, Any] = {
        "turns_shown": len(kept),
        "shown": shown,
        "left_out": left_out[:_MAX_OMISSIONS],
    }
    if more:
        record["left_out_more"] = more
    context = {
        "turns": [turn.said for turn in kept],
        "pushed": [{"kind": one.kind, "text": one.text} for one in chosen if one.kind != "thread"],
        "threads": [{"id": one.ref, "title": one.text} for one in chosen if one.kind == "thread"],
    }
    return context, record


def _score(candidate: Candidate, now: datetime) -> float:
    """Return the score, from 0 to the sum of the weights, rounded to four decimal places."""
    age_h = max(0.0, (now - _moment(candidate.at, now)).total_seconds() / 3600)
    recency: float = 0.5 ** (age_h / _HALF_LIFE_HOURS)
    pressure = 0.0
    due = _moment(candidate.due, None) if candidate.due else None
    if due is not None:
        left_h = (due - now).total_seconds() / 3600
        pressure = min(1.0, max(0.0, 1.0 - left_h / _HORIZON_HOURS))
    score = (
        _COMMITMENT_WEIGHT * candidate.commitment
        + _TIME_WEIGHT * pressure
        + _RECENCY_WEIGHT * recency
    )
    return round(score, 4)


def _moment(text: str, default: _D) -> datetime | _D:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return default
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _fitting(turns: Sequence[Turn], budget: int) -> tuple[list[Turn], list[Turn]]:
    """Return the latest turns that fit into the budget, and the earlier ones that do not."""
    left = budget
    for index in range(len(turns) - 1, -1, -1):
        left -= _turn_tokens(turns[index])
        if left < 0:
            return list(turns[index + 1 :]), list(turns[: index + 1])
    return list(turns), []


def _turn_tokens(turn: Turn) -> int:
    return tokens_of(turn.user_message) + tokens_of(turn.response)
