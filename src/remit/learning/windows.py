"""Values of one metric over a stretch of the record, and whether one lies below another."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import replace
from functools import partial

from remit.learning.evidence import SettledWeights, rater_weights
from remit.learning.statistics import ConfidenceSequence, Estimate, evidence_below

__all__ = ["Window", "is_below"]


class Window:
    """Values of one metric, weighted in two ways where parties gave them.

    Once by weights that are settled as values come: that is what holds at every look. And once so
    that no party makes up more than its part of the whole, in any order: those weights move.

    Args:
        alpha: probability that the settled sequence ever leaves the mean out.
    """

    def __init__(self, alpha: float) -> None:
        self.samples = 0
        self._alpha = alpha
        self._weights = SettledWeights()
        self._settled = ConfidenceSequence(alpha)
        self._by: dict[tuple[str, ...], ConfidenceSequence] = defaultdict(
            partial(ConfidenceSequence, alpha)
        )

    def add(self, value: float, raters: tuple[str, ...] = ()) -> None:
        """Add one value; of a reward also who gave it."""
        self.samples += 1
        if weight := self._weights.weigh(raters):
            self._settled.update(value, weight)
        if raters:
            self._by[raters].update(value)

    def sequences(self) -> list[ConfidenceSequence]:
        """The settled one; where parties gave the values, then the balanced one."""
        if not self._by:
            return [self._settled]
        graded: Counter[str] = Counter()
        for raters, values in self._by.items():
            graded.update(dict.fromkeys(raters, values.samples))
        weights = rater_weights(graded)
        whole = ConfidenceSequence(self._alpha)
        for raters, values in sorted(self._by.items()):
            whole.merge(values, math.fsum(weights[rater] for rater in raters) / len(raters))
        return [self._settled, whole]

    def estimate(self) -> Estimate:
        """The balanced value, in an interval wide enough to hold at every look."""
        settled, *balanced = (one.estimate for one in self.sequences())
        if not balanced:
            return settled
        low, high = min(settled.low, balanced[0].low), max(settled.high, balanced[0].high)
        return replace(balanced[0], low=low, high=high)


def is_below(live: Window, baseline: Window, margin: float, alpha: float) -> bool:
    """Whether the live mean is surely more than `margin` below the baseline's.

    By both ways of weighting: the settled one keeps false crossings under `alpha` however often
    one looks, the balanced one keeps one party from crossing alone.
    """
    goal = math.log(1 / alpha)
    pairs = zip(live.sequences(), baseline.sequences(), strict=False)
    return all(evidence_below(*pair, margin, goal) >= goal for pair in pairs)
