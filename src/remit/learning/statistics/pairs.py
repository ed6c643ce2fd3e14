"""The effect of a change, by paired differences on held-out exchanges."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from remit.learning.statistics.confidence import ConfidenceSequence
from remit.learning.statistics.estimate import Estimate
from remit.learning.statistics.student import skewed_interval

__all__ = ["paired_effect"]


def paired_effect(
    differences: Sequence[float], *, low: float = -1.0, high: float = 1.0, alpha: float = 0.05
) -> tuple[Estimate, Estimate]:
    """Estimate the mean of paired differences.

    The predicted interval is Student's t, corrected for skewness. If all differences are equal, its
    width would be 0, and the always-valid interval is used instead.

    Args:
        differences: new minus old value of each pair.
        low: smallest possible difference.
        high: largest possible difference.
        alpha: probability that the always-valid interval ever excludes the mean.

    Returns:
        The size of the effect, valid for this number of pairs (`student`), and the estimate that
        decides whether to propose, valid at every look (`betting`).

    Raises:
        InvalidInputError: a difference lies outside the bounds.
    """
    sequence = ConfidenceSequence(alpha, low=low, high=high)
    for difference in differences:
        sequence.update(difference)
    gate = sequence.estimate
    if len(set(differences)) < 2:
        return gate, gate
    below, above = skewed_interval(differences)
    predicted = Estimate(
        value=fmean(differences),
        low=max(low, below),
        high=min(high, above),
        samples=len(differences),
        effective_samples=float(len(differences)),
        method="student",
    )
    return predicted, gate
