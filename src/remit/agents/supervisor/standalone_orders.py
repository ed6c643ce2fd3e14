"""Standalone orders: work outside the conversation, such as one row of a batch."""

from __future__ import annotations

import functools
import re
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from remit.agents.supervisor.entries import reasons_of
from remit.agents.supervisor.plan import PlanStep, for_another_attempt, held_to
from remit.agents.supervisor.services import Services
from remit.agents.supervisor.turn_result import may_be_repeated
from remit.agents.worker import AttachedOrder
from remit.agents.workorders import (
    EventSink,
    OrderHistory,
    WorkOrder,
    WorkOrderState,
    WriteBuffer,
    moved_by,
    recorded_order,
)
from remit.kernel.canonical import exact_json
from remit.kernel.errors import InvalidInputError
from remit.ledger import LedgerEntry

if TYPE_CHECKING:
    from remit.gateway.leases import Lease

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class StandaloneOrders:
    """The standalone orders of one session: work outside its turns.

    :meth:`arun` and :meth:`aresume` have the worker execute an order, :meth:`attached` lets an
    external program do the work, :meth:`acancel` ends an order. Each holds the order's lease while
    it works. The object holds no state of orders.

    Args:
        services: the collaborators of the session's supervisor.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._worker = services.agent.worker
        self._journal = services.new_journal()

    async def arun(
        self,
        step: PlanStep,
        context: Mapping[str, Any],
        *,
        key: str | None,
        on_event: EventSink | None = None,
        same_input: bool = True,
        retry_failed: bool = False,
        check: Callable[[Any], str] | None = None,
        is_answer: bool = True,
    ) -> WorkOrder:
        """Run an order, and check its answer at the quality gate.

        Holds the order's lease meanwhile, and records plan, steps, end and verdict. Only completed
        orders are checked; a recorded verdict is reused. Without a key, ``same_input`` and
        ``retry_failed`` have no effect.

        Args:
            step: contract, tools and limits; handoffs are left out.
            context: joins the step's own input.
            key: name of the order within the session. An ended order with this key is returned as
                it ended; an interrupted one is resumed. None makes a new order.
            on_event: receives text and tool events; None for no listener.
            same_input: refuse an order with this key and another input.
            retry_failed: if the order with this key failed, but neither by a timeout nor by an
                unknown outcome of a tool, make another attempt as an order of its own, see
                :func:`~remit.agents.supervisor.plan.for_another_attempt`. An order whose answer
                the gate rejected is not attempted again.
            check: returns the problem with typed data, or an empty text; None if the schema
                decides.
            is_answer: False for the supervisor's own work, which skips the gate.

        Returns:
            The ended or waiting order. If the gate rejects its answer, the order is failed with
            ``answer_rejected`` and contains no answer.

        Raises:
            InvalidInputError: the key is invalid or belongs to other work.
            OrderRecordError: the recorded input of the order was erased, or its entries form no
                order.
            LeaseBusyError: another process works on the order.
            LedgerError: the ledger cannot be read or written.
            LeaseLostError: another process took the order over in the meantime.
        """
        step = self._without_handoffs(step)
        wo_id = self.order_id(key or secrets.token_hex(8))
        ledger = self._journal.ledger
        while key is not None and retry_failed:
            failed = recorded_order(ledger, wo_id, allow_erased=True)
            if failed is None or not may_be_repeated(failed):
                break
            history = OrderHistory(ledger, wo_id, self._journal.session_id)
            step, context = for_another_attempt(step, context, history, self._worker.is_repeatable)
            wo_id = _next_attempt(wo_id)
        order = self._journal.order(wo_id, step, context, self._services.work_order_tokens)
        async with self._services.alone(f"order:{wo_id}") as lease:
            known = self._known_by(key, order, same_input=same_input)
            planned = [self._journal.planned(order, step=step.name)] if known is None else []
            order = held_to(known or order, step)
            return await self._run(
                order, lease, on_event, *planned, check=check, is_answer=is_answer
            )

    @asynccontextmanager
    async def attached(
        self, step: PlanStep, context: Mapping[str, Any], *, key: str | None
    ) -> AsyncIterator[AttachedOrder]:
        """Yield an order on which an external program works while the block runs.

        The order is planned, dispatched and begun in the ledger, and its lease is held. If the
        block does not end the order, nothing more is recorded, and the order can be continued under
        the same key. An order without a key cannot.

        Args:
            step: contract, tools and limits; handoffs are left out.
            context: joins the step's own input.
            key: name of the order within the session; None makes a new order.

        Raises:
            InvalidInputError: the key is invalid, belongs to other work, or its order has ended.
            LeaseBusyError: another process works on the order.
            LedgerError: the ledger cannot be read or written.
            OrderRecordError: the recorded input of the order was erased, or its entries form no
                order.
            LeaseLostError: another process took the order over in the meantime.
        """
        step = self._without_handoffs(step)
        wo_id = self.order_id(key or secrets.token_hex(8))
        order = self._journal.order(wo_id, step, context, self._services.work_order_tokens)
        async with self._services.alone(f"order:{wo_id}") as lease:
            known = self._known_by(key, order)
            planned = [self._journal.planned(order, step=step.name)] if known is None else []
            if known is not None and known.ended:
                raise InvalidInputError(
                    f"The order of the key {key!r} has ended.", next_step="Use another key."
                )
            buffer = WriteBuffer()
            order = self._dispatched(held_to(known or order, step), buffer, planned)
            gate = functools.partial(self._gated, buffer=buffer)
            attached = self._worker.attach(order, lease.check, buffer, gate)
            await attached.begin()
            yield attached

    def _without_handoffs(self, step: PlanStep) -> PlanStep:
        """Return the step without tools that hand over, because no turn could continue."""
        handing = {to.tool_id for to in self._services.agent.handoffs.values()}
        return replace(
            step,
            tools=tuple(one for one in step.tools if one not in handing),
            approve=tuple(one for one in step.approve if one not in handing),
        )

    def _known_by(
        self, key: str | None, order: WorkOrder, *, same_input: bool = True
    ) -> WorkOrder | None:
        """Return the recorded order of a key; raise InvalidInputError if its work differs."""
        known = None if key is None else recorded_order(self._journal.ledger, order.wo_id)
        if known is not None and same_input and _work_of(known) != _work_of(order):
            raise InvalidInputError(
                f"The key {key!r} belongs to an order with another input.",
                next_step="Use a key that names the input, such as the row's own id.",
            )
        return known

    async def aresume(
        self, wo_id: str, step: PlanStep, *, on_event: EventSink | None = None
    ) -> WorkOrder:
        """Resume an interrupted or waiting order, and check its answer at the quality gate.

        Holds the order's lease meanwhile, and records steps, end and verdict. An ended order is
        returned as it ended; a rejected one as failed, see :meth:`arun`.

        Args:
            wo_id: the order.
            step: the tools and approvals that the order may have now.
            on_event: receives text and tool events; None for no listener.

        Raises:
            InvalidInputError: this session has no such standalone order.
            LeaseBusyError: another process works on the order.
            LedgerError: the ledger cannot be read or written.
            OrderRecordError: the input of an order that has not ended was erased, or the entries
                form no order.
            LeaseLostError: another process took the order over in the meantime.
        """
        async with self._services.alone(f"order:{wo_id}") as lease:
            known = self._known(wo_id)
            if not known.ended:
                recorded_order(self._journal.ledger, wo_id)  # refuses an erased input
            return await self._run(held_to(known, step), lease, on_event)

    async def acancel(self, wo_id: str) -> WorkOrder:
        """End an order that will not be resumed, as failed with ``cancelled``; return the order.

        Holds the order's lease meanwhile, appends ``WO_FAILED``, and ends the work of its
        sub-agents. An ended order is returned unchanged. An erased input is no obstacle.

        Args:
            wo_id: id of the order.

        Raises:
            InvalidInputError: this session has no such standalone order.
            LeaseBusyError: another process works on the order.
            LedgerError: the ledger cannot be read or written.
            OrderRecordError: the entries form no order.
        """
        async with self._services.alone(f"order:{wo_id}"):
            order = self._known(wo_id)
            return order if order.ended else await self._worker.acancel(order)

    async def _run(
        self,
        order: WorkOrder,
        lease: Lease,
        on_event: EventSink | None,
        *planned: LedgerEntry,
        check: Callable[[Any], str] | None = None,
        is_answer: bool = True,
    ) -> WorkOrder:
        buffer = WriteBuffer()
        if not order.ended:
            order = self._dispatched(order, buffer, planned)
            order = await self._worker.aexecute(
                order, on_event=on_event, guard=lease.check, buffer=buffer, hold_end=True,
                check=check, principal=self._services.session.principal,
            )  # fmt: skip
        return await self._gated(order, buffer, is_answer=is_answer)

    async def _gated(
        self, order: WorkOrder, buffer: WriteBuffer, *, is_answer: bool = True
    ) -> WorkOrder:
        """Record the gate's verdict on an ended order; return a rejected order as failed.

        A recorded verdict is not made again.
        """
        journal = self._services.new_journal()
        journal.buffer = buffer
        reasons: Sequence[str] = ()
        if is_answer and order.state is WorkOrderState.COMPLETED:
            gates = journal.ledger.query(
                submission_id=order.wo_id, event_type="WO_QUALITY_GATE", limit=1
            )
            if gate := next(iter(gates), None):
                reasons = reasons_of(gate)
            else:
                found = self._services.gate.reasons(order, lambda: journal.shown(order.wo_id))
                await journal.checked(order, [order.wo_id], order.cost.to_dict(), found, 1)
                reasons = found
        await journal.flush()
        if not reasons:
            return order
        error = {"code": "answer_rejected", "message": "; ".join(reasons)}
        return replace(order, state=WorkOrderState.FAILED, output_result=None, error=error)

    def _dispatched(
        self, order: WorkOrder, buffer: WriteBuffer, planned: Sequence[LedgerEntry]
    ) -> WorkOrder:
        """Return a planned order as dispatched; hold its entries in ``buffer``."""
        if order.state is not WorkOrderState.PLANNED:
            return order
        dispatched = self._journal.entry("WO_DISPATCHED", order.wo_id)
        self._journal.hold(*planned, dispatched, buffer=buffer)
        return moved_by(order, dispatched)

    def _known(self, wo_id: str) -> WorkOrder:
        known = None
        if wo_id.startswith(f"WO-{self._journal.session_id}-key-"):
            known = recorded_order(self._journal.ledger, wo_id, allow_erased=True)
        if known is None:
            raise InvalidInputError(
                f"The session {self._journal.session_id} has no standalone order {wo_id!r}."
            )
        return known

    def order_id(self, key: str) -> str:
        """Return the order id of a key, ``WO-{session}-key-{key}``.

        Raises:
            InvalidInputError: the key is not 1 to 100 letters, digits, ``_``, ``-`` and ``.``,
                beginning with a letter or digit.
        """
        if not _KEY.fullmatch(key):
            raise InvalidInputError(
                f"{key!r} cannot name an order.",
                next_step="Use letters, digits, '_', '-' and '.', at most 100.",
            )
        return f"WO-{self._journal.session_id}-key-{key}"


def _next_attempt(wo_id: str) -> str:
    """Return the order id of the next attempt; the sign ``~`` occurs in no key."""
    head, mark, number = wo_id.partition("~")
    return f"{head}~{int(number) + 1 if mark else 2}"


def _work_of(order: WorkOrder) -> tuple[Any, ...]:
    """Return the work of an order, without its limits, for comparison."""
    limits = order.constraints
    schema = orjson.dumps(limits.output_schema, option=orjson.OPT_SORT_KEYS)
    task = exact_json(dict(order.input_context))
    return order.wo_type, limits.prompt_contract_id, task, schema
