"""An alarm on a change against a frozen baseline."""

from __future__ import annotations

import math
from typing import Literal

from remit.learning.statistics.confidence import ConfidenceSequence, evidence_below


class Alarm:
    """An alarm for a live mean that is worse than the baseline's by more than a margin.

    The probability of a false alarm is at most ``alpha`` over any number of looks. A raised alarm
    stays raised.

    Args:
        baseline: values of the reference window; not changed later.
        alpha: probability of a false alarm.
        margin: difference that does not matter, in the unit of the values.
        worse: direction of the alarm: `below` for rewards, `above` for failures and cost.

    Attributes:
        live: the values since the baseline.
        raised_at: number of live samples when the alarm was raised; 0 before.
    """

    def __init__(
        self,
        baseline: ConfidenceSequence,
        *,
        alpha: float = 0.05,
        margin: float = 0.0,
        worse: Literal["below", "above"] = "below",
    ) -> None:
        self._baseline, self._margin, self._worse = baseline, margin, worse
        self._goal = math.log(1 / alpha)
        self.live = ConfidenceSequence(alpha, baseline.low, baseline.high)
        self.raised_at = 0

    def update(self, x: float) -> bool:
        """Add a live value; return True if the alarm is raised, now or by an earlier value.

        Raises:
            InvalidInputError: the value lies outside the bounds of the baseline.
        """
        self.live.update(x)
        if not self.raised_at and self._evidence() >= self._goal:
            self.raised_at = self.live.samples
        return bool(self.raised_at)

    def _evidence(self) -> float:
        if self._worse == "below":
            return evidence_below(self.live, self._baseline, self._margin, self._goal)
        return evidence_below(self._baseline, self.live, self._margin, self._goal)
