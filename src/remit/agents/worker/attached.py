"""An order that a program outside works on: a run of another framework's agent."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any

from remit.agents.tools import Tool, ToolResult
from remit.agents.worker.execution import Execution, Services, WorkFailedError, WorkParkedError
from remit.agents.worker.run import Run
from remit.agents.worker.toolbox import Toolbox
from remit.agents.workorders import WorkOrder, WriteBuffer
from remit.kernel.budget import BudgetLimits, BudgetScope, nano_of
from remit.kernel.canonical import exact_json
from remit.kernel.errors import InvalidInputError
from remit.ledger import LedgerEntry

_OF_CALL = (
    "dispatch_entry_id", "outcome", "model_id", "input_tokens", "output_tokens", "latency_ms",
)  # fmt: skip
_WITHOUT_TEXT = {"non_empty": False, "failures_are_told": False}


class AttachedOrder:
    """An order in state ``executing`` whose steps are taken from outside.

    Models are called through the gateway's endpoints in the order's name; tools are used here, so
    intents, results, refusals and approvals are those of any order.

    Attributes:
        order: the order.
    """

    def __init__(
        self,
        services: Services,
        order: WorkOrder,
        guard: Callable[[], None],
        buffer: WriteBuffer,
        gate: Callable[[WorkOrder], Awaitable[WorkOrder]],
    ) -> None:
        self.order = order
        self._gate = gate
        self._interrupted: set[str] = set()
        self._services = services
        self._guard = guard
        self._buffer = buffer
        self._waits = False
        self._started = time.perf_counter()
        self._given: dict[str, bytes] = {}
        self._results: dict[str, ToolResult] = {}
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._read()

    @property
    def tools(self) -> list[Tool]:
        """The tools that it may use."""
        return self._toolbox.available()

    async def begin(self) -> None:
        """Put on record that it is worked on, and give it its limits.

        Raises:
            InvalidInputError: it has ended.
        """
        execution = self._execution
        if execution.history.ended is not None:
            raise InvalidInputError(
                f"{self.order.wo_id} has ended.", next_step="Begin a run with another key."
            )
        fresh = execution.history.began is None
        if not fresh:
            self._remember()
            self._interrupted = set(execution.history.intents)
        Run(execution).begin()
        if fresh:
            constraints = self.order.constraints
            usd = constraints.usd_budget
            self._allocate(
                BudgetLimits(
                    constraints.token_budget or None,
                    None if usd is None else nano_of(usd),
                    constraints.turn_limit or None,
                )
            )
        await execution.journal.flush()
        self._read()

    async def use(self, tool_id: str, arguments: Any, call_id: str) -> ToolResult:
        """Use a tool; what is on record of the same call is not done again.

        Args:
            tool_id: which; one that the order may not use is refused, on record.
            arguments: by name.
            call_id: the model's id of the call. Some models count from 0 in each answer: the same
                id with other arguments is another call.

        Raises:
            WorkParkedError: a person has to decide first; then call again.
            WorkFailedError: it began before, must not be repeated, and its outcome is unknown.
        """
        if not call_id or "/" in call_id:
            raise InvalidInputError(f"{call_id!r} cannot name a tool's call.")
        key = self._key(call_id, tool_id, arguments)
        async with self._turns[key]:
            if key not in self._results:
                self._results[key] = await self._use(tool_id, arguments, key)
        return self._results[key]

    async def _use(self, tool_id: str, arguments: Any, key: str) -> ToolResult:
        self._interrupted.discard(key)
        if self._waits:  # what a person decided meanwhile is only on record
            self._waits = bool(self._read().history.undecided)
        toolbox, journal = self._toolbox, self._execution.journal
        try:
            return await toolbox.use(tool_id, arguments, key)
        except WorkParkedError:
            self._waits = True
            raise
        finally:
            await journal.flush()

    def _key(self, call_id: str, tool_id: str, arguments: Any) -> str:
        """The idempotency key of a call: its id, and how many others had that id before."""
        given = _text(arguments)
        for number in itertools.count():
            key = f"{self.order.wo_id}/{call_id}/{number}"
            if self._given.setdefault(key, given) == given:
                return key
        raise AssertionError("numbers have no end")

    def _remember(self) -> None:
        """With which arguments calls were made that are on record."""
        for event_type in ("APPROVAL_REQUESTED", "TOOL_INTENT", "TOOL_CALL"):
            for entry in self._found(event_type, with_content=True):
                key, arguments = entry.metadata["idempotency_key"], entry.metadata["arguments"]
                self._given.setdefault(key, _text(arguments))

    async def end(self, result: Any, error: WorkFailedError | None = None) -> WorkOrder:
        """Record the end, with what all calls of models and tools cost, and the gate's verdict.

        Args:
            result: a text, or any other JSON value; ``None`` for none.
            error: why it failed.

        Returns:
            The order. An order whose result the quality gate rejects is returned as failed with
            ``answer_rejected``, without the result.
        """
        await self._execution.journal.flush()
        execution = self._read()
        execution.check()
        self._note_calls(execution)
        self._allocate(BudgetLimits(turns=0))  # its key may live on: nothing more is called with it
        await execution.journal.flush()
        output: dict[str, Any] | None = None
        if error is None:
            is_data = not isinstance(result, (str, type(None)))
            output = {
                "text": _text(result).decode() if is_data else result or "",
                "finish_reason": "stop",
                "tool_results": execution.history.tool_results(),
            }
            if is_data:
                output["output"] = result
        ended = await Run(self._read(), self._started).end(output, error, hold=True)
        if result is None:  # no text is presented; the order's own criteria hold
            criteria = {**_WITHOUT_TEXT, **ended.acceptance_criteria}
            ended = replace(ended, acceptance_criteria=criteria)
        return await self._gate(ended)

    def _note_calls(self, execution: Execution) -> None:
        """Note the calls of models that were made in the order's name, each once."""
        exchanges = list(self._found("EXCHANGE"))
        known = {str(entry.metadata.get("retry_of", "")) for entry in exchanges}
        known |= {str(entry.metadata["exchange_entry_id"]) for entry in self._found("LLM_CALL")}
        for entry in exchanges:
            if entry.id not in known:
                data = {name: entry.metadata[name] for name in _OF_CALL}
                execution.journal.note("LLM_CALL", exchange_entry_id=entry.id, **data)

    def _found(self, event_type: str, *, with_content: bool = False) -> Iterable[LedgerEntry]:
        return self._execution.journal.ledger.query(
            work_order_id=self.order.wo_id, session_id=self.order.session_id,
            event_type=event_type, with_content=with_content,
        )  # fmt: skip

    def _read(self) -> Execution:
        """Go on from everything that is on record of the order by now."""
        execution = Execution(self._services, self.order, None, self._guard, buffer=self._buffer)
        self._execution, self._toolbox = execution, Toolbox(execution, self._interrupted)
        return execution

    def _allocate(self, limits: BudgetLimits) -> None:
        """Have the order held to ``limits`` from the next write on."""
        if (budgeter := self._services.budgeter) is not None:
            scope = BudgetScope(self.order.session_id, self.order.wo_id)
            by = self._services.agent_id
            self._execution.journal.hold(budgeter.allocation(scope, limits, by))


def _text(arguments: Any) -> bytes:
    try:
        return exact_json(arguments)
    except InvalidInputError:  # they are refused, whatever they are
        return b""
