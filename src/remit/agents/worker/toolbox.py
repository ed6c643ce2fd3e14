"""The tools of one order: intent on record before, result after, refusals recorded too."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from remit.agents.approvals import Permit
from remit.agents.tools import (
    Context,
    Tool,
    ToolError,
    ToolResult,
    UnknownToolError,
    given_deps,
    is_tool_id,
    tool_id_of,
)
from remit.agents.worker.execution import Execution, WorkFailedError, WorkParkedError
from remit.agents.worker.model_answer import tool_arguments, unparsed_text
from remit.agents.worker.permissions import Permissions, not_run_again
from remit.agents.worker.repeats import Repeats
from remit.agents.workorders import (
    Effect,
    OrderHistory,
    OrderRecordError,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    Usage,
    WorkOrder,
    WorkOrderType,
    action_of,
    effects_text,
    sub_session_id,
    with_decision,
)
from remit.kernel.canonical import exact_json
from remit.kernel.errors import InvalidInputError, excerpt
from remit.kernel.json_text import dump
from remit.ledger import Erased, LedgerEntry, content

_GIVEN_AGAIN = (
    "this is its result from work that ended without an answer. It was not run a second time: "
    "call it once more only if it is to run twice."
)

UNKNOWN_TOOL = "unknown"
"""What the record calls a tool whose name cannot be an id."""


class Toolbox:
    """Runs the tools that one order may use.

    Attributes:
        calls: how many ran.
        met_fault: whether one of them failed by its own doing.
        held_back: those that the model is not offered, as its session has set them aside.

    Args:
        execution: the order's.
        interrupted: keys of its calls before a program outside began again, whose calls have new
            keys.
    """

    def __init__(self, execution: Execution, interrupted: Collection[str] = ()) -> None:
        self._execution = execution
        self._dispatcher = execution.services.tools
        self._order = execution.order
        self._allowed = execution.order.constraints.tools_allowed
        self._journal = execution.journal
        self._permissions = Permissions(execution)
        self._history = execution.history
        self._limit = execution.services.config.tool_limit
        self._slots = asyncio.Semaphore(execution.services.config.tools_at_once)
        self._begun = len(self._history.intents)
        self._running = 0
        self.calls = 0
        self.met_fault = False
        self.held_back = _held_back(execution.order)
        self.handed_to = ""
        self._sub_sessions = set(self._history.sub_sessions)
        self._begun_tools = self._history.begun_tools.copy()
        context = execution.order.input_context.get("assembled_context") or {}
        self._repeats = Repeats(
            [Effect.of_dict(one) for one in context.get("effects") or ()],
            self._history, self._tool, interrupted,
        )  # fmt: skip
        self._results: dict[str, dict[str, Any]] = {}
        for key, entry in self._history.tool_calls.items():
            self._count(key, entry.metadata, ran=bool(self._history.intents[key]))

    @property
    def results(self) -> list[dict[str, Any]]:
        """Results of tools as data, in the order in which they were asked for."""
        return [self._results[key] for key in sorted(self._results, key=_place)]

    @property
    def has_unknown(self) -> bool:
        """True if the outcome of a call, or of one in a sub-agent, may be unknown."""
        statuses = {result["status"] for result in self._results.values()}
        return bool(self._sub_sessions or statuses & {"timeout", "unknown"})

    def usage(self) -> Usage:
        """What tools cost, and what the sub-agents among them used."""
        used = Usage()
        for price in self._permissions.paid:
            used.pay(price)
        for session_id in self._sub_sessions:
            used.include(self._execution.services.session_usage(session_id))
        return used

    async def cancel_sub_agents(self) -> None:
        """End what sub-agents began and will not be continued."""
        for key, tool_id in self._history.open_sub_agents.items():
            with contextlib.suppress(UnknownToolError):  # the program has it no more
                (tool,) = self._dispatcher.tools([tool_id])
                if tool.sub_agent is not None:
                    await tool.sub_agent.cancel(key)

    def available(self) -> list[Tool]:
        """The tools that the order may use and that are not set aside."""
        offered = self._allowed
        if self.held_back:
            offered = tuple(one for one in offered if one not in self.held_back)
        return self._dispatcher.tools(offered)

    async def answer(
        self,
        blocks: Sequence[Mapping[str, Any]],
        exchange_entry_id: str,
        *,
        takes_images: bool = False,
    ) -> list[dict[str, Any]]:
        """Answer the tool_use blocks of one exchange with tool_result blocks, in their order.

        They run side by side. What needs no person runs also when another needs one.

        Raises:
            WorkParkedError: some of them wait for a person.
            WorkFailedError: one must not be run again, and it is unknown whether it took effect.
        """
        keys = [f"{self._order.wo_id}/{exchange_entry_id}/{n}" for n in range(len(blocks))]
        outcomes = await asyncio.gather(
            *(
                self.use(excerpt(block.get("name", "")), block.get("input"), key)
                for block, key in zip(blocks, keys, strict=True)
            ),
            return_exceptions=True,
        )
        results = _results_or_raise(outcomes)
        for block, result in zip(blocks, results, strict=True):
            self.note_handoff(str(block.get("name", "")), result)
        return [
            {
                "type": "tool_result",
                "tool_use_id": str(block.get("id", "")),
                "content": _with_images(self._shown(key, result), result, takes_images),
                "is_error": result.status != "ok",
            }
            for block, result, key in zip(blocks, results, keys, strict=True)
        ]

    def note_handoff(self, tool_id: str, result: ToolResult) -> None:
        """Note to which agent a call hands the session over, if it does; the first counts."""
        if result.status == "ok" and not self.handed_to:
            (tool,) = self._dispatcher.tools([tool_id])
            self.handed_to = tool.handoff.agent_id if tool.handoff is not None else ""

    async def use(self, tool_id: str, arguments: Any, key: str) -> ToolResult:
        """Run one tool, or refuse it; either is on record. What is on record is not run again.

        Args:
            key: the idempotency key, the same whenever the same step is asked for.

        Raises:
            WorkParkedError: it waits for a person.
            WorkFailedError: see :meth:`answer`.
        """
        self._repeats.forget(key)
        if (before := self._history.tool_calls.get(key)) is not None:
            return _recorded_result(before)
        given, problem = tool_arguments(arguments, self._schema_of(tool_id))
        edit = self._history.edit(key)
        if edit is not None and self._history.intents[key]:
            given = edit.metadata["arguments"]  # what began is what a person changed it to
        permit: Permit | None = None
        try:
            size = len(exact_json(given))
        except InvalidInputError as error:
            given, size = {}, 0
            refusal: ToolResult | None = _error(
                f"The arguments cannot be recorded: {error.message}"
            )
        else:
            if problem:
                refusal = _error(f"{problem} The tool was not run: call it with a JSON object.")
            else:
                refusal, permit = await self._admit(tool_id, given, key)
        if refusal is not None:
            if refusal.status == "refused":
                self._repeats.release(key)
            return self._record(tool_id, given, size, refusal, key, ran=False)
        if permit is not None:
            given = permit.instead_of(given)
            size = len(exact_json(given))
        return await self._run(tool_id, given, size, key, permit)

    def _schema_of(self, tool_id: str) -> Mapping[str, Any]:
        """Return the schema of a tool's arguments; ``{}`` for one that the order may not use."""
        if tool_id not in self._allowed:
            return {}
        (tool,) = self._dispatcher.tools([tool_id])
        return tool.input_schema

    async def _admit(
        self, tool_id: str, given: dict[str, Any], key: str
    ) -> tuple[ToolResult | None, Permit | None]:
        """Why the tool must not run; or what a person granted, where it needs one."""
        if tool_id not in self._allowed:
            allowed = ", ".join(self._allowed) or "none"
            return _refused(
                f"tool_not_allowed: this work order may use {allowed}, not {tool_id!r}."
            ), None
        if tool_id in self.held_back:
            left = ", ".join(one for one in self._allowed if one not in self.held_back)
            return _refused(
                f"tool_set_aside: {tool_id} kept failing, so this session goes on without it. "
                f"This work order may use {left or 'no other tool'}."
            ), None
        (tool,) = self._dispatcher.tools([tool_id])
        began = self._history.intents[key]
        if not began and (known := await self._repeated(tool, given, key)) is not None:
            return known
        if tool.refusal is not None and (why := await tool.refusal()):
            return _refused(f"tool_changed: {why}"), None
        self._begun += not began
        if self._begun > self._limit:
            return _refused(
                f"tool_limit: this work order may make {self._limit} tool calls, and has."
            ), None
        self._begun_tools[tool_id] += not began
        if tool.max_calls is not None and self._begun_tools[tool_id] > tool.max_calls:
            return _refused(
                f"tool_limit: this work order may use {tool_id} {tool.max_calls} times, and has."
            ), None
        needs_person = tool_id in self._order.constraints.tools_requiring_approval
        if not (began or needs_person):
            return None, None
        if began and tool.on_unknown == "fail":
            raise _unknown(tool_id)
        # Repeated under its key it is the same action; a sub-agent's session is gone on with.
        granted = tool.sub_agent is not None or self._permissions.was_granted(tool, key)
        if began and tool.on_unknown == "retry" and (granted or not needs_person):
            return None, None
        return await self._asked(tool, given, key, began)

    async def _repeated(
        self, tool: Tool, given: dict[str, Any], key: str
    ) -> tuple[ToolResult | None, Permit | None] | None:
        """Return what becomes of a call that repeats an earlier one.

        A call that took effect in work without an answer is not made again: the repetition is
        given its result, once; a second repetition runs. An unknown outcome follows the tool's
        policy. ``None``: the call is like any other.

        Raises:
            WorkParkedError: the outcome is unknown, and a person has not decided yet.
            WorkFailedError: the outcome is unknown, and the tool's policy is ``fail``.
        """
        effect = self._repeats.match(tool, given, key)
        if effect is None:
            denied = self._repeats.denied(tool, given)
            return None if denied is None else (denied, None)
        if effect.status == "ok":
            return ToolResult("ok", effect.result, note=_GIVEN_AGAIN), None
        effect = with_decision(effect, self._execution.services.ledger)
        if effect.decision == "granted":
            return None
        if effect.decision == "denied":
            denied = not_run_again(tool.tool_id, effect.decided)
            self._repeats.deny(tool, given, denied)
            return denied, None
        if tool.on_unknown == "fail":
            raise _unknown(tool.tool_id)
        return await self._asked(tool, given, key, effect.attempt, effect.request_id)

    async def _asked(
        self, tool: Tool, given: dict[str, Any], key: str, began: int, instead_of: str = ""
    ) -> tuple[ToolResult | None, Permit | None]:
        """Return what a person decided; see :meth:`Permissions.ask`. A "no" holds for the order."""
        refusal, permit = await self._permissions.ask(tool, given, key, began, instead_of)
        if refusal is not None and began:
            self._repeats.deny(tool, given, refusal)
        return refusal, permit

    async def report_unknown(self) -> None:
        """Ask a person about each call whose outcome is unknown, if its tool's policy is ``ask``.

        Called as the order ends without a result: nothing will continue its calls.
        """
        if not self._begun:
            return
        await self._journal.flush()
        order = self._order
        history = OrderHistory(self._journal.ledger, order.wo_id, order.session_id)
        for key, intent in history.last_intents().items():
            tool_id, given = intent.metadata["tool_id"], intent.metadata["arguments"]
            with contextlib.suppress(UnknownToolError):  # the program has it no more
                (tool,) = self._dispatcher.tools([tool_id])
                if tool.on_unknown == "ask" and history.is_unknown(key):
                    if isinstance(given, Erased) or key in history.asked_about:
                        continue
                    await self._permissions.request(tool, given, key, history.intents[key])

    def _shown(self, key: str, result: ToolResult) -> str:
        """A result as the model is shown it: with what ran, where a person changed that."""
        refused = result.status == "refused"
        return ("" if refused else self._permissions.note_of_edit(key)) + result_text(result)

    async def _run(
        self, tool_id: str, given: dict[str, Any], size: int, key: str, permit: Permit | None
    ) -> ToolResult:
        attempt = self._history.intents[key] + 1
        further: dict[str, Any] = {"attempt": attempt} if attempt > 1 else {}
        (tool,) = self._dispatcher.tools([tool_id])
        if tool.sub_agent is not None:
            further["sub_session_id"] = sub_session_id(key)
            self._sub_sessions.add(further["sub_session_id"])
        order = self._order
        call: Context[Any] = Context(
            tool_id, key, order.wo_id, order.session_id, self._execution.services.agent_id,
            self._execution.principal, given_deps.get(),
            lambda *how_far: self._execution.emit(ToolProgress(tool_id, *how_far)),
        )  # fmt: skip
        async with self._slots:
            self._journal.check()
            self._execution.check()
            intent = self._journal.entry(
                "TOOL_INTENT", tool_id=tool_id, arguments=given, idempotency_key=key, **further
            )
            if problem := await self._permissions.begin(intent, permit, tool):
                refusal = _refused(problem)
                self._repeats.release(key)
                return self._record(tool_id, given, size, refusal, key, ran=False)
            self._execution.emit(ToolStarted(tool_id, given))
            self._running += 1
            try:
                result = await self._dispatcher.aexecute(tool_id, given, call=call)
            except asyncio.CancelledError:
                text = f"The order ended while {tool_id} ran; it may have taken effect."
                stopped = ToolResult("unknown", error=text)
                self._record(tool_id, given, size, stopped, key, ran=True)
                raise
            finally:
                self._running -= 1
            if result.status == "waiting":  # it has not ended: the order waits with it
                for request in result.output:
                    self._execution.emit(request)
                raise WorkParkedError(tuple(request.request_id for request in result.output))
            if tool.sub_agent is not None and result.status != "ok":
                inside = effects_text(tool.sub_agent.effects(key), "Before it ended,")
                result = replace(result, error=f"{result.error}\n{inside}".rstrip())
            self._record(tool_id, given, size, result, key, ran=True)
            await self._note_ended(tool, given, key, attempt, result)
            return result

    async def _note_ended(
        self, tool: Tool, given: dict[str, Any], key: str, attempt: int, result: ToolResult
    ) -> None:
        """Guard what a call left against repetition; ask a person about an unknown outcome."""
        unknown = result.status in ("timeout", "unknown")
        if tool.sub_agent is None and (not unknown or tool.on_unknown == "retry"):
            return
        request_id = ""
        if tool.on_unknown == "ask":
            request_id = await self._permissions.request(tool, given, key, attempt)
        status, action = "unknown" if unknown else result.status, action_of(tool.tool_id, given)
        self._repeats.add(
            tool,
            Effect(
                tool.tool_id, dump(given).decode(), action, status,
                attempt=attempt, request_id=request_id, key=key,
            ),
        )  # fmt: skip

    def _tool(self, tool_id: str) -> Tool | None:
        """Return a tool of the program; ``None`` if there is none with that id."""
        with contextlib.suppress(UnknownToolError, ToolError):
            return self._dispatcher.tools([tool_id])[0]
        return None

    def _record(
        self,
        tool_id: str,
        given: dict[str, Any],
        size: int,
        result: ToolResult,
        key: str,
        *,
        ran: bool,
    ) -> ToolResult:
        data = {
            # What is no id is the model's text: tool_error holds it, as content.
            "tool_id": tool_id if is_tool_id(tool_id) else UNKNOWN_TOOL,
            "status": result.status,
            "arguments": given,
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
        else:  # what comes now is written at once, and waits for this entry
            self._journal.hold(entry)
        self._count(key, {**data, "tool_id": tool_id}, ran=ran)
        self._execution.emit(ToolEnded(tool_id, result.status, result.output, result.error))
        return result

    def _count(self, key: str, data: Mapping[str, Any], *, ran: bool) -> None:
        self.calls += ran
        self._results[key] = {
            "tool_id": data["tool_id"],
            "status": data["status"],
            "arguments": _plain(data["arguments"]),
            "output": _plain(data["result"]),
            "error": _plain(data["tool_error"]),
        }


def _held_back(order: WorkOrder) -> Sequence[str]:
    """The tools that a model is not offered; a program's plan that names a call gets it.

    Nor is a tool held back without which no answer would pass.
    """
    limits = order.constraints
    if not limits.set_aside or order.wo_type is WorkOrderType.TOOL_CALL:
        return ()
    needed = order.acceptance_criteria.get("tools_used", ())
    return [one for one in limits.tools_allowed if one in limits.set_aside and one not in needed]


def _error(text: str) -> ToolResult:
    return ToolResult("error", error=text)


def _unknown(tool_id: str) -> WorkFailedError:
    return WorkFailedError(
        "tool_outcome_unknown", f"{tool_id} had begun; it is unknown whether it took effect"
    )


def _refused(text: str) -> ToolResult:
    return ToolResult("refused", error=text)


def _place(key: str) -> tuple[str, int]:
    """What calls are sorted by: the exchange that asked, and the number in it."""
    asked_in, _, number = key.rpartition("/")
    return asked_in, int(number)


def _results_or_raise(outcomes: Sequence[ToolResult | BaseException]) -> list[ToolResult]:
    """The results; or, where one is missing, the gravest reason is raised."""
    problems = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    for problem in problems:
        if not isinstance(problem, WorkParkedError):
            raise problem
    if problems:
        parked = [problem for problem in problems if isinstance(problem, WorkParkedError)]
        raise WorkParkedError(tuple(id_ for problem in parked for id_ in problem.request_ids))
    return [outcome for outcome in outcomes if isinstance(outcome, ToolResult)]


def _with_images(text: str, result: ToolResult, takes_images: bool) -> str | list[dict[str, Any]]:
    """Return the content of a result: its text, and its images if the model takes any."""
    if not result.images:
        return text
    if not takes_images:
        return f"{text}\n(Images are left out: this model takes none.)"
    return [{"type": "text", "text": text}, *map(dict, result.images)]


def _recorded_result(entry: LedgerEntry) -> ToolResult:
    data = entry.metadata
    if isinstance(data["result"], Erased) or isinstance(data["tool_error"], Erased):
        raise OrderRecordError(f"The order cannot go on: the content of {entry.id} was erased.")
    return ToolResult(
        data["status"], data["result"], data["tool_error"], note=_plain(data.get("note")) or ""
    )


def _plain(value: Any) -> Any:
    return None if isinstance(value, Erased) else value


def sendable(blocks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a model's blocks as they can be sent back to it.

    Arguments that were refused are left out, and a name that no tool can have is replaced: some
    servers refuse a conversation that holds them. The tool's result says why they were refused.
    """
    kept = []
    for block in blocks:
        given = block.get("input")
        if block.get("type") == "tool_use" and (
            not isinstance(given, dict) or unparsed_text(given) is not None
        ):
            block = {**block, "input": {}}
        if block.get("type") == "tool_use" and not is_tool_id(str(block.get("name"))):
            block = {**block, "name": tool_id_of(str(block.get("name"))) or UNKNOWN_TOOL}
        try:
            exact_json(block)
            kept.append(dict(block))
        except InvalidInputError:
            kept.append({**block, "input": {}})
    return kept


def result_text(result: ToolResult) -> str:
    """Return a tool's result as text for the model."""
    if result.status != "ok":
        return f"{result.status}: {result.error}"
    output = result.output
    text = output if isinstance(output, str) else dump(output).decode()
    return f"The tool ran; {result.note}\n{text}" if result.note else text
