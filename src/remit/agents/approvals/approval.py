"""The present state of one request for approval, derived from the ledger."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from remit.agents.workorders import callers_of
from remit.kernel.errors import ConflictError
from remit.ledger import Erased, LedgerClient, LedgerEntry, is_authentic, parse_entry_id

__all__ = ["Approval", "ApprovalError", "approval_of", "last_edit"]

UNKNOWN_OUTCOME = "unknown_outcome"
"""The kind of a request that asks whether a call that began took effect."""


class ApprovalError(ConflictError):
    """A request does not exist or is closed, or the person may not decide it in this way."""


@dataclass(frozen=True, slots=True)
class Approval:
    """A request for approval in its present state.

    Attributes:
        request_id: id of the ``APPROVAL_REQUESTED`` entry.
        wo_id: the waiting work order; empty for a request outside of work orders.
        session_id: the session of the request.
        agent_id: the agent that wants to run the tool.
        requested_by: the person or key on whose behalf the agent works; empty if unknown.
        tool_id: the tool.
        kind: ``approval`` if the tool has not run yet; ``unknown_outcome`` if a call began and
            nobody knows whether it took effect.
        unknown_because: why the outcome is unknown, as a sentence; empty for ``approval``.
        arguments: arguments with which the tool will run: as requested, or as changed by a person.
        requested_arguments: the requested arguments. These and ``arguments`` are ``Erased`` after
            an erasure.
        tool_digest: hash of the tool's definition (:attr:`remit.Tool.digest`); empty in requests of
            earlier versions.
        idempotency_key: key of the requested call.
        requested_at: time of the request.
        people: number of distinct people who must grant the request.
        signed_by: people who have granted the request; further people may be required.
        state: ``pending``, ``granted``, ``denied``, or ``void``: the order ended without a
            decision, or a later order asked about the same unknown outcome.
        decided_by: the person who made the final decision; empty while pending.
        decision_reason: the reason of that decision; may be empty.
        decided_at: time of that decision; empty while pending.
        expires_at: time at which an unused grant expires; empty in grants of earlier versions.
        used_by: id of the ``TOOL_INTENT`` that used the grant; empty while unused.
    """

    request_id: str
    wo_id: str
    session_id: str
    agent_id: str
    requested_by: str
    tool_id: str
    arguments: Mapping[str, Any]
    requested_arguments: Mapping[str, Any]
    tool_digest: str
    idempotency_key: str
    kind: str
    requested_at: str
    people: int = 1
    signed_by: tuple[str, ...] = ()
    state: Literal["pending", "granted", "denied", "void"] = "pending"
    decided_by: str = ""
    decision_reason: str = ""
    decided_at: str = ""
    expires_at: str = ""
    used_by: str = ""
    unknown_because: str = ""

    def usable(self) -> bool:
        """Return True if the request is granted, not expired and not used."""
        return self.state == "granted" and not self.used_by and not is_expired(self.expires_at)

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes by name as plain data; content is shown as it was read."""
        return {name: getattr(self, name) for name in self.__slots__}


def is_request(entry: LedgerEntry) -> bool:
    """Return True if an entry is a request that can be decided.

    Such an entry is an ``APPROVAL_REQUESTED``, names its session, agent, tool, idempotency key and
    kind, and contains arguments. Whether its writer had the permission is not checked.

    Args:
        entry: any entry, with its content.
    """
    data, provenance = entry.metadata, entry.metadata.get("provenance")
    return (
        entry.event_type == "APPROVAL_REQUESTED"
        and "arguments" in data
        and isinstance(provenance, dict)
        and isinstance(provenance.get("work_order_id") or "", str)
        and all(
            isinstance(text, str) and text
            for text in (
                *(provenance.get(name) for name in ("session_id", "agent_id")),
                *(data.get(name) for name in ("tool_id", "idempotency_key", "kind")),
            )
        )
    )


def is_expired(expires: Any) -> bool:
    """Return True if a time is past or cannot be read; False if it is empty.

    Args:
        expires: the ``expires`` of a grant, in ISO 8601; grants of earlier versions contain none.
    """
    try:
        return bool(expires) and datetime.now(UTC) > datetime.fromisoformat(expires)
    except (TypeError, ValueError):
        return True


