"""Orders by themselves: work that is no turn of a conversation, such as one row of a batch."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any

from remit.errors import InvalidInputError
from remit.ledger import utc_now
from remit.supervisor.journal import SupervisorJournal
from remit.supervisor.plan import PlanStep
from remit.supervisor.ports import LeasePort, WorkerPort
from remit.workorders import (
    Actor,
    EventSink,
    WorkOrder,
    WorkOrderConstraints,
    WorkOrderState,
    recorded_order,
)

__all__ = ["SingleOrders"]

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_NUMBERED = re.compile(r"[0-9]{3,}")


class SingleOrders:
    """Plans, dispatches and waits for orders of one session, each by itself.

    Args:
        worker: executes them.
        journal: of the session.
        leases: see to it that one process at a time works on an order.
        wait_s: how long to wait for another process that works on the same order.
        work_order_tokens: token budget of an order whose step names none.
    """

    def __init__(
        self,
        worker: WorkerPort,
        journal: SupervisorJournal,
        leases: LeasePort,
        wait_s: float,
        work_order_tokens: int,
    ) -> None:
        self._worker = worker
        self._journal = journal
        self._leases = leases
        self._wait_s = wait_s
        self._tokens = work_order_tokens

    async def arun(
        self,
        step: PlanStep,
        context: Mapping[str, Any],
        *,
        key: str | None,
        on_event: EventSink | None = None,
    ) -> WorkOrder:
        """Have one order worked on.

        Args:
            step: contract, tools, limits.
            context: joins the step's own input.
            key: names the order within the session. An order with that key that has ended is
                given back as it ended, one that was interrupted is gone on with.
            on_event: hears text and tools as they come.

        Raises:
            InvalidInputError: the key is not one, or belongs to other work.
            LeaseBusyError: another process works on it.
        """
        if key is not None and (not _KEY.fullmatch(key) or _NUMBERED.fullmatch(key)):
            raise InvalidInputError(
                f"{key!r} cannot name an order.",
                next_step="Use letters, digits, '_', '-' and '.', and not digits alone.",
            )
        wo_id = f"WO-{self._journal.session_id}-{key or secrets.token_hex(8)}"
        order = self._order(wo_id, step, context)
        async with self._leases.hold(f"order:{wo_id}", wait_s=self._wait_s) as lease:
            known = recorded_order(self._journal.ledger, wo_id) if key is not None else None
            if known is None:
                entries = [
                    self._journal.planned(order, {"step": step.name}),
                    self._journal.entry("WO_DISPATCHED", wo_id, {}),
                ]
                await self._journal.write_all(entries)
                known = order.moved_to(WorkOrderState.DISPATCHED, by=Actor.SUPERVISOR)
            elif _work_of(known) != _work_of(order):
                raise InvalidInputError(
                    f"The key {key!r} belongs to an order that asked for something else.",
                    next_step="Use a key that names the input, such as the row's own id.",
                )
            elif known.ended:
                return known
            elif known.state is WorkOrderState.PLANNED:
                await self._journal.write("WO_DISPATCHED", wo_id)
                known = known.moved_to(WorkOrderState.DISPATCHED, by=Actor.SUPERVISOR)
            return await self._worker.aexecute(known, on_event=on_event, guard=lease.check)

    def _order(self, wo_id: str, step: PlanStep, context: Mapping[str, Any]) -> WorkOrder:
        return WorkOrder(
            wo_id=wo_id,
            session_id=self._journal.session_id,
            wo_type=step.wo_type,
            created_at=utc_now(),
            created_by=self._journal.agent_id,
            input_context={**context, **step.input},
            constraints=WorkOrderConstraints(
                prompt_contract_id=step.contract_id,
                token_budget=self._tokens if step.token_budget is None else step.token_budget,
                usd_budget=step.usd_budget,
                turn_limit=step.turn_limit,
                timeout_seconds=step.timeout_seconds,
                tools_allowed=step.tools,
                tools_requiring_approval=step.approve,
            ),
            acceptance_criteria=dict(step.acceptance),
        )


def _work_of(order: WorkOrder) -> tuple[Any, ...]:
    """What is to be done; how much it may cost can change between two attempts."""
    limits = order.constraints
    return order.wo_type, limits.prompt_contract_id, dict(order.input_context)
