"""Scores of candidates: pure functions in integers, with equal results on every machine."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import neg
from typing import Any

from remit.kernel.errors import InvalidInputError
from remit.routing.candidate import GENERAL, Candidate
from remit.routing.intent import Intent, part_read, read_intent, text_asked
from remit.routing.learned_head import (
    NOT_LEARNED,
    LearnedHead,
    buckets_of,
    learned_score,
    steered_weight,
)
from remit.routing.weights import MILLION, Weights

ANY_TASK = "any"
"""The task is detected from the prompt."""

NEEDS = ("images", "tools")
"""Capabilities that a call may need, as appended to the task."""

_PERCENT = MILLION // 100
_NO_PREFERENCE = {"ability": MILLION, "cost": MILLION}


@dataclass(frozen=True, slots=True)
class ScoringInputs:
    """The inputs of scoring.

    Attributes:
        prompt: a text, or the messages of a conversation.
        task: see :func:`task_of`.
        operator_preference: a name of the rules' ``preferences``; empty for none.
        candidates: candidates with unique names.
        weights: the rules.
        balance_nano: balance of a learned route's spend before the call, in nano-dollars.
        warm_nano: nano-dollars that the session's warm prompt cache saves, by candidate.
    """

    prompt: str | Sequence[Mapping[str, Any]]
    task: str
    operator_preference: str
    candidates: Sequence[Candidate]
    weights: Weights
    balance_nano: int = 0
    warm_nano: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scoring:
    """The result of scoring.

    Attributes:
        winner: name of the best candidate.
        scores: the score of each candidate, keyed by name, with at most 6 decimals.
    """

    winner: str
    scores: Mapping[str, float]


ScoringFn = Callable[[ScoringInputs], Scoring]
"""What may stand in for :func:`score_candidates`."""


def task_of(task: str = "", needs: Sequence[str] = ()) -> str:
    """Return a task and the needs of a call as one text: ``any``, ``code``, ``any+images+tools``.

    Args:
        task: the task; empty to read it from the prompt (``any``).
        needs: capabilities that the call needs, ``images`` and ``tools``.

    Raises:
        InvalidInputError: the need does not exist, or the task is not a name.
    """
    name = task or ANY_TASK
    if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
        raise InvalidInputError(f"{task!r} is not a valid task name.",
                                next_step="Use letters, digits, - and _.")  # fmt: skip
    for need in needs:
        if need not in NEEDS:
            raise InvalidInputError(f"{need!r} is not a capability of a model.",
                                    next_step=f"Known: {', '.join(NEEDS)}.")  # fmt: skip
    return "+".join([name, *sorted(set(needs))])


def is_single(inputs: ScoringInputs) -> bool:
    """Return True if one model is best for all tasks.

    That is so without a learned head and without abilities for single tasks.
    """
    return inputs.weights.learned is None and not any(
        set(candidate.abilities) - {GENERAL} for candidate in inputs.candidates
    )


def measured(inputs: ScoringInputs) -> frozenset[str]:
    """Return the names of the candidates with a stated ability."""
    return frozenset(one.model_id for one in inputs.candidates if one.abilities)


def unmet_need(candidate: Candidate, task: str) -> str:
    """Return the first need of the task that the candidate lacks; empty if it lacks none."""
    for need in task.split("+")[1:]:
        if not getattr(candidate, need):
            return need
    return ""


def kind_of_task(inputs: ScoringInputs) -> str:
    """Return the task of a call: the stated one, else the one that the prompt shows."""
    name = inputs.task.partition("+")[0]
    return read_intent(inputs.prompt, inputs.weights).task if name == ANY_TASK else name


def score_candidates(inputs: ScoringInputs) -> Scoring:
    """Return the score of every candidate by the rules (docs/routing.md has the formula).

    Raises:
        InvalidInputError: there are no candidates, two have one name, or the operator preference is
            unknown.
    """
    return scored(inputs, tuple(inputs.candidates), what_counts(inputs))


Seen = tuple[tuple[str, ...], str, int]
"""The properties of a prompt that affect scores: task kinds, language, length in tokens."""


def what_counts(inputs: ScoringInputs) -> Seen:
    """Return the properties of the prompt that affect scores.

    The kinds are the task, stated or detected, and ``code`` and ``mathematics`` if these occur.

    Raises:
        NotCanonicalError: a tool's call or result in the prompt has no canonical form.
    """
    name = inputs.task.partition("+")[0]
    intent = read_intent(inputs.prompt, inputs.weights)
    kinds = _kinds(intent.task if name == ANY_TASK else name, intent)
    return kinds, intent.language, intent.tokens


def scored(inputs: ScoringInputs, candidates: tuple[Candidate, ...], seen: Seen) -> Scoring:
    """Return :func:`score_candidates` for a prompt whose properties are known.

    ``candidates`` replace those of ``inputs``; ``seen`` is a result of :func:`what_counts`. Of
    equal scores the first name wins. Raises InvalidInputError as :func:`score_candidates`.
    """
    weights, (kinds, language, tokens) = inputs.weights, seen
    scores = _standing(
        candidates, weights, inputs.operator_preference, kinds, language,
        inputs.task.partition("+")[2],
    )  # fmt: skip
    if weights.head is not None:
        scores = _by_what_is_learned(inputs, candidates, weights.head, scores, tokens)
    too_long = too_small(candidates, tokens)
    if too_long:
        penalty = weights.penalties["context_window"]
        scores = {
            model: score - penalty if model in too_long else score
            for model, score in scores.items()
        }
    _, winner = min(zip(map(neg, scores.values()), scores, strict=True))
    # Dividing by a million is exact to the last digit that a double has: the same everywhere.
    return Scoring(winner, {model: score / MILLION for model, score in scores.items()})


def _by_what_is_learned(
    inputs: ScoringInputs,
    candidates: Sequence[Candidate],
    head: LearnedHead,
    standing: Mapping[str, int],
    tokens: int,
) -> dict[str, int]:
    """Return scores by a learned head in millionths; models it does not know come last."""
    weights, rules = inputs.weights, inputs.weights.learned
    assert rules is not None
    text = part_read(text_asked(inputs.prompt)[0], weights.intent)
    seen = buckets_of(text, head.buckets)
    qualities, costs = head.qualities(seen), head.costs(seen, tokens)
    preference = inputs.operator_preference
    factors = weights.preferences[preference] if preference else _NO_PREFERENCE
    needs = inputs.task.split("+")[1:]
    price_weight = steered_weight(rules.price_weight, rules.cap_nano, inputs.balance_nano)
    scores = {}
    for candidate in candidates:
        model = candidate.model_id
        if model not in qualities:
            scores[model] = standing[model] - NOT_LEARNED
            continue
        scores[model] = learned_score(
            qualities[model],
            max(0, costs[model] - inputs.warm_nano.get(model, 0)),
            price_weight=price_weight,
            quality_floor=rules.quality_floor,
            factors=factors,
        ) - sum([weights.penalties[need] for need in needs if not getattr(candidate, need)])
    return scores


def too_small(candidates: Sequence[Candidate], tokens: int) -> tuple[str, ...]:
    """Return the names of candidates whose context window is smaller than ``tokens``.

    A candidate without a known context window is never among them.
    """
    return tuple(
        [
            candidate.model_id
            for candidate in candidates
            if candidate.context_tokens and tokens > candidate.context_tokens
        ]
    )


def score_parts(
    candidate: Candidate, intent: Intent, task: str, preference: str, weights: Weights
) -> dict[str, float]:
    """Return the parts of a candidate's score: weighted features, and negative penalties.

    The features are ``ability``, ``reliability``, ``cost``, ``speed`` and ``language``. Each need
    that the candidate lacks has a penalty, and so has ``context_window`` if it is too small.

    Args:
        candidate: the candidate.
        intent: the intent of the prompt.
        task: the task and the needs, as :func:`task_of` returns them.
        preference: the operator preference; empty for none.
        weights: the rules.

    Raises:
        InvalidInputError: the operator preference is unknown.
    """
    factors = _weights_under(preference, weights)
    name, *needs = task.split("+")
    kinds = _kinds(intent.task if name == ANY_TASK else name, intent)
    parts = {
        feature: factors[feature] * value // MILLION / MILLION
        for feature, value in _features(candidate, kinds, intent.language, weights).items()
    }
    lacking = [need for need in needs if not getattr(candidate, need)]
    if candidate.context_tokens and intent.tokens > candidate.context_tokens:
        lacking.append("context_window")
    return parts | {need: -weights.penalties[need] / MILLION for need in lacking}


def learned_parts(
    inputs: ScoringInputs,
) -> tuple[dict[str, dict[str, float]], list[dict[str, Any]]]:
    """Return the parts of scores by a learned head, and the most similar known prompts.

    The rules in ``inputs`` must have a learned head. Models that it does not know are left out.

    Returns:
        ``quality`` and ``usd_per_call`` of each model, keyed by name; then ``exchange_id`` and
        ``similarity`` of each prompt.
    """
    head = inputs.weights.head
    assert head is not None
    asked = text_asked(inputs.prompt)[0]
    seen = buckets_of(part_read(asked, inputs.weights.intent), head.buckets)
    costs = head.costs(seen, read_intent(inputs.prompt, inputs.weights).tokens)
    parts = {
        model: {
            "quality": quality / MILLION,
            "usd_per_call": costs[model] / 1_000_000_000,
        }
        for model, quality in head.qualities(seen).items()
    }
    alike = [
        {"exchange_id": exchange_id, "similarity": similarity / MILLION}
        for exchange_id, similarity in head.nearest(seen)
    ]
    return parts, alike


def chain_of(scoring: Scoring) -> tuple[str, ...]:
    """Return the names of all candidates, best first; ties sorted by name."""
    scores = scoring.scores
    return tuple(
        [model for _, model in sorted(zip(map(neg, scores.values()), scores, strict=True))]
    )


def _kinds(task: str, intent: Intent) -> tuple[str, ...]:
    """Return the kinds of task that count: the task, and code or mathematics if they occur too."""
    kinds = [task]
    if intent.code and task != "code":
        kinds.append("code")
    if intent.mathematics and task != "mathematics":
        kinds.append("mathematics")
    return tuple(kinds)


@functools.lru_cache(maxsize=1024)
def _standing(
    candidates: tuple[Candidate, ...],
    weights: Weights,
    preference: str,
    kinds: tuple[str, ...],
    language: str,
    needs: str,
) -> dict[str, int]:
    """Return the part of the scores that does not depend on the prompt's length, in millionths."""
    factors = _weights_under(preference, weights)
    lacks = needs.split("+") if needs else []
    scores = {
        candidate.model_id: _score(candidate, kinds, lacks, language, factors, weights)
        for candidate in candidates
    }
    if not scores:
        raise InvalidInputError("No candidates to score.")
    if len(scores) != len(candidates):
        raise InvalidInputError("Two candidates have the same name.")
    return scores


