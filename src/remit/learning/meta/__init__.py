"""The meta loop: quality of questions, and effects of adopted proposals."""

from remit.learning.meta.effects import (
    Attribution as Attribution,
    Effect as Effect,
    EffectReader as EffectReader,
    attribute as attribute,
    read_report as read_report,
    record_attribution as record_attribution,
    replay_both as replay_both,
)
from remit.learning.meta.questions import Question as Question, read_questions as read_questions