def last_edit(answers: Sequence[LedgerEntry]) -> LedgerEntry | None:
    """Return the latest answer that changed the arguments; None if none did.

    Args:
        answers: ``APPROVAL_GRANTED`` or ``APPROVAL_DENIED`` entries, oldest first.
    """
    return next((entry for entry in reversed(answers) if "arguments" in entry.metadata), None)


def approval_of(
    ledger: LedgerClient,
    request: LedgerEntry,
    answers: Sequence[LedgerEntry],
    people: int,
) -> Approval:
    """Return a request in its present state.

    A grant or denial decides; before it, the order's end makes the request ``void``. Signatures
    that have expired are not listed while the request is pending.

    Args:
        ledger: the ledger, from which the order's end and the use of the grant are read.
        request: the ``APPROVAL_REQUESTED`` entry.
        answers: people's answers to the request, in ledger order.
        people: number of people who must grant the request.
    """
    data = request.metadata
    provenance = data["provenance"]
    wo_id, session_id = str(provenance.get("work_order_id") or ""), str(provenance["session_id"])
    decision = next((entry for entry in answers if entry.event_type != "APPROVAL_SIGNED"), None)
    state: Literal["pending", "granted", "denied", "void"] = "pending"
    if decision is not None:
        state = "granted" if decision.event_type == "APPROVAL_GRANTED" else "denied"
    elif wo_id and _is_void(ledger, request, wo_id, session_id):
        state = "void"
    outcome = decision.metadata if decision is not None else {}
    edit = last_edit(answers if decision is None else [decision])
    return Approval(
        request_id=request.id,
        wo_id=wo_id,
        session_id=session_id,
        agent_id=_planner(ledger, wo_id) or str(provenance["agent_id"]),
        requested_by=str(data.get("requested_by") or person_of_session(ledger, session_id)),
        tool_id=str(data["tool_id"]),
        arguments=data["arguments"] if edit is None else edit.metadata["arguments"],
        requested_arguments=data["arguments"],
        tool_digest=str(data.get("tool_digest", "")),
        idempotency_key=str(data["idempotency_key"]),
        kind=str(data["kind"]),
        requested_at=request.timestamp,
        people=people,
        signed_by=tuple(
            str(entry.metadata.get("decided_by", ""))
            for entry in answers
            if entry.event_type == "APPROVAL_SIGNED"
            and not (decision is None and is_expired(entry.metadata.get("expires", "")))
        ),
        state=state,
        decided_by=str(outcome.get("decided_by", "")),
        decision_reason=str(outcome.get("decision_reason", "")),
        decided_at=decision.timestamp if decision is not None else "",
        expires_at=str(outcome.get("expires", "")),
        used_by=_used_by(ledger, request) if state == "granted" else "",
        unknown_because=_unknown_because(ledger, request),
    )


def _unknown_because(ledger: LedgerClient, request: LedgerEntry) -> str:
    """Return why the outcome of a call is unknown, as a sentence; empty for other requests."""
    if request.metadata["kind"] != UNKNOWN_OUTCOME:
        return ""
    first, session_id = request, request.metadata["provenance"]["session_id"]
    while earlier := str(first.metadata.get("instead_of") or ""):
        first = ledger.read(earlier)
    key = first.metadata["idempotency_key"]
    ends = ledger.query(
        session_id=first.metadata["provenance"]["session_id"] or session_id,
        event_type="TOOL_CALL", work_order_id=first.metadata["provenance"].get("work_order_id"),
    )  # fmt: skip
    for end in ends:
        if end.metadata["idempotency_key"] == key and end.id < first.id:
            reason = end.metadata["tool_error"]
            return "The reason was erased." if isinstance(reason, Erased) else str(reason)
    return "The process ended while the tool ran."


def _planner(ledger: LedgerClient, wo_id: str) -> str:
    """Return the agent that planned an order; the request itself names the worker."""
    if not wo_id:
        return ""
    plans = ledger.query(work_order_id=wo_id, event_type="WO_PLANNED", with_content=False)
    plan = next(filter(is_authentic, plans), None)
    provenance = plan.metadata.get("provenance") if plan is not None else None
    return str(provenance.get("agent_id") or "") if isinstance(provenance, dict) else ""


