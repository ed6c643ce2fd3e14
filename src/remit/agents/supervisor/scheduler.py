"""The work orders of one turn: planned, dispatched, awaited, and read back after a crash."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from remit.agents.supervisor.carried_effects import (
    carried_effects,
    remaining_effects,
    unknown_effects,
)
from remit.agents.supervisor.entries import UnfinishedTurn
from remit.agents.supervisor.plan import (
    Plan,
    PlanStep,
    for_another_attempt,
    held_to,
)
from remit.agents.supervisor.services import Responder, Services
from remit.agents.workorders import (
    Effect,
    EventSink,
    OrderHistory,
    PartialOutput,
    TextDelta,
    TurnEvent,
    WorkOrder,
    WorkOrderCost,
    WorkOrderState,
    WriteBuffer,
    moved_by,
    work_order_id,
)
from remit.contracts import PromptContract
from remit.kernel.loops import abandon
from remit.ledger import LedgerEntry

_DEPENDENCY_FAILURE = "a step that it waits for did not give a result"


@dataclass(eq=False, repr=False)
class Scheduler:
    """The runner of one turn's work orders; an order starts when its dependencies are completed.

    :meth:`run`, :meth:`retry` and :meth:`run_plan` plan orders, or find the recorded ones, and
    return what runs them. :meth:`end_all` ends those that nobody will resume. Making the object
    reads the carried effects from the ledger.

    Args:
        services: the collaborators of the session's supervisor.
        guard: raises an error if this process has lost the turn.
        before: the recorded part of the turn; None for a new one.
        last_number: number of the session's latest numbered order; 0 for none.
        check: returns the problem with typed data; empty if there is none. None if the schema
            decides.

    Attributes:
        agent: the agent that now answers the turn.
        handed: ids of the agents to which the session was handed over, in order.
        last_number: number of the latest planned order.
        contracts: contracts that the turn has loaded, newest versions, keyed by contract id.
        carried: effects of tools that the turn took over from earlier ones.

    Raises:
        LedgerError: the ledger cannot be read.
    """

    _services: Services
    _guard: Callable[[], None]
    _before: UnfinishedTurn | None
    last_number: int
    _check: Callable[[Any], str] | None = None
    contracts: dict[str, PromptContract] = field(default_factory=dict, init=False)
    _agents: dict[str, Responder] = field(default_factory=dict, init=False)
    handed: tuple[str, ...] = field(default=(), init=False)
    _orders: dict[str, WorkOrder] = field(default_factory=dict, init=False)
    _steps: dict[str, WorkOrder] = field(default_factory=dict, init=False)
    _new: set[str] = field(default_factory=set, init=False)
    _is_concurrent: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.agent = self._services.agent
        self.carried = carried_effects(self._services)
        self._journal = self._services.journal
        self._turn_number = self._services.session.turn_count + 1

    @property
    def orders(self) -> list[WorkOrder]:
        """The turn's orders in their present states, in the order of their plans."""
        return list(self._orders.values())

    def hand_over(self, path: Sequence[str]) -> bool:
        """Hand the turn over along a path of agents; changes only this object.

        Each handover clears :attr:`contracts`.

        Args:
            path: agent ids, each a handoff of the one before.

        Returns:
            False if an agent on the path cannot hand over to the next; earlier steps remain done.
        """
        for agent_id in path:
            to = self.agent.handoffs.get(agent_id)
            if to is None:
                return False
            self.agent, self.contracts = to, {}
            self.handed += (agent_id,)
        return True

    def remaining_effects(self, *, answered: bool) -> list[Effect]:
        """Return the effects of tools that the turn leaves for the next prompt, carried and own.

        Of all but the last 50, only open outcomes remain: unknown, not repeatable and without a
        person's decision. A call that a person allowed to run again, and that ran, is left out.

        Args:
            answered: True if the answer was delivered; then only open outcomes remain.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        unknown = [order for order in self.orders if order.has_unknown]
        if answered and self._before is None and not (self.carried or unknown):
            return []  # The usual case needs no query.
        return remaining_effects(
            self._journal.ledger, self.carried, self.orders, self._agents, answered=answered
        )

    def unknown_effects(self, except_order: str = "") -> list[Effect]:
        """Return the turn's calls with an unknown outcome that must not be repeated.

        Only orders with tools are examined: the ones in which this process saw an unknown call,
        and in a resumed turn all ended ones. The ledger is read.

        Args:
            except_order: id of an order whose calls are left out; empty for none.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        found: list[Effect] = []
        for order in self.orders:
            looked_for = order.has_unknown or (self._before is not None and order.ended)
            if looked_for and order.wo_id != except_order and order.constraints.tools_allowed:
                agent = self._agents[order.wo_id]
                found += unknown_effects(self._journal.ledger, order, agent)
        return found

    def tool_results(self) -> tuple[Mapping[str, Any], ...]:
        """Return the results of the turn's tools, including unsuccessful attempts.

        Each has ``tool_id``, ``status``, ``arguments``, ``output`` and ``error``. They are in the
        order of orders and calls. For orders without an answer they are read from the ledger, and
        refused calls are left out.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        found: list[Mapping[str, Any]] = []
        for order in self.orders:
            if order.output_result is not None:
                found += order.tool_results
            elif order.constraints.tools_allowed:
                found += OrderHistory(
                    self._journal.ledger, order.wo_id, order.session_id
                ).tool_results()
        return tuple(found)

    @property
    def ids(self) -> list[str]:
        """The ids of the turn's orders, in the order of their plans."""
        return list(self._orders)

    @property
    def cost(self) -> dict[str, Any]:
        """The sum of the orders' usage, as plain data; ``cost_usd`` is None if one is unknown."""
        return WorkOrderCost.sum([order.cost for order in self._orders.values()]).to_dict()

    def waiting_for(self) -> tuple[str, ...]:
        """Return the ids of requests that a person must decide before the turn can continue."""
        return tuple(request for order in self.orders for request in order.waiting_for)

    def run(
        self,
        step: PlanStep,
        context: Mapping[str, Any],
        attempt: int = 1,
        listen: EventSink | None = None,
    ) -> Awaitable[WorkOrder]:
        """Plan or resume a step; return an awaitable that runs the step and gives its order.

        The order then has ended, or waits for a person. A recorded order of the step and attempt is
        continued, and an ended one returned as it is. A model, tool or contract that keeps failing
        is excluded. The step is planned at once; its ``WO_PLANNED`` is written with the first write
        of the run. Errors other than those of reading are raised by the awaitable.

        Args:
            step: the step.
            context: joins the step's input.
            attempt: number of the attempt, from 1.
            listen: receives the events; None for no listener.

        Raises:
            RemitError: the guard's error, if this process has lost the turn.
            LedgerError: an entry could not be written.
        """
        order, entries = self._planned(step, context, attempt)
        prior = {name: self._steps[name] for name in step.depends_on if name in self._steps}
        self._is_concurrent = False
        return self._work(order, prior, entries, listen)

    def retry(
        self,
        step: PlanStep,
        rejected: WorkOrder,
        context: Mapping[str, Any],
        attempt: int,
        listen: EventSink,
    ) -> Awaitable[WorkOrder]:
        """Run another attempt at a step (:func:`for_another_attempt`); return as
        :meth:`run` does.

        Args:
            step: the step.
            rejected: the order of the earlier attempt.
            context: joins the step's input.
            attempt: number of the new attempt.
            listen: receives the events.

        Raises:
            LedgerError: the ledger cannot be read.
            RemitError: raised by the awaitable, as :meth:`run` does.
        """
        history = OrderHistory(self._journal.ledger, rejected.wo_id, rejected.session_id)
        worker = self.agent.worker
        step, context = for_another_attempt(step, context, history, worker.is_repeatable)
        return self.run(step, context, attempt, listen)

    def run_plan(
        self,
        plan: Plan,
        context: Mapping[str, Any],
        listen: EventSink,
        attention: Mapping[str, Any] | None,
    ) -> Awaitable[WorkOrder]:
        """Plan all steps; return an awaitable that runs all and gives the answering order.

        Orders that an interrupted process planned are continued, and ended ones returned. The plan
        of several steps is written before any runs, that of one step with its order's first write.
        Independent steps run concurrently; an error of one cancels the others. A failed order is
        returned, not raised. A step whose dependency failed, or missed its own acceptance criteria,
        is recorded as failed with ``cancelled``. A step that waits for a person holds up only the
        steps that need it. Only the answering step's text is passed on.

        Args:
            plan: the plan.
            context: joins each step's input.
            listen: receives the events.
            attention: record of the selection, for the plan of the answering step; None for none.

        Raises:
            RemitError: the guard's error, if this process has lost the turn.
            LedgerError: the ledger cannot be read or written.
        """
        entries: list[LedgerEntry] = []
        for step in plan.steps:
            details: dict[str, Any] = {}
            if step is plan.answering:
                details = {"answering": True}
                if attention is not None:
                    details["attention"] = dict(attention)
            self._steps[step.name], new = self._planned(step, context, 1, **details)
            entries += new
        self._is_concurrent = len(plan.steps) > 1
        if self._is_concurrent:
            return self._work_concurrently(plan, entries, listen)
        return self._work(self._steps[plan.answering.name], {}, entries, listen)

    async def _work_concurrently(
        self, plan: Plan, entries: Sequence[LedgerEntry], listen: EventSink
    ) -> WorkOrder:
        """Write the plan's ``entries``, run its orders, and return the answering one."""
        answering = plan.answering.name
        self._journal.hold(*entries)
        await self._journal.flush()
        others = functools.partial(_without_text, listen)
        running: dict[asyncio.Task[WorkOrder], str] = {}
        try:
            while True:
                for step in plan.steps:
                    order = self._steps[step.name]
                    if step.name in running.values() or order.ended or order.waiting_for:
                        continue
                    prior = {name: self._steps[name] for name in step.depends_on}
                    if any(map(self._failed, prior.values())):
                        self._steps[step.name] = await self._cancel_planned(order)
                    elif all(needed.state is WorkOrderState.COMPLETED for needed in prior.values()):
                        sink = listen if step.name == answering else others
                        task = asyncio.create_task(self._work(order, prior, (), sink))
                        running[task] = step.name
                        abandon(task)  # Only the first of several errors is raised.
                if not running:
                    return self._steps[answering]
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    self._steps[running.pop(task)] = task.result()
        finally:
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running)

    def _failed(self, order: WorkOrder) -> bool:
        """Return True if dependent orders can no longer start."""
        if order.state is WorkOrderState.COMPLETED and order.acceptance_criteria:
            return bool(self._services.gate.reasons(order))
        return order.state is WorkOrderState.FAILED

    async def _work(
        self,
        order: WorkOrder,
        prior: Mapping[str, WorkOrder],
        entries: Sequence[LedgerEntry],
        listen: EventSink | None,
    ) -> WorkOrder:
        """Run an order that has not ended; dispatch a planned one after ``entries``."""
        if order.ended:
            return order
        # Concurrent steps must not wait for the writes of others.
        buffer = WriteBuffer() if self._is_concurrent else self._journal.buffer
        if order.state is WorkOrderState.PLANNED:
            results = [before.wo_id for before in prior.values()]
            self._guard()
            dispatched = self._journal.entry(
                "WO_DISPATCHED", order.wo_id, **({"prior_results": results} if results else {})
            )
            # The worker's first write includes these.
            self._journal.hold(*entries, dispatched, buffer=buffer)
            order = self._orders[order.wo_id] = moved_by(order, dispatched)
        given = _with_effects(_with_prior(order, prior), self.unknown_effects(order.wo_id))
        done = await self._agents[order.wo_id].worker.aexecute(
            given,
            on_event=listen,
            guard=self._guard,
            fresh=order.wo_id in self._new,
            buffer=buffer,
            hold_end=not self._is_concurrent,
            check=self._check,
            principal=self._services.session.principal,
            contract=self.contracts.get(order.constraints.prompt_contract_id),
        )
        self._orders[order.wo_id] = done
        suspects = ["model", "tool"] if done.met_fault else []
        if done.error is not None and done.error["code"] == "output_schema_invalid":
            suspects.append("contract")
        if suspects:
            await self._journal.flush()  # The entry of the failure may still be held.
            self._services.exclusions.observe(done.wo_id, *suspects)
        return done

    async def _cancel_planned(self, order: WorkOrder) -> WorkOrder:
        """Record a planned order as cancelled, because a dependency failed; return the order."""
        entry = self._journal.entry(
            "WO_FAILED",
            order.wo_id,
            error_code="cancelled",
            error_message=_DEPENDENCY_FAILURE,
            cost=WorkOrderCost().to_dict(),
        )
        await self._journal.write_all([entry])
        failed = self._orders[order.wo_id] = moved_by(order, entry)
        return failed

    def restore(self) -> None:
        """Take over orders of the interrupted turn that this process has not continued.

        The orders join :attr:`orders` in their recorded states, those with undecided requests with
        ``waiting_for`` and their cost so far; nothing is written. Does nothing if no turn was
        interrupted.

        Raises:
            LedgerError: the cost of a waiting order cannot be read.
        """
        before = self._before
        if before is None:
            return
        for recorded in before.orders:
            if recorded.order.wo_id in self._orders:
                continue
            agent = self._services.agent
            for agent_id in recorded.planned.metadata.get("handed_to", ()):
                agent = agent.handoffs.get(agent_id, agent)
            self._agents[recorded.order.wo_id] = agent
            waits = tuple(entry.id for entry in recorded.requests)
            order = replace(recorded.order, waiting_for=waits)
            if waits:
                order = replace(order, cost=agent.worker.cost(order))
            self._orders[order.wo_id] = order

    async def end_all(self) -> None:
        """End every unfinished order of the turn, because none will be resumed.

        Appends a ``WO_FAILED`` with ``cancelled`` for each.

        Work of sub-agents that has not ended is cancelled too. An order that was only planned gets
        the entry here; a begun one from its worker.

        Raises:
            LedgerError: an entry could not be written.
            OrderRecordError: the entries of an order do not form an order.
        """
        for order in self.orders:
            if order.ended:
                continue
            await self._journal.flush()
            if order.state is WorkOrderState.PLANNED:
                await self._cancel_planned(order)
            else:
                worker = self._agents[order.wo_id].worker
                self._orders[order.wo_id] = await worker.acancel(order)

    def _planned(
        self, step: PlanStep, context: Mapping[str, Any], attempt: int, **details: Any
    ) -> tuple[WorkOrder, list[LedgerEntry]]:
        """Return the order of a step, and the entries to write if it is new."""
        known = self._before.find(step.name, attempt) if self._before else None
        if known is not None:
            order, entries = held_to(known.order, self.agent.answer), []
        else:
            self.last_number = self._journal.next_number(self.last_number)
            wo_id = work_order_id(self._journal.session_id, self.last_number)
            self._new.add(wo_id)
            parent = next(iter(self._orders), None)
            tokens = self._services.work_order_tokens
            order = self._journal.order(wo_id, step, context, tokens, parent)
            if excluded := self._services.exclusions.names:
                limits = replace(order.constraints, set_aside=excluded)
                order = replace(order, constraints=limits)
            if self.handed:
                details["handed_to"] = list(self.handed)
            if step.depends_on:
                details["depends_on"] = list(step.depends_on)
            entries = [
                self._journal.planned(
                    order,
                    turn_number=self._turn_number,
                    step=step.name,
                    attempt=attempt,
                    **details,
                )
            ]
        self._orders[order.wo_id] = order
        self._agents[order.wo_id] = self.agent
        return order, entries


def _with_prior(order: WorkOrder, prior: Mapping[str, WorkOrder]) -> WorkOrder:
    """Return the order with the results of its dependencies."""
    if not prior:
        return order
    results = [
        {"step": name, "wo_id": needed.wo_id, "output": needed.output_result}
        for name, needed in prior.items()
    ]
    before = order.input_context.get("prior_results") or ()
    return order.with_input({"prior_results": [*results, *before]})


def _with_effects(order: WorkOrder, effects: Sequence[Effect]) -> WorkOrder:
    """Return the order with further effects of its turn to show."""
    if not effects:
        return order
    assembled = order.input_context.get("assembled_context") or {}
    shown = list(assembled.get("effects") or ())
    known = {effect.get("key") for effect in shown}
    further = [effect.to_dict() for effect in effects if effect.key not in known]
    if not further:
        return order
    return order.with_input({"assembled_context": {**assembled, "effects": [*shown, *further]}})


def _without_text(listen: EventSink, event: TurnEvent) -> None:
    """Pass on events of a step that is not the answer, except its text."""
    if not isinstance(event, TextDelta | PartialOutput):
        listen(event)
