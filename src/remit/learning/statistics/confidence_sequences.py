"""Confidence sequences for means of bounded values: valid however often one looks.

Waudby-Smith and Ramdas (2024), "Estimating means of bounded random variables by betting". The
formulas are in docs/learning.md.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from remit.kernel.errors import InvalidInputError

Method = Literal[
    "betting", "empirical_bernstein", "doubly_robust", "prediction_powered", "welch",
    "least_squares", "student", "one_sided",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number with its interval.

    Attributes:
        value: the point estimate.
        low: lower end of the interval.
        high: upper end of the interval.
        confidence: probability that an interval made this way contains the true value.
        samples: number of samples.
        effective_samples: number of equally weighted samples with the same information.
        method: `betting` and `empirical_bernstein` are valid at every look. `doubly_robust`,
            `prediction_powered`, `welch` (a difference of two means), `student` (a mean of paired
            differences) and `least_squares` (a slope) are valid for a number of samples fixed in
            advance. `one_sided` is valid for a number of looks fixed in advance, and the confidence
            is that of each end alone.
        clipped: number of samples whose weight was limited; 0 in all present methods.
    """

    value: float
    low: float
    high: float
    confidence: float = 0.95
    samples: int = 0
    effective_samples: float = 0.0
    method: Method = "betting"
    clipped: int = 0


# Equal funds bet these shares of the largest bet that cannot lose everything. Halving suits 10
# samples as well as 100,000, because the best bet shrinks with the difference that they can show.
_BETS = tuple(0.9 / 2**k for k in range(8))
_SHARE = math.log(1 / len(_BETS))
_LEVELS = 1000  # Values are rounded to so many steps of the range.
_STEPS = 40  # So many bisections give an end of the interval to 1e-12 of the range.


class ConfidenceSequence:
    """A betting confidence sequence: hedged capital, each side a fund of grid-Kelly bets.

    Only counts by value are stored, so two sequences can be merged, and the same samples give the
    same interval in any order. Values are rounded to thousandths of the range; if one was changed
    by that, the interval is widened by half a thousandth on each side.

    Args:
        alpha: largest probability that the sequence ever excludes the mean.
        low: smallest possible value.
        high: largest possible value.

    Attributes:
        samples: number of values, whatever their weights.

    Raises:
        InvalidInputError: ``alpha`` is not between 0 and 1, or the bounds are not finite and in
            order.
    """

    def __init__(self, alpha: float = 0.05, low: float = 0.0, high: float = 1.0) -> None:
        if not 0 < alpha < 1:
            raise InvalidInputError("alpha must lie between 0 and 1, both excluded")
        if not (low < high and math.isfinite(high - low)):
            raise InvalidInputError("low must be less than high, and both finite")
        self.alpha, self.low, self.high = alpha, low, high
        self.samples = 0
        self._weight = 0.0
        self._rounded = False
        self._counts: dict[int, float] = defaultdict(float)
        # The sum of whole levels is exact, so that the order leaves no trace in the last digit.
        self._total = 0.0

    def update(self, x: float, weight: float = 1.0) -> None:
        """Add a value, rounded to the nearest level; raise InvalidInputError outside the bounds.

        Args:
            weight: above 0, at most 1, and chosen before the value is known. It is not checked: the
                interval is wrong with any other weight.
        """
        if not self.low <= x <= self.high:
            raise InvalidInputError(f"{x} does not lie between {self.low} and {self.high}")
        exact = (x - self.low) / (self.high - self.low) * _LEVELS
        level = round(exact)
        self._rounded = self._rounded or abs(exact - level) > 1e-9
        self._counts[level] += weight
        self._total += weight * level
        self._weight += weight
        self.samples += 1

    def merge(self, other: ConfidenceSequence, weight: float = 1.0) -> None:
        """Add the values of another sequence with a weight from 0 to 1; its alpha is ignored.

        The guarantee holds for a weight that does not depend on the values.

        Raises:
            InvalidInputError: the weight is not between 0 and 1, or the bounds differ.
        """
        if not 0 <= weight <= 1:
            raise InvalidInputError("a weight lies between 0 and 1")
        if (other.low, other.high) != (self.low, self.high):
            raise InvalidInputError("both sequences must have the same bounds")
        for level, count in other._counts.items():
            self._counts[level] += weight * count
        self._total += weight * other._total
        self._weight += weight * other._weight
        self.samples += other.samples
        self._rounded = self._rounded or other._rounded

    @property
    def _middle(self) -> float:
        """The mean, scaled to [0, 1]; 0.5 without values of a weight above 0."""
        return self._total / _LEVELS / self._weight if self._weight else 0.5

    @property
    def _slack(self) -> float:
        return 0.5 / _LEVELS if self._rounded else 0.0

    @property
    def mean(self) -> float:
        """The mean of the values so far; the middle of the range without values."""
        return self.low + (self.high - self.low) * self._middle

    @property
    def estimate(self) -> Estimate:
        """The mean with the present interval, at the confidence ``1 - alpha``; without samples the
        middle and the whole range. The effective sample size is the sum of the weights.
        """
        low, high = 0.0, 1.0
        if self.samples:
            goal = math.log(2 / self.alpha)  # Each side starts with half of the capital.
            middle, slack = self._middle, self._slack
            low = _bisect(lambda m: self._capital_scaled(m, up=True) >= goal, 0.0, middle) - slack
            high = 1 + slack - _bisect(
                lambda m: self._capital_scaled(1 - m, up=False) >= goal, 0.0, 1 - middle
            )  # fmt: skip
        width = self.high - self.low
        return Estimate(
            value=self.mean, low=self.low + width * max(0.0, low),
            high=self.low + width * min(1.0, high), confidence=1 - self.alpha,
            samples=self.samples, effective_samples=self._weight,
        )  # fmt: skip

    def capital(self, mean: float, *, up: bool) -> float:
        """Return the logarithm of the capital after bets of one unit against a mean.

        With ``up``, the bets are that the true mean is higher, else that it is lower. If they are
        wrong, the result ever reaches log(1/alpha) with probability at most alpha. Without values
        the result is 0. It is infinite if the values rule the mean out, as a value above 0 does the
        mean 0.
        """
        scaled = (mean - self.low) / (self.high - self.low)
        return self._capital_scaled(scaled + (self._slack if up else -self._slack), up=up)

    def _capital_scaled(self, mean: float, *, up: bool) -> float:
        room = mean if up else 1 - mean
        if room <= 0:  # A mean of 0 allows only values of 0, and a lower one none.
            at_edge = self._counts.keys() <= {0 if up else _LEVELS}
            return 0.0 if room == 0 and at_edge else math.inf
        whole = min(room, 1.0) * _LEVELS
        ratios = [
            ((level if up else _LEVELS - level) / whole - 1, count)
            for level, count in self._counts.items()
        ]
        log1p = math.log1p
        logs = [math.fsum(count * log1p(bet * ratio) for ratio, count in ratios) for bet in _BETS]
        top = max(logs)
        return _SHARE + top + math.log(sum(math.exp(value - top) for value in logs))