def _weights_under(preference: str, weights: Weights) -> Mapping[str, int]:
    """Return the weights of the features under an operator preference, in millionths.

    Raises:
        InvalidInputError: the preference is unknown.
    """
    if not preference:
        return weights.features
    factors = weights.preferences.get(preference)
    if factors is None:
        raise InvalidInputError(
            f"Unknown operator preference {preference!r}.",
            next_step=f"Known preferences: {', '.join(sorted(weights.preferences)) or 'none'}.",
        )
    return {name: value * factors[name] // MILLION for name, value in weights.features.items()}


def _score(
    candidate: Candidate,
    kinds: Sequence[str],
    needs: Sequence[str],
    language: str,
    factors: Mapping[str, int],
    weights: Weights,
) -> int:
    """Return one score in millionths; divisions round down."""
    features = _features(candidate, kinds, language, weights)
    score = sum(factors[name] * value for name, value in features.items()) // MILLION
    for need in needs:
        if not getattr(candidate, need):
            score -= weights.penalties[need]
    return score


def _features(
    candidate: Candidate, kinds: Sequence[str], language: str, weights: Weights
) -> dict[str, int]:
    """Return the features of a candidate, each from 0 to 1, in millionths."""
    abilities = candidate.abilities
    general = abilities.get(GENERAL, 0)
    features = {
        "ability": sum(abilities.get(kind, general) for kind in kinds) * _PERCENT // len(kinds),
        "reliability": candidate.reliability * _PERCENT,
        "cost": 0,
        "speed": 0,
        "language": 0,
    }
    if candidate.input_price is not None and candidate.output_price is not None:
        share = weights.scales["output_share"]
        price = (
            candidate.input_price * (MILLION - share) + candidate.output_price * share
        ) // MILLION
        half = weights.scales["usd_per_million_tokens"] * 1000  # nano-dollars
        features["cost"] = MILLION * half // (half + price)
    if candidate.tokens_per_s:
        speed = candidate.tokens_per_s * MILLION
        features["speed"] = MILLION * speed // (speed + weights.scales["tokens_per_s"])
    if not language or not candidate.languages or language in candidate.languages:
        features["language"] = MILLION
    return features
