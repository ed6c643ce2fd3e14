"""A mean from few people's grades and many of a judge's: prediction-powered inference.

Angelopoulos, Duchi and Zrnic (2023), "PPI++". The formulas stand in docs/learning.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, variance

from remit.kernel.errors import InvalidInputError
from remit.learning.statistics.estimate import Estimate

__all__ = ["prediction_powered"]


def prediction_powered(
    grades: Sequence[float],
    judged: Sequence[float],
    judged_only: Sequence[float],
    *,
    confidence: float = 0.95,
) -> Estimate:
    """Estimate the mean of people's grades over all answers that a judge graded.

    A bad judge makes the interval as wide as that of people's grades alone, and never wrong. The
    interval is valid for a number of samples fixed in advance.

    With fewer than two answers in ``judged_only``, the judge has no influence. The ends of the
    interval may lie outside 0 and 1.

    Args:
        grades: people's grades, 0 to 1.
        judged: the judge's grades of the same answers, in the same order.
        judged_only: the judge's grades of other answers.

    Raises:
        InvalidInputError: there are fewer than two grades, or ``judged`` has another length.
    """
    if len(grades) != len(judged):
        raise InvalidInputError("the judge must have graded what people graded, in the same order")
    n, others = len(grades), len(judged_only)
    if n < 2:
        raise InvalidInputError("prediction-powered inference needs at least two grades by people")
    trust = 0.0
    if others >= 2:
        y, f = fmean(grades), fmean(judged)
        shared = sum((a - y) * (b - f) for a, b in zip(grades, judged, strict=True)) / n
        spread = variance([*judged, *judged_only])
        if spread > 0:
            trust = min(1.0, max(0.0, shared / ((1 + n / others) * spread)))
    rest = [a - trust * b for a, b in zip(grades, judged, strict=True)]
    value, error = fmean(rest), variance(rest) / n
    if trust:
        value += trust * fmean(judged_only)
        error += trust**2 * variance(judged_only) / others
    half = NormalDist().inv_cdf(0.5 + confidence / 2) * math.sqrt(error)
    alone = variance(grades)
    return Estimate(
        value=value,
        low=value - half,
        high=value + half,
        confidence=confidence,
        samples=n + others,
        effective_samples=alone / error if error > 0 else float(n),
        method="prediction_powered",
    )
