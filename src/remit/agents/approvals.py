"""Approvals: what waits for a person, and what the person said, once and by name (SPEC 8.3)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from remit.kernel.errors import RemitError
from remit.ledger import (
    Erased,
    LedgerClient,
    LedgerEntry,
    Transaction,
    is_authentic,
    parse_entry_id,
)

__all__ = ["Approval", "ApprovalError", "ApprovalQueue"]

_GRANTED, _DENIED = "APPROVAL_GRANTED", "APPROVAL_DENIED"
_DECIDED = (
    "SELECT record FROM entries "
    f"WHERE submission_id = ? AND event_type IN ('{_GRANTED}', '{_DENIED}')"
)

_ENDED = (
    "SELECT id FROM entries WHERE work_order_id = ? "
    "AND event_type IN ('WO_COMPLETED', 'WO_FAILED') LIMIT 1"
)


@dataclass(frozen=True, slots=True)
class Approval:
    """One request in its present state.

    Attributes:
        request_id: id of its ``APPROVAL_REQUESTED``.
        kind: ``approval``: the tool has not run yet; ``unknown_outcome``: it began before a crash,
            and it is unknown whether it took effect.
        arguments: what the tool is to be run with.
        requested_at: time of the request.
        state: ``pending``, ``granted`` or ``denied``; ``void`` once the order ended without it.
        decided_by: who decided; empty while it is pending.
    """

    request_id: str
    wo_id: str
    session_id: str
    agent_id: str
    tool_id: str
    arguments: Mapping[str, Any]
    kind: str
    requested_at: str
    state: Literal["pending", "granted", "denied", "void"] = "pending"
    decided_by: str = ""
    decision_reason: str = ""
    decided_at: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {name: getattr(self, name) for name in self.__slots__}


class ApprovalError(RemitError):
    """There is nothing to decide there, or it is decided already."""


class ApprovalQueue:
    """The approvals of one ledger. The queue is the kernel's, so it sees all entries."""

    def __init__(self, ledger: LedgerClient) -> None:
        self._ledger = ledger

    def pending(self, *, session_id: str | None = None) -> list[Approval]:
        """Pending requests, the oldest first; of one session, or of all."""
        found = (
            self._approval(entry)
            for entry in self._ledger.query(
                event_type="APPROVAL_REQUESTED", session_id=session_id, order="asc"
            )
        )
        return [approval for approval in found if approval.state == "pending"]

    def list(self, *, session_id: str | None = None, limit: int = 100) -> Iterator[Approval]:
        """All requests, the latest first, with their outcomes."""
        for entry in self._ledger.query(
            event_type="APPROVAL_REQUESTED", session_id=session_id, order="desc", limit=limit
        ):
            yield self._approval(entry)

    def get(self, request_id: str) -> Approval:
        """One request in its present state.

        Raises:
            ApprovalError: the ledger has no such request.
        """
        entry = None
        if (seq := parse_entry_id(request_id)) is not None:
            found = self._ledger.query(event_type="APPROVAL_REQUESTED", after=seq - 1, limit=1)
            entry = next(found, None)
        if entry is None or entry.id != request_id:
            raise ApprovalError(
                f"{request_id!r} is not a request for approval.",
                next_step="`remit approve` lists what waits.",
            )
        return self._approval(entry)

    def decide(self, request_id: str, *, granted: bool, by: str, reason: str = "") -> str:
        """Grant or deny a request; returns the id of the entry that says so.

        Args:
            request_id: id of the ``APPROVAL_REQUESTED``.
            granted: whether the tool may run.
            by: the name of who decides, for the record.
            reason: a word for the record, and for the model when denied.

        Raises:
            ApprovalError: there is no such request, it is decided, or its order has ended.
        """
        if not by.strip():
            raise ApprovalError(
                "The name of who decides is missing.", next_step="Say who decides, with --by NAME."
            )
        request = self.get(request_id)
        if request.state == "void":
            raise ApprovalError(f"The order {request.wo_id} has ended; there is nothing to decide.")
        if granted and isinstance(request.arguments, Erased):
            raise ApprovalError(
                f"What {request.tool_id} would run with was erased; it cannot be granted.",
                next_step="Deny it, or cancel the turn.",
            )
        entry = LedgerEntry(
            event_type=_GRANTED if granted else _DENIED,
            submission_id=request_id,
            decision="GRANTED" if granted else "DENIED",
            reason=f"{request.tool_id} for {request.wo_id}",
            metadata={
                "provenance": {
                    "agent_id": by,
                    "agent_class": "OPERATOR",
                    "session_id": request.session_id,
                    "work_order_id": request.wo_id,
                },
                # Written for the worker, who may read nothing else.
                "scope": {"tier": "ho1"},
                "request_id": request_id,
                "tool_id": request.tool_id,
                "decided_by": by,
                "decision_reason": reason,
            },
        )

        def write(tx: Transaction) -> str:
            if any(_is_decision(record) for (record,) in tx.execute(_DECIDED, (request_id,))):
                raise ApprovalError(
                    f"{request_id} is decided already.",
                    next_step=f"`remit ledger query --event-type {_GRANTED}` shows by whom.",
                )
            if tx.execute(_ENDED, (request.wo_id,)):
                raise ApprovalError(
                    f"The order {request.wo_id} has ended; there is nothing to decide."
                )
            return tx.append(entry)

        return self._ledger.transact(write)

    def _approval(self, entry: LedgerEntry) -> Approval:
        request, wo_id = entry.metadata, entry.submission_id
        found = (
            decision
            for event_type in (_GRANTED, _DENIED)
            for decision in self._ledger.query(submission_id=entry.id, event_type=event_type)
            if is_authentic(decision)
        )
        state: Literal["pending", "granted", "denied", "void"]
        if (decision := next(found, None)) is not None:
            state = "granted" if decision.event_type == _GRANTED else "denied"
        else:
            state = "void" if self._has_ended(wo_id) else "pending"
        answer = decision.metadata if decision is not None else {}
        provenance = request["provenance"]
        # The entry itself names the worker; the agent is who planned the order.
        plans = self._ledger.query(work_order_id=wo_id, event_type="WO_PLANNED", with_content=False)
        plan = next(filter(is_authentic, plans), None)
        planned_by = (plan.metadata.get("provenance") or {}) if plan is not None else {}
        return Approval(
            request_id=entry.id,
            wo_id=wo_id,
            session_id=str(provenance["session_id"]),
            agent_id=str(planned_by.get("agent_id") or provenance["agent_id"]),
            tool_id=str(request["tool_id"]),
            arguments=request["arguments"],
            kind=str(request["kind"]),
            requested_at=entry.timestamp,
            state=state,
            decided_by=str(answer.get("decided_by", "")),
            decision_reason=str(answer.get("decision_reason", "")),
            decided_at=decision.timestamp if decision is not None else "",
        )

    def _has_ended(self, wo_id: str) -> bool:
        return any(
            True
            for event_type in ("WO_COMPLETED", "WO_FAILED")
            for _ in self._ledger.query(
                work_order_id=wo_id, event_type=event_type, limit=1, with_content=False
            )
        )


def _is_decision(record: str) -> bool:
    """Whether an entry decides a request; by its record, since others of the transaction that is
    under way cannot be read otherwise."""
    said = json.loads(record)
    return is_authentic(LedgerEntry(said["event_type"], "", "", "", metadata=said["metadata"]))
