"""The meta loop: quality of questions, and effects of adopted proposals."""

from remit.learning.meta.effects import (
    Attribution,
    Calibration,
    Effect,
    EffectReader,
    Report,
    attribute,
    calibrate,
    propose_rollbacks,
    read_attributions,
    read_report,
    record_attribution,
    replay_both,
)
from remit.learning.meta.questions import Question, read_questions
from remit.learning.meta.requirements import Requirement, schema_requirements, unstated

__all__ = [
    "Attribution", "Calibration", "Effect", "EffectReader", "Question", "Report", "Requirement",
    "attribute", "calibrate", "propose_rollbacks", "read_attributions", "read_questions",
    "read_report", "record_attribution", "replay_both", "schema_requirements", "unstated",
]  # fmt: skip
