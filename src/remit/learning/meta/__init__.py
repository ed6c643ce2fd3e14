"""Was the question right, and did what was adopted do what it predicted (SPEC 11.4)."""

from remit.learning.meta.attribution import Attribution, attribute
from remit.learning.meta.effects import Calibration, Effect, calibrate, read_effects
from remit.learning.meta.questions import Question, read_questions
from remit.learning.meta.requirements import Requirement, schema_requirements, unstated

__all__ = [
    "Attribution",
    "Calibration",
    "Effect",
    "Question",
    "Requirement",
    "attribute",
    "calibrate",
    "read_effects",
    "read_questions",
    "schema_requirements",
    "unstated",
]
