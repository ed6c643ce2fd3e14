"""The effect of a change, by paired differences on held-out exchanges."""

from __future__ import annotations

from collections.abc import Sequence

from remit.learning.statistics.confidence import ConfidenceSequence
from remit.learning.statistics.estimate import Estimate
from remit.learning.statistics.guard import one_sided
from remit.learning.statistics.student import skewed_interval

__all__ = ["paired_effect"]


def paired_effect(
    differences: Sequence[float],
    weights: Sequence[float] | None = None,
    *,
    low: float = -1.0,
    high: float = 1.0,
    alpha: float = 0.05,
    looks: int = 0,
) -> tuple[Estimate, Estimate]:
    """Estimate the mean of paired differences.

    The predicted interval is Student's t, corrected for skewness. If all differences are equal, its
    width would be 0, and the interval of the gate is used instead.

    Args:
        differences: new minus old value of each pair.
        weights: weight of each pair; ``None`` for equal weights.
        low: smallest possible difference.
        high: largest possible difference.
        alpha: probability that the gate's interval ever excludes the mean; with ``looks``, that a
            bound of the gate is ever wrong.
        looks: number of looks fixed in advance (:func:`one_sided`); 0 for an interval that is valid
            at every look.

    Returns:
        The size of the effect, valid for this number of pairs (`student`), and the estimate that
        decides whether to propose (`one_sided`, or `betting` without ``looks``).

    Raises:
        InvalidInputError: a difference lies outside the bounds, or there are no differences.
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
    below, above = skewed_interval(differences, weights=weights)
    predicted = Estimate(
        value=gate.value,
        low=max(low, below),
        high=min(high, above),
        samples=len(differences),
        effective_samples=gate.effective_samples,
        method="student",
    )
    return predicted, gate
