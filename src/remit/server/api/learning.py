"""Routes of signals, of learners' proposals, and of decisions on proposals."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from remit.contracts import ContractLoader
from remit.kernel.installation import InstalledFiles
from remit.kernel.root import Root
from remit.kernel.settings import LoadedSettings
from remit.learning import SignalPolicy, current_signals
from remit.learning.meta import read_report
from remit.learning.proposals import Proposal, ProposalError, Proposals
from remit.ledger import LedgerClient
from remit.operations.results import Page, listing
from remit.runtime.installation import governance
from remit.server.api.routes import Caller, Routes, slice_of
from remit.server.refusals import HttpError


class ProposalShape(BaseModel):
    """A change that a learner proposes, with its state. Missing values are empty.

    `kind`, `target`, `package_id` and `version` name the change; `evidence`, `predicted`, `replay`
    and `diff` support it; `by`, `at` and `reason` tell its origin; `state` and the `decision`
    fields tell its fate.
    """

    proposal_id: str
    kind: str
    target: str = Field(
        description="Target of the change: `routing`, `limits`, or the id of a contract."
    )
    package_id: str
    version: str
    base_version: str = Field(
        description="Package version that was installed at the time of the proposal."
    )
    digest: str
    evidence: list[str] = Field(description="Ids of the entries that support the proposal.")
    evidence_sha256: str
    holds: list[str] = Field(description="Ids of the exchanges whose content the package contains.")
    predicted: dict[str, Any] = Field(description="Predicted effect, with its interval and method.")
    replay: dict[str, Any] = Field(description="Replay of held-out exchanges.")
    diff: str
    reason: str
    by: str
    entry_id: str
    at: str
    state: Literal["open", "adopted", "rejected", "rolled_back"]
    decision: str = Field(description="Entry of the latest decision.")
    decided_by: str
    decision_reason: str
    epoch: int = Field(description="Policy epoch that began with the decision; 0 for none.")
    previous_version: str
    adopted_at: str
    erased: bool
    rolls_back: str = Field(description="For a rollback, the adopted proposal that it reverses.")


ProposalPage = listing("ProposalPage", "Proposals, latest first.", proposals=ProposalShape)


class ProposalDetail(ProposalShape):
    """A proposal with the present state of its evidence.

    Adds `stale` and `evidence_by_key` to the proposal.
    """

    stale: str = Field(
        description="Reason why the proposal must be made again; empty if it can be adopted."
    )
    evidence_by_key: dict[str, int] = Field(description="Number of supporting entries by key.")


class SignalsQuery(BaseModel):
    """The exchanges that signals are computed from.

    `since` bounds the live samples, `latest` the number of exchanges (1 to 20,000), `crossed`
    selects signals.
    """

    model_config = ConfigDict(extra="forbid")

    since: str | None = Field(
        None, max_length=64, description="Start of the live samples, in ISO 8601."
    )
    latest: int = Field(2_000, ge=1, le=20_000, description="Number of latest exchanges to read.")
    crossed: bool = Field(False, description="Return only signals beyond their threshold.")


class EstimateShape(BaseModel):
    """A value with its interval.

    `low` and `high` bound `value` with the probability `confidence`; `samples` counts the values,
    `effective_samples` weighs them, and `method` names the calculation.
    """

    value: float
    low: float
    high: float
    confidence: float
    samples: int
    effective_samples: float
    method: str


class SignalShape(BaseModel):
    """A metric of one dimension, in the baseline and live.

    `name` is the member of the `dimension`; `baseline` and `live` are estimates of its `metric`;
    `crossed`, `evidence` and `uncalibrated` judge the difference.
    """

    dimension: Literal["framework", "contract", "pack", "model", "tool", "route", "agent"]
    name: str
    metric: str = Field(
        description="Cost in billionths of a US dollar, latency in milliseconds, otherwise a mean."
    )
    baseline: EstimateShape
    live: EstimateShape
    crossed: bool = Field(
        description="True if the live value is worse than the baseline by more than the policy's "
        "margin."
    )
    evidence: list[str] = Field(
        description="Ids of the latest exchanges that support the signal, at most 50."
    )
    uncalibrated: list[str] = Field(
        description="judges whose word alone made some of it, and too few of people's grades tell "
        "how far they can be relied on"
    )


class Signals(BaseModel):
    """Signals of models, contracts, tools, routes and agents.

    `signals` were computed from `exchanges`, the live ones since `window`; `complete` tells if
    older exchanges exist.
    """

    signals: list[SignalShape]
    window: str = Field(description="Start of the live samples.")
    exchanges: int = Field(description="Number of exchanges read.")
    complete: bool = Field(description="True if these are all recorded exchanges.")


class ProposalDecision(BaseModel):
    """The reason of a person's decision.

    `reason` has 1 to 1,000 characters, at least one of which is no white space.
    """

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(
        min_length=1, max_length=1000, pattern=r"\S", description="Reason, recorded permanently."
    )


class ReportQuery(BaseModel):
    """The exchanges that the report covers.

    `latest` is the number of exchanges, 1 to 20,000.
    """

    model_config = ConfigDict(extra="forbid")

    latest: int = Field(2_000, ge=1, le=20_000, description="Number of latest exchanges to read.")


class EffectShape(BaseModel):
    """The predicted and the realised effect of an adopted proposal.

    `before` and `after` are means of `metric`; `predicted`, `realised` and `regained` are estimates
    of the difference; `held` and `harmful` judge it.
    """

    proposal_id: str
    kind: str
    target: str
    state: str
    metric: Literal["reward", "cost"] = Field(
        description="Unit: reward from 0 to 1, or cost in US dollars saved per call."
    )
    epoch: int = Field(description="Policy epoch that began with the adoption.")
    predicted: EstimateShape | None = Field(description="Predicted effect; null if it was erased.")
    before: float | None = Field(description="Mean of the previous epoch.")
    after: float | None = Field(description="Mean of the epoch that began with the adoption.")
    realised: EstimateShape | None = Field(
        description="Realised effect; null with fewer than 30 samples before or after."
    )
    held: bool | None = Field(
        description="True if prediction and realised effect agree; null while there are too few "
        "samples."
    )
    harmful: bool = Field(description="True if the interval of the realised effect lies below 0.")
    regained: EstimateShape | None = Field(description="Estimated gain of a rollback.")


class CalibrationShape(BaseModel):
    """Number of predictions that held and missed.

    `open` counts those with too few samples; `share` estimates the part that held.
    """

    held: int
    missed: int
    open: int
    share: EstimateShape | None = Field(
        description="Share of predictions that held, among those that held or missed."
    )


class MissingShape(BaseModel):
    """A demand that prompts do not state.

    `kind` and `name` give the demand, `demanded_by` its source, `answers` the number of cases.
    """

    kind: str
    name: str
    demanded_by: str
    answers: int = Field(
        description="Number of valid answers whose prompt does not state the demand."
    )


class QuestionShape(BaseModel):
    """The findings on one contract's question, in one version and prompt pack.

    `success`, `repair`, `disagreement` and `unstated` are estimates over `exchanges`; `missing`,
    `differing` and `examples` show cases; `wrong` is the verdict.
    """

    contract_id: str
    contract_version: str
    prompt_pack_id: str
    exchanges: int
    success: EstimateShape = Field(description="Share of valid answers.")
    repair: EstimateShape = Field(description="Q1: share of turns that the user corrects.")
    disagreement: EstimateShape = Field(
        description="Q2: share of equal questions with different answers."
    )
    unstated: EstimateShape = Field(description="Q3: share of prompts that omit a demand.")
    missing: list[MissingShape]
    differing: list[tuple[str, str]] = Field(
        description="Pairs of exchanges with equal questions and different valid answers."
    )
    examples: list[str] = Field(description="Exchanges whose prompt omits a demand.")
    wrong: bool = Field(description="True if the answers were valid but the question was wrong.")


class AttributionShape(BaseModel):
    """The cause of bad answers (Q4): question or model, by two replays of the same exchanges.

    `question` and `model` are estimated gains, `advantage` their difference, and `cause` the
    verdict; `evidence` lists some of the `exchanges`.
    """

    kind: Literal["attribution"]
    contract_id: str
    contract_version: str
    cause: Literal["question", "model", "both", "neither", "undecided"]
    question: EstimateShape = Field(description="Gain of another question with the same model.")
    model: EstimateShape = Field(description="Gain of another model with the same question.")
    advantage: EstimateShape = Field(
        description="Difference of the two gains: question minus model."
    )
    exchanges: int = Field(description="Number of exchanges that both replays repeated.")
    evidence: list[str] = Field(description="Ids of the latest of these exchanges, at most 50.")


class LearningReport(BaseModel):
    """Proposals, their effects, and the findings on each contract's question.

    `proposals` counts by state; `adopted` lists proposals, `effects` and `calibration` judge them;
    `questions`, `attributions` and `uncalibrated` judge contracts and judges.
    """

    policy_epoch: int
    proposals: dict[str, int] = Field(description="Number of proposals by state.")
    adopted: list[ProposalShape]
    effects: list[EffectShape] = Field(
        description="Effects of all adopted proposals, oldest first."
    )
    calibration: CalibrationShape
    questions: list[QuestionShape]
    attributions: list[AttributionShape] = Field(description="Latest attribution of each contract.")
    uncalibrated: list[dict[str, Any]] = Field(description="Judges that are not calibrated yet.")
    complete: bool = Field(description="True if all recorded exchanges were read.")


def learning_routes(root: Root, ledger: LedgerClient, loaded: LoadedSettings) -> Routes:
    """Return the routes of the proposals, signals and reports of a root.

    Args:
        root: the root.
        ledger: its ledger.
        loaded: its settings, under which proposals are adopted.
    """
    routes = Routes("learning")
    known = Proposals(root, ledger)
    contracts = ContractLoader(root.tier("ho1"), installed=InstalledFiles(root.path))

    @routes.add("GET", "/learn/proposals", "List proposals", needs="read", shape=ProposalPage)
    def proposals(query: Annotated[Page, Query()]) -> dict[str, Any]:
        """Return all proposals, latest first."""
        found = list(known.all())
        part, more = slice_of(found, (one.entry_id for one in found), query.cursor, query.limit)
        return {"proposals": [one.to_dict() for one in part], "next_cursor": more}

    @routes.add("GET", "/learn/report", "Report of learning", needs="read", shape=LearningReport)
    def report(query: Annotated[ReportQuery, Query()]) -> dict[str, Any]:
        """Return the policy epoch, the effects of adopted proposals, and each contract's
        question.
        """
        return read_report(ledger, known, contracts, latest=query.latest).to_dict()

    @routes.add("GET", "/learn/signals", "Signals", needs="read", shape=Signals)
    def signals(query: Annotated[SignalsQuery, Query()]) -> dict[str, Any]:
        """Return signals of models, contracts, tools, routes and agents against a baseline."""
        policy = SignalPolicy.installed(InstalledFiles(root.path))
        signals, window, exchanges, complete = current_signals(
            ledger, policy, since=query.since, latest=query.latest
        )
        return {
            "signals": [one.to_dict() for one in signals if one.crossed or not query.crossed],
            "window": window,
            "exchanges": exchanges,
            "complete": complete,
        }

    @routes.add(
        "GET", "/learn/proposals/{proposal_id}", "One proposal", needs="read",
        shape=ProposalDetail,
    )  # fmt: skip
    def proposal(proposal_id: str) -> dict[str, Any]:
        """Return a proposal: diff, evidence, replay, prediction and state."""
        one = _found(known, proposal_id)
        return {
            **one.to_dict(),
            "stale": known.stale(one) if one.state == "open" else "",
            "evidence_by_key": known.evidence_by_key(one),
        }

    def decide(
        verb: Literal["adopt", "reject", "rollback"], summary: str, meaning: str
    ) -> None:  # fmt: skip
        def decided(proposal_id: str, decision: ProposalDecision, caller: Caller) -> dict[str, Any]:
            _found(known, proposal_id)
            made = getattr(governance(root, ledger, loaded, caller), verb)
            one: Proposal = made(proposal_id, reason=decision.reason)
            return one.to_dict()

        decided.__name__, decided.__doc__ = verb, meaning
        routes.add(
            "POST", f"/learn/proposals/{{proposal_id}}/{verb}", summary,
            needs="adopt", shape=ProposalShape, fails=[409],
        )(decided)  # fmt: skip

    decide("adopt", "Adopt a proposal", "Install what is proposed; it is in force in seconds.")
    decide("reject", "Reject a proposal", "Decide against it; what was held aside goes.")
    decide("rollback", "Roll back a proposal", "What was in force before it is in force again.")
    return routes


def _found(known: Proposals, proposal_id: str) -> Proposal:
    try:
        return known.get(proposal_id)
    except ProposalError as error:
        cause = ProposalError(
            error.code, error.message, next_step="GET /api/learn/proposals lists the proposals."
        )
        raise HttpError(404, "not_found", error.message) from cause
