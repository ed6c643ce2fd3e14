"""The acceptance test of a change: one-sided bounds for a number of looks fixed in advance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

from remit.kernel.errors import InvalidInputError
from remit.learning.statistics.confidence import ConfidenceSequence
from remit.learning.statistics.estimate import Estimate
from remit.learning.statistics.student import student

__all__ = ["one_sided", "pairs_needed"]

ALPHA = 0.05
"""Probability that a change which is worse than the tolerance is ever accepted."""


def one_sided(
    values: Sequence[float],
    weights: Sequence[float] | None = None,
    *,
    low: float = -1.0,
    high: float = 1.0,
    looks: int = 1,
    alpha: float = ALPHA,
) -> Estimate:
    """Return the mean of values with a lower and an upper bound, each with its own error.

    With ``looks`` above 0, each bound errs with probability ``alpha / looks``, so that all looks
    together err with at most ``alpha``. The bound is Student's, after a few further values at the
    bad end of the range were added. If all n values are equal, the bound is ``log(looks / alpha) /
    n`` of the range below them, as for a rare loss that was never seen.

    With ``looks`` 0, the bounds are those of a betting sequence, valid at every look.

    Args:
        values: values between ``low`` and ``high``, such as paired differences.
        weights: weight of each value, above 0; ``None`` for equal weights.
        low: smallest possible value.
        high: largest possible value.
        looks: number of times that the growing values are tested, fixed in advance; 0 for any.
        alpha: probability that a bound is ever wrong.

    Returns:
        The estimate, with the method `one_sided`, or `betting` with ``looks`` 0. Its confidence is
        that of each bound alone.

    Raises:
        InvalidInputError: there are no values, or a value is out of range.
    """
    if not values or not all(low <= value <= high for value in values):
        raise InvalidInputError(f"A bound needs values between {low} and {high}.")
    given = [1.0] * len(values) if weights is None else list(weights)
    total = math.fsum(given)
    mean = math.fsum(map(float.__mul__, given, map(float, values))) / total
    effective = total**2 / math.fsum(weight * weight for weight in given)
    if not looks:
        largest = max(given)
        sequence = ConfidenceSequence(2 * alpha, low, high)
        for value, weight in zip(values, given, strict=True):
            sequence.update(value, weight / largest)
        ends = sequence.estimate.low, sequence.estimate.high
    else:
        bound = alpha / looks
        ends = (
            max(low, _bound(values, given, low, bound, effective)),
            min(high, -_bound([-value for value in values], given, -high, bound, effective)),
        )
    return Estimate(
        value=mean,
        low=ends[0],
        high=ends[1],
        confidence=1 - (alpha / looks if looks else alpha),
        samples=len(values),
        effective_samples=effective,
        method="one_sided" if looks else "betting",
    )


def _bound(
    values: Sequence[float], weights: Sequence[float], worst: float, alpha: float, effective: float
) -> float:
    """Return the lower bound of a mean, with the worst value added as often as needed."""
    total = math.fsum(weights)
    each = total / effective
    added = _added(alpha)
    whole = total + added * each
    mean = (
        math.fsum(weight * value for weight, value in zip(weights, values, strict=True))
        + added * each * worst
    ) / whole
    squares = (
        math.fsum(
            (weight * (value - mean)) ** 2 for weight, value in zip(weights, values, strict=True)
        )
        + added * (each * (worst - mean)) ** 2
    )
    return mean - student(1 - 2 * alpha, effective - 1) * math.sqrt(squares) / whole


def _added(alpha: float) -> float:
    """Return the number w of worst values for which w + z √w is log(1 / alpha)."""
    z = NormalDist().inv_cdf(1 - alpha)
    return ((math.sqrt(z * z + 4 * math.log(1 / alpha)) - z) / 2) ** 2


def pairs_needed(
    tolerance: float,
    deviation: float,
    *,
    effect: float = 0.0,
    worst: float = 1.0,
    looks: int = 1,
    alpha: float = ALPHA,
    power: float = 0.8,
) -> int:
    """Return the number of pairs with which :func:`one_sided` passes with probability ``power``.

    The test passes if the lower bound of the mean difference is at least ``-tolerance``.

    Args:
        deviation: root mean square of the differences. If a share s of the rewards differs by 1 in
            either direction, the deviation is √s.
        effect: the true mean difference; above ``-tolerance``.
        worst: the largest loss of a pair.
        looks: number of looks, at least 1.
        alpha: error of all looks together.
        power: probability with which the test shall pass, above 0 and below 1.

    Raises:
        InvalidInputError: the effect is a loss of the tolerance or more, or a number is not usable.
    """
    room = tolerance + effect
    if not (room > 0 and deviation >= 0 and 0 < power < 1 and looks >= 1 and math.isfinite(room)):
        raise InvalidInputError(
            "No number of pairs can show that a change loses no more than it does.",
            next_step="Give a tolerance above the expected loss.",
        )
    normal = NormalDist()
    spread = deviation * max(0.0, normal.inv_cdf(1 - alpha / looks) + normal.inv_cdf(power))
    added = _added(alpha / looks) if deviation else math.log(looks / alpha)
    root = (spread + math.sqrt(spread**2 + 4 * room * added * worst)) / (2 * room)
    return math.ceil(root**2)