_KEY_ID_PREFIX = "KEY-"


def person_of_session(ledger: LedgerClient, session_id: str) -> str:
    """Return the person on whose behalf a session was started; empty if it names nobody.

    The person of the session's key takes precedence over the user that the session names. A key
    that names no person counts by its id if the session names no user.

    Args:
        ledger: contains the session.
        session_id: the session; empty also if it was never started.
    """
    starts = ledger.query(
        session_id=session_id, event_type="SESSION_START", limit=1, with_content=False
    )
    for start in starts:
        user_id, key_id = (str(start.metadata.get(name) or "") for name in ("user_id", "key_id"))
        person = key_person(ledger, key_id)
        return user_id if person == key_id and user_id else person
    return ""


def key_person(ledger: LedgerClient, key_id: str) -> str:
    """Return the person whom a key represents; a key's id if that key names no person.

    A key represents the person who received its secret. If another key requested the secret over
    the network, the person of that key received it, whatever user the new key names. A secret made
    on the machine belongs to the user that the key names.

    Args:
        ledger: ledger of the root, which records how keys were made. Read-only.
        key_id: id of the key.
    """
    person, maker, before = key_id, key_id, math.inf
    while made := key_creation(ledger, maker, before):
        before = parse_entry_id(made.id) or 0
        person = str(made.metadata.get("user_id") or "") or maker
        maker = str(made.metadata.get("requested_by") or "")
    return person


def key_creation(ledger: LedgerClient, key_id: str, before: float = math.inf) -> LedgerEntry | None:
    """Return the ``KEY_CREATED`` entry of a key's latest secret; None if there is none.

    None also if ``key_id`` is not in the form of a key's id. An entry that only changes the key's
    permissions gave nobody a secret, so it does not count.

    Args:
        ledger: the ledger.
        key_id: the key's id.
        before: a sequence number; only earlier entries are considered.
    """
    if not key_id.startswith(_KEY_ID_PREFIX):
        return None
    entries = ledger.query(
        event_type="KEY_CREATED", submission_id=key_id, order="desc", with_content=False
    )
    return next(
        (
            entry
            for entry in entries
            if is_authentic(entry)
            and entry.decision != "CHANGED"
            and (parse_entry_id(entry.id) or 0) < before
        ),
        None,
    )


def _is_void(ledger: LedgerClient, request: LedgerEntry, wo_id: str, session_id: str) -> bool:
    """Return True if no decision is needed any more.

    A question about an unknown outcome stays open after its order has ended, until a later order
    asks the same. That order may belong to another session, as for a sub-agent.
    """
    if request.metadata["kind"] != UNKNOWN_OUTCOME:
        return _has_ended(ledger, wo_id, session_id)
    later = ledger.query(event_type="APPROVAL_REQUESTED", after=request.id, with_content=False)
    return any(entry.metadata.get("instead_of") == request.id for entry in later)


def _has_ended(ledger: LedgerClient, wo_id: str, session_id: str) -> bool:
    """Return True if an order has ended, or an order that called its session as a sub-agent."""
    callers = (caller.work_order_id for caller in callers_of(ledger, session_id))
    return any(
        list(
            ledger.query(work_order_id=order_id, event_type=event_type, limit=1, with_content=False)
        )
        for order_id in (wo_id, *callers)
        for event_type in ("WO_COMPLETED", "WO_FAILED")
    )


def _used_by(ledger: LedgerClient, request: LedgerEntry) -> str:
    """Return the id of the ``TOOL_INTENT`` that used a request's grant; empty if none did."""
    provenance = request.metadata["provenance"]
    order = provenance.get("work_order_id")
    found = ledger.query(
        event_type="TOOL_INTENT", session_id=provenance["session_id"], work_order_id=order,
        after=request.id, with_content=False,
    )  # fmt: skip
    return next((entry.id for entry in found if entry.metadata.get("approval") == request.id), "")
