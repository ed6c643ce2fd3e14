"""What the record teaches: evidence, signals, proposals, and whether they did what they predicted.

Nothing here is imported on the way of a call, and nothing here changes an agent by itself.
"""

from remit.kernel.errors import ConflictError
from remit.learning.evidence import (
    Feedback,
    RaterShare,
    Sample,
    feedback_on,
    give_feedback,
    grade_by_reference,
    grade_by_schema,
    grade_by_test,
    rater_shares,
    rater_weights,
    read_samples,
)
from remit.learning.statistics import (
    Alarm,
    ConfidenceSequence,
    Estimate,
    Logged,
    difference,
    doubly_robust,
    prediction_powered,
)

__all__ = [
    "Alarm",
    "ConfidenceSequence",
    "Estimate",
    "Feedback",
    "Logged",
    "RaterShare",
    "Sample",
    "difference",
    "doubly_robust",
    "feedback_on",
    "give_feedback",
    "grade_by_reference",
    "grade_by_schema",
    "grade_by_test",
    "prediction_powered",
    "rater_shares",
    "rater_weights",
    "read_samples",
]

# Earlier names, for programs that catch them; they end with version 1.0.
FeedbackError = ConflictError
