"""Ridge regression of a learned head on graded answers, in plain Python.

The head has integer weights and does not change after the fit. A fit takes a few seconds for
:data:`MAX_PROMPTS` prompts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2, sqrt
from operator import mul
from typing import Any

from remit.routing import LearnedHead, Weights, buckets_of
from remit.routing.intent import text_asked
from remit.routing.learned_head import Neighbour, binary_log, binary_power

MAX_PROMPTS = 3000
"""Largest number of prompts in a fit; its time grows in proportion to their words."""

_BUCKETS = 8192
_SHRINKAGE = 10.0  # Between 3 and 30, held-out reward differs by less than 0.001.
_PRECISION = 1e-10  # Of the squared residual; later steps change no integer weight that matters.
_MAX_STEPS = 100
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
        rewards: grade by model, 0 to 1.
        costs: cost by model in US dollars.
        evidence: ids of the exchanges of all answers.
        traffic: number of times that the prompt counts.
    """

    exchange_id: str
    prompt: Any
    text: str
    task: str
    rewards: Mapping[str, float]
    costs: Mapping[str, float]
    evidence: Sequence[str] = ()
    traffic: float = 1.0


def fit_head(prompts: Sequence[GradedPrompt]) -> LearnedHead:
    """Return a routing head that predicts reward and cost of each model from a prompt.

    A model without graded answers is not part of the head. Prompts with equal text are all used.
    The evidence of the head has the words' hashes, grades and exchange ids, but no text.

    Args:
        prompts: graded prompts, at most :data:`MAX_PROMPTS` for a fit of a few seconds.
    """
    return fit_evidence([
        Neighbour(
            exchange_id=one.exchange_id,
            buckets=tuple(buckets_of(one.text, _BUCKETS)),
            tokens=tokens_of(one),
            traffic=max(1, round(one.traffic * _MILLION)),
            rewards={name: round(reward * _MILLION) for name, reward in one.rewards.items()},
            costs={name: max(0, round(one.costs[name] * _NANO)) for name in one.rewards},
        )
        for one in prompts
    ])  # fmt: skip


def fit_evidence(rows: Sequence[Neighbour]) -> LearnedHead:
    """Return the head that is fitted to the prompts of an evidence, as by :func:`fit_head`."""
    models = {}
    for name in sorted({name for row in rows for name in row.rewards}):
        mine = [row for row in rows if name in row.rewards]
        rewards = [row.rewards[name] / _MILLION for row in mine]
        traffic = [row.traffic / _MILLION for row in mine]
        mean = sum(map(mul, traffic, rewards)) / sum(traffic)
        buckets = [row.buckets for row in mine]
        usual = sum(traffic) / len(traffic)
        weights = _ridge(
            buckets, [reward - mean for reward in rewards], [sqrt(one / usual) for one in traffic]
        )
        nano = [row.costs[name] for row in mine]
        sizes = [binary_log(max(1, row.tokens)) / _MILLION for row in mine]
        models[name] = {
            "bias": round(mean * _MILLION),
            "cost_nano": round(sum(map(mul, traffic, nano)) / sum(traffic)),
            "samples": len(mine),
            "weights": [round(weight * _MILLION) for weight in weights],
            **_costs(buckets, sizes, nano),
        }
    return LearnedHead.fitted(_BUCKETS, models, rows)


def tokens_of(one: GradedPrompt) -> int:
    """Return the estimated tokens of the whole prompt, as the router estimates them."""
    return -(-text_asked(one.prompt)[1] // Weights.shipped().intent.bytes_per_token)


def _costs(
    rows: Sequence[Sequence[int]], sizes: Sequence[float], nano: Sequence[int]
) -> dict[str, Any]:
    """Return the fields of a model that predict its cost; none if every call cost the same.

    The logarithm of the cost is a line in the logarithm of the prompt's tokens, and a ridge
    regression of the rest on the buckets. The whole is scaled to the recorded mean.

    Args:
        rows: buckets of each prompt.
        sizes: binary logarithm of each prompt's tokens.
        nano: cost of each answer in nano-dollars.
    """
    if len(set(nano)) < 2:
        return {}
    logs = [binary_log(max(1, cost)) / _MILLION for cost in nano]
    size, log = sum(sizes) / len(sizes), sum(logs) / len(logs)
    spread = sum((one - size) ** 2 for one in sizes)
    slope = sum(
        (one - size) * (other - log) for one, other in zip(sizes, logs, strict=True)
    ) / (spread + _SHRINKAGE)  # fmt: skip
    rest = [other - log - slope * (one - size) for one, other in zip(sizes, logs, strict=True)]
    weights = _ridge(rows, rest, [1.0] * len(rows))
    bias = log - slope * size
    fitted = [
        bias + slope * one + sum(map(weights.__getitem__, row)) / (sqrt(len(row)) or 1.0)
        for one, row in zip(sizes, rows, strict=True)
    ]
    predicted = sum(binary_power(max(0, round(one * _MILLION))) for one in fitted)
    return {
        "cost_bias": round((bias + log2(sum(nano) / max(1, predicted))) * _MILLION),
        "cost_length": round(slope * _MILLION),
        "cost_weights": [round(weight * _MILLION) for weight in weights],
    }


def abilities_of(prompts: Sequence[GradedPrompt]) -> dict[str, dict[str, int]]:
    """Return abilities in percent by model and task, shrunk to the model's mean.

    The task ``general`` is the mean of all rewards of the model. A task counts as if 20 more
    answers had that mean.

    Models and tasks are in alphabetical order.
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


def _ridge(
    rows: Sequence[Sequence[int]], values: Sequence[float], factors: Sequence[float]
) -> list[float]:
    """Return the weights w that minimise |X w - y|² + shrinkage |w|².

    A row of X has its factor / √k in each of its k buckets, and y is its value times the factor.
    The equations are solved by conjugate gradients; each step is linear in the number of buckets of
    all rows.
    """
    scales = [factor / (sqrt(len(row)) or 1.0) for row, factor in zip(rows, factors, strict=True)]
    weights = [0.0] * _BUCKETS
    residual = _transposed(rows, scales, list(map(mul, factors, values)))
    direction = residual[:]
    squares = goal = sum(map(mul, residual, residual))
    for _ in range(_MAX_STEPS):
        if squares <= goal * _PRECISION:
            break
        at = direction.__getitem__
        image = [scale * sum(map(at, row)) for row, scale in zip(rows, scales, strict=True)]
        applied = [
            one + _SHRINKAGE * other
            for one, other in zip(_transposed(rows, scales, image), direction, strict=True)
        ]
        step = squares / sum(map(mul, direction, applied))
        weights = [one + step * other for one, other in zip(weights, direction, strict=True)]
        residual = [one - step * other for one, other in zip(residual, applied, strict=True)]
        before, squares = squares, sum(map(mul, residual, residual))
        ratio = squares / before
        direction = [one + ratio * other for one, other in zip(residual, direction, strict=True)]
    return weights


def _transposed(
    rows: Sequence[Sequence[int]], scales: Sequence[float], values: Sequence[float]
) -> list[float]:
    """Return the product of the transposed matrix and a vector with a value for each row."""
    found = [0.0] * _BUCKETS
    for row, scale, value in zip(rows, scales, values, strict=True):
        part = scale * value
        for bucket in row:
            found[bucket] += part
    return found
