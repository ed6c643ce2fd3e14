"""Values of one metric over a part of the ledger, and the comparison of two such windows."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import replace
from functools import partial

from remit.learning.evidence import SettledWeights, rater_weights
from remit.learning.statistics import ConfidenceSequence, Estimate, evidence_below

__all__ = ["Window", "is_below"]


class Window:
    """Values of one metric, with two weightings of values that parties gave.

    The settled weights are fixed when a value is added, which keeps intervals valid at every look.
    The balanced weights limit each party to its share of the whole, in any order of the values.

    Args:
        alpha: probability that the settled sequence ever excludes the mean.

    Attributes:
        samples: number of values.
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
        """Add a value.

        Args:
            raters: the parties that gave it, for a reward; empty for other metrics.

        Raises:
            InvalidInputError: the value does not lie between 0 and 1.
        """
        self.samples += 1
        if weight := self._weights.weigh(raters):
            self._settled.update(value, weight)
        if raters:
            self._by[raters].update(value)

    def sequences(self) -> list[ConfidenceSequence]:
        """Return the settled sequence; if parties gave the values, also the balanced one.

        The balanced sequence limits each party to its share.
        """
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
        """Return the balanced estimate, with an interval that also covers the settled one.

        Without raters, the settled estimate is returned.
        """
        settled, *balanced = (one.estimate for one in self.sequences())
        if not balanced:
            return settled
        low, high = min(settled.low, balanced[0].low), max(settled.high, balanced[0].high)
        return replace(balanced[0], low=low, high=high)


def is_below(live: Window, baseline: Window, margin: float, alpha: float) -> bool:
    """Return True if the live mean is surely more than ``margin`` below the baseline's.

    Both weightings must agree. The settled one keeps false crossings below ``alpha`` at every look;
    the balanced one prevents that a single party causes a crossing.

    Args:
        live: the later values.
        baseline: the earlier values.
        margin: difference that does not matter, in the unit of the values.
        alpha: probability of a false answer.
    """
    goal = math.log(1 / alpha)
    pairs = zip(live.sequences(), baseline.sequences(), strict=False)
    return all(evidence_below(*pair, margin, goal) >= goal for pair in pairs)
