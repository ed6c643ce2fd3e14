"""People's answers to a request, as ledger entries, and the rules of who may answer."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from remit.agents.approvals.approval import (
    UNKNOWN_OUTCOME,
    Approval,
    ApprovalError,
    arguments_hash,
    last_edit,
)
from remit.agents.approvals.persons import key_creation
from remit.agents.queue.rows import wake
from remit.kernel.errors import InvalidInputError
from remit.kernel.schemas import first_problem
from remit.kernel.settings import ApprovalSettings
from remit.ledger import (
    Erased,
    LedgerClient,
    LedgerEntry,
    Prepared,
    Transaction,
    content,
    is_authentic,
)

ANSWER_EVENTS = ("APPROVAL_SIGNED", "APPROVAL_GRANTED", "APPROVAL_DENIED")
"""The events with which people answer a request."""

_ANSWERS = (
    "SELECT id, record FROM entries WHERE submission_id = ? AND event_type IN ("
    + ", ".join(f"'{name}'" for name in ANSWER_EVENTS)
    + ")"
)
_ORDER_END = (
    "SELECT id FROM entries WHERE work_order_id = ? "
    "AND event_type IN ('WO_COMPLETED', 'WO_FAILED') LIMIT 1"
)


def granted_action(
    request: LedgerEntry,
    answers: Sequence[LedgerEntry],
    arguments: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return the fields with which a grant describes the granted action.

    The fields are ``arguments_hash``, ``tool_digest`` if the request has one, and ``arguments`` if
    they differ from the request. Arguments equal to the requested ones are not checked against the
    schema.

    Args:
        request: the ``APPROVAL_REQUESTED`` entry.
        answers: earlier answers to the request.
        arguments: arguments in place of the requested ones; None for the requested ones.

    Raises:
        ApprovalError: the requested arguments were erased, even if new ones are given; or an
            earlier answer, even an expired one, changed them and ``arguments`` is None.
        InvalidInputError: the arguments are no mapping or not JSON; or they differ and do not fit
            the recorded schema, the request contains no schema, or it is about an unknown outcome.
    """
    tool_id, wanted = request.metadata["tool_id"], request.metadata["arguments"]
    if isinstance(wanted, Erased):
        raise ApprovalError(
            f"The arguments of {request.id} ({tool_id}) were erased, so it cannot be granted.",
            next_step="Deny the request, or cancel the turn.",
        )
    edit = last_edit(answers)
    if arguments is None and edit is not None:
        raise ApprovalError(
            f"{edit.metadata['decided_by']} changed the arguments of {request.id}.",
            next_step="Give the arguments with which the tool is to run.",
        )
    if not isinstance(arguments, Mapping | None):
        raise InvalidInputError(
            f"The arguments are a {type(arguments).__name__}, not an object.",
            next_step="Give the arguments by name.",
        )
    given = dict(wanted if arguments is None else arguments)
    given_hash = arguments_hash(given)
    exact: dict[str, Any] = {"arguments_hash": content(given_hash)}
    if "tool_digest" in request.metadata:
        exact["tool_digest"] = request.metadata["tool_digest"]
    if given_hash == arguments_hash(wanted):  # Python calls 1 and True equal; the hashes differ.
        return exact
    schema = request.metadata.get("parameters")
    if request.metadata["kind"] != "approval" or not isinstance(schema, Mapping):
        raise InvalidInputError(
            f"The arguments of {request.id} cannot be changed: the tool may have run already, or "
            "an earlier version of Remit wrote the request.",
            next_step="Grant the request unchanged, or deny it with a reason.",
        )
    if problem := first_problem(schema, given):
        raise InvalidInputError(
            f"The arguments do not fit {tool_id}: {problem}",
            next_step="Give arguments that fit the tool's schema.",
        )
    return {**exact, "arguments": given}


def decision_entry(event_type: str, request: LedgerEntry, data: Mapping[str, Any]) -> LedgerEntry:
    """Return the entry of a person's answer, not yet written.

    The entry's submission is the request. The entry names the deciding person as its agent
    (``OPERATOR``), and the request's session, order and tool. The decision is the event type
    without ``APPROVAL_``; the tier is ``ho1``. Writes nothing and checks nothing.

    Args:
        event_type: one of :data:`ANSWER_EVENTS`.
        request: the ``APPROVAL_REQUESTED`` entry.
        data: metadata of the answer, with ``decided_by``; replaces metadata of the same name.
    """
    provenance = request.metadata["provenance"]
    order = provenance.get("work_order_id")
    tool_id = str(request.metadata["tool_id"])
    return LedgerEntry(
        event_type=event_type,
        submission_id=request.id,
        decision=event_type.removeprefix("APPROVAL_"),
        reason=f"{tool_id} for {order or provenance['session_id']}",
        metadata={
            "provenance": {
                "agent_id": data["decided_by"],
                "agent_class": "OPERATOR",
                "session_id": provenance["session_id"],
                **({"work_order_id": order} if order else {}),
            },
            # A worker reads entries of its own tier only.
            "scope": {"tier": "ho1"},
            "request_id": request.id,
            "tool_id": tool_id,
            **data,
        },
    )


