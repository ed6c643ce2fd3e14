"""Executes work orders: begins or resumes one, holds it to its time, says why it failed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from remit.agents.tools import ToolDispatcher, ToolError, UnknownToolError
from remit.agents.worker.attached import AttachedOrder
from remit.agents.worker.execution import (
    BudgetPort,
    Execution,
    Services,
    WorkFailedError,
    WorkLostError,
    WorkParkedError,
)
from remit.agents.worker.run import Run
from remit.agents.workorders import (
    NOBODY,
    EventSink,
    OrderRecordError,
    Principal,
    Usage,
    WorkOrder,
    WorkOrderCost,
    WorkOrderState,
    WriteBuffer,
    moved_by,
)
from remit.contracts import ContractError, ContractLoader
from remit.kernel.errors import InvalidInputError
from remit.kernel.exchange import GatewayPort
from remit.kernel.loops import run_blocking
from remit.kernel.settings import WorkerSettings
from remit.ledger import LedgerClosedError, LedgerPort, LedgerWriteError

_log = logging.getLogger("remit.worker")
_CANCELLED = WorkFailedError("cancelled", "the order was cancelled")


class HO1Executor:
    """The worker. Everything it uses is injected.

    Args:
        gateway: where model calls go.
        ledger: its handle on the record; what it writes is of tier ``ho1``.
        budgeter: checks and allocates what an order may use; ``None`` without budgets.
        tool_dispatcher: runs tools.
        contract_loader: finds contracts and packs.
        config: limits where the order names none.
        agent_id: whose work it is: on the record, and in the budgets.
        agent_class: the agent's class, recorded if a contract names none.
        model: provider and model that are asked where a contract fixes none.
        session_usage: what a sub-agent's session has used, by its id.
        on_request: called with the id of each request for approval; it returns at once.
        enforce: whether tools that a budget cannot pay are refused.
        context_tokens: where an order's conversation is longer, by estimate, the oldest results of
            its tools are left out of what models are shown; ``None``: none are.

    Raises:
        InvalidInputError: a dependency lacks a method that the worker calls.
    """

    def __init__(
        self,
        gateway: GatewayPort,
        ledger: LedgerPort,
        budgeter: BudgetPort | None,
        tool_dispatcher: ToolDispatcher,
        contract_loader: ContractLoader,
        config: WorkerSettings,
        *,
        agent_id: str = "ho1-worker",
        agent_class: str = "RESIDENT",
        model: tuple[str, str] | None = None,
        session_usage: Callable[[str], Usage] = lambda _: Usage(),
        on_request: Callable[[str], None] = lambda _: None,
        enforce: bool = True,
        context_tokens: int | None = None,
    ) -> None:
        _require_methods("gateway", gateway, *_methods(GatewayPort))
        _require_methods("ledger", ledger, *_methods(LedgerPort))
        if budgeter is not None:
            _require_methods("budgeter", budgeter, *_methods(BudgetPort))
        _require_methods("tool_dispatcher", tool_dispatcher, "aexecute", "tools")
        _require_methods("contract_loader", contract_loader, "in_place_of", "load", "load_pack")
        self._services = Services(
            gateway, ledger, budgeter, tool_dispatcher, contract_loader, config, agent_id,
            agent_class, model, session_usage, on_request, enforce, context_tokens,
        )  # fmt: skip

    def execute(self, work_order: WorkOrder, *, on_event: EventSink | None = None) -> WorkOrder:
        """:meth:`aexecute` for callers without an event loop."""
        return run_blocking(self.aexecute(work_order, on_event=on_event))

    async def aexecute(
        self,
        work_order: WorkOrder,
        *,
        on_event: EventSink | None = None,
        guard: Callable[[], None] | None = None,
        fresh: bool = False,
        buffer: WriteBuffer | None = None,
        hold_end: bool = False,
        check: Callable[[Any], str] | None = None,
        principal: Principal = NOBODY,
    ) -> WorkOrder:
        """Do the work of a dispatched order, or resume it where the ledger says it stopped.

        What is on record is not done again: answers of models and results of tools are read
        back. A tool call that began and has no end follows the tool's own policy.

        Args:
            work_order: in state ``dispatched``, or ``executing`` when it was interrupted.
            on_event: receives text and tool events.
            guard: called before each step that cannot be undone; raises when the order is no
                longer this caller's to work on.
            fresh: nothing is on record of the order but its plan; the caller has looked.
            buffer: where the caller's writes are held; they go on record before the order's.
            hold_end: leave the order's end in ``buffer`` too, for the caller's next write.
            check: says what is wrong with the data of an order that has an output schema, instead
                of the schema; empty where nothing is.
            principal: for whom the order's session works.

        Returns:
            The order, completed or failed; or ``executing`` when it waits for a person, with
            ``waiting_for`` saying for which requests.

        Raises:
            OrderRecordError: the order was never dispatched, or has ended.
            LedgerError: the record could not be kept; the work stopped there.
            WorkLostError: ``guard`` raised, also before the end is put on record; the order is
                left to the process that has it now.
        """
        order = _executing(work_order)
        execution = Execution(
            self._services, order, on_event, guard, fresh=fresh, buffer=buffer, check=check,
            principal=principal,
        )  # fmt: skip
        if (ended := execution.history.ended) is not None:
            return moved_by(order, ended)
        run = Run(execution)
        output = None
        try:
            timeout_s = order.constraints.timeout_seconds or self._services.config.timeout_s
            async with asyncio.timeout(timeout_s):
                output = await run.work()
            error = None
        except WorkParkedError as parked:
            execution.check()
            return await run.park(parked.request_ids)
        except TimeoutError:
            error = WorkFailedError("timeout", f"the order did not end within {timeout_s:g} s")
        except asyncio.CancelledError:
            execution.check()
            await run.end(None, _CANCELLED)
            raise
        except (LedgerClosedError, LedgerWriteError, WorkLostError):
            raise  # nothing can or may be recorded: the order stays open
        except Exception as failed:  # noqa: BLE001 - an order never stays open without a reason
            error = _failure(failed)
        execution.check()
        return await run.end(output, error, hold=hold_end)

    def is_repeatable(self, tool_id: str) -> bool:
        """Whether a tool of its agent may run twice.

        Raises:
            UnknownToolError: there is no such tool.
        """
        (tool,) = self._services.tools.tools([tool_id])
        return tool.is_repeatable

    def versions_before(self, name: str, aside: Collection[str]) -> Sequence[str]:
        """The version that stands in for one that is set aside, ``contract@version``, if any."""
        contracts = self._services.contracts
        contract_id, _, version = name.partition("@")
        try:
            before = contracts.in_place_of(contracts.load(contract_id, version), aside)
        except ContractError:  # it is not there any more
            return ()
        return () if before is None else (before.name,)

    def attach(
        self,
        work_order: WorkOrder,
        guard: Callable[[], None],
        buffer: WriteBuffer,
        gate: Callable[[WorkOrder], Awaitable[WorkOrder]],
    ) -> AttachedOrder:
        """Return a dispatched or interrupted order for a program outside to work on.

        Args:
            work_order: the order.
            guard: as of :meth:`aexecute`.
            buffer: as of :meth:`aexecute`.
            gate: records whether the ended order's answer may be delivered.

        Raises:
            OrderRecordError: the order was never dispatched, or has ended.
        """
        return AttachedOrder(self._services, _executing(work_order), guard, buffer, gate)

    def cost(self, work_order: WorkOrder) -> WorkOrderCost:
        """What an order that waits has cost so far, by the record."""
        return Run(Execution(self._services, work_order)).cost()

    async def acancel(self, work_order: WorkOrder) -> WorkOrder:
        """End a dispatched or interrupted order that will not be resumed: ``cancelled``.

        Raises:
            OrderRecordError: the order was never dispatched, or has ended.
        """
        order = _executing(work_order)
        execution = Execution(self._services, order)
        if (ended := execution.history.ended) is not None:
            return moved_by(order, ended)
        return await Run(execution).cancel(_CANCELLED)


def _executing(order: WorkOrder) -> WorkOrder:
    if order.state is WorkOrderState.EXECUTING:
        return order
    return order.moved_to(WorkOrderState.EXECUTING, by="ho1")


def _failure(error: Exception) -> WorkFailedError:
    """Why the order fails, as the record has it."""
    if isinstance(error, WorkFailedError):
        return error
    if isinstance(error, OrderRecordError):
        return WorkFailedError("record_erased", error.message)
    if isinstance(error, ContractError):
        return WorkFailedError(error.code, error.message)
    if isinstance(error, (UnknownToolError, ToolError)):
        return WorkFailedError("tool_not_allowed", error.message)
    _log.warning("an order failed unexpectedly: %s", type(error).__name__)
    _log.debug("where it failed", exc_info=error)
    return WorkFailedError("internal_error", f"{type(error).__name__} in the worker")


def _methods(port: type) -> list[str]:
    return [name for name in dir(port) if not name.startswith("_")]


def _require_methods(name: str, given: object, *methods: str) -> None:
    """Raise InvalidInputError if a dependency lacks one of the methods that the worker calls."""
    missing = [method for method in methods if not hasattr(given, method)]
    if missing:
        raise InvalidInputError(
            f"The {name} of the worker, {type(given).__name__}, has no method {missing[0]}().",
            next_step=f"Give a {name} with {', '.join(f'{method}()' for method in methods)}.",
        )
