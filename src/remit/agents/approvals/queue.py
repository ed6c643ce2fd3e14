"""Where requests wait and are decided: once each, by a person with a name."""

from __future__ import annotations

from collections.abc import Iterator

from remit.agents.approvals.request import Approval
from remit.kernel.errors import RemitError
from remit.ledger import Erased, LedgerClient, LedgerEntry, Transaction, parse_entry_id

__all__ = ["ApprovalError", "ApprovalQueue"]

_GRANTED, _DENIED = "APPROVAL_GRANTED", "APPROVAL_DENIED"
_DECIDED = (
    f"SELECT id FROM entries WHERE submission_id = ? AND event_type IN ('{_GRANTED}', '{_DENIED}')"
)

_ENDED = (
    "SELECT id FROM entries WHERE work_order_id = ? "
    "AND event_type IN ('WO_COMPLETED', 'WO_FAILED') LIMIT 1"
)


class ApprovalError(RemitError):
    """There is nothing to decide there, or it is decided already."""


class ApprovalQueue:
    """The approvals of one ledger.

    Args:
        ledger: of the root; the desk is the kernel's, so it sees all.
    """

    def __init__(self, ledger: LedgerClient) -> None:
        self._ledger = ledger

    def pending(self, *, session_id: str | None = None) -> list[Approval]:
        """What waits for a person, the oldest first.

        Args:
            session_id: only of this session.
        """
        found = (
            self._approval(entry)
            for entry in self._ledger.query(
                event_type="APPROVAL_REQUESTED", session_id=session_id, order="asc"
            )
        )
        return [one for one in found if one.state == "pending"]

    def list(self, *, session_id: str | None = None, limit: int = 100) -> Iterator[Approval]:
        """All requests, the latest first, with what became of them."""
        for entry in self._ledger.query(
            event_type="APPROVAL_REQUESTED", session_id=session_id, order="desc", limit=limit
        ):
            yield self._approval(entry)

    def get(self, request_id: str) -> Approval:
        """One request as it stands.

        Raises:
            ApprovalError: the ledger has no such request.
        """
        found = (
            self._ledger.query(event_type="APPROVAL_REQUESTED", after=_before(request_id), limit=1)
            if parse_entry_id(request_id) is not None
            else iter(())
        )
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
            by: the name of who decides; it stands on the record.
            reason: a word for the record, and for the model when denied.

        Raises:
            ApprovalError: there is no such request, it is decided, or its order has ended.
        """
        if not by.strip():
            raise ApprovalError("Nobody is named.", next_step="Say who decides, with --by NAME.")
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
                # Pushed down to the worker, who may read nothing else.
                "scope": {"tier": "ho1"},
                "request_id": request_id,
                "tool_id": request.tool_id,
                "decided_by": by,
                "decision_reason": reason,
            },
        )

        def write(tx: Transaction) -> str:
            if tx.execute(_DECIDED, (request_id,)):
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
        agent_id = self._agent_of(entry.submission_id)
        for event_type, state in ((_GRANTED, "granted"), (_DENIED, "denied")):
            for decision in self._ledger.query(
                submission_id=entry.id, event_type=event_type, limit=1
            ):
                return Approval.of(entry, state, decision, agent_id)
        state = "void" if self._has_ended(entry.submission_id) else "pending"
        return Approval.of(entry, state, None, agent_id)

    def _agent_of(self, wo_id: str) -> str:
        """The agent that planned the order; the entry itself names the worker."""
        for entry in self._ledger.query(
            work_order_id=wo_id, event_type="WO_PLANNED", limit=1, with_content=False
        ):
            return str((entry.metadata.get("provenance") or {}).get("agent_id", ""))
        return ""

    def _has_ended(self, wo_id: str) -> bool:
        return any(
            True
            for event_type in ("WO_COMPLETED", "WO_FAILED")
            for _ in self._ledger.query(
                work_order_id=wo_id, event_type=event_type, limit=1, with_content=False
            )
        )


def _before(request_id: str) -> int:
    seq = parse_entry_id(request_id)
    assert seq is not None
    return seq - 1