def subject_of(request: LedgerEntry) -> str | None:
    """Return the data subject of a request; None if there is none or the name was erased.

    Args:
        request: an ``APPROVAL_REQUESTED`` entry with its content.
    """
    found = request.metadata.get("subject_id")
    return found if isinstance(found, str) and found else None


def append_decision(
    entry: Prepared, approval: Approval, seen: frozenset[str], tx: Transaction
) -> str:
    """Append an answer within a transaction, and return its entry id.

    An empty text means that another answer was written in the meantime and nothing was appended:
    the caller must read the answers again. An answer of a writer without permission does not count.
    A final decision also makes the orders due that wait for it.

    Args:
        entry: the prepared answer.
        approval: the request as the caller read it.
        seen: ids of the answers that the caller read.
        tx: the transaction.

    Raises:
        ApprovalError: the work order has ended, and the request is not about an unknown outcome.
        LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
    """
    for entry_id, record in tx.execute(_ANSWERS, (approval.request_id,)):
        if entry_id not in seen and _is_valid(record):
            return ""
    needs_order = approval.wo_id and approval.kind != UNKNOWN_OUTCOME
    if needs_order and tx.execute(_ORDER_END, (approval.wo_id,)):
        raise order_ended_error(approval)
    if entry.event_type != "APPROVAL_SIGNED":
        wake(tx, approval.request_id)
    return tx.append(entry)


def _is_valid(record: str) -> bool:
    """Return True if a record was written by a writer who may decide.

    Entries of an open transaction can be read only as records.
    """
    data = json.loads(record)
    return is_authentic(LedgerEntry(data["event_type"], "", "", "", metadata=data["metadata"]))


def order_ended_error(approval: Approval) -> ApprovalError:
    """Return (not raise) the ApprovalError for a request whose order ended without a decision.

    Args:
        approval: the request.
    """
    return ApprovalError(
        f"The order {approval.wo_id} has ended, so {approval.request_id} cannot be decided."
    )


def require_approver(settings: ApprovalSettings, tool_id: str, names: Sequence[str]) -> None:
    """Raise ApprovalError if the tool has ``approvers`` and a person is none of them.

    Names are compared by :func:`comparable_name`.

    Args:
        settings: ``[approvals]``.
        tool_id: the tool.
        names: the names of the person who decides; any may match.

    Raises:
        ApprovalError: the person is no approver of the tool.
    """
    policy = settings.tools.get(tool_id)
    if policy is None or not policy.approvers:
        return
    if not set(map(comparable_name, names)) & set(map(comparable_name, policy.approvers)):
        raise ApprovalError(
            f"{names[0]} may not approve {tool_id}.",
            next_step=f"Ask {', '.join(policy.approvers)}.",
        )


def require_new_vote(
    ledger: LedgerClient,
    settings: ApprovalSettings,
    approval: Approval,
    vote: Mapping[str, Any],
    earlier: Iterable[Mapping[str, Any]],
) -> None:
    """Raise ApprovalError unless a vote adds a person to the earlier votes.

    Tools without a policy in ``[approvals.tools]`` are not checked. A vote speaks for the person
    who decides and the person behind that name, and an earlier one for an approver whom it names.
    Names are compared by :func:`comparable_name`.

    Args:
        ledger: the ledger, which tells keys from people.
        settings: ``[approvals]``.
        approval: the request.
        vote: the metadata of the new decision: ``decided_by``, and ``person`` if it differs.
        earlier: the metadata of the earlier grants of the same action.

    Raises:
        ApprovalError: a person for whom the vote speaks requested the action, or is one for whom
            an earlier vote speaks; or several people must grant the tool and the voter is a key
            that names no person.
        LedgerError: the ledger cannot be read.
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


def comparable_name(name: str) -> str:
    """Return a person's name in the form in which names are compared.

    Case, character width, invisible characters, and the kind and amount of white space make no
    difference, nor does white space at the ends. A space itself counts: ``Anna Lena`` is not
    ``AnnaLena``. A name without a visible character gives an empty text.

    Args:
        name: the name as written.
    """
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return " ".join("".join(c for c in plain if c.isprintable() or c.isspace()).split())