def evidence_below(
    live: ConfidenceSequence, baseline: ConfidenceSequence, margin: float = 0.0,
    enough: float = math.inf,
) -> float:  # fmt: skip
    """Return the log evidence that the live mean is more than ``margin`` below the baseline's.

    0 if a side has no values, or if the mean of the live values so far is not lower by more than
    ``margin``; otherwise the result of :func:`evidence`, which also explains ``enough``.
    """
    if not live.samples or not baseline.samples or live.mean >= baseline.mean - margin:
        return 0.0
    return evidence(live, baseline, margin, enough)


def evidence(
    live: ConfidenceSequence, baseline: ConfidenceSequence, margin: float = 0.0,
    enough: float = math.inf,
) -> float:  # fmt: skip
    """Return the log evidence that the live mean is more than ``margin`` below the baseline's.

    If it is not, the evidence ever reaches log(1/alpha) with probability at most alpha, although
    the baseline is an estimate too; so does the sum of the evidence of independent pairs. The
    evidence is the sum of both log capitals at the common mean at which it is smallest.

    Args:
        live: values; at least one, and so for ``baseline``.
        margin: difference that does not matter.
        enough: the search stops at a result below this bound.
    """

    def both(mean: float) -> float:
        return baseline.capital(mean, up=True) + live.capital(mean - margin, up=False)

    ends = sorted((live.mean + margin, baseline.mean))
    low, high = max(ends[0], baseline.low), min(ends[1], live.high + margin)
    return _smallest(both, low, high, enough) if low < high else both(low)


def difference(a: ConfidenceSequence, b: ConfidenceSequence) -> Estimate:
    """Return the always-valid estimate of the mean of `a` less the mean of `b`.

    Without values on a side, the value is 0 and the interval is the whole range.

    Raises:
        InvalidInputError: the bounds or alphas differ.
    """
    if (a.low, a.high, a.alpha) != (b.low, b.high, b.alpha):
        raise InvalidInputError("both sequences must have the same bounds and alpha")
    goal, width = math.log(2 / a.alpha), a.high - a.low
    value = a.mean - b.mean if a.samples and b.samples else 0.0
    low, high = -width, width
    if a.samples and b.samples:
        # A difference is excluded if the evidence shows that a lies below b by less, or b below a.
        high = -_bisect(lambda d: evidence_below(a, b, d, goal) >= goal, -width, -value, steps=20)
        low = _bisect(lambda d: evidence_below(b, a, d, goal) >= goal, -width, value, steps=20)
    weight = a._weight + b._weight
    return Estimate(
        value=value, low=low, high=high, confidence=1 - a.alpha, samples=a.samples + b.samples,
        effective_samples=4 * a._weight * b._weight / weight if weight else 0.0,
    )  # fmt: skip


def _bisect(
    excluded: Callable[[float], bool], outside: float, inside: float, steps: int = _STEPS
) -> float:
    """Return the largest excluded value found between ``outside`` and ``inside``."""
    for _ in range(steps):
        middle = (outside + inside) / 2
        if excluded(middle):
            outside = middle
        else:
            inside = middle
    return outside


def _smallest(function: Callable[[float], float], low: float, high: float, enough: float) -> float:
    """Return the minimum by golden section, or any value found below ``enough``.

    The search is exact, because the log of a capital is convex in the mean: each factor 1 - f + f x
    / m is a sum of log-convex functions of m, and so are products and sums of them.
    """
    golden = (math.sqrt(5) - 1) / 2
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = function(left), function(right)
    for _ in range(24):
        if min(at_left, at_right) < enough < math.inf:
            break
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = function(right)
    return min(at_left, at_right)
