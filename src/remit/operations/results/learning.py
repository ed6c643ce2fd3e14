"""The forms of signals, proposals, and the report of learning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from remit.learning import Estimate, Signal
from remit.learning.meta import Attribution, Effect, Question
from remit.learning.proposals import Proposal
from remit.operations.results.page import Paged, form


@dataclass(frozen=True, slots=True, kw_only=True)
class _Calibration:
    """The number of predictions that held so far.

    Attributes:
        held: predictions that agree with the realised effect.
        missed: predictions that do not.
        open: predictions with too few samples, whatever these show, so that the share is unbiased.
        share: share of held among held and missed, 95 % if predictions are right; None without any.
    """

    held: int
    missed: int
    open: int
    share: Estimate | None


_PROPOSAL: dict[str, Any] = {
    "evidence_sha256": str,
    "predicted": (dict[str, Any], "Predicted effect, with its interval and method."),
}
ProposalShape = form(
    "ProposalShape",
    "A change that a learner proposes, with its state. Missing values are empty.",
    of=Proposal, **_PROPOSAL,
)  # fmt: skip
ProposalPage = form("ProposalPage", "Newest first.", base=Paged, proposals=[ProposalShape])
ProposalDetail = form(
    "ProposalDetail", "A proposal with the present state of its evidence.",
    of=Proposal, **_PROPOSAL,
    stale=(str, "Reason why the proposal must be made again; empty if it can be adopted."),
    evidence_by_key=(dict[str, int], "Number of supporting entries by key."),
    canary=(dict[str, Any] | None, "Terms, state and comparison of the latest canary."),
)  # fmt: skip

SignalShape = form("SignalShape", "A metric of one dimension, in the baseline and live.", of=Signal)
Signals = form(
    "Signals", "Signals of models, contracts, tools, routes and agents.",
    signals=[SignalShape],
    window=(str, "Start of the live samples."),
    exchanges=(int, "Number of exchanges read."),
    complete=(bool, "True if these are all recorded exchanges."),
)  # fmt: skip

MissingShape = form(
    "MissingShape", "A demand that prompts do not state.",
    kind=str, name=str, demanded_by=(str, "Source of the demand."),
    answers=(int, "Number of valid answers whose prompt does not state the demand."),
)  # fmt: skip
QuestionShape = form(
    "QuestionShape",
    "The findings on one contract's question, in one version and prompt pack.",
    of=Question, missing=[MissingShape],
    wrong=(bool, "True if the answers were valid but the question was wrong."),
)  # fmt: skip
AttributionShape = form(
    "AttributionShape",
    "The cause of bad answers (Q4): question or model, by two replays of the same exchanges.",
    of=Attribution, kind=Literal["attribution"], contract_id=str, contract_version=str,
    cause=Literal["question", "model", "both", "neither", "undecided"],
    exchanges=(int, "Number of exchanges that both replays repeated."),
    evidence=([str], "Ids of the latest of these exchanges, at most 50."),
)  # fmt: skip
LearningReport = form(
    "LearningReport",
    "Proposals, their effects, and the findings on each contract's question.",
    policy_epoch=int, proposals=(dict[str, int], "Number of proposals by state."),
    adopted=[ProposalShape],
    effects=([form("EffectShape", "The predicted and the realised effect of an adopted proposal.",
                   of=Effect, evidence=None)], "Effects of all adopted proposals, oldest first."),
    calibration=form("CalibrationShape", "Number of predictions that held and missed.",
                     of=_Calibration),
    questions=[QuestionShape],
    attributions=([AttributionShape], "Latest attribution of each contract."),
    uncalibrated=([dict[str, Any]], "Judges that are not calibrated yet."),
    complete=(bool, "True if all recorded exchanges were read."),
)  # fmt: skip
