"""Doubly robust off-policy estimates: the reward that a change would have earned on past exchanges.

Dudík, Langford and Li (2011), "Doubly robust policy evaluation and learning". The formulas are in
docs/learning.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from remit.kernel.errors import InvalidInputError
from remit.learning.statistics.confidence import ConfidenceSequence
from remit.learning.statistics.estimate import Estimate
from remit.learning.statistics.student import skewed_interval

__all__ = ["MAX_WEIGHT", "Logged", "cross_fit", "doubly_robust"]

MAX_WEIGHT = 20.0
_LEVELS = 1_000_000  # The terms of an estimate are few and fine-grained.

T = TypeVar("T")
M = TypeVar("M")


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """An exchange as an off-policy estimate reads it.

    Attributes:
        reward: reward, 0 to 1.
        propensity: probability of the actual choice under the policy in force; above 0.
        target: probability of the same choice under the proposal.
        predicted: reward that a model predicts for the choice; 0 without a model.
        predicted_target: mean reward that the model predicts for the proposal's choices.

    Raises:
        InvalidInputError: a value is outside these bounds.
    """

    reward: float
    propensity: float
    target: float
    predicted: float = 0.0
    predicted_target: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.propensity <= 1:
            raise InvalidInputError("a propensity lies above 0 and is at most 1")
        for value in (self.reward, self.target, self.predicted, self.predicted_target):
            if not 0 <= value <= 1:
                raise InvalidInputError("rewards and probabilities lie between 0 and 1")


def doubly_robust(
    logged: Sequence[Logged],
    *,
    effect: bool = True,
    always_valid: bool = False,
    confidence: float = 0.95,
    max_weight: float = MAX_WEIGHT,
) -> Estimate:
    """Estimate the mean reward under a proposal from exchanges under the policy in force.

    Args:
        logged: the exchanges. Reward models must not have seen the exchanges that they predict
            (`cross_fit`).
        effect: True to estimate the gain over the logged rewards, False for the mean itself.
        always_valid: True for a betting interval (method `betting`), which is wider and valid at
            every look, for the decision whether to propose. False for an interval for this number
            of samples (method `doubly_robust`), for the predicted effect.
        max_weight: limit of the weights; the result has the number of limited weights.

    Raises:
        InvalidInputError: there are fewer than two exchanges.
    """
    if len(logged) < 2:
        raise InvalidInputError("an off-policy estimate needs at least two exchanges")
    weights = [min(row.target / row.propensity, max_weight) for row in logged]
    terms = [
        row.predicted_target + weight * (row.reward - row.predicted) - (row.reward if effect else 0)
        for row, weight in zip(logged, weights, strict=True)
    ]
    squares = sum(weight * weight for weight in weights)
    effective = sum(weights) ** 2 / squares if squares else 0.0
    if always_valid:
        bound = max(max_weight, 1.0) + (0.0 if effect else 1.0)
        sequence = ConfidenceSequence(1 - confidence, -bound, bound, _LEVELS)
        for term in terms:
            sequence.update(term)
        interval = sequence.estimate
        low, high = interval.low, interval.high
    else:
        low, high = skewed_interval(terms, confidence)
    return Estimate(
        value=sum(terms) / len(terms),
        low=low,
        high=high,
        confidence=confidence,
        samples=len(logged),
        effective_samples=effective,
        method="betting" if always_valid else "doubly_robust",
        clipped=sum(row.target / row.propensity > max_weight for row in logged),
    )


def cross_fit(
    items: Sequence[T], fit: Callable[[list[T]], M], *, folds: int = 5, forward: bool = False
) -> list[M]:
    """Return for each item a model fitted without it.

    Item i belongs to fold i modulo ``folds``. With ``forward`` the folds are blocks in time, and
    the model of a block was fitted to earlier blocks only, as an always-valid estimate requires.
    The model of the first block was fitted to nothing.

    Args:
        items: the items, in order of time for ``forward``.
        fit: returns a model fitted to items; may receive an empty list with ``forward``.
        forward: True for blocks in time.

    Returns:
        The models, in the order of the items.

    Raises:
        InvalidInputError: ``folds`` is below 2 or above the number of items.
    """
    if not 2 <= folds <= max(len(items), 2):
        raise InvalidInputError("folds must be at least 2 and at most the number of items")
    size = -(-len(items) // folds)
    if forward:
        models = [fit(list(items[: block * size])) for block in range(folds)]
        return [models[index // size] for index in range(len(items))]
    models = [
        fit([item for index, item in enumerate(items) if index % folds != fold])
        for fold in range(folds)
    ]
    return [models[index % folds] for index in range(len(items))]
