"""Confidence intervals, alarms, off-policy estimates, and prediction-powered inference."""

from remit.learning.statistics.confidence import (
    ConfidenceSequence,
    Estimate,
    difference,
    evidence,
    evidence_below,
)
from remit.learning.statistics.intervals import (
    doubly_robust,
    one_sided,
    paired_effect,
    pairs_needed,
    prediction_powered,
)

__all__ = [
    "ConfidenceSequence", "Estimate", "difference", "doubly_robust", "evidence",
    "evidence_below", "one_sided", "paired_effect", "pairs_needed", "prediction_powered",
]  # fmt: skip
