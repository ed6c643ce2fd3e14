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
from remit.learning.evidence.feedback import (
    Feedback as Feedback,
    Source as Source,
    feedback_on as feedback_on,
    give_feedback as give_feedback,
)
from remit.learning.evidence.party_shares import rater_weights as rater_weights
from remit.learning.evidence.samples import Sample as Sample, read_samples as read_samples
from remit.learning.exchanges import (
    held_out_sides as held_out_sides,
    is_evidence as is_evidence,
    is_held_out as is_held_out,
    is_own_call as is_own_call,
    is_whole as is_whole,
    open_account as open_account,
    prompt_key as prompt_key,
)
from remit.learning.grading import (
    gradable_exchanges as gradable_exchanges,
    grade_by_reference as grade_by_reference,
    grade_by_schema as grade_by_schema,
    grade_by_test as grade_by_test,
    grader as grader,
    is_reference as is_reference,
    learnable_contract as learnable_contract,
    matches_schema as matches_schema,
    recorded_grader as recorded_grader,
)
from remit.learning.held_out_replay import (
    ChangedRequests as ChangedRequests,
    Replay as Replay,
    ReplayResult as ReplayResult,
)
from remit.learning.signals import (
    Signal as Signal,
    SignalPolicy as SignalPolicy,
    before_latest as before_latest,
    observe as observe,
    read_signals as read_signals,
)
from remit.learning.statistics import (
    ConfidenceSequence as ConfidenceSequence,
    Estimate as Estimate,
    difference as difference,
    doubly_robust as doubly_robust,
    paired_effect as paired_effect,
    prediction_powered as prediction_powered,
)

# Earlier names, for programs that catch them; they end with version 1.0.
ReplayDriftError = ConflictError
FeedbackError = ConflictError
