"""A request for approval: its present state from the ledger, and the single use of its grant."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from remit.agents.approvals.persons import person_of_session
from remit.agents.workorders import callers_of
from remit.kernel.canonical import exact_json, sha256_hex
from remit.kernel.errors import ConflictError
from remit.ledger import (
    Erased,
    LedgerClient,
    LedgerEntry,
    Prepared,
    Transaction,
    is_authentic,
)

UNKNOWN_OUTCOME = "unknown_outcome"
"""The kind of a request that asks whether a call that began took effect."""


class ApprovalError(ConflictError):
    """A request does not exist, is decided, void or not granted, or cannot be decided in this way.

    Nothing was recorded. The subclass of ConflictError that deciding, permitting and reading
    approvals raise.
    """


@dataclass(frozen=True, slots=True)
class Approval:
    """A request for approval in its present state.

    Immutable: later decisions do not change it. :meth:`usable` compares the expiry with the present
    time at each call.

    Attributes:
        request_id: id of the ``APPROVAL_REQUESTED`` entry.
        wo_id: the waiting work order; empty for a request outside of work orders.
        session_id: the session of the request.
        agent_id: the agent that planned the order; outside of orders the requesting agent.
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
        signed_by: people who granted before the deciding grant (``APPROVAL_SIGNED``), in order;
            while pending, without expired grants.
        state: ``pending``, ``granted``, ``denied``, or ``void``: the order ended without a
            decision, or a later order asked about the same unknown outcome.
        decided_by: the person who made the final decision; empty while pending.
        decision_reason: the reason of that decision; may be empty.
        decided_at: time of that decision; empty while pending.
        expires_at: time at which an unused grant expires; empty unless granted, and in grants of
            earlier versions.
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

    def usable(self, now: datetime) -> bool:
        """Return True if the request is granted, not expired and not used.

        Args:
            now: the present time, from :attr:`remit.ledger.LedgerClient.wall_time`.
        """
        granted = self.state == "granted" and not self.used_by
        return granted and not is_expired(self.expires_at, now)

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes by name, with unchanged values: ``signed_by`` stays a tuple, and
        erased arguments stay ``Erased``.
        """
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


def is_expired(expires: Any, now: datetime) -> bool:
    """Return True if a time is past, has no zone or cannot be read; False if it is empty.

    Args:
        expires: the ``expires`` of a grant, in ISO 8601; grants of earlier versions contain none.
        now: the present time, from :attr:`remit.ledger.LedgerClient.wall_time`.
    """
    try:
        return bool(expires) and now > datetime.fromisoformat(expires)
    except (TypeError, ValueError):
        return True


def last_edit(answers: Sequence[LedgerEntry]) -> LedgerEntry | None:
    """Return the latest answer that changed the arguments; None if none did.

    Args:
        answers: people's answers to one request, oldest first; signatures count too.
    """
    return next((entry for entry in reversed(answers) if "arguments" in entry.metadata), None)


def approval_of(
    ledger: LedgerClient,
    request: LedgerEntry,
    answers: Sequence[LedgerEntry],
    people: int,
) -> Approval:
    """Return a request in its present state.

    The first grant or denial decides. Without one, the request is ``void`` once its order has
    ended, or an order that called its session as a sub-agent. A request about an unknown outcome
    becomes void only if a later order asks the same; a request outside of orders never does.
    Expired signatures are not listed while nobody has decided. ``arguments`` are those that the
    decision changed, or before a decision the latest signature; else the requested ones. Only a
    granted request is searched for its use.

    Args:
        ledger: the ledger, from which the order's end and the use of the grant are read.
        request: an entry for which :func:`is_request` is true.
        answers: people's answers to the request, in ledger order; their writers are not checked.
        people: number of people who must grant the request.

    Raises:
        LedgerError: the ledger cannot be read.
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
            and not (
                decision is None and is_expired(entry.metadata.get("expires", ""), ledger.wall_time)
            )
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


_ORDER_INTENTS = (
    "SELECT id, record FROM entries WHERE work_order_id = ? AND event_type = 'TOOL_INTENT'"
)
_SESSION_INTENTS = (
    "SELECT id, record FROM entries WHERE session_id = ? AND event_type = 'TOOL_INTENT' AND seq > ?"
)


