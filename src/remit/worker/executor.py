"""Executes work orders."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import orjson

from remit.blocking import run_blocking
from remit.budget import BudgetLimits, BudgetScope, nano_of
from remit.config import WorkerSettings
from remit.contracts import ContractError, PromptContract
from remit.exchange import GatewayPort, Message, TextSink
from remit.ledger import LedgerPort, LedgerWriteError
from remit.schemas import first_problem
from remit.tools import UnknownToolError
from remit.worker.calls import ModelCalls
from remit.worker.choosing import ToolChooser
from remit.worker.errors import WorkFailedError
from remit.worker.journal import Journal
from remit.worker.ports import BudgetPort, ContractPort, ToolPort
from remit.worker.toolbox import Toolbox, sendable
from remit.workorders import (
    EventSink,
    TextDelta,
    WorkOrder,
    WorkOrderCost,
    WorkOrderState,
    WorkOrderType,
)

__all__ = ["HO1Executor"]

_log = logging.getLogger("remit.worker")


class HO1Executor:
    """The worker. Everything it uses is handed to it.

    Args:
        gateway: where model calls go.
        ledger: its handle on the record; what it writes is of tier ``ho1``.
        budgeter: tells and allocates what an order may use; ``None`` without budgets.
        tool_dispatcher: runs tools.
        contract_loader: finds contracts and packs.
        config: limits where the order names none.
        agent_id: who works, on the record.
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
    ) -> None:
        self._gateway = gateway
        self._ledger = ledger
        self._budgeter = budgeter
        self._tools = tool_dispatcher
        self._contracts = contract_loader
        self._config = config
        self._agent_id = agent_id

    def execute(self, work_order: WorkOrder, *, on_event: EventSink | None = None) -> WorkOrder:
        """:meth:`aexecute` for callers without an event loop."""
        return run_blocking(self.aexecute(work_order, on_event=on_event))

    async def aexecute(
        self, work_order: WorkOrder, *, on_event: EventSink | None = None
    ) -> WorkOrder:
        """Do the work of a dispatched order; gives it back completed or failed.

        Args:
            work_order: in state ``dispatched``.
            on_event: hears text and tools as they come.

        Raises:
            IllegalTransitionError: the order is not in state ``dispatched``.
            LedgerError: the record could not be kept; the work stopped there.
        """
        order = work_order.moved_to(WorkOrderState.EXECUTING)
        run = _Run(self, order, on_event)
        started = time.perf_counter()
        state, output, error = WorkOrderState.COMPLETED, None, None
        try:
            timeout_s = order.constraints.timeout_seconds or self._config.timeout_s
            async with asyncio.timeout(timeout_s):
                output = await run.work()
        except TimeoutError:
            error = WorkFailedError("timeout", f"the order did not end within {timeout_s:g} s")
        except WorkFailedError as failed:
            error = failed
        except ContractError as failed:
            error = WorkFailedError(failed.code, failed.message)
        except UnknownToolError as failed:
            error = WorkFailedError("tool_not_allowed", failed.message)
        except asyncio.CancelledError:
            await run.end(WorkOrderState.FAILED, None, _CANCELLED, started)
            raise
        except LedgerWriteError:
            raise  # nothing can be recorded: the order stays open, and the caller hears why
        except Exception as failed:  # noqa: BLE001 - an order never stays open without a word
            _log.warning("an order failed unexpectedly: %s", type(failed).__name__)
            error = WorkFailedError("internal_error", f"{type(failed).__name__} in the worker")
        if error is not None:
            state = WorkOrderState.FAILED
        return await run.end(state, output, error, started)


_CANCELLED = WorkFailedError("cancelled", "the order was cancelled")


