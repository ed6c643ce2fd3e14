"""Shares of the parties in the feedback, and the weight of a party that gives most of it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

MAX_SHARE = 0.25
"""Largest share of one party's feedback in a signal; an equal share if there are fewer than 4."""


def rater_weights(counts: Mapping[str, int]) -> dict[str, float]:
    """Return the weight of each party, above 0 and at most 1, by its number of graded exchanges.

    With the weights no party makes up more than a quarter (:data:`MAX_SHARE`) of the whole; with
    fewer than four parties, more than an equal share. The parties above that limit are lowered to
    it together: with a limit s, k lowered parties and r feedback of all others, each lowered party
    makes up s * r / (1 - k * s). If all are at the limit, each makes up as much as the smallest. A
    party without feedback weighs 1 and does not change the limit of the others.
    """
    weights = dict.fromkeys(counts, 1.0)
    ordered = sorted(filter(counts.get, counts), key=lambda rater: (-counts[rater], rater))
    limit = max(MAX_SHARE, 1 / len(ordered)) if ordered else 1.0
    rest = sum(counts.values())
    for lowered, rater in enumerate(ordered, 1):
        rest -= counts[rater]
        remainder = 1 - lowered * limit
        if remainder <= 1e-9:  # Every party is at the limit, so all make up the same part.
            least = counts[ordered[-1]]
            return weights | {one: least / counts[one] for one in ordered}
        each = limit * rest / remainder
        if counts[ordered[lowered]] <= each:
            return weights | {one: min(1.0, each / counts[one]) for one in ordered[:lowered]}
    return weights


class SettledWeights:
    """Weights that depend only on earlier feedback, so that later feedback does not change them.

    A party's feedback weighs 1 until it exceeds the party's share of all feedback so far by more
    than one value. The share is a quarter (:data:`MAX_SHARE`), with fewer than four parties so far
    an equal one. The feedback of a single party has its full weight.
    """

    def __init__(self) -> None:
        self._given: dict[str, float] = defaultdict(float)
        self._all = 0.0

    def weigh(self, raters: Sequence[str]) -> float:
        """Return the weight of the next reward, the mean over its parties, 0 to 1; and count it.

        Each call adds the weight to the sums of the parties, so the order of calls matters.

        Args:
            raters: the parties that gave the reward. Without any, and for the party without a
                name (a fact), the weight is 1.
        """
        parts = [self._settled(rater) if rater else 1.0 for rater in raters]
        return math.fsum(parts) / len(parts) if parts else 1.0

    def _settled(self, rater: str) -> float:
        given = self._given[rater]
        limit = max(MAX_SHARE, 1 / len(self._given))
        room = 1 + (self._all - given) * limit / (1 - limit) - given if limit < 1 else 1.0
        weight = min(1.0, max(0.0, room))
        self._given[rater] += weight
        self._all += weight
        return weight
