"""Confidence intervals, alarms, off-policy estimates, and prediction-powered inference."""

from remit.learning.statistics.confidence_sequences import (
    ConfidenceSequence,
    Estimate,
    difference,
    evidence,
    evidence_below,
)
from remit.learning.statistics.fixed_sample_intervals import (
    doubly_robust,
    one_sided,
    paired_effect,
    pairs_needed,
    prediction_powered,
)

__all__ = [
    "ConfidenceSequence",
    "Estimate",
    "difference",
    "doubly_robust",
    "evidence",
    "evidence_below",
    "one_sided",
    "paired_effect",
    "pairs_needed",
    "prediction_powered",
]
