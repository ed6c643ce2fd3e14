"""Confidence intervals, alarms, off-policy estimates, and prediction-powered inference."""

from remit.learning.statistics.alarm import Alarm
from remit.learning.statistics.confidence import (
    ConfidenceSequence,
    Estimate,
    difference,
    evidence_below,
)
from remit.learning.statistics.intervals import (
    Logged,
    cross_fit,
    doubly_robust,
    one_sided,
    paired_effect,
    pairs_needed,
    prediction_powered,
)

__all__ = [
    "Alarm",
    "ConfidenceSequence",
    "Estimate",
    "Logged",
    "cross_fit",
    "difference",
    "doubly_robust",
    "evidence_below",
    "one_sided",
    "paired_effect",
    "pairs_needed",
    "prediction_powered",
]
