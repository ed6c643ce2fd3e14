"""Intervals for a number of samples fixed in advance, by Student's t."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul
from statistics import NormalDist

__all__ = ["skewed_interval", "student"]


def student(confidence: float, freedom: float) -> float:
    """Return the two-sided quantile of Student's t (Cornish-Fisher expansion; freedom > 4).

    Args:
        confidence: probability between the two quantiles, above 0 and below 1.
        freedom: degrees of freedom; less than 4 count as 4.
    """
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    v = max(freedom, 4.0)
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )


def skewed_interval(
    values: Sequence[float], confidence: float = 0.95, weights: Sequence[float] | None = None
) -> tuple[float, float]:
    """Return the interval for a mean by Student's t, corrected for skewness.

    Hall (1992), "On the removal of skewness by transformation": the monotone cubic transformation.
    Weighted rewards are skewed, and a symmetric interval then misses on one side.

    Args:
        values: at least two values.
        weights: weight of each value, above 0; ``None`` for equal weights.

    Returns:
        The lower and the upper end; both are the mean if all values are equal.

    Raises:
        ZeroDivisionError: there are fewer than two values.
    """
    given = [1.0] * len(values) if weights is None else weights
    total = math.fsum(given)
    mean = math.fsum(map(mul, given, values)) / total
    terms = [weight * (value - mean) for weight, value in zip(given, values, strict=True)]
    n = total**2 / math.fsum(map(mul, given, given))
    squares = math.fsum(map(mul, terms, terms))
    if squares <= 0:
        return mean, mean
    error = math.sqrt(squares * n / (n - 1)) / total
    a = math.fsum([term**3 for term in terms]) / total**3 / error**3
    t = student(confidence, n - 1)
    if abs(a) < 1e-9:
        return mean - error * t, mean + error * t

    def back(z: float) -> float:
        return 3 / a * (math.cbrt(1 + a * (z - a / 6)) - 1)

    return mean - error * back(t), mean - error * back(-t)
