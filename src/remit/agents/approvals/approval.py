"""One request for approval in its present state, as the record has it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
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
    """A request cannot be decided so: it is decided, ended, or not this person's to decide."""


@dataclass(frozen=True, slots=True)
class Approval:
    """One request in its present state.

    Attributes:
        request_id: id of its ``APPROVAL_REQUESTED``.
        wo_id: the work order that waits; empty where what asks has none.
        agent_id: the agent that wants to run the tool.
        requested_by: the person or key for whom it asks; empty where that is not known.
        kind: ``approval``: the tool has not run yet; ``unknown_outcome``: the call began, and it
            is unknown whether it took effect.
        unknown_because: why the outcome is unknown, as a sentence; empty for ``approval``.
        arguments: what the tool is to be run with: as asked for, or as a person changed it.
        requested_arguments: what was asked for.
        tool_digest: hash of the tool's definition (:attr:`remit.Tool.digest`); empty in requests
            of earlier versions.
        idempotency_key: of the one call that is asked for.
        requested_at: time of the request.
        people: how many distinct people must grant it.
        signed_by: those who have granted it, while it still needs others.
        state: ``pending``, ``granted`` or ``denied``; ``void`` once the order ended without it,
            or, of an unknown outcome, once a later order asked in its place.
        decided_by: who decided; empty while it is pending.
        expires_at: when what was granted ends, unused; empty in grants of earlier versions.
        used_by: id of the ``TOOL_INTENT`` that it was used for.
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
        """Whether it is granted, in time, and not used yet."""
        return self.state == "granted" and not self.used_by and not is_late(self.expires_at)

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {name: getattr(self, name) for name in self.__slots__}


def is_request(entry: LedgerEntry) -> bool:
    """Whether an entry asks for what can be decided: it names its session, the tool and the call,
    as every request does that Remit writes."""
    data, asked_in = entry.metadata, entry.metadata.get("provenance")
    return (
        entry.event_type == "APPROVAL_REQUESTED"
        and "arguments" in data
        and isinstance(asked_in, dict)
        and isinstance(asked_in.get("work_order_id") or "", str)
        and all(
            isinstance(text, str) and text
            for text in (
                *(asked_in.get(name) for name in ("session_id", "agent_id")),
                *(data.get(name) for name in ("tool_id", "idempotency_key", "kind")),
            )
        )
    )


def is_late(expires: Any) -> bool:
    """Whether a yes has ended; one of earlier versions, with no time stated, does not. One with a
    time that cannot be read has."""
    try:
        return bool(expires) and datetime.now(UTC) > datetime.fromisoformat(expires)
    except (TypeError, ValueError):
        return True


def last_edit(said: Sequence[LedgerEntry]) -> LedgerEntry | None:
    """The latest of what people said in which the arguments were changed."""
    return next((entry for entry in reversed(said) if "arguments" in entry.metadata), None)


def approval_of(
    ledger: LedgerClient,
    request: LedgerEntry,
    said: Sequence[LedgerEntry],
    people: Callable[[str], int],
) -> Approval:
    """A request in its present state.

    Args:
        ledger: where its order and its use are looked up.
        request: the ``APPROVAL_REQUESTED``.
        said: what people said to it, in ledger order.
        people: how many must grant a tool, by its id.
    """
    data = request.metadata
    provenance = data["provenance"]
    wo_id, session_id = str(provenance.get("work_order_id") or ""), str(provenance["session_id"])
    decision = next((entry for entry in said if entry.event_type != "APPROVAL_SIGNED"), None)
    state: Literal["pending", "granted", "denied", "void"] = "pending"
    if decision is not None:
        state = "granted" if decision.event_type == "APPROVAL_GRANTED" else "denied"
    elif wo_id and _is_void(ledger, request, wo_id, session_id):
        state = "void"
    answer = decision.metadata if decision is not None else {}
    edit = last_edit(said if decision is None else [decision])
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
        people=people(str(data["tool_id"])),
        signed_by=tuple(
            str(entry.metadata.get("decided_by", ""))
            for entry in said
            if entry.event_type == "APPROVAL_SIGNED"
            and not (decision is None and is_late(entry.metadata.get("expires", "")))
        ),
        state=state,
        decided_by=str(answer.get("decided_by", "")),
        decision_reason=str(answer.get("decision_reason", "")),
        decided_at=decision.timestamp if decision is not None else "",
        expires_at=str(answer.get("expires", "")),
        used_by=_intent(ledger, request) if state == "granted" else "",
        unknown_because=_unknown_because(ledger, request),
    )


def _unknown_because(ledger: LedgerClient, request: LedgerEntry) -> str:
    """Return why the outcome that a request asks about is unknown; empty for other requests."""
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
    return "Its process ended while it ran."


def _planner(ledger: LedgerClient, wo_id: str) -> str:
    """The agent that planned an order: the request itself names the worker."""
    if not wo_id:
        return ""
    plans = ledger.query(work_order_id=wo_id, event_type="WO_PLANNED", with_content=False)
    plan = next(filter(is_authentic, plans), None)
    planned_by = plan.metadata.get("provenance") if plan is not None else None
    return str(planned_by.get("agent_id") or "") if isinstance(planned_by, dict) else ""


_KEY_ID_PREFIX = "KEY-"


def person_of_session(ledger: LedgerClient, session_id: str) -> str:
    """Return the person for whom a session was begun; empty if it names neither person nor key.

    The person behind the session's key counts before the user that the session names.
    """
    starts = ledger.query(
        session_id=session_id, event_type="SESSION_START", limit=1, with_content=False
    )
    for start in starts:
        user_id, key_id = (str(start.metadata.get(name) or "") for name in ("user_id", "key_id"))
        person = person_behind(ledger, key_id)
        return user_id if person == key_id and user_id else person
    return ""


def person_behind(ledger: LedgerClient, key_id: str) -> str:
    """Return the person whom a key counts as; the key's id, or another key's, if it names nobody.

    A key counts as the person who received its secret. If another key asked for the secret over
    the network, that key's person received it, whatever user the new key names. If the secret was
    made on the machine, the key's user did.
    """
    person, maker, before = key_id, key_id, math.inf
    while made := key_made(ledger, maker, before):
        before = parse_entry_id(made.id) or 0
        person = str(made.metadata.get("user_id") or "") or maker
        maker = str(made.metadata.get("requested_by") or "")
    return person


def key_made(ledger: LedgerClient, key_id: str, before: float = math.inf) -> LedgerEntry | None:
    """Return the latest entry before a sequence number that gave a key its secret."""
    if not key_id.startswith(_KEY_ID_PREFIX):
        return None
    entries = ledger.query(
        event_type="KEY_CREATED", submission_id=key_id, order="desc", with_content=False
    )
    found = (one for one in entries if is_authentic(one))
    return next((one for one in found if (parse_entry_id(one.id) or 0) < before), None)


def _is_void(ledger: LedgerClient, request: LedgerEntry, wo_id: str, session_id: str) -> bool:
    """Return True if nobody needs a decision any more.

    Whether a call took effect is worth knowing after its order too, until a later order asks: of
    a sub-agent, that is an order of another session.
    """
    if request.metadata["kind"] != UNKNOWN_OUTCOME:
        return _has_ended(ledger, wo_id, session_id)
    later = ledger.query(event_type="APPROVAL_REQUESTED", after=request.id, with_content=False)
    return any(entry.metadata.get("instead_of") == request.id for entry in later)


def _has_ended(ledger: LedgerClient, wo_id: str, session_id: str) -> bool:
    """Whether an order of a session has ended, or one that its session is a part of."""
    above = (caller.work_order_id for caller in callers_of(ledger, session_id))
    return any(
        True
        for order_id in (wo_id, *above)
        for event_type in ("WO_COMPLETED", "WO_FAILED")
        for _ in ledger.query(
            work_order_id=order_id, event_type=event_type, limit=1, with_content=False
        )
    )


def _intent(ledger: LedgerClient, request: LedgerEntry) -> str:
    """The ``TOOL_INTENT`` that a request was used for; empty while there is none."""
    provenance = request.metadata["provenance"]
    order = provenance.get("work_order_id")
    found = ledger.query(
        event_type="TOOL_INTENT", session_id=provenance["session_id"], work_order_id=order,
        after=request.id, with_content=False,
    )  # fmt: skip
    return next((entry.id for entry in found if entry.metadata.get("approval") == request.id), "")
