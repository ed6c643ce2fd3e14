"""Candidates scored and put in order, with what it takes to do it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from remit.kernel.canonical import canonical_json
from remit.kernel.errors import InvalidInputError, RemitError
from remit.routing.candidate import Candidate
from remit.routing.errors import RoutingError
from remit.routing.scoring import Scoring, ScoringFn, ScoringInputs, chain_of, score_candidates

__all__ = ["Ranking", "name_of", "rank"]


@dataclass(frozen=True, slots=True)
class Ranking:
    """The chain, and what led to it.

    Attributes:
        chain: the candidates, best first.
        task: as it was scored.
        encoded: canonical JSON of ``context`` and ``profiles``: most of it is the same each time.
    """

    chain: tuple[Candidate, ...]
    scores: Mapping[str, float]
    task: str
    context: Mapping[str, Any]
    profiles: Mapping[str, Mapping[str, Any]]
    encoded: Mapping[str, bytes] = field(repr=False)


def rank(inputs: ScoringInputs, scoring_fn: ScoringFn = score_candidates) -> Ranking:
    """Score the candidates and put them in order.

    Raises:
        InvalidInputError: there are none, or the function that scores gave no score for one.
        RoutingError: that function failed.
    """
    if not inputs.candidates:
        raise InvalidInputError(
            "There are no candidates to choose a model from.",
            next_step="Name models in [routing.models], and see `remit route status`.",
        )
    by_name, names, profiles, names_json, profiles_json = _described(tuple(inputs.candidates))
    if len(by_name) != len(inputs.candidates):
        raise InvalidInputError("Two candidates have one name.")
    try:
        scoring = scoring_fn(inputs)
    except RemitError:
        raise
    except Exception as error:
        raise RoutingError(
            f"The scoring function {name_of(scoring_fn)} failed ({type(error).__name__})."
        ) from error
    scores = _checked(scoring, by_name)
    chain = chain_of(Scoring(scoring.winner, scores))
    context = {
        "task": inputs.task,
        "operator_preference": inputs.operator_preference,
        "candidates": names,
        "weights": inputs.weights.document,
    }
    return Ranking(
        tuple(by_name[name] for name in chain),
        scores,
        inputs.task,
        context,
        profiles,
        {
            "context": b'{"candidates":%b,"operator_preference":%b,"task":%b,"weights":%b}'
            % (
                names_json,
                canonical_json(inputs.operator_preference),
                canonical_json(inputs.task),
                inputs.weights.encoded,
            ),
            "profiles": profiles_json,
        },
    )


@lru_cache(maxsize=64)
def _described(
    candidates: tuple[Candidate, ...],
) -> tuple[dict[str, Candidate], list[str], dict[str, dict[str, Any]], bytes, bytes]:
    """Candidates by name, their names, what is stated of each; these two in canonical JSON."""
    by_name = {candidate.model_id: candidate for candidate in candidates}
    names = sorted(by_name)
    profiles = {name: by_name[name].profile() for name in names}
    return by_name, names, profiles, canonical_json(names), canonical_json(profiles)


def name_of(scoring_fn: ScoringFn) -> str:
    """How records call the function that scored."""
    if scoring_fn is score_candidates:
        return "remit"
    name = getattr(scoring_fn, "__qualname__", type(scoring_fn).__name__)
    return f"{getattr(scoring_fn, '__module__', '')}:{name}"


def _checked(scoring: Any, candidates: Mapping[str, Candidate]) -> dict[str, float]:
    """A score for every candidate, and no other; numbers that a record can hold."""
    scores: Sequence[Any] = ()
    if isinstance(scoring, Scoring) and isinstance(scoring.scores, Mapping):
        scores = list(scoring.scores)
    if not scores or sorted(map(str, scores)) != sorted(candidates):
        raise InvalidInputError("The scoring function gave no score for each candidate alone.")
    for model, score in scoring.scores.items():
        number = isinstance(score, (int, float)) and not isinstance(score, bool)
        if not number or not -1e9 < score < 1e9:
            raise InvalidInputError(
                f"The scoring function gave {model} the score {score!r}.",
                next_step="Scores are finite numbers within a thousand million.",
            )
    return dict(scoring.scores)
