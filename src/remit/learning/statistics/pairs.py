"""The effect of a change, by paired differences on held-out exchanges."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from remit.learning.statistics.confidence import ConfidenceSequence
from remit.learning.statistics.estimate import Estimate
from remit.learning.statistics.student import skewed_interval

__all__ = ["PairedEffect", "paired_effect"]


class PairedEffect(NamedTuple):
    """One effect, estimated for two questions.

    Attributes:
        predicted: how large it will be, for this number of pairs (`student`).
        gate: whether it may be proposed, however often one looks (`betting`).
    """

    predicted: Estimate
    gate: Estimate


def paired_effect(
    differences: Sequence[float], *, low: float = -1.0, high: float = 1.0, alpha: float = 0.05
) -> PairedEffect:
    """Estimate the mean of paired differences.

    The predicted interval is Student's t, corrected for skewness. Where all differences are equal,
    so that it would have no width, it is the always-valid one.

    Args:
        differences: new minus old, of each pair.
        low: the smallest possible difference.
        high: the largest.
        alpha: probability that the always-valid interval ever leaves the mean out.

    Raises:
        InvalidInputError: a difference lies outside of these bounds.
    """
    sequence = ConfidenceSequence(alpha, low=low, high=high)
    for difference in differences:
        sequence.update(difference)
    gate = sequence.estimate
    if len(set(differences)) < 2:
        return PairedEffect(gate, gate)
    below, above = skewed_interval(differences)
    predicted = Estimate(
        value=fmean(differences),
        low=max(low, below),
        high=min(high, above),
        samples=len(differences),
        effective_samples=float(len(differences)),
        method="student",
    )
    return PairedEffect(predicted, gate)
