"""Orders executed by another program, such as an agent of another framework."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from remit.agents.tools import Tool, ToolResult
from remit.agents.worker.failures import WorkFailedError, WorkParkedError
from remit.agents.worker.model_calls import recorded_tool_id
from remit.agents.worker.order_run import OrderRun
from remit.agents.workorders import WorkOrder, WriteBuffer
from remit.kernel.budget_values import BudgetLimits, BudgetScope, nano_of
from remit.kernel.canonical import exact_json
from remit.kernel.errors import InvalidInputError
from remit.ledger import LedgerEntry

if TYPE_CHECKING:
    from remit.agents.worker.executor import HO1Executor

_NO_TEXT_CRITERIA = {"non_empty": False, "failures_are_told": False}


@dataclass(eq=False, repr=False)
class AttachedOrder:
    """An executing order whose steps another program takes.

    The program calls models through the gateway's endpoints in the order's name. Its tools run here
    by :meth:`use`, so intents, results, refusals and approvals are recorded as for any order. Call
    :meth:`begin` first and :meth:`end` last. Making the object reads the order's entries.

    Args:
        services: the worker.
        order: the order, in state ``executing``.
        guard: raises if the order is no longer this process's.
        buffer: holds the caller's unwritten entries.
        gate: records whether the ended order's answer may be delivered.

    Attributes:
        order: the order; as ended once :meth:`end` has recorded the end.

    Raises:
        LedgerError: the order's entries cannot be read.
    """

    _services: HO1Executor
    order: WorkOrder
    _guard: Callable[[], None]
    _buffer: WriteBuffer
    _gate: Callable[[WorkOrder], Awaitable[WorkOrder]]
    _interrupted_keys: set[str] = field(default_factory=set, init=False)
    _is_waiting: bool = field(default=False, init=False)
    _started: float = field(default_factory=time.perf_counter, init=False)
    _calls: dict[str, tuple[str, bytes]] = field(default_factory=dict, init=False)
    _results: dict[str, ToolResult] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._reload()

    @property
    def tools(self) -> list[Tool]:
        """The tools that the order may use, without excluded ones.

        Raises:
            UnknownToolError: a tool does not exist.
            ToolError: an installed tool cannot be used.
        """
        return self._run.toolbox.available()

    async def begin(self) -> None:
        """Record that the order is executed, and allocate its limits; write the buffered entries.

        Appends ``WO_EXECUTING``; a resumption appends it again (``resumed``), with an ``LLM_CALL``
        for each model call that has none. Limits are allocated only at the first start, and only
        with a budgeter. Call it once, before :meth:`use`.

        Raises:
            InvalidInputError: the order has ended.
            LedgerError: an entry could not be written.
        """
        run = self._run
        if run.history.ended is not None:
            raise self._ended_error()
        is_new = run.history.began is None
        if not is_new:
            self._load_calls()
            self._interrupted_keys = set(run.history.intents)
        run.begin()
        if is_new:
            constraints = self.order.constraints
            usd = constraints.usd_budget
            self._allocate(
                BudgetLimits(
                    constraints.token_budget or None,
                    None if usd is None else nano_of(usd),
                    constraints.turn_limit or None,
                )
            )
        await run.journal.flush()
        self._reload()

    async def use(self, tool_id: str, arguments: Any, call_id: str) -> ToolResult:
        """Run a tool and return its result; repeat a recorded result of the same call.

        A tool that the order may not use is refused, and the refusal is recorded. Results are
        remembered: a repeated call of this process runs nothing. Concurrent calls of one id wait
        for each other. All entries are durable when the method returns or raises.

        Args:
            tool_id: the tool.
            arguments: JSON values by name.
            call_id: the model's id of the call. The same id with another tool or other arguments is
                another call, because some models count from 0 in each answer.

        Raises:
            InvalidInputError: the order has ended, or the call id is empty or contains a slash.
            WorkParkedError: a person must decide first; then call again.
            WorkFailedError: the call began before, must not be repeated, and its outcome is
                unknown.
            UnknownToolError: the order allows a tool that does not exist.
            ToolError: an installed tool cannot be used.
            LedgerError: the ledger cannot be read or written.
            OrderRecordError: the recorded result was erased.
            RemitError: the error of the guard, if the order is no longer this process's.
        """
        if not call_id or "/" in call_id:
            raise InvalidInputError(f"{call_id!r} is not a valid id of a tool call.")
        key = self._key(call_id, tool_id, arguments)
        async with self._locks[key]:
            if key not in self._results:
                self._results[key] = await self._use(tool_id, arguments, key)
        return self._results[key]

    async def _use(self, tool_id: str, arguments: Any, key: str) -> ToolResult:
        if self.order.ended:
            raise self._ended_error()
        self._interrupted_keys.discard(key)
        if self._is_waiting:  # Decisions of people are only in the ledger.
            self._is_waiting = bool(self._reload().history.undecided)
        run = self._run
        try:
            return await run.toolbox.use(tool_id, arguments, key)
        except WorkParkedError:
            self._is_waiting = True
            raise
        finally:
            await run.journal.flush()

    def _key(self, call_id: str, tool_id: str, arguments: Any) -> str:
        """Return the idempotency key of a call: its id, and the number of other calls with it."""
        call = tool_id, _encode(arguments)
        recorded = recorded_tool_id(tool_id, self.order.constraints.tools_allowed), call[1]
        for number in itertools.count():
            key = f"{self.order.wo_id}/{call_id}/{number}"
            if self._calls.setdefault(key, call) in (call, recorded):
                self._calls[key] = call  # Names that cannot be recorded have one id in the ledger.
                return key
        raise AssertionError("unreachable")

    def _load_calls(self) -> None:
        """Read tool and arguments of recorded calls, to distinguish calls with the same id."""
        for event_type in ("APPROVAL_REQUESTED", "TOOL_INTENT", "TOOL_CALL"):
            for entry in self._entries(event_type, with_content=True):
                data = entry.metadata
                call = data["tool_id"], _encode(data["arguments"])
                self._calls.setdefault(data["idempotency_key"], call)

    async def end(self, result: Any, error: WorkFailedError | None = None) -> WorkOrder:
        """Record the order's end with its cost, and return the order after the quality gate.

        Appends an ``LLM_CALL`` for each model call that has none yet. With a budgeter, the order's
        turns are limited to 0, so that no further model call is possible. A person is asked about
        tool calls with an unknown outcome and the policy ``ask``. The end is written after these,
        with the gate's verdict. An order whose result the gate rejects is returned as failed with
        ``answer_rejected``, without the result; a failed one is not checked. An order ends once.

        Args:
            result: a text, or any other JSON value; None for no result, which may then be empty.
            error: why the order failed; None if it succeeded.

        Raises:
            RemitError: the error of the guard, if the order is no longer this process's.
            InvalidInputError: the order has ended, or the result cannot be recorded.
            LedgerError: an entry could not be written.
        """
        if self.order.ended:
            raise self._ended_error()
        await self._run.journal.flush()
        run = self._reload()
        run.check()
        self._record_calls(run)
        self._allocate(BudgetLimits(turns=0))  # No further model call may be made for the order.
        await run.journal.flush()
        output: dict[str, Any] | None = None
        if error is None:
            is_data = not isinstance(result, (str, type(None)))
            output = {
                "text": _encode(result).decode() if is_data else result or "",
                "finish_reason": "stop",
                "tool_results": run.history.tool_results(),
            }
            if is_data:
                output["output"] = result
        self.order = ended = await self._reload().end(output, error, hold=True)
        if result is None:  # Without a text, only the order's own criteria apply.
            criteria = {**_NO_TEXT_CRITERIA, **ended.acceptance_criteria}
            ended = replace(ended, acceptance_criteria=criteria)
        self.order = await self._gate(ended)
        return self.order

    def _ended_error(self) -> InvalidInputError:
        return InvalidInputError(
            f"The order {self.order.wo_id} has ended.", next_step="Start a run with another key."
        )

    def _record_calls(self, run: OrderRun) -> None:
        """Note each model call that was made in the order's name and is not noted yet."""
        exchanges = list(self._entries("EXCHANGE"))
        known = {str(entry.metadata.get("retry_of", "")) for entry in exchanges}
        known |= {str(entry.metadata["exchange_entry_id"]) for entry in self._entries("LLM_CALL")}
        for entry in exchanges:
            if entry.id not in known:
                run.calls.note_recorded(entry)

    def _entries(self, event_type: str, *, with_content: bool = False) -> Iterable[LedgerEntry]:
        return self._run.journal.ledger.query(
            work_order_id=self.order.wo_id, session_id=self.order.session_id,
            event_type=event_type, with_content=with_content,
        )  # fmt: skip

    def _reload(self) -> OrderRun:
        """Read the order's entries again, and return a run that begins there."""
        self._run = OrderRun(
            self._services, self.order, None, self._guard, buffer=self._buffer,
            interrupted=self._interrupted_keys, started=self._started,
        )  # fmt: skip
        return self._run

    def _allocate(self, limits: BudgetLimits) -> None:
        """Allocate limits to the order with the next write."""
        if (budgeter := self._services.budgeter) is not None:
            scope = BudgetScope(self.order.session_id, self.order.wo_id)
            by = self._services.agent_id
            self._run.journal.hold(budgeter.allocation(scope, limits, by))


def _encode(arguments: Any) -> bytes:
    try:
        return exact_json(arguments)
    except InvalidInputError:  # The toolbox refuses such arguments.
        return b""