def arguments_hash(arguments: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the JCS encoding of arguments, 64 lower-case hex digits.

    Arguments that JCS cannot express (an integer beyond 2**53) are hashed as JSON text with sorted
    keys. The hash reveals something about content, so entries contain it as content.

    Args:
        arguments: the arguments of a tool call.

    Raises:
        InvalidInputError: the arguments cannot be expressed as JSON.
    """
    return sha256_hex(exact_json(dict(arguments)))


@dataclass(frozen=True, slots=True)
class Permit:
    """The grant of one action.

    Immutable, and no lock: several programs may hold a permit of the same grant, and the first
    :meth:`begin` that commits uses it up. :meth:`instead_of` gives the arguments to run with.

    Attributes:
        request: the ``APPROVAL_REQUESTED`` entry.
        granted: its ``APPROVAL_GRANTED`` entry.
    """

    request: LedgerEntry
    granted: LedgerEntry

    @property
    def arguments(self) -> Any:
        """The granted arguments: as requested, or as changed by a person.

        An ``Erased`` value if their content was erased.
        """
        return self.granted.metadata.get("arguments", self.request.metadata["arguments"])

    def instead_of(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Return the granted arguments in place of the requested ones.

        Arguments that differ from the request are returned unchanged, and so are all if the
        requested or granted arguments were erased; :meth:`begin` refuses them.

        Args:
            wanted: the arguments with which the caller would run the tool.

        Raises:
            InvalidInputError: ``wanted`` cannot be expressed as JSON.
        """
        requested, granted = self.request.metadata["arguments"], self.arguments
        is_erased = isinstance(requested, Erased) or isinstance(granted, Erased)
        if is_erased or arguments_hash(requested) != arguments_hash(wanted):
            return dict(wanted)
        return dict(granted)

    def begin(
        self,
        intent: LedgerEntry,
        tool_digest: str,
        prepare: Callable[[LedgerEntry], Prepared],
    ) -> Callable[[Transaction], str]:
        """Return a function that writes the ``TOOL_INTENT`` of the granted action in a transaction.

        The function returns an empty text if the intent was written and the permit is thereby used
        up. Otherwise it writes nothing and returns the reason: the action or the tool's definition
        differs from the grant, the arguments were erased, or the grant is expired, used or not
        valid. The action is compared at once, before the function runs; expiry and use are checked
        within the transaction. A grant of an earlier version states neither expiry nor definition,
        so neither is checked.

        Args:
            intent: the entry, with the tool, the arguments and the idempotency key. The field
                ``approval`` is added to its metadata.
            tool_digest: hash of the tool's present definition (:attr:`remit.Tool.digest`).
            prepare: prepares the entry for writing, such as
                :meth:`remit.ledger.LedgerClient.prepare`.

        Raises:
            InvalidInputError: the arguments of ``intent`` cannot be expressed as JSON, or the entry
                cannot be recorded; raised at once.
            LedgerWriteError: a statement of the function is refused; raised to the submitter of the
                transaction.
        """
        request_id = self.request.id
        intent.metadata["approval"] = request_id
        problem = self._mismatch(intent.metadata, tool_digest)
        prepared = None if problem else prepare(intent)

        def write(tx: Transaction) -> str:
            if prepared is None:
                return problem
            expires = self.granted.metadata.get("expires")
            if expires and tx.wall_ms > datetime.fromisoformat(expires).timestamp() * 1000:
                return f"the approval {request_id} expired at {expires}"
            if used_by := self._used_by(tx):
                return f"the approval {request_id} was used already, by {used_by}"
            tx.append(prepared)
            return ""

        return write

    def _mismatch(self, action: Mapping[str, Any], tool_digest: str) -> str:
        """Return how an action differs from the grant; empty if they agree."""
        request, grant = self.request.metadata, self.granted.metadata
        if (
            self.granted.event_type != "APPROVAL_GRANTED"
            or self.granted.submission_id != self.request.id
            or not is_authentic(self.granted)
        ):
            return f"{self.granted.id} does not grant {self.request.id}"
        if not action["tool_id"] == request["tool_id"] == grant["tool_id"]:
            return f"the approval {self.request.id} is for the tool {request['tool_id']}"
        if action["idempotency_key"] != request["idempotency_key"]:
            return f"the approval {self.request.id} is for another call of {request['tool_id']}"
        if isinstance(self.arguments, Erased):
            return f"the arguments of the approval {self.request.id} were erased"
        # Approvals of earlier versions contain neither hash and apply to the requested arguments.
        granted_hash = grant.get("arguments_hash", arguments_hash(self.arguments))
        if arguments_hash(action["arguments"]) != granted_hash:
            return f"the approval {self.request.id} is for other arguments"
        if grant.get("tool_digest", tool_digest) != tool_digest:
            return f"the definition of {request['tool_id']} was changed after {self.request.id}"
        return ""

    def _used_by(self, tx: Transaction) -> str:
        """Return the id of the intent that used the permit; empty if it is unused."""
        provenance = self.request.metadata["provenance"]
        if order := provenance.get("work_order_id"):
            rows = tx.execute(_ORDER_INTENTS, (order,))
        else:
            place = self.request.seq
            rows = tx.execute(_SESSION_INTENTS, (provenance["session_id"], place))
        # Quotes within values are escaped, so the mark can only match the member itself.
        mark = f'"approval":"{self.request.id}"'
        return next((str(entry_id) for entry_id, record in rows if mark in record), "")
