"""The supervisor's ledger entries: tier ``ho2``, never the worker's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from remit.ledger import LedgerEntry, LedgerPort, OrderedWriter
from remit.workorders import WorkOrder, plan_of, trace_hash, work_order_id

__all__ = ["SupervisorJournal"]


class SupervisorJournal:
    """Writes plans, checks and ends of one session; numbers its work orders.

    Args:
        ledger: a handle of tier ``ho2``.
        session_id: whose.
        agent_id: who supervises.
        agent_class: of what class.

    Attributes:
        ledger: the handle.
        session_id: whose.
        agent_id: who supervises.
    """

    def __init__(
        self, ledger: LedgerPort, session_id: str, agent_id: str, agent_class: str
    ) -> None:
        self.ledger = ledger
        self._writer = OrderedWriter(ledger)
        self.session_id = session_id
        self.agent_id = agent_id
        self._provenance = {
            "agent_id": agent_id,
            "agent_class": agent_class,
            "session_id": session_id,
        }

    def last_number(self) -> int:
        """The number of the session's latest numbered work order; 0 when there is none."""
        after: str | None = None
        most: int | None = 1  # nearly always it is the latest one
        while True:
            for entry in self.ledger.query(
                session_id=self.session_id, event_type="WO_PLANNED", order="desc", after=after,
                limit=most, with_content=False,
            ):  # fmt: skip
                head, _, number = entry.submission_id.rpartition("-")
                if head == f"WO-{self.session_id}" and number.isdigit():
                    return int(number)
                after = entry.id
            if most is None or after is None:
                return 0
            most = None

    def order_id(self, number: int) -> str:
        """The id of the session's order with that number."""
        return work_order_id(self.session_id, number)

    async def write(self, event_type: str, submission_id: str = "", **metadata: Any) -> str:
        """Append one entry and wait until it, and all before it, is durable; returns its id."""
        return (await self._writer.write([self.entry(event_type, submission_id, metadata)]))[-1]

    async def write_all(self, entries: Sequence[LedgerEntry]) -> None:
        """Append entries from :meth:`entry`, all or none, and wait for them."""
        await self._writer.write(entries)

    def soon(self, entries: Sequence[LedgerEntry]) -> None:
        """Append entries, all or none, before whatever is written later, without waiting."""
        self._writer.soon(entries)

    async def settle(self) -> None:
        """Wait for what was handed over.

        Raises:
            LedgerWriteError: some of it could not be written.
        """
        await self._writer.settle()

    def entry(self, event_type: str, submission_id: str, metadata: dict[str, Any]) -> LedgerEntry:
        """An entry, not yet written."""
        subject = submission_id or self.session_id
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

    def planned(self, order: WorkOrder, about: dict[str, Any]) -> LedgerEntry:
        """That an order was written, whole, with its place in the plan."""
        return self.entry("WO_PLANNED", order.wo_id, {**plan_of(order), **about})

    def checked(
        self,
        last: WorkOrder,
        ids: list[str],
        cost: dict[str, Any],
        reasons: list[str],
        attempt: int,
        further: Sequence[LedgerEntry] = (),
    ) -> None:
        """Close a chain of orders and put the verdict on its result on record, without waiting."""
        trace = {"work_order_ids": ids, "trace_hash": trace_hash(self.ledger, ids)}
        chain = {**trace, "cost": cost, "outcome": str(last.state)}
        verdict = "reject" if reasons else "accept"
        gate = {**trace, "verdict": verdict, "reasons": reasons, "attempt": attempt}
        self.soon(
            [
                self.entry("WO_CHAIN_COMPLETE", last.wo_id, chain),
                self.entry("WO_QUALITY_GATE", last.wo_id, gate),
                *further,
            ]
        )
