"""Intervals for numbers of samples and looks that are fixed in advance.

Hall (1992), "On the removal of skewness by transformation"; Angelopoulos, Duchi and Zrnic (2023),
"PPI++"; Dudík, Langford and Li (2011), "Doubly robust policy evaluation and learning". The formulas
are in docs/learning.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul
from statistics import NormalDist, fmean, variance

from remit.kernel.errors import InvalidInputError
from remit.learning.statistics.confidence_sequences import ConfidenceSequence, Estimate


def student(confidence: float, freedom: float) -> float:
    """Return the two-sided quantile of Student's t, by the Cornish-Fisher expansion.

    An interval with this ``confidence`` has so many standard errors on each side. Less than 4
    degrees of ``freedom`` count as 4.
    """
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    v = max(freedom, 4.0)
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )


def _skewed_interval(
    values: Sequence[float], weights: Sequence[float] | None = None
) -> tuple[float, float]:
    """Return the ends of the 95 % interval for a mean by Student's t, corrected for skewness.

    The correction is Hall's monotone cubic transformation: weighted rewards are skewed, and a
    symmetric interval then misses on one side. Both ends are the mean if all values are equal.
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
    t = student(0.95, n - 1)
    if abs(a) < 1e-9:
        return mean - error * t, mean + error * t

    def back(z: float) -> float:
        return 3 / a * (math.cbrt(1 + a * (z - a / 6)) - 1)

    return mean - error * back(t), mean - error * back(-t)


ALPHA = 0.05
"""Probability of a wrong decision, such as accepting a loss above the tolerance."""


def one_sided(
    values: Sequence[float], weights: Sequence[float] | None = None, *, low: float = -1.0,
    high: float = 1.0, looks: int = 1, alpha: float = ALPHA,
) -> Estimate:  # fmt: skip
    """Return the mean of values with a lower and an upper bound, each with its own error.

    With ``looks`` above 0, each bound errs with probability ``alpha / looks``, so that all looks
    together err with at most ``alpha``. The bound is Student's, after a few further values at the
    bad end of the range were added. If all n values are equal, the bound is ``log(looks / alpha) /
    n`` of the range below them, as for a rare loss that was never seen.

    With ``looks`` 0, the bounds are those of a betting sequence, valid at every look. No bound lies
    outside ``low`` and ``high``. The confidence of the estimate is that of each bound alone.

    Args:
        values: values between ``low`` and ``high``, such as paired differences.
        weights: a weight for each value, above 0 (not checked); ``None`` for equal weights.
        looks: number of times that the growing values are tested, fixed in advance; 0 for any.
        alpha: probability that a bound is ever wrong.

    Raises:
        InvalidInputError: there are no values, or a value is out of range.
        ValueError: the numbers of weights and values differ.
    """
    if not values or not all(low <= value <= high for value in values):
        raise InvalidInputError(f"A bound needs values between {low} and {high}.")
    given = [1.0] * len(values) if weights is None else list(weights)
    total = math.fsum(given)
    mean = math.fsum(map(mul, given, values)) / total
    effective = total**2 / math.fsum(map(mul, given, given))
    if not looks:
        largest = max(given)
        sequence = ConfidenceSequence(2 * alpha, low, high)
        for value, weight in zip(values, given, strict=True):
            sequence.update(value, weight / largest)
        ends = sequence.estimate.low, sequence.estimate.high
    else:
        bound, turned = alpha / looks, [-value for value in values]
        ends = (
            max(low, _bound(values, given, low, bound, effective)),
            min(high, -_bound(turned, given, -high, bound, effective)),
        )
    return Estimate(
        value=mean, low=ends[0], high=ends[1], confidence=1 - (alpha / looks if looks else alpha),
        samples=len(values), effective_samples=effective,
        method="one_sided" if looks else "betting",
    )  # fmt: skip


def _bound(
    values: Sequence[float], weights: Sequence[float], worst: float, alpha: float, effective: float
) -> float:
    """Return the lower bound of a mean, with the worst value added as often as needed."""
    each = math.fsum(weights) / effective
    added = _added(alpha)
    whole = (effective + added) * each
    pairs = list(zip(weights, values, strict=True))
    mean = (math.fsum(weight * value for weight, value in pairs) + added * each * worst) / whole
    squares = math.fsum((weight * (value - mean)) ** 2 for weight, value in pairs)
    squares += added * (each * (worst - mean)) ** 2
    return mean - student(1 - 2 * alpha, effective - 1) * math.sqrt(squares) / whole


