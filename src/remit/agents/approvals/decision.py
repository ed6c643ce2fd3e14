"""What a person said to a request, as an entry that is written once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from remit.agents.approvals.approval import (
    UNKNOWN_OUTCOME,
    Approval,
    ApprovalError,
    last_edit,
)
from remit.agents.approvals.permit import arguments_hash
from remit.agents.queue.rows import wake
from remit.kernel.errors import InvalidInputError
from remit.kernel.schemas import first_problem
from remit.ledger import Erased, LedgerEntry, Prepared, Transaction, content, is_authentic

SAID = ("APPROVAL_SIGNED", "APPROVAL_GRANTED", "APPROVAL_DENIED")
"""The events with which people answer a request."""

_SAID_OF = (
    "SELECT id, record FROM entries WHERE submission_id = ? AND event_type IN ("
    + ", ".join(f"'{name}'" for name in SAID)
    + ")"
)
_ENDED = (
    "SELECT id FROM entries WHERE work_order_id = ? "
    "AND event_type IN ('WO_COMPLETED', 'WO_FAILED') LIMIT 1"
)


def exactly(
    request: LedgerEntry,
    said: Sequence[LedgerEntry],
    arguments: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """What a grant says of the exact action.

    Args:
        request: the ``APPROVAL_REQUESTED``.
        said: what people said to it before.
        arguments: what they are changed to.

    Raises:
        ApprovalError: they were erased, or changed by somebody else meanwhile.
        InvalidInputError: they cannot be changed, or not to these.
    """
    tool_id, wanted = request.metadata["tool_id"], request.metadata["arguments"]
    if isinstance(wanted, Erased):
        raise ApprovalError(
            f"What {tool_id} would run with was erased; it cannot be granted.",
            next_step="Deny it, or cancel the turn.",
        )
    edit = last_edit(said)
    if arguments is None and edit is not None:
        raise ApprovalError(
            f"{edit.metadata['decided_by']} changed the arguments.",
            next_step="Say which are meant: give the arguments that are to run.",
        )
    given = dict(wanted if arguments is None else arguments)
    given_hash = arguments_hash(given)
    exact: dict[str, Any] = {"arguments_hash": content(given_hash)}
    if "tool_digest" in request.metadata:
        exact["tool_digest"] = request.metadata["tool_digest"]
    if given_hash == arguments_hash(wanted):  # by ==, 1 would be true
        return exact
    schema = request.metadata.get("parameters")
    if request.metadata["kind"] != "approval" or not isinstance(schema, Mapping):
        raise InvalidInputError(
            f"The arguments of {request.id} cannot be changed: it may have run already, or "
            "was asked for by an earlier version.",
            next_step="Grant it as it is, or deny it with a reason.",
        )
    if problem := first_problem(schema, given):
        raise InvalidInputError(
            f"The arguments do not fit {tool_id}: {problem}",
            next_step="Give arguments that fit the tool's schema.",
        )
    return {**exact, "arguments": given}


def decision_entry(event_type: str, request: LedgerEntry, about: Mapping[str, Any]) -> LedgerEntry:
    """What a person said, as an entry."""
    asked_in = request.metadata["provenance"]
    order = asked_in.get("work_order_id")
    tool_id = str(request.metadata["tool_id"])
    return LedgerEntry(
        event_type=event_type,
        submission_id=request.id,
        decision=event_type.removeprefix("APPROVAL_"),
        reason=f"{tool_id} for {order or asked_in['session_id']}",
        metadata={
            "provenance": {
                "agent_id": about["decided_by"],
                "agent_class": "OPERATOR",
                "session_id": asked_in["session_id"],
                **({"work_order_id": order} if order else {}),
            },
            # Written for the worker, who may read nothing else.
            "scope": {"tier": "ho1"},
            "request_id": request.id,
            "tool_id": tool_id,
            **about,
        },
    )


def subject_of(request: LedgerEntry) -> str | None:
    """Return the person whom a request speaks of; None if it names nobody, or that was erased."""
    found = request.metadata.get("subject_id")
    return found if isinstance(found, str) and found else None


def append_decision(
    entry: Prepared, approval: Approval, seen: frozenset[str], tx: Transaction
) -> str:
    """Write what a person said; empty where somebody was faster, which has to be looked at."""
    for entry_id, record in tx.execute(_SAID_OF, (approval.request_id,)):
        if entry_id not in seen and _counts(record):
            return ""
    outlives = approval.kind == UNKNOWN_OUTCOME
    if approval.wo_id and not outlives and tx.execute(_ENDED, (approval.wo_id,)):
        raise ended(approval)
    if entry.event_type != "APPROVAL_SIGNED":
        wake(tx, approval.request_id)
    return tx.append(entry)


def _counts(record: str) -> bool:
    """Whether an entry decides a request; by its record, since others of the transaction that is
    under way cannot be read otherwise."""
    said = json.loads(record)
    return is_authentic(LedgerEntry(said["event_type"], "", "", "", metadata=said["metadata"]))


def ended(approval: Approval) -> ApprovalError:
    """The error of a request whose order ended without it."""
    return ApprovalError(f"The order {approval.wo_id} has ended; there is nothing to decide.")
