"""What the record teaches: evidence, signals, proposals, and whether they did what they predicted.

Nothing here is imported on the way of a call, and nothing here changes an agent by itself.
"""

from remit.learning.evidence import (
    Feedback,
    FeedbackError,
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

__all__ = [
    "Feedback",
    "FeedbackError",
    "RaterShare",
    "Sample",
    "feedback_on",
    "give_feedback",
    "grade_by_reference",
    "grade_by_schema",
    "grade_by_test",
    "rater_shares",
    "rater_weights",
    "read_samples",
]
