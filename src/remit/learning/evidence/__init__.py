"""Evidence: exchanges with their outcomes, read from the record, and feedback on them."""

from remit.learning.evidence.feedback import Feedback, feedback_on, give_feedback
from remit.learning.evidence.grading import grade_by_reference, grade_by_schema, grade_by_test
from remit.learning.evidence.samples import Sample, read_samples
from remit.learning.evidence.shares import RaterShare, SettledWeights, rater_shares, rater_weights

__all__ = [
    "Feedback",
    "RaterShare",
    "Sample",
    "SettledWeights",
    "feedback_on",
    "give_feedback",
    "grade_by_reference",
    "grade_by_schema",
    "grade_by_test",
    "rater_shares",
    "rater_weights",
    "read_samples",
]
