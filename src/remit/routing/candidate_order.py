"""The order of candidates by their scores, cached while the relevant inputs stay the same."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from remit.gateway import Model
from remit.kernel.canonical import canonical_json
from remit.kernel.errors import InvalidInputError, RemitError
from remit.ledger import EncodedValue
from remit.routing.candidate import Candidate
from remit.routing.decision import DecisionForm
from remit.routing.errors import RoutingError
from remit.routing.scores import (
    Scoring,
    ScoringFn,
    ScoringInputs,
    chain_of,
    score_candidates,
    scored,
    too_small,
    what_counts,
)


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """The chain of candidates and the inputs that led to it.

    Nothing changes but the caches ``forms`` and ``models``.

    Attributes:
        chain: the candidates, best first.
        scores: the score of each candidate, keyed by name.
        task: the scored task.
        context: the inputs of scoring that a decision records.
        profiles: the profile of each candidate.
        encoded: ``context`` and ``profiles``, encoded.
        forms: decisions made from the ranking, keyed by everything but the prompt.
        models: the chain as models for the gateway, keyed by the registered providers.
    """

    chain: tuple[Candidate, ...]
    scores: Mapping[str, float]
    task: str
    context: Mapping[str, Any]
    profiles: Mapping[str, Mapping[str, Any]]
    encoded: Mapping[str, EncodedValue] = field(repr=False)
    forms: dict[tuple[str, str, int, str], DecisionForm] = field(default_factory=dict, repr=False)
    models: dict[tuple[str, ...], Sequence[Model]] = field(default_factory=dict, repr=False)


_MAX_RANKINGS = 512
_rankings: dict[tuple[Any, ...], tuple[Sequence[Candidate], Ranking]] = {}
"""By candidates (they themselves, held here, so that no others get their id) and all else."""


def rank(inputs: ScoringInputs, scoring_fn: ScoringFn = score_candidates) -> Ranking:
    """Return the candidates ordered by their scores.

    Rankings by Remit's own function without a learned head are cached.

    Args:
        inputs: the inputs of scoring.
        scoring_fn: the scoring function.

    Raises:
        InvalidInputError: there are no candidates, two have one name, the operator preference is
            unknown, or the function returned no usable score for each of them.
        RoutingError: the function raised an error that is no RemitError; a RemitError is raised
            unchanged.
    """
    candidates = inputs.candidates
    if not candidates:
        raise InvalidInputError(
            "There are no candidates to choose a model from.",
            next_step="Add models to [routing.models]; `remit route status` shows which are "
            "reachable.",
        )
    if (
        scoring_fn is not score_candidates
        or type(candidates) is not tuple
        or inputs.weights.head is not None  # each prompt has scores of its own
    ):
        return _ranked(inputs, scoring_fn)
    kinds, language, tokens = seen = what_counts(inputs)
    key = (
        id(candidates), inputs.weights, inputs.operator_preference, inputs.task, kinds, language,
        too_small(candidates, tokens),
    )  # fmt: skip
    known = _rankings.get(key)
    if known is None:
        ranking = _ranked(inputs, lambda given: scored(given, candidates, seen))
        if len(_rankings) >= _MAX_RANKINGS:
            _rankings.clear()
        known = _rankings[key] = candidates, ranking
    return known[1]


def _ranked(inputs: ScoringInputs, scoring_fn: ScoringFn) -> Ranking:
    by_name, names, profiles, names_json, profiles_json = _described(tuple(inputs.candidates))
    if len(by_name) != len(inputs.candidates):
        raise InvalidInputError("Two candidates have the same name.")
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
    context: dict[str, Any] = {
        "task": inputs.task,
        "operator_preference": inputs.operator_preference,
        "candidates": names,
        "weights": inputs.weights.document,
    }
    steered = warm = b""
    if inputs.warm_nano:
        context["warm_nano"] = dict(inputs.warm_nano)
        warm = b'"warm_nano":%b,' % canonical_json(context["warm_nano"])
    if inputs.weights.learned is not None and inputs.weights.learned.cap_nano:
        context["balance_nano"] = inputs.balance_nano
        steered = b'"balance_nano":%d,' % inputs.balance_nano
    return Ranking(
        tuple([by_name[name] for name in chain]),
        scores,
        inputs.task,
        context,
        profiles,
        {
            "context": EncodedValue.of(
                b'{%b"candidates":%b,"operator_preference":%b,"task":%b,%b"weights":%b}'
                % (
                    steered,
                    names_json,
                    canonical_json(inputs.operator_preference),
                    canonical_json(inputs.task),
                    warm,
                    inputs.weights.encoded,
                )
            ),
            "profiles": EncodedValue.of(profiles_json),
        },
    )


@functools.lru_cache(maxsize=64)
def _described(
    candidates: tuple[Candidate, ...],
) -> tuple[dict[str, Candidate], list[str], dict[str, dict[str, Any]], bytes, bytes]:
    """Return the candidates by name, their names and profiles, and these two in canonical JSON."""
    by_name = {candidate.model_id: candidate for candidate in candidates}
    names = sorted(by_name)
    profiles = {name: by_name[name].profile() for name in names}
    return by_name, names, profiles, canonical_json(names), canonical_json(profiles)


def name_of(scoring_fn: ScoringFn) -> str:
    """Return the name under which a scoring function is recorded: ``remit``, or ``module:name``."""
    if scoring_fn is score_candidates:
        return "remit"
    name = getattr(scoring_fn, "__qualname__", type(scoring_fn).__name__)
    return f"{getattr(scoring_fn, '__module__', '')}:{name}"


def _checked(scoring: Any, candidates: Mapping[str, Candidate]) -> dict[str, float]:
    """Return the scores; raise InvalidInputError unless there is one usable number per
    candidate.
    """
    scores: Sequence[Any] = ()
    if isinstance(scoring, Scoring) and isinstance(scoring.scores, Mapping):
        scores = list(scoring.scores)
    if not scores or sorted(map(str, scores)) != sorted(candidates):
        raise InvalidInputError(
            "The scoring function must return one score for each candidate and no others."
        )
    for model, score in scoring.scores.items():
        number = isinstance(score, (int, float)) and not isinstance(score, bool)
        if not number or not -1e9 < score < 1e9:
            raise InvalidInputError(
                f"The scoring function returned the score {score!r} for {model}.",
                next_step="Scores must be finite and between -10^9 and 10^9.",
            )
    return dict(scoring.scores)
