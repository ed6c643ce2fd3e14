"""The tool calls of one order: durable intent before, recorded result or refusal after."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from remit.agents.approvals import Permit
from remit.agents.tools import (
    Context,
    Tool,
    ToolError,
    ToolResult,
    UnknownToolError,
    given_deps,
)
from remit.agents.worker.failures import WorkParkedError
from remit.agents.worker.model_calls import recorded_tool_id, tool_arguments
from remit.agents.worker.tool_permissions import (
    Permissions,
    Repeats,
    not_run_again,
    outcome_unknown,
    withheld_tools,
)
from remit.agents.worker.tool_results import (
    REPETITION_NOTE,
    recorded_result,
    result_data,
    result_text,
    with_images,
)
from remit.agents.workorders import (
    Effect,
    OrderHistory,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    Usage,
    action_of,
    effects_text,
    sub_session_id,
    with_decision,
)
from remit.kernel.canonical import exact_json
from remit.kernel.errors import InvalidInputError, excerpt
from remit.kernel.json_text import dump
from remit.ledger import Erased, content

if TYPE_CHECKING:
    from remit.agents.worker.order_run import OrderRun


class Toolbox:
    """Runs the tools that one order may use, with their permissions, limits and records.

    :meth:`answer` runs the calls of a model's answer, :meth:`use` a single call. Recorded calls of
    the order are known from the start and not run again; begun ones count against the limits. A
    call without a recorded end follows its tool's ``on_unknown``.

    Args:
        run: the run of the order.
        interrupted: keys of calls that another program made before it was restarted; its new calls
            have new keys.

    Attributes:
        calls: number of calls that ran.
        met_fault: True if a tool was broken, whatever its arguments.
        withheld: ids of tools that the model is not offered, because the session has set them
            aside.
        handed_to: id of the agent to which a call handed the session over; empty if none did.
    """

    def __init__(self, run: OrderRun, interrupted: Collection[str] = ()) -> None:
        self._run = run
        self._dispatcher = run.services.tools
        self._order = run.order
        self._allowed = run.order.constraints.tools_allowed
        self._journal = run.journal
        self._permissions = Permissions(run)
        self._history = run.history
        self._limit = run.services.config.tool_limit
        self._slots = asyncio.Semaphore(run.services.config.tools_at_once)
        self._begun = len(self._history.intents)
        self._running = 0
        self.calls = 0
        self.met_fault = False
        self.withheld = withheld_tools(run.order)
        self.handed_to = ""
        self._sub_sessions = set(self._history.sub_sessions)
        self._begun_tools = self._history.begun_tools.copy()
        context = run.order.input_context.get("assembled_context") or {}
        self._repeats = Repeats(
            [Effect.of_dict(one) for one in context.get("effects") or ()],
            self._history, self._tool, interrupted,
        )  # fmt: skip
        self._has_unknown = False
        self._results: dict[str, dict[str, Any]] = {}
        for key, entry in self._history.tool_calls.items():
            self._count(key, entry.metadata, ran=bool(self._history.intents[key]))

    @property
    def results(self) -> list[dict[str, Any]]:
        """The tools' results as :func:`result_data`, by the id of their exchange and number."""
        parts = [key.rpartition("/") for key in self._results]
        parts.sort(key=lambda part: (part[0], int(part[2])))
        return [self._results["".join(part)] for part in parts]

    @property
    def has_unknown(self) -> bool:
        """True if the outcome of a call, or of one in a sub-agent, may be unknown."""
        return bool(self._sub_sessions) or self._has_unknown

    def usage(self) -> Usage:
        """Return the prices of all the order's begun tool calls, and their sub-agents' usage.

        Raises:
            LedgerError: the usage of a sub-agent cannot be read.
        """
        used = Usage()
        for price in self._permissions.paid:
            used.pay(price)
        for session_id in self._sub_sessions:
            used.include(self._run.services.session_usage(session_id))
        return used

    async def cancel_sub_agents(self) -> None:
        """End the work of sub-agents that have not answered and will not be continued.

        Their sessions record the end. A sub-agent whose tool no longer exists is skipped. If one
        cannot be ended, its RemitError is raised, and later ones are not ended either.
        """
        for key, tool_id in self._history.open_sub_agents.items():
            tool = self._tool(tool_id)
            if tool is not None and tool.sub_agent is not None:
                await tool.sub_agent.cancel(key)

    def available(self) -> list[Tool]:
        """Return the tools that the order may use, in its order, without tools set aside.

        Raises:
            UnknownToolError: a tool does not exist.
            ToolError: an installed tool cannot be used.
        """
        offered = self._allowed
        if self.withheld:
            offered = tuple(one for one in offered if one not in self.withheld)
        return self._dispatcher.tools(offered)

    async def answer(
        self,
        blocks: Sequence[Mapping[str, Any]],
        exchange_entry_id: str,
        *,
        takes_images: bool = False,
    ) -> list[dict[str, Any]]:
        """Run the calls of an answer concurrently; return their tool_result blocks, in order.

        Each call is recorded, see :meth:`use`. All calls are run to their end, even if another call
        waits for a person or raises; then the first error in their order is raised, before a wait.
        If there is neither, the first successful handoff is noted in ``handed_to``.

        Args:
            blocks: the ``tool_use`` blocks.
            exchange_entry_id: the exchange that asked for them.
            takes_images: True if the model accepts images.

        Raises:
            WorkParkedError: a call waits for a person; it names all waiting requests.
            WorkFailedError: a call must not be repeated, and its outcome is unknown.
            OrderRecordError: a recorded result was erased.
            UnknownToolError, ToolError: an allowed tool does not exist, or cannot be used.
            RemitError: the guard's error, if the order is no longer this worker's.
            LedgerError: the ledger cannot be read or written.
        """
        keys = [f"{self._order.wo_id}/{exchange_entry_id}/{n}" for n in range(len(blocks))]
        outcomes = await asyncio.gather(
            *(
                self.use(excerpt(block.get("name", "")), block.get("input"), key)
                for block, key in zip(blocks, keys, strict=True)
            ),
            return_exceptions=True,
        )
        results: list[ToolResult] = []
        parked: list[str] = []
        for outcome in outcomes:
            if isinstance(outcome, WorkParkedError):
                parked += outcome.request_ids
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                results.append(outcome)
        if parked:
            raise WorkParkedError(tuple(parked))
        for block, result in zip(blocks, results, strict=True):
            self.note_handoff(str(block.get("name", "")), result)
        return [
            {
                "type": "tool_result",
                "tool_use_id": str(block.get("id", "")),
                "content": with_images(self._text_for_model(key, result), result, takes_images),
                "is_error": result.status != "ok",
            }
            for block, result, key in zip(blocks, results, keys, strict=True)
        ]

    def note_handoff(self, tool_id: str, result: ToolResult) -> None:
        """Note in ``handed_to`` the agent to which the first successful handoff gives the session.

        Does nothing for a tool without a handoff, for a result that is not ``ok``, or again.
        """
        if result.status == "ok" and not self.handed_to:
            tool = self._dispatcher.tool(tool_id)
            self.handed_to = tool.handoff.agent_id if tool.handoff is not None else ""

    async def use(self, tool_id: str, arguments: Any, key: str) -> ToolResult:
        """Run or refuse a tool, and record either; return a recorded result as it was recorded.

        A recorded result lacks images and ``fault``. The ``TOOL_INTENT`` is durable before the tool
        runs, and pays its price. The ``TOOL_CALL`` is submitted or held afterwards, for a refused
        call without intent. A call that repeats an earlier effect gets its recorded result. A
        failure of the tool is returned (``error``, ``timeout`` or ``unknown``), not raised.
        Unusable arguments give the status ``error``; tools that are not allowed, set aside or
        changed, limits, budgets and denials ``refused``. Arguments that a person changed replace
        the given ones. A cancellation while the tool runs is recorded as ``unknown``. Events go to
        the listener. An unknown outcome asks a person, if the tool's policy is ``ask``.

        Args:
            tool_id: the tool.
            arguments: the arguments as the model gave them.
            key: the idempotency key of the call; the same for every repetition of the step.

        Raises:
            WorkParkedError: the call waits for a person.
            WorkFailedError: the call must not be repeated, and its outcome is unknown.
            OrderRecordError: the recorded result was erased.
            UnknownToolError, ToolError: the tool is allowed but does not exist, or cannot be used.
            RemitError: the guard's error, if the order is no longer this worker's.
            LedgerError: the ledger cannot be read or written.
        """
        self._repeats.forget(key)
        if (before := self._history.tool_calls.get(key)) is not None:
            return recorded_result(before)
        is_allowed = tool_id in self._allowed
        schema = self._dispatcher.tool(tool_id).input_schema if is_allowed else {}
        arguments, problem = tool_arguments(arguments, schema)
        edit = self._history.edit(key)
        if edit is not None and self._history.intents[key]:
            arguments = edit.metadata["arguments"]  # The interrupted call ran with these.
        permit: Permit | None = None
        try:
            size = len(exact_json(arguments))
        except InvalidInputError as error:
            arguments, size = {}, 0
            problem = f"The arguments cannot be recorded: {error.message}"
        else:
            problem = problem and f"{problem} The tool was not run. Call it with a JSON object."
        if problem:
            refusal: ToolResult | None = ToolResult("error", error=problem)
        else:
            refusal, permit = await self._admit(tool_id, arguments, key)
        if refusal is not None:
            if refusal.status == "refused":
                self._repeats.release(key)
            return self._record(tool_id, arguments, size, refusal, key, ran=False)
        if permit is not None:
            arguments = permit.instead_of(arguments)
            size = len(exact_json(arguments))
        return await self._execute(tool_id, arguments, size, key, permit)

    async def _admit(
        self, tool_id: str, arguments: dict[str, Any], key: str
    ) -> tuple[ToolResult | None, Permit | None]:
        """Return why a call must not run, and the person's permit if it needs one.

        Raises:
            WorkParkedError: the call waits for a person.
            WorkFailedError: the call must not be repeated, and its outcome is unknown.
        """
        reason = ""
        if tool_id not in self._allowed:
            allowed = ", ".join(self._allowed) or "none"
            reason = f"tool_not_allowed: this work order may use {allowed}, not {tool_id!r}."
        elif tool_id in self.withheld:
            remaining = ", ".join(one for one in self._allowed if one not in self.withheld)
            reason = (
                f"tool_set_aside: {tool_id} kept failing, so this session continues without it. "
                f"This work order may use {remaining or 'no other tool'}."
            )
        if reason:
            return ToolResult("refused", error=reason), None
        tool = self._dispatcher.tool(tool_id)
        began = self._history.intents[key]
        if not began and (known := await self._answer_repetition(tool, arguments, key)) is not None:
            return known
        if tool.refusal is not None and (change := await tool.refusal()):
            return ToolResult("refused", error=f"tool_changed: {change}"), None
        self._begun += not began
        self._begun_tools[tool_id] += not began
        if self._begun > self._limit:
            reason = f"tool_limit: this work order has made all of its {self._limit} tool calls."
        elif tool.max_calls is not None and self._begun_tools[tool_id] > tool.max_calls:
            reason = (
                f"tool_limit: this work order has made all {tool.max_calls} calls of {tool_id}."
            )
        if reason:
            return ToolResult("refused", error=reason), None
        needs_person = tool_id in self._order.constraints.tools_requiring_approval
        if not (began or needs_person):
            return None, None
        if began and tool.on_unknown == "fail":
            raise outcome_unknown(tool_id)
        # Under its key, a repetition is the same action; a sub-agent's session is continued.
        granted = tool.sub_agent is not None or self._permissions.was_granted(tool, key)
        if began and tool.on_unknown == "retry" and (granted or not needs_person):
            return None, None
        return await self._ask_person(tool, arguments, key, began)

    async def _answer_repetition(
        self, tool: Tool, arguments: dict[str, Any], key: str
    ) -> tuple[ToolResult | None, Permit | None] | None:
        """Return the answer to a call that repeats an earlier one; None if the call is new.

        A call that took effect in work without an answer is not repeated: the repetition gets its
        result, once, and a second repetition runs. An unknown outcome follows the tool's policy.

        Raises:
            WorkParkedError: the outcome is unknown, and a person has not decided yet.
            WorkFailedError: the outcome is unknown, and the tool's policy is ``fail``.
        """
        effect = self._repeats.match(tool, arguments, key)
        if effect is None:
            denied = self._repeats.denied(tool, arguments)
            return None if denied is None else (denied, None)
        if effect.status == "ok":
            return ToolResult("ok", effect.result, note=REPETITION_NOTE), None
        effect = with_decision(effect, self._run.services.ledger)
        if effect.decision == "granted":
            return None
        if effect.decision == "denied":
            denied = not_run_again(tool.tool_id, effect.decided)
            self._repeats.deny(tool, arguments, denied)
            return denied, None
        if tool.on_unknown == "fail":
            raise outcome_unknown(tool.tool_id)
        return await self._ask_person(tool, arguments, key, effect.attempt, effect.request_id)

    async def _ask_person(
        self, tool: Tool, arguments: dict[str, Any], key: str, began: int, instead_of: str = ""
    ) -> tuple[ToolResult | None, Permit | None]:
        """Return a person's decision, see :meth:`Permissions.ask`; remember a denied repetition."""
        refusal, permit = await self._permissions.ask(tool, arguments, key, began, instead_of)
        if refusal is not None and began:
            self._repeats.deny(tool, arguments, refusal)
        return refusal, permit

    async def report_unknown(self) -> None:
        """Request a decision on each call with an unknown outcome, if its tool's policy is ``ask``.

        Called when the order ends, failed or not, because nothing continues its calls afterwards.
        Appends and announces an ``APPROVAL_REQUESTED`` for each call about which nobody was asked.
        Calls whose arguments were erased, or whose tool is missing or unusable, are skipped. Held
        entries are written first. Does nothing if no call began.

        Raises:
            LedgerError: an entry could not be written.
            InvalidInputError: recorded arguments cannot be expressed as JSON.
        """
        if not self._begun:
            return
        await self._journal.flush()
        order = self._order
        history = OrderHistory(self._journal.ledger, order.wo_id, order.session_id)
        for key, intent in history.last_intents().items():
            tool_id, arguments = intent.metadata["tool_id"], intent.metadata["arguments"]
            if isinstance(arguments, Erased) or key in history.asked_about:
                continue
            tool = self._tool(tool_id)
            if tool is not None and tool.on_unknown == "ask" and history.is_unknown(key):
                await self._permissions.request(tool, arguments, key, history.intents[key])

    def _text_for_model(self, key: str, result: ToolResult) -> str:
        """Return a result in the form for the model, with a note about changed arguments."""
        refused = result.status == "refused"
        return ("" if refused else self._permissions.note_of_edit(key)) + result_text(result)

    async def _execute(
        self, tool_id: str, arguments: dict[str, Any], size: int, key: str, permit: Permit | None
    ) -> ToolResult:
        attempt = self._history.intents[key] + 1
        further: dict[str, Any] = {"attempt": attempt} if attempt > 1 else {}
        tool = self._dispatcher.tool(tool_id)
        if tool.sub_agent is not None:
            further["sub_session_id"] = sub_session_id(key)
            self._sub_sessions.add(further["sub_session_id"])
        order = self._order
        call: Context[Any] = Context(
            tool_id, key, order.wo_id, order.session_id, self._run.services.agent_id,
            self._run.principal, given_deps.get(),
            lambda *how_far: self._run.emit(ToolProgress(tool_id, *how_far)),
        )  # fmt: skip
        async with self._slots:
            self._run.check()
            intent = self._journal.entry(
                "TOOL_INTENT", tool_id=tool_id, arguments=arguments, idempotency_key=key, **further
            )
            if problem := await self._permissions.begin(intent, permit, tool):
                refusal = ToolResult("refused", error=problem)
                self._repeats.release(key)
                return self._record(tool_id, arguments, size, refusal, key, ran=False)
            self._run.emit(ToolStarted(tool_id, arguments))
            self._running += 1
            try:
                result = await self._dispatcher.aexecute(tool_id, arguments, call=call)
            except asyncio.CancelledError:
                text = f"The order ended while {tool_id} ran; it may have taken effect."
                stopped = ToolResult("unknown", error=text)
                self._record(tool_id, arguments, size, stopped, key, ran=True)
                raise
            finally:
                self._running -= 1
            if result.status == "waiting":  # The call has not ended; the order waits with it.
                for request in result.output:
                    self._run.emit(request)
                raise WorkParkedError(tuple(request.request_id for request in result.output))
            if tool.sub_agent is not None and result.status != "ok":
                effects = effects_text(tool.sub_agent.effects(key), "Before it ended,")
                result = replace(result, error=f"{result.error}\n{effects}".rstrip())
            self._record(tool_id, arguments, size, result, key, ran=True)
            await self._note_ended(tool, arguments, key, attempt, result)
            return result

    async def _note_ended(
        self, tool: Tool, arguments: dict[str, Any], key: str, attempt: int, result: ToolResult
    ) -> None:
        """Protect an ended call against repetition; ask a person about an unknown outcome."""
        unknown = result.status in ("timeout", "unknown")
        if tool.sub_agent is None and (not unknown or tool.on_unknown == "retry"):
            return
        request_id = ""
        if tool.on_unknown == "ask":
            request_id = await self._permissions.request(tool, arguments, key, attempt)
        status, action = "unknown" if unknown else result.status, action_of(tool.tool_id, arguments)
        self._repeats.add(
            tool,
            Effect(
                tool.tool_id, dump(arguments).decode(), action, status,
                attempt=attempt, request_id=request_id, key=key,
            ),
        )  # fmt: skip

    def _tool(self, tool_id: str) -> Tool | None:
        """Return a tool of the program; None if there is none with that id."""
        with contextlib.suppress(UnknownToolError, ToolError):
            return self._dispatcher.tool(tool_id)
        return None

    def _record(
        self,
        tool_id: str,
        arguments: dict[str, Any],
        size: int,
        result: ToolResult,
        key: str,
        *,
        ran: bool,
    ) -> ToolResult:
        # Other names are text of the model, and recorded in tool_error only, which can be erased.
        data = {
            "tool_id": recorded_tool_id(tool_id, self._allowed),
            "status": result.status,
            "arguments": arguments,
            "result": result.output,
            "arguments_bytes": size,
            "result_bytes": len(exact_json(result.output)),
            "tool_error": result.error,
            "idempotency_key": key,
        }
        if result.fault:
            data["fault"] = self.met_fault = True
        if result.note:
            data["note"] = content(result.note)
        entry = self._journal.entry("TOOL_CALL", **data)
        if self._running:
            self._journal.submit(entry)
        else:  # The next entry is written at once and commits this one too.
            self._journal.hold(entry)
        self._count(key, {**data, "tool_id": tool_id}, ran=ran)
        self._run.emit(ToolEnded(tool_id, result.status, result.output, result.error))
        return result

    def _count(self, key: str, data: Mapping[str, Any], *, ran: bool) -> None:
        self.calls += ran
        self._has_unknown |= data["status"] in ("timeout", "unknown")
        self._results[key] = result_data(data)
