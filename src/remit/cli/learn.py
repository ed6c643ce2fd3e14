"""``remit learn``: lists the proposals of learners and records a person's decisions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remit.cli.learn_judge import judge
from remit.cli.learn_prompt import prompt
from remit.cli.learn_replay import replay
from remit.cli.learn_report import report
from remit.cli.learn_signals import signals
from remit.cli.shared import (
    cut,
    emit,
    limited,
    note,
    one_line,
    open_ledger,
    open_settings,
    reads,
    say_list,
    table,
    whoami,
)

if TYPE_CHECKING:
    from remit.learning.proposals import Governance, Proposal, Proposals


@click.group()
def learn() -> None:
    """Review what Remit learned: signals, proposals, and their adoption."""


learn.add_command(judge)
learn.add_command(prompt)
learn.add_command(replay)
learn.add_command(report)
learn.add_command(signals)


@learn.command()
@click.option(
    "--state", type=click.Choice(["open", "adopted", "rejected", "rolled_back"]),
    help="Only proposals in this state.",
)  # fmt: skip
@limited
@reads
def proposals(root: Path | None, as_json: bool, state: str | None, limit: int | None) -> None:
    """List proposals, newest first."""
    with _proposals(root) as known:
        found = [one for one in known.all() if state in (None, one.state)]
    if as_json:
        emit(True, {"proposals": [one.to_dict() for one in found[:limit]]}, ())
        return
    heads = ("id", "kind", "target", "version", "state", "effect", "reason")
    rows = [
        (
            one.proposal_id[:12], one.kind, one.target, one.version, one.state, _effect(one),
            cut(one.reason, 60),
        )
        for one in found
    ]  # fmt: skip
    say_list(table(heads, rows) if rows else ["No proposals."], limit)


@learn.command()
@click.argument("proposal_id", metavar="ID")
@reads
def show(root: Path | None, as_json: bool, proposal_id: str) -> None:
    """Show a proposal: the change, its reason, the predicted effect and the evidence.

    ID is a proposal's id, a unique prefix of it, or `last`.
    """
    with _proposals(root) as known:
        proposal = known.get(proposal_id)
        stale = known.stale(proposal) if proposal.state == "open" else ""
        by_key = known.evidence_by_key(proposal)
    value = {**proposal.to_dict(), "stale": stale, "evidence_by_key": by_key}
    emit(as_json, value, _shown(proposal, stale, by_key))


def _decision(verb: str, meaning: str) -> None:
    @learn.command(verb, help=meaning)
    @click.argument("proposal_id", metavar="ID")
    @click.option("--reason", required=True, help="Reason (recorded permanently).")
    @click.option("--by", help="Person who decides (default: the current user).")
    @reads
    def decide(
        root: Path | None, as_json: bool, proposal_id: str, reason: str, by: str | None
    ) -> None:
        with _governance(root, by) as governance:
            decided: Proposal = getattr(governance, verb)(proposal_id, reason=reason)
        line = f"{decided.proposal_id} {decided.state.replace('_', ' ')} ({decided.decision})"
        emit(as_json, decided.to_dict(), [line])
        if decided.epoch and not as_json:
            note(
                f"Policy epoch {decided.epoch}. Restart programs that have this root open; "
                "servers reload it themselves."
            )


_decision("adopt", "Adopt a proposal. Running servers apply it within seconds.")
_decision("reject", "Reject a proposal.")
_decision("rollback", "Roll back an adopted proposal.")


def _shown(proposal: Proposal, stale: str, by_key: dict[str, int]) -> Iterator[str]:
    yield from map(one_line, _facts(proposal, stale, by_key))
    yield ""
    yield from proposal.diff.splitlines()


def _facts(proposal: Proposal, stale: str, by_key: dict[str, int]) -> Iterator[str]:
    yield f"{proposal.proposal_id}  {proposal.state}"
    yield f"kind       {proposal.kind} of {proposal.target}"
    yield f"package    {proposal.package_id} {proposal.version}"
    yield f"proposed   by {proposal.by}, {proposal.at} ({proposal.entry_id})"
    yield f"reason     {proposal.reason}"
    yield f"predicted  {_effect(proposal)}"
    for name, value in proposal.replay.items():
        yield f"replay     {name}: {value}"
    given = ", ".join(f"{key} {count}" for key, count in by_key.items())
    yield f"evidence   {len(proposal.evidence)} entries: {given}"
    if stale:
        yield f"stale      {stale}; propose the change again"
    if proposal.decision:
        said = f"{proposal.decided_by}: {proposal.decision_reason} ({proposal.decision})"
        yield f"decided    {proposal.state} by {said}"
    if proposal.epoch:
        yield f"epoch      {proposal.epoch}"


def _effect(proposal: Proposal) -> str:
    known = proposal.predicted
    if not known:
        return "-"
    return (
        f"{known['value']:+.4f} [{known['low']:+.4f}, {known['high']:+.4f}] "
        f"n={known['effective_samples']:.0f} {known['method']}"
    )


@contextmanager
def _proposals(root: Path | None) -> Iterator[Proposals]:
    from remit.learning.proposals import Proposals

    place, _ = open_settings(root)
    with open_ledger(root) as ledger:
        yield Proposals(place, ledger)


@contextmanager
def _governance(root: Path | None, by: str | None) -> Iterator[Governance]:
    """Open the governance of a root; the decider is ``by``, or else the current user."""
    from remit.gateway.auth import Identity
    from remit.runtime.installation import governance, recover_packages

    place, loaded = open_settings(root)
    with open_ledger(root, signing=True) as ledger:
        recover_packages(place, ledger, loaded)
        yield governance(place, ledger, loaded, Identity(by or whoami(), "admin"))
