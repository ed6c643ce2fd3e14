"""A request for approval, and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from remit.ledger import LedgerEntry

__all__ = ["Approval"]


@dataclass(frozen=True, slots=True)
class Approval:
    """One request, as it stands.

    Attributes:
        request_id: id of its ``APPROVAL_REQUESTED``.
        kind: ``approval``: the tool has not run yet; ``unknown_outcome``: it began before a crash,
            and nobody knows whether it took effect.
        arguments: what the tool is to be run with, whole.
        requested_at: time of the request.
        state: ``pending``, ``granted`` or ``denied``; ``void`` once the order ended without it.
        decided_by: who decided; empty while nobody has.
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

    @classmethod
    def of(
        cls, entry: LedgerEntry, state: str, decision: LedgerEntry | None, agent_id: str
    ) -> Approval:
        """From the entries that tell of it, and the agent whose order it is."""
        told = entry.metadata
        provenance = told["provenance"]
        answer = decision.metadata if decision is not None else {}
        return cls(
            request_id=entry.id,
            wo_id=entry.submission_id,
            session_id=str(provenance["session_id"]),
            agent_id=agent_id or str(provenance["agent_id"]),
            tool_id=str(told["tool_id"]),
            arguments=told["arguments"],
            kind=str(told["kind"]),
            requested_at=entry.timestamp,
            state=state,  # type: ignore[arg-type]
            decided_by=str(answer.get("decided_by", "")),
            decision_reason=str(answer.get("decision_reason", "")),
            decided_at=decision.timestamp if decision is not None else "",
        )

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {name: getattr(self, name) for name in self.__slots__}
