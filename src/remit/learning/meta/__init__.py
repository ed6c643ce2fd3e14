"""The meta loop: quality of questions, and effects of adopted proposals."""

from remit.learning.meta.effects import (
    Attribution,
    Effect,
    EffectReader,
    attribute,
    read_report,
    record_attribution,
    replay_both,
)
from remit.learning.meta.questions import Question, read_questions

__all__ = [
    "Attribution",
    "Effect",
    "EffectReader",
    "Question",
    "attribute",
    "read_questions",
    "read_report",
    "record_attribution",
    "replay_both",
]
