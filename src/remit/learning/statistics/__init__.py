"""Confidence intervals, alarms, off-policy estimates, and prediction-powered inference."""

from remit.learning.statistics.confidence_sequences import (
    ConfidenceSequence as ConfidenceSequence,
    Estimate as Estimate,
    difference as difference,
    evidence as evidence,
    evidence_below as evidence_below,
)
from remit.learning.statistics.fixed_sample_intervals import (
    doubly_robust as doubly_robust,
    one_sided as one_sided,
    paired_effect as paired_effect,
    pairs_needed as pairs_needed,
    prediction_powered as prediction_powered,
)
