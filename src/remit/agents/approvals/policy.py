"""Who may approve what, and how many people it takes: ``[approvals.tools.TOOL]``."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from remit.agents.approvals.approval import Approval, ApprovalError, is_late, key_made
from remit.kernel.settings import ApprovalSettings
from remit.ledger import LedgerClient, LedgerEntry, is_authentic


@dataclass(frozen=True, slots=True)
class Vote:
    """One person's yes.

    Attributes:
        by: the name on record.
        person: who that is.
        on_behalf_of: in whose place, by a delegation; empty: their own.
    """

    by: str
    person: str
    on_behalf_of: str = ""

    @classmethod
    def of(cls, entry: LedgerEntry) -> Self:
        """From an entry of what a person said."""
        data = entry.metadata
        by = str(data.get("decided_by", ""))
        return cls(by, str(data.get("person", by)), str(data.get("on_behalf_of", "")))

    def people(self) -> set[str]:
        """Everyone who has spoken by this vote, in a form that compares."""
        return {same(name) for name in (self.by, self.person, self.on_behalf_of) if name}

    def named(self) -> dict[str, str]:
        """What the record says of it beyond the name."""
        return {"on_behalf_of": self.on_behalf_of} if self.on_behalf_of else {}


class Policy:
    """The policies of one root, and its delegations."""

    def __init__(self, ledger: LedgerClient, settings: ApprovalSettings) -> None:
        self._ledger = ledger
        self._tools = settings.tools

    def people(self, tool_id: str) -> int:
        """How many distinct people must grant a tool."""
        policy = self._tools.get(tool_id)
        return 1 if policy is None else policy.people

    def vote(self, approval: Approval, by: str, person: str) -> Vote:
        """A person's vote: in their own right, or by a delegation that is in force.

        Raises:
            ApprovalError: they may not approve this tool.
        """
        person = person or by
        policy = self._tools.get(approval.tool_id)
        if policy is None or not policy.approvers:
            return Vote(by, person)
        own = {same(by), same(person)}
        approvers = {same(name): name for name in policy.approvers}
        if own & approvers.keys():
            return Vote(by, person)
        for delegator, delegate in self._delegations():
            if delegate in own and delegator in approvers:
                return Vote(by, person, approvers[delegator])
        raise ApprovalError(
            f"{by} is none of those who may approve {approval.tool_id}.",
            next_step=f"Ask {', '.join(policy.approvers)}, or have one of them delegate it.",
        )

    def check(self, approval: Approval, vote: Vote, others: Sequence[Vote]) -> None:
        """Raise ApprovalError unless a vote counts in addition to the earlier ones.

        A person who asked for the action, or has granted it already, has no vote. A key that names
        nobody has none if several people must grant the tool.
        """
        if approval.tool_id not in self._tools:
            return
        if approval.people > 1 and key_made(self._ledger, vote.person):
            raise ApprovalError(
                f"{approval.tool_id} takes {approval.people} people, and {vote.by} names nobody.",
                next_step="Decide with a key that the machine made for a person: "
                "`remit key create --user PERSON --role operator --name NAME`.",
            )
        if approval.requested_by and same(approval.requested_by) in vote.people():
            raise ApprovalError(
                f"{approval.requested_by} asked for {approval.tool_id}, and cannot approve it.",
                next_step="Ask somebody else.",
            )
        if any(vote.people() & other.people() for other in others):
            raise ApprovalError(
                f"{approval.request_id} was granted by {vote.on_behalf_of or vote.by} already.",
                next_step=f"It takes {approval.people} people.",
            )

    def _delegations(self) -> list[tuple[str, str]]:
        """Who delegates to whom now, by :func:`same`; the latest word of each pair counts."""
        latest: dict[tuple[str, str], Mapping[str, Any]] = {}
        for entry in self._ledger.query(event_type="APPROVAL_DELEGATED", with_content=False):
            if is_authentic(entry):
                data = entry.metadata
                names = (data.get("delegator"), data.get("delegate"))
                latest[same(str(names[0])), same(str(names[1]))] = data
        return [pair for pair, data in latest.items() if not is_late(data.get("until") or "none")]


def same(name: str) -> str:
    """A name in the form that compares.

    Case, width, spaces and invisible characters do not make two people.
    """
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return " ".join("".join(c for c in plain if c.isprintable() or c.isspace()).split())
