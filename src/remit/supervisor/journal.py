"""The supervisor's ledger entries: tier ``ho2``, never the worker's."""

from __future__ import annotations

from typing import Any

from remit.ledger import LedgerEntry, LedgerPort
from remit.workorders import WorkOrder, trace_hash, work_order_id

__all__ = ["SupervisorJournal"]


class SupervisorJournal:
    """Writes plans, checks and ends of one session; numbers its work orders.

    Args:
        ledger: a handle of tier ``ho2``.
        session_id: whose.
        agent_id: who supervises.
        agent_class: of what class.
    """

    def __init__(
        self, ledger: LedgerPort, session_id: str, agent_id: str, agent_class: str
    ) -> None:
        self._ledger = ledger
        self._session_id = session_id
        self._provenance = {
            "agent_id": agent_id,
            "agent_class": agent_class,
            "session_id": session_id,
        }
        self._last: int | None = None

    def next_order_id(self) -> str:
        """The next free work order id of the session, across restarts."""
        if self._last is None:
            self._last = 0
            for entry in self._ledger.query(
                session_id=self._session_id, event_type="WO_PLANNED", order="desc", limit=1,
                with_content=False,
            ):  # fmt: skip
                number = entry.submission_id.rpartition("-")[2]
                self._last = int(number) if number.isdigit() else 0
        self._last += 1
        return work_order_id(self._session_id, self._last)

    async def write(self, event_type: str, submission_id: str = "", **metadata: Any) -> str:
        """Append one entry; returns its id."""
        return await self._ledger.awrite(self._entry(event_type, submission_id, metadata))

    def _entry(self, event_type: str, submission_id: str, metadata: dict[str, Any]) -> LedgerEntry:
        subject = submission_id or self._session_id
        provenance = dict(self._provenance)
        if submission_id.startswith("WO-"):
            provenance["work_order_id"] = submission_id
        return LedgerEntry(
            event_type=event_type,
            submission_id=subject,
            decision=event_type,
            reason=f"{event_type} for {subject}",
            metadata={"provenance": provenance, "scope": {"tier": "ho2"}, **metadata},
        )

    async def dispatched(self, order: WorkOrder) -> None:
        """Put a new order on record, whole, and that it goes to the worker."""
        limits = order.constraints
        plan = {
            "wo_type": str(order.wo_type),
            "tier_target": order.tier_target,
            "parent_wo_id": order.parent_wo_id,
            "input_context": dict(order.input_context),
            "acceptance_criteria": dict(order.acceptance_criteria),
            "constraints": {
                "prompt_contract_id": limits.prompt_contract_id,
                "token_budget": limits.token_budget,
                "usd_budget": limits.usd_budget,
                "turn_limit": limits.turn_limit,
                "timeout_seconds": limits.timeout_seconds,
                "tools_allowed": list(limits.tools_allowed),
                "tools_requiring_approval": list(limits.tools_requiring_approval),
                "domain_tags": list(limits.domain_tags),
            },
        }
        await self._ledger.awrite_many(
            [
                self._entry("WO_PLANNED", order.wo_id, plan),
                self._entry("WO_DISPATCHED", order.wo_id, {}),
            ]
        )

    async def checked(
        self,
        last: WorkOrder,
        ids: list[str],
        cost: dict[str, Any],
        reasons: list[str],
        attempt: int,
    ) -> None:
        """Close a chain of orders and put the verdict on its result on record."""
        trace = {"work_order_ids": ids, "trace_hash": trace_hash(self._ledger, ids)}
        chain = {**trace, "cost": cost, "outcome": str(last.state)}
        verdict = "reject" if reasons else "accept"
        gate = {**trace, "verdict": verdict, "reasons": reasons, "attempt": attempt}
        await self._ledger.awrite_many(
            [
                self._entry("WO_CHAIN_COMPLETE", last.wo_id, chain),
                self._entry("WO_QUALITY_GATE", last.wo_id, gate),
            ]
        )
