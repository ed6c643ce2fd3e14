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
from remit.operations.results import Page
from remit.runtime.installation import governance
from remit.server.api.routes import Caller, Routes, slice_of
from remit.server.refusals import HttpError


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

    @routes.add("GET", "/learn/proposals", "List proposals", needs="read", shape="ProposalPage")
    def proposals(query: Annotated[Page, Query()]) -> dict[str, Any]:
        """Return all proposals, latest first."""
        found = list(known.all())
        part, more = slice_of(found, (one.entry_id for one in found), query.cursor, query.limit)
        return {"proposals": [one.to_dict() for one in part], "next_cursor": more}

    @routes.add(
        "GET",
        "/learn/report",
        "Report of learning",
        needs="read",
        shape="LearningReport",
    )
    def report(query: Annotated[ReportQuery, Query()]) -> dict[str, Any]:
        """Return the policy epoch, the effects of adopted proposals, and each contract's
        question.
        """
        return read_report(ledger, known, contracts, latest=query.latest).to_dict()

    @routes.add("GET", "/learn/signals", "Signals", needs="read", shape="Signals")
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
        shape="ProposalDetail",
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
            needs="adopt", shape="ProposalShape", fails=[409],
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
