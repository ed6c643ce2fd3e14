"""The rules of ``[approvals.tools.TOOL]``: who may approve a tool, and how many people must."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from remit.agents.approvals.approval import Approval, ApprovalError, is_expired, key_creation
from remit.kernel.settings import ApprovalSettings
from remit.ledger import LedgerClient, is_authentic


def people_required(settings: ApprovalSettings, tool_id: str) -> int:
    """Return how many distinct people must grant a call of a tool: 1 unless configured.

    Args:
        settings: ``[approvals]``.
        tool_id: the tool.
    """
    policy = settings.tools.get(tool_id)
    return 1 if policy is None else policy.people


def represented_approver(
    ledger: LedgerClient, settings: ApprovalSettings, tool_id: str, names: Iterable[str]
) -> str:
    """Return the approver for whom a person decides by a delegation in force.

    Empty if the person decides in their own right: they are one of the tool's ``approvers``, or the
    tool names none. Read-only.

    Args:
        ledger: the ledger with the delegations.
        settings: ``[approvals]``.
        tool_id: the tool.
        names: the names of the person who decides; any may match.

    Raises:
        ApprovalError: the person is no approver of the tool, and no approver delegates to them.
    """
    policy = settings.tools.get(tool_id)
    if policy is None or not policy.approvers:
        return ""
    names = list(names)
    own = {comparable_name(name) for name in names}
    approvers = {comparable_name(name): name for name in policy.approvers}
    if own & approvers.keys():
        return ""
    for delegator, delegate in _delegations(ledger):
        if delegate in own and delegator in approvers:
            return approvers[delegator]
    raise ApprovalError(
        f"{names[0]} may not approve {tool_id}.",
        next_step=f"Ask {', '.join(policy.approvers)}, or have one of them delegate to you.",
    )


def require_new_vote(
    ledger: LedgerClient,
    settings: ApprovalSettings,
    approval: Approval,
    vote: Mapping[str, Any],
    earlier: Iterable[Mapping[str, Any]],
) -> None:
    """Raise ApprovalError unless a vote adds a person to the earlier votes.

    Tools without a policy in ``[approvals.tools]`` are not checked.

    Args:
        ledger: the ledger, which tells keys from people.
        settings: ``[approvals]``.
        approval: the request.
        vote: the metadata of the new decision: ``decided_by``, and ``person`` and ``on_behalf_of``
            if they differ.
        earlier: the metadata of the earlier grants of the same action.

    Raises:
        ApprovalError: the voter requested the action or has granted it already; or several people
            must grant the tool and the voter is a key that names no person.
    """
    if approval.tool_id not in settings.tools:
        return
    by, people = vote["decided_by"], _voters(vote)
    if approval.people > 1 and key_creation(ledger, vote.get("person", by)):
        raise ApprovalError(
            f"{approval.tool_id} needs {approval.people} people, and {by} names no person.",
            next_step="Decide with a key that was made on the machine for a person: "
            "`remit key create --user PERSON --role operator --name NAME`.",
        )
    if approval.requested_by and comparable_name(approval.requested_by) in people:
        raise ApprovalError(
            f"{approval.requested_by} requested {approval.tool_id}, and cannot approve it.",
            next_step="Ask another person to decide.",
        )
    if any(people & _voters(other) for other in earlier):
        raise ApprovalError(
            f"{approval.request_id} was granted by {vote.get('on_behalf_of') or by} already.",
            next_step=f"{approval.people} different people must grant it.",
        )


def _voters(vote: Mapping[str, Any]) -> set[str]:
    """Return the comparable names of all people for whom a vote speaks."""
    names = (vote.get(name) for name in ("decided_by", "person", "on_behalf_of"))
    return {comparable_name(str(name)) for name in names if name}


def _delegations(ledger: LedgerClient) -> list[tuple[str, str]]:
    """Return (delegator, delegate) of the delegations in force, as comparable names.

    The latest entry of a pair replaces the earlier ones.
    """
    latest: dict[tuple[str, str], Mapping[str, Any]] = {}
    for entry in ledger.query(event_type="APPROVAL_DELEGATED", with_content=False):
        if is_authentic(entry):
            data = entry.metadata
            names = (data.get("delegator"), data.get("delegate"))
            latest[comparable_name(str(names[0])), comparable_name(str(names[1]))] = data
    return [pair for pair, data in latest.items() if not is_expired(data.get("until") or "none")]


def comparable_name(name: str) -> str:
    """Return a person's name in the form in which names are compared.

    Case, character width, spaces and invisible characters make no difference.
    """
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return " ".join("".join(c for c in plain if c.isprintable() or c.isspace()).split())
