"""Learning: evidence, signals, proposals, and the comparison of their effects with predictions.

The room owns the reading of evidence, the statistics and the life of a proposal. The room owns no
agent: people or their policy adopt a proposal, and packages carry the change.

Invariants: no model call waits for this room; nothing here changes an agent by itself; no prompt is
judged by a learner that was fitted to it.

Start reading in :mod:`remit.learning.proposals`. Doors: ``judges`` grade answers, ``meta`` compares
outcomes with predictions, ``prompts`` searches for additions to a prompt, ``proposals``, and
``routes`` fits the choice of a model.
"""

from __future__ import annotations

from remit.kernel.errors import ConflictError
from remit.learning.evidence.feedback import Feedback, Source, feedback_on, give_feedback
from remit.learning.evidence.party_shares import rater_weights
from remit.learning.evidence.samples import Sample, read_samples
from remit.learning.exchanges import (
    held_out_sides,
    is_evidence,
    is_held_out,
    is_own_call,
    is_whole,
    open_account,
    prompt_key,
)
from remit.learning.grading import (
    gradable_exchanges,
    grade_by_reference,
    grade_by_schema,
    grade_by_test,
    grader,
    is_reference,
    learnable_contract,
    matches_schema,
    recorded_grader,
)
from remit.learning.held_out_replay import ChangedRequests, Replay, ReplayResult
from remit.learning.signals import Signal, SignalPolicy, before_latest, observe, read_signals
from remit.learning.statistics import (
    ConfidenceSequence,
    Estimate,
    difference,
    doubly_robust,
    paired_effect,
)

__all__ = [
    "ChangedRequests",
    "ConfidenceSequence",
    "Estimate",
    "Feedback",
    "Replay",
    "ReplayResult",
    "Sample",
    "Signal",
    "SignalPolicy",
    "Source",
    "before_latest",
    "difference",
    "doubly_robust",
    "feedback_on",
    "give_feedback",
    "gradable_exchanges",
    "grade_by_reference",
    "grade_by_schema",
    "grade_by_test",
    "grader",
    "held_out_sides",
    "is_evidence",
    "is_held_out",
    "is_own_call",
    "is_reference",
    "is_whole",
    "learnable_contract",
    "matches_schema",
    "observe",
    "open_account",
    "paired_effect",
    "prompt_key",
    "rater_weights",
    "read_samples",
    "read_signals",
    "recorded_grader",
]

# Earlier names, for programs that catch them; they end with version 1.0.
ReplayDriftError = ConflictError
FeedbackError = ConflictError