def _added(alpha: float) -> float:
    """Return the number w of worst values for which w + z √w is log(1 / alpha)."""
    z = NormalDist().inv_cdf(1 - alpha)
    return ((math.sqrt(z * z + 4 * math.log(1 / alpha)) - z) / 2) ** 2


def pairs_needed(
    tolerance: float, deviation: float, *, effect: float = 0.0, worst: float = 1.0, looks: int = 1,
    power: float = 0.8,
) -> int:  # fmt: skip
    """Return the number of pairs with which :func:`one_sided` passes with probability ``power``.

    The test passes if the lower bound of the mean difference is at least ``-tolerance``.

    Args:
        tolerance: largest accepted loss, 0 or more.
        deviation: root mean square of the differences: √s if a share s of the rewards differs by 1.
        effect: the true mean difference; above ``-tolerance``.
        worst: the largest loss of a pair.
        looks: number of looks, at least 1.
        power: probability of passing, above 0 and below 1.

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
    spread = deviation * max(0.0, normal.inv_cdf(1 - ALPHA / looks) + normal.inv_cdf(power))
    added = _added(ALPHA / looks) if deviation else math.log(looks / ALPHA)
    root = (spread + math.sqrt(spread**2 + 4 * room * added * worst)) / (2 * room)
    return math.ceil(root**2)


def paired_effect(
    differences: Sequence[float], weights: Sequence[float] | None = None, *, low: float = -1.0,
    high: float = 1.0, alpha: float = 0.05, looks: int = 0,
) -> tuple[Estimate, Estimate]:  # fmt: skip
    """Estimate the mean of paired differences.

    Args:
        differences: new minus old value of each pair, between ``low`` and ``high``.
        weights: weight of each pair; ``None`` for equal weights.
        alpha: probability that the gate ever errs; with ``looks``, that one of its bounds does.
        looks: number of looks fixed in advance (:func:`one_sided`); 0 for any number.

    Returns:
        The predicted effect, valid for this number of pairs (`student`), and the gate, which
        decides whether to propose (`one_sided`, or `betting` without ``looks``). Both are the gate
        if all differences are equal, because Student's interval would have no width.

    Raises:
        InvalidInputError: a difference lies outside the bounds; or, with ``looks`` or ``weights``,
            there are no differences. Without both, these give the whole range.
    """
    if looks or weights:
        gate = one_sided(differences, weights, low=low, high=high, alpha=alpha, looks=looks)
    else:
        sequence = ConfidenceSequence(alpha, low=low, high=high)
        for difference in differences:
            sequence.update(difference)
        gate = sequence.estimate
    if len(set(differences)) < 2:
        return gate, gate
    below, above = _skewed_interval(differences, weights)
    predicted = Estimate(
        value=gate.value, low=max(low, below), high=min(high, above), samples=len(differences),
        effective_samples=gate.effective_samples, method="student",
    )  # fmt: skip
    return predicted, gate


def prediction_powered(
    grades: Sequence[float], judged: Sequence[float], judged_only: Sequence[float]
) -> Estimate:
    """Estimate the mean of people's grades over all answers that a judge graded.

    A bad judge makes the interval as wide as that of people's grades alone, and never wrong; with
    fewer than two answers in ``judged_only``, the judge has no influence. The interval is valid for
    a number of samples fixed in advance. Its ends may lie outside 0 and 1.

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
    half = NormalDist().inv_cdf(0.975) * math.sqrt(error)
    alone = variance(grades)
    return Estimate(
        value=value, low=value - half, high=value + half, samples=n + others,
        effective_samples=alone / error if error > 0 else float(n), method="prediction_powered",
    )  # fmt: skip


def doubly_robust(reward: float | None, chance: float, predicted: float) -> float:
    """Return the doubly robust value of a model's reward for one prompt; its mean is unbiased.

    Args:
        reward: the reward of the model's answer; ``None`` if the model was not asked.
        chance: probability with which the model was asked, above 0.
        predicted: prediction of the reward that does not depend on the reward.
    """
    return predicted if reward is None else predicted + (reward - predicted) / chance