class _Run:
    """One execution of one order."""

    def __init__(self, executor: HO1Executor, order: WorkOrder, on_event: EventSink | None) -> None:
        self._x = executor
        self._order = order
        self._on_event = on_event
        self._journal = Journal(executor._ledger, order, executor._agent_id, "KERNEL.semantic")
        self._calls = ModelCalls(
            executor._gateway,
            executor._budgeter,
            order,
            self._journal,
            executor._agent_id,
            order.constraints.turn_limit or executor._config.turn_limit,
        )
        self._toolbox = Toolbox(
            executor._tools,
            order.constraints.tools_allowed,
            order.constraints.tools_requiring_approval,
            self._journal,
            order.wo_id,
            on_event,
        )

    async def work(self) -> Any:
        order = self._order
        if order.wo_type is WorkOrderType.TOOL_CALL:
            await self._journal.write("WO_EXECUTING")
            return await self._run_tools()
        contract_id = order.constraints.prompt_contract_id
        try:
            contract = self._x._contracts.load(contract_id)
        except ContractError:
            await self._journal.write("WO_EXECUTING")
            raise
        self._journal.prompts_used = [contract.prompt_pack_id]
        await self._journal.write("WO_EXECUTING", contract_version=contract.version)
        problem = first_problem(contract.input_schema or {}, dict(order.input_context))
        if problem:
            raise WorkFailedError("input_schema_invalid", problem)
        await self._allocate()
        return await self._ask(contract)

    async def end(
        self,
        state: WorkOrderState,
        output: Any,
        error: WorkFailedError | None,
        started: float,
    ) -> WorkOrder:
        input_tokens, output_tokens = self._journal.tokens_used()
        cost = WorkOrderCost(
            input_tokens,
            output_tokens,
            input_tokens + output_tokens,
            self._calls.made,
            self._toolbox.calls,
            round((time.perf_counter() - started) * 1000, 3),
        )
        if error is None:
            await self._journal.write("WO_COMPLETED", output_result=output, cost=cost.to_dict())
        else:
            await self._journal.write(
                "WO_FAILED", error_code=error.code, error_message=error.message,
                cost=cost.to_dict(),
            )  # fmt: skip
        return self._order.moved_to(
            state,
            output_result=output,
            error=None if error is None else {"code": error.code, "message": error.message},
            completed_at=datetime.now(UTC).isoformat(timespec="microseconds")[:-6] + "Z",
            cost=cost,
        )

    async def _run_tools(self) -> dict[str, Any]:
        context = self._order.input_context
        wanted = context.get("tool_calls") or [context]
        for call in wanted:
            result = await self._toolbox.use(
                str(call.get("tool_id", "")), call.get("arguments", {})
            )
            if result.status == "refused":
                raise WorkFailedError("tool_not_allowed", result.error)
        return {"tool_results": self._toolbox.results}

    async def _ask(self, contract: PromptContract) -> Any:
        request = self._calls.request(contract)
        pack = self._x._contracts.load_pack(contract.prompt_pack_id)
        tools = self._toolbox.available()
        variables = dict(self._order.input_context)
        history = _history(variables)
        small = self._x._config.small_model
        native = self._x._gateway.capabilities(request).native_tools
        variables["native_tools"] = native
        if not native:
            most = min(request.max_tokens or small.max_tokens, small.max_tokens)
            request = replace(request, max_tokens=most)
        if tools and not native:
            chooser = ToolChooser(self._calls, self._x._contracts, self._toolbox, self._journal)
            variables["tool_results"] = await chooser.choose(tools, str(variables["user_input"]))
            tools = []
            variables["small_talk"] = not variables["tool_results"]
            first = max(0, len(history) - 2 * small.context_turns)
            history = [] if variables["tool_results"] else history[first:]
        messages = pack.render(variables, history)
        definitions = [tool.definition() for tool in tools]
        while True:
            response = await self._calls.ask(
                request, messages, tools=definitions, on_text=self._text_sink(contract)
            )
            blocks = list(response.content_blocks or ())
            uses = [block for block in blocks if block.get("type") == "tool_use"]
            if not uses or not definitions:
                break
            messages.append({"role": "assistant", "content": sendable(blocks)})
            messages.append({"role": "user", "content": await self._toolbox.use_all(uses)})
        if contract.output_schema is not None:
            return _checked(contract.output_schema, response.content)
        return {
            "text": response.content,
            "finish_reason": response.finish_reason,
            "tool_results": self._toolbox.results,
        }

    async def _allocate(self) -> None:
        """Give the order its own limits, when it has any."""
        constraints = self._order.constraints
        if not constraints.token_budget and constraints.usd_budget is None:
            return
        if self._x._budgeter is None:
            if constraints.usd_budget is not None:
                raise WorkFailedError(
                    "budget_exhausted", "the order has a USD budget, and budgets are off"
                )
            return
        usd = constraints.usd_budget
        limits = BudgetLimits(
            constraints.token_budget or None, None if usd is None else nano_of(usd)
        )
        scope = BudgetScope(self._order.session_id, self._order.wo_id)
        await self._x._budgeter.aallocate(scope, limits=limits)

    def _text_sink(self, contract: PromptContract) -> TextSink | None:
        """Streams what people read; a contract with an output schema gives data."""
        listener = self._on_event
        if listener is None or contract.output_schema is not None:
            return None
        return lambda text: listener(TextDelta(text))


def _history(variables: Mapping[str, Any]) -> list[Message]:
    """The turns that the supervisor assembled, as messages."""
    assembled = variables.get("assembled_context") or {}
    turns: Sequence[Mapping[str, Any]] = assembled.get("turns") or ()
    messages: list[Message] = []
    for turn in turns:
        messages.append({"role": "user", "content": str(turn["user_message"])})
        messages.append({"role": "assistant", "content": str(turn["response"])})
    return messages


def _checked(schema: Mapping[str, Any], text: str) -> Any:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise WorkFailedError("output_schema_invalid", "the answer is not JSON") from error
    if problem := first_problem(schema, value):
        raise WorkFailedError("output_schema_invalid", problem)
    return value
