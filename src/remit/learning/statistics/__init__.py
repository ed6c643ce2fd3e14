"""Confidence intervals, alarms, off-policy estimates, and prediction-powered inference."""

from remit.learning.statistics.alarm import Alarm
from remit.learning.statistics.confidence import (
    ConfidenceSequence,
    difference,
    evidence_below,
)
from remit.learning.statistics.estimate import Estimate
from remit.learning.statistics.guard import one_sided, pairs_needed
from remit.learning.statistics.off_policy import Logged, cross_fit, doubly_robust
from remit.learning.statistics.pairs import paired_effect
from remit.learning.statistics.ppi import prediction_powered

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
