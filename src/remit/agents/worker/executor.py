"""Executes work orders."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from remit.agents.tools import ToolError, UnknownToolError
from remit.agents.worker.errors import WorkFailedError, WorkLostError, WorkParkedError
from remit.agents.worker.ports import BudgetPort, ContractPort, Services, ToolPort
from remit.agents.worker.run import Run
from remit.agents.workorders import (
    Actor,
    EventSink,
    OrderRecordError,
    WorkOrder,
    WorkOrderState,
    moved_by,
)
from remit.contracts import ContractError
from remit.kernel.exchange import GatewayPort
from remit.kernel.loops import run_blocking
from remit.kernel.settings import WorkerSettings
from remit.ledger import LedgerPort, LedgerWriteError

__all__ = ["HO1Executor"]

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
        agent_id: who works, on the record.
        model: provider and model that are asked where a contract fixes none.
    """

    def __init__(
        self,
        gateway: GatewayPort,
        ledger: LedgerPort,
        budgeter: BudgetPort | None,
        tool_dispatcher: ToolPort,
        contract_loader: ContractPort,
        config: WorkerSettings,
        *,
        agent_id: str = "ho1-worker",
        model: tuple[str, str] | None = None,
    ) -> None:
        self._services = Services(
            gateway, ledger, budgeter, tool_dispatcher, contract_loader, config, agent_id, model
        )
        self._config = config

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

        Returns:
            The order, completed or failed; or ``executing`` when it waits for a person, with
            ``waiting_for`` saying for which requests.

        Raises:
            IllegalTransitionError: the order was never dispatched, or has ended.
            LedgerError: the record could not be kept; the work stopped there.
            WorkLostError: ``guard`` raised, also before the end is put on record; the order is
                left to whoever has it now.
        """
        order = _begun(work_order)
        run = Run(self._services, order, on_event, guard or (lambda: None), fresh=fresh)
        if (ended := run.history.ended) is not None:
            return moved_by(order, ended)
        started = time.perf_counter()
        state, output, error = WorkOrderState.COMPLETED, None, None
        try:
            timeout_s = order.constraints.timeout_seconds or self._config.timeout_s
            async with asyncio.timeout(timeout_s):
                output = await run.work()
        except WorkParkedError as parked:
            run.check()
            return await run.park(parked.request_ids)
        except TimeoutError:
            error = WorkFailedError("timeout", f"the order did not end within {timeout_s:g} s")
        except WorkFailedError as failed:
            error = failed
        except OrderRecordError as failed:
            error = WorkFailedError("record_erased", failed.message)
        except ContractError as failed:
            error = WorkFailedError(failed.code, failed.message)
        except (UnknownToolError, ToolError) as failed:
            error = WorkFailedError("tool_not_allowed", failed.message)
        except asyncio.CancelledError:
            run.check()
            await run.end(WorkOrderState.FAILED, None, _CANCELLED, started)
            raise
        except (LedgerWriteError, WorkLostError):
            raise  # nothing can or may be recorded: the order stays open
        except Exception as failed:  # noqa: BLE001 - an order never stays open without a reason
            _log.warning("an order failed unexpectedly: %s", type(failed).__name__)
            _log.debug("where it failed", exc_info=True)
            error = WorkFailedError("internal_error", f"{type(failed).__name__} in the worker")
        if error is not None:
            state = WorkOrderState.FAILED
        run.check()
        return await run.end(state, output, error, started)

    async def acancel(self, work_order: WorkOrder) -> WorkOrder:
        """End a dispatched or interrupted order that will not be resumed: ``cancelled``.

        Raises:
            IllegalTransitionError: the order was never dispatched, or has ended.
        """
        order = _begun(work_order)
        run = Run(self._services, order, None, lambda: None)
        if (ended := run.history.ended) is not None:
            return moved_by(order, ended)
        await run.begin_anyway()
        return await run.end(WorkOrderState.FAILED, None, _CANCELLED, time.perf_counter())


def _begun(order: WorkOrder) -> WorkOrder:
    """The order in state ``executing``."""
    if order.state is WorkOrderState.EXECUTING:
        return order
    return order.moved_to(WorkOrderState.EXECUTING, by=Actor.WORKER)
