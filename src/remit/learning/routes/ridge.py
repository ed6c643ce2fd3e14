"""Ridge regression of a learned head on graded answers, by its dual, in plain Python.

The head has integer weights and does not change after the fit. A fit takes a few seconds for
:data:`MAX_PROMPTS` prompts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from operator import mul
from typing import Any

from remit.routing import LearnedHead, buckets_of

__all__ = ["MAX_PROMPTS", "GradedPrompt", "abilities_of", "fit_head"]

MAX_PROMPTS = 1000
"""Largest number of prompts in a fit; its time grows with the cube of the number."""

_BUCKETS = 8192
_SHRINKAGE = 10.0  # Between 3 and 30, held-out reward differs by less than 0.001.
_NANO = 1_000_000_000
_MILLION = 1_000_000
_PRIOR_ANSWERS = 20
"""Number of answers with the model's mean that are added to those of a task."""


@dataclass(frozen=True, slots=True)
class GradedPrompt:
    """A recorded prompt with the grades of models' answers.

    Attributes:
        exchange_id: id of the first exchange with the prompt.
        prompt: a text, or the messages of a conversation.
        text: the part of the prompt that the router reads.
        task: the recognised task.
        rewards: grade by model, 0 to 1.
        costs: cost by model in US dollars.
        evidence: ids of the exchanges of all answers.
    """

    exchange_id: str
    prompt: Any
    text: str
    task: str
    rewards: Mapping[str, float]
    costs: Mapping[str, float]
    evidence: Sequence[str] = ()


def fit_head(prompts: Sequence[GradedPrompt]) -> LearnedHead:
    """Return a routing head that predicts the reward of each model from the text of a prompt.

    A model without graded answers is not part of the head.

    Prompts with equal text are all used. The head also holds the words' hashes and exchange ids of
    all prompts, but no text.

    Args:
        prompts: graded prompts, at most :data:`MAX_PROMPTS` for a fit of a few seconds.
    """
    seen = [buckets_of(one.text, _BUCKETS) for one in prompts]
    sets = [frozenset(buckets) for buckets in seen]
    lengths = [sqrt(len(buckets)) or 1.0 for buckets in seen]
    names = sorted({name for one in prompts for name in one.rewards})
    factors: dict[tuple[int, ...], list[list[float]]] = {}
    models = {}
    for name in names:
        rows = tuple(place for place, one in enumerate(prompts) if name in one.rewards)
        if rows not in factors:
            factors[rows] = _factor(
                [
                    [
                        len(sets[i] & sets[j]) / (lengths[i] * lengths[j])
                        + (_SHRINKAGE if i == j else 0.0)
                        for j in rows[: place + 1]
                    ]
                    for place, i in enumerate(rows)
                ]
            )
        rewards = [prompts[row].rewards[name] for row in rows]
        mean = sum(rewards) / len(rewards)
        duals = _solve(factors[rows], [reward - mean for reward in rewards])
        weights = [0.0] * _BUCKETS
        for row, dual in zip(rows, duals, strict=True):
            for bucket in seen[row]:
                weights[bucket] += dual / lengths[row]
        models[name] = {
            "bias": round(mean * _MILLION),
            "cost_nano": round(sum(prompts[row].costs[name] for row in rows) / len(rows) * _NANO),
            "samples": len(rows),
            "weights": [round(weight * _MILLION) for weight in weights],
        }
    neighbours = [
        {"exchange_id": one.exchange_id, "buckets": buckets}
        for one, buckets in zip(prompts, seen, strict=True)
    ]
    return LearnedHead.from_document(
        {
            "format": "remit.routing-head/1",
            "buckets": _BUCKETS,
            "models": models,
            "neighbours": neighbours,
        }
    )


def abilities_of(prompts: Sequence[GradedPrompt]) -> dict[str, dict[str, int]]:
    """Return abilities in percent by model and task, shrunk to the model's mean.

    The task ``general`` is the mean of all rewards of the model. A task counts as if 20 more
    answers had that mean.

    Models and tasks are in alphabetical order.

    Args:
        prompts: graded prompts.
    """
    found: dict[str, dict[str, int]] = {}
    for name in sorted({name for one in prompts for name in one.rewards}):
        by_task: dict[str, list[float]] = {}
        for one in prompts:
            if name in one.rewards:
                by_task.setdefault(one.task, []).append(one.rewards[name])
        all_rewards = [reward for rewards in by_task.values() for reward in rewards]
        mean = sum(all_rewards) / len(all_rewards)
        found[name] = {"general": round(100 * mean)} | {
            task: round(
                100 * (sum(rewards) + _PRIOR_ANSWERS * mean) / (len(rewards) + _PRIOR_ANSWERS)
            )
            for task, rewards in sorted(by_task.items())
        }
    return found


def _factor(lower: list[list[float]]) -> list[list[float]]:
    """Return Cholesky's factor of a positive definite matrix; both are lower triangles by row."""
    rows: list[list[float]] = []
    for given in lower:
        row: list[float] = []
        for place, value in enumerate(given[:-1]):
            other = rows[place]
            row.append((value - sum(map(mul, row, other))) / other[place])
        row.append(sqrt(given[-1] - sum(map(mul, row, row))))
        rows.append(row)
    return rows


def _solve(factor: list[list[float]], values: Sequence[float]) -> list[float]:
    """Return the solution x of L·Lᵀ·x = values."""
    forward: list[float] = []
    for row, value in zip(factor, values, strict=True):
        forward.append((value - sum(map(mul, row, forward))) / row[-1])
    for place in range(len(factor) - 1, -1, -1):
        row = factor[place]
        forward[place] /= row[-1]
        scale = forward[place]
        for before in range(place):
            forward[before] -= row[before] * scale
    return forward
