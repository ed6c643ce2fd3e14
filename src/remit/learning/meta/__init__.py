"""The meta loop: quality of questions, and effects of adopted proposals."""

from remit.learning.meta.effects import (
    Attribution,
    Calibration,
    Effect,
    EffectReader,
    attribute,
    propose_rollbacks,
    read_report,
    record_attribution,
    replay_both,
)
from remit.learning.meta.questions import Question, read_questions

__all__ = [
    "Attribution", "Calibration", "Effect", "EffectReader", "Question", "attribute",
    "propose_rollbacks", "read_questions", "read_report", "record_attribution", "replay_both",
]  # fmt: skip
