"""The work orders of one turn: planned, dispatched, waited for, and read back after a crash."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from remit.agents.supervisor.journal import SupervisorJournal
from remit.agents.supervisor.plan import RESERVED, Plan, PlanStep, held_to
from remit.agents.supervisor.ports import WorkerPort
from remit.agents.supervisor.quality import QualityGate
from remit.agents.supervisor.unfinished import RecordedOrder, UnfinishedTurn
from remit.agents.workorders import (
    Actor,
    EventSink,
    TextDelta,
    TurnEvent,
    WorkOrder,
    WorkOrderCost,
    WorkOrderState,
)
from remit.ledger import LedgerEntry, utc_now

__all__ = ["OrderDesk", "total_cost"]

_SHARED = frozenset(
    {"user_input", "classification", "assembled_context", "prior_results", "rejected_because"}
)
"""What an order has of its turn, not of its step."""

_NOT_BEGUN = {
    "code": "cancelled",
    "message": "a step that it waits for did not give a result",
}


class OrderDesk:
    """Has the steps of a turn worked on.

    Args:
        worker: executes the orders.
        journal: where they are planned.
        turn_number: whose orders these are.
        work_order_tokens: token budget of an order whose step names none.
        guard: raises when the turn is no longer this process's.
        before: what is on record of the turn already.
        first_number: the number before that of the first new order.
        gate: looks at steps with criteria of their own, before others build on them.
        agent: what its agent may use; orders from the record are held to it.
    """

    def __init__(
        self,
        worker: WorkerPort,
        journal: SupervisorJournal,
        turn_number: int,
        work_order_tokens: int,
        guard: Callable[[], None],
        before: UnfinishedTurn | None,
        first_number: int,
        gate: QualityGate,
        agent: PlanStep,
    ) -> None:
        self._worker = worker
        self._journal = journal
        self._turn_number = turn_number
        self._tokens = work_order_tokens
        self._guard = guard
        self._before = before
        self._number = first_number
        self._gate = gate
        self._agent = agent
        self._orders: dict[str, WorkOrder] = {}
        self._steps: dict[str, WorkOrder] = {}
        self._new: set[str] = set()

    @property
    def orders(self) -> list[WorkOrder]:
        """The turn's orders in the order in which they were planned, as they stand."""
        return list(self._orders.values())

    def ids(self) -> list[str]:
        """Their ids."""
        return list(self._orders)

    def waiting_for(self) -> tuple[str, ...]:
        """Requests that a person must decide before the turn can go on."""
        return tuple(request for order in self.orders for request in order.waiting_for)

    def recorded_plan(self) -> Plan | None:
        """The plan that was written before the turn was interrupted, if one was."""
        found = [
            one
            for one in (self._before.orders if self._before else ())
            if one.attempt == 1 and one.step not in RESERVED
        ]
        if not found:
            return None
        steps = tuple(_step_of(one) for one in found)
        answering = [one.step for one in found if one.planned.metadata.get("answering")]
        return Plan(steps, answering[0] if answering else "")

    async def run(
        self,
        step: PlanStep,
        context: Mapping[str, Any],
        *,
        attempt: int = 1,
        listen: EventSink | None = None,
        attention: Mapping[str, Any] | None = None,
    ) -> WorkOrder:
        """One step: planned and dispatched at once, or gone on with where it stopped."""
        prior = {name: self._steps[name] for name in step.depends_on if name in self._steps}
        known = self._before.find(step.name, attempt) if self._before else None
        if known is not None:
            order = held_to(known.order, self._agent)
            self._orders[order.wo_id] = order
            return order if order.ended else await self._start(order, prior, listen)
        order = self._order(step, context)
        about = self._about(step, attempt, attention)
        entries = [self._journal.planned(order, about)]
        return await self._dispatch(order, prior, entries, listen)

    async def run_plan(
        self,
        plan: Plan,
        context: Mapping[str, Any],
        *,
        listen: EventSink | None = None,
        attention: Mapping[str, Any] | None = None,
    ) -> WorkOrder:
        """All steps of a plan; those that wait for nobody at once. Gives the answering order."""
        orders: dict[str, WorkOrder] = {}
        waits: dict[str, tuple[str, ...]] = {}
        entries = []
        for step in plan.steps:
            known = self._before.find(step.name, 1) if self._before else None
            if known is None:
                order = self._order(step, context)
                about = self._about(step, 1, None)
                if step is plan.answering:
                    about = self._about(step, 1, attention) | {"answering": True}
                entries.append(self._journal.planned(order, about))
            else:
                order = held_to(known.order, self._agent)
            orders[step.name] = self._orders[order.wo_id] = order
            waits[step.name] = step.depends_on
        if len(plan.steps) > 1 and entries:
            self._journal.soon(entries)
            entries = []
        others = None if listen is None else functools.partial(_but_text, listen)
        sinks = dict.fromkeys(orders, others) | {plan.answering.name: listen}
        await self._run_all(orders, waits, sinks, entries)
        self._steps.update(orders)
        return orders[plan.answering.name]

    async def _run_all(
        self,
        orders: dict[str, WorkOrder],
        waits: Mapping[str, Sequence[str]],
        sinks: Mapping[str, EventSink | None],
        unwritten: list[LedgerEntry],
    ) -> None:
        """Work on everything that can be worked on; ``orders`` is brought up to date."""
        running: dict[asyncio.Task[WorkOrder], str] = {}
        try:
            while True:
                for name, order in orders.items():
                    if name in running.values() or order.ended or order.waiting_for:
                        continue
                    before = [orders[other] for other in waits[name]]
                    if any(self._is_no_use(one) for one in before):
                        orders[name] = await self._give_up(order)
                    elif all(one.state is WorkOrderState.COMPLETED for one in before):
                        prior = {other: orders[other] for other in waits[name]}
                        running[
                            asyncio.create_task(
                                self._start(order, prior, sinks.get(name), unwritten)
                            )
                        ] = name
                if not running:
                    return
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    orders[running.pop(task)] = task.result()
        finally:
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running)

    def _is_no_use(self, order: WorkOrder) -> bool:
        """Whether what waits for the order can begin no more."""
        if order.state is WorkOrderState.COMPLETED and order.acceptance_criteria:
            return bool(self._gate.reasons(order))
        return order.state is WorkOrderState.FAILED

    async def _start(
        self,
        order: WorkOrder,
        prior: Mapping[str, WorkOrder],
        listen: EventSink | None,
        unwritten: list[LedgerEntry] | None = None,
    ) -> WorkOrder:
        if order.state is WorkOrderState.PLANNED:
            return await self._dispatch(order, prior, unwritten or [], listen)
        return await self._work(_with_prior(order, prior), listen)

    async def _dispatch(
        self,
        order: WorkOrder,
        prior: Mapping[str, WorkOrder],
        entries: list[LedgerEntry],
        listen: EventSink | None,
    ) -> WorkOrder:
        told: dict[str, Any] = {}
        if prior:
            told["prior_results"] = [one.wo_id for one in prior.values()]
        self._guard()
        dispatched = self._journal.entry("WO_DISPATCHED", order.wo_id, told)
        self._journal.soon([*entries, dispatched])  # the worker's first step waits for it
        order = order.moved_to(WorkOrderState.DISPATCHED, by=Actor.SUPERVISOR)
        self._orders[order.wo_id] = order
        return await self._work(_with_prior(order, prior), listen)

    async def _work(self, order: WorkOrder, listen: EventSink | None) -> WorkOrder:
        fresh = order.wo_id in self._new
        done = await self._worker.aexecute(order, on_event=listen, guard=self._guard, fresh=fresh)
        self._orders[order.wo_id] = done
        return done

    async def _give_up(self, order: WorkOrder) -> WorkOrder:
        """A step that cannot begin, because what it waits for failed."""
        await self._journal.write(
            "WO_FAILED",
            order.wo_id,
            error_code=_NOT_BEGUN["code"],
            error_message=_NOT_BEGUN["message"],
            cost=WorkOrderCost().to_dict(),
        )
        failed = order.moved_to(
            WorkOrderState.FAILED, by=Actor.SUPERVISOR, error=_NOT_BEGUN, completed_at=utc_now()
        )
        self._orders[order.wo_id] = failed
        return failed

    def take_up(self) -> None:
        """Take the orders of an interrupted turn as they stand."""
        before = self._before
        if before is None:
            return
        for one in before.orders:
            waits = tuple(
                entry.id for entry in before.requests if entry.submission_id == one.order.wo_id
            )
            self._orders[one.order.wo_id] = replace(one.order, waiting_for=waits)

    async def end_all(self) -> None:
        """End every order of the turn that has not ended and that nobody will go on with."""
        await self._journal.settle()
        for order in self.orders:
            if order.ended:
                continue
            if order.state is WorkOrderState.PLANNED:
                await self._give_up(order)
            else:
                self._orders[order.wo_id] = await self._worker.acancel(order)

    def _order(self, step: PlanStep, context: Mapping[str, Any]) -> WorkOrder:
        self._number += 1
        while self._journal.is_taken(self._journal.order_id(self._number)):
            self._number += 1  # somebody spoke of an order that was not planned
        wo_id = self._journal.order_id(self._number)
        self._new.add(wo_id)
        parent = next(iter(self._orders), None)
        return self._journal.order(wo_id, step, context, self._tokens, parent)

    def _about(
        self, step: PlanStep, attempt: int, attention: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        about: dict[str, Any] = {
            "turn_number": self._turn_number,
            "step": step.name,
            "attempt": attempt,
        }
        if step.depends_on:
            about["depends_on"] = list(step.depends_on)
        if attention is not None:
            about["attention"] = dict(attention)
        return about


def _step_of(recorded: RecordedOrder) -> PlanStep:
    """A step as its order's plan tells it."""
    order, limits = recorded.order, recorded.order.constraints
    return PlanStep(
        name=recorded.step,
        contract_id=limits.prompt_contract_id,
        wo_type=order.wo_type,
        input={name: value for name, value in order.input_context.items() if name not in _SHARED},
        tools=limits.tools_allowed,
        approve=limits.tools_requiring_approval,
        depends_on=recorded.depends_on,
        acceptance=order.acceptance_criteria,
        token_budget=limits.token_budget,
        usd_budget=limits.usd_budget,
        turn_limit=limits.turn_limit,
        timeout_seconds=limits.timeout_seconds,
    )


def total_cost(orders: Sequence[WorkOrder]) -> dict[str, Any]:
    """The sum of what orders cost, as plain data."""
    return WorkOrderCost.sum(order.cost for order in orders).to_dict()


def _with_prior(order: WorkOrder, prior: Mapping[str, WorkOrder]) -> WorkOrder:
    """The order as the worker gets it: with the results that it waited for."""
    if not prior:
        return order
    results = [
        {"step": name, "wo_id": one.wo_id, "output": one.output_result}
        for name, one in prior.items()
    ]
    before = order.input_context.get("prior_results") or ()
    return order.with_input({"prior_results": [*results, *before]})


def _but_text(listen: EventSink, event: TurnEvent) -> None:
    """Tell what a step does that is not the answer: tools and requests, not its words."""
    if not isinstance(event, TextDelta):
        listen(event)
