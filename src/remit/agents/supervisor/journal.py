"""The supervisor's ledger entries: tier ``ho2``, never the worker's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from remit.agents.supervisor.plan import PlanStep
from remit.agents.workorders import (
    Journal,
    WorkOrder,
    WorkOrderConstraints,
    plan_of,
    trace_hash,
    work_order_id,
)
from remit.ledger import Erased, LedgerEntry, LedgerPort, utc_now

__all__ = ["SupervisorJournal"]


class SupervisorJournal(Journal):
    """The journal of one session's supervisor, who also numbers its work orders.

    Args:
        ledger: a handle of tier ``ho2``.
        session_id: whose.
        agent_id: who supervises.
        agent_class: of what class.
    """

    def __init__(
        self, ledger: LedgerPort, session_id: str, agent_id: str, agent_class: str
    ) -> None:
        super().__init__(ledger, "ho2", session_id, agent_id, agent_class)
        self._held: list[LedgerEntry] = []

    def latest_plan(self) -> LedgerEntry | None:
        """The session's latest ``WO_PLANNED``, without its content."""
        return next(
            self.ledger.query(
                session_id=self.session_id, event_type="WO_PLANNED", order="desc", limit=1,
                with_content=False,
            ),
            None,
        )  # fmt: skip

    def last_number(self, latest: LedgerEntry | None) -> int:
        """The number of the session's latest numbered work order; 0 when there is none.

        Args:
            latest: what :meth:`latest_plan` gives: nearly always it is that one.
        """
        if latest is None:
            return 0
        if (number := self._number_of(latest)) is not None:
            return number
        for entry in self.ledger.query(
            session_id=self.session_id, event_type="WO_PLANNED", order="desc", after=latest.id,
            with_content=False,
        ):  # fmt: skip
            if (number := self._number_of(entry)) is not None:
                return number
        return 0

    def _number_of(self, plan: LedgerEntry) -> int | None:
        """The number of an order of a turn; ``None`` of an order by itself."""
        head, _, number = plan.submission_id.rpartition("-")
        in_a_turn = plan.metadata.get("turn_number") is not None
        if in_a_turn and head == f"WO-{self.session_id}" and number.isdigit():
            return int(number)
        return None

    def order_id(self, number: int) -> str:
        """The id of the session's order with that number."""
        return work_order_id(self.session_id, number)

    def order(
        self,
        wo_id: str,
        step: PlanStep,
        context: Mapping[str, Any],
        tokens: int,
        parent: str | None = None,
    ) -> WorkOrder:
        """A step as an order, still unwritten.

        Args:
            wo_id: its id.
            step: what is to be done.
            context: joins the step's own input.
            tokens: token budget where the step names none.
            parent: the order that it belongs to.
        """
        return WorkOrder(
            wo_id=wo_id,
            session_id=self.session_id,
            wo_type=step.wo_type,
            parent_wo_id=parent,
            created_at=utc_now(),
            created_by=self.agent_id,
            input_context={**context, **step.input},
            constraints=WorkOrderConstraints(
                prompt_contract_id=step.contract_id,
                token_budget=tokens if step.token_budget is None else step.token_budget,
                usd_budget=step.usd_budget,
                turn_limit=step.turn_limit,
                timeout_seconds=step.timeout_seconds,
                tools_allowed=step.tools,
                tools_requiring_approval=step.approve,
            ),
            acceptance_criteria=dict(step.acceptance),
        )

    def planned(self, order: WorkOrder, **about: Any) -> LedgerEntry:
        """The ``WO_PLANNED`` of an order, with its place in the plan."""
        return self.entry("WO_PLANNED", order.wo_id, **plan_of(order), **about)

    async def checked(
        self,
        last: WorkOrder,
        ids: list[str],
        cost: dict[str, Any],
        reasons: list[str],
        attempt: int,
        further: Sequence[LedgerEntry] = (),
    ) -> None:
        """Close a chain of orders and put the verdict on its result on record.

        An accepted verdict is held back until the turn is recorded, and written in one
        transaction with it: see :meth:`take_held`.
        """
        trace = {"work_order_ids": ids, "trace_hash": trace_hash(self.ledger, ids)}
        chain = {**trace, "cost": cost, "outcome": str(last.state)}
        verdict = "reject" if reasons else "accept"
        gate = {**trace, "verdict": verdict, "reasons": reasons, "attempt": attempt}
        entries = [
            self.entry("WO_CHAIN_COMPLETE", last.wo_id, **chain),
            self.entry("WO_QUALITY_GATE", last.wo_id, **gate),
            *further,
        ]
        if reasons:
            await self.write_all(entries)
        else:
            self._held = entries

    def take_held(self) -> list[LedgerEntry]:
        """Entries that wait for the turn's own."""
        held, self._held = self._held, []
        return held

    @override
    def reset(self) -> None:
        super().reset()
        self._held = []

    def has(self, event_type: str, submission_id: str) -> bool:
        """Whether an entry of that type is on record."""
        return any(
            True
            for _ in self.ledger.query(
                submission_id=submission_id, event_type=event_type, limit=1, with_content=False
            )
        )

    def is_taken(self, wo_id: str) -> bool:
        """Whether the record speaks of an order with that id already."""
        return any(
            True for _ in self.ledger.query(work_order_id=wo_id, limit=1, with_content=False)
        )

    def direct_answer(self, after: str) -> str:
        """The answer of a direct call made since an entry; empty where there is none."""
        for degraded in self.ledger.query(
            session_id=self.session_id, event_type="DEGRADATION", after=after, limit=1,
            with_content=False,
        ):  # fmt: skip
            for exchange in self.ledger.query(
                session_id=self.session_id, event_type="EXCHANGE", tier="ho2",
                after=degraded.id, outcome="success", limit=1,
            ):  # fmt: skip
                answer = exchange.metadata["response"]
                return "" if isinstance(answer, Erased) else str(answer)
        return ""
