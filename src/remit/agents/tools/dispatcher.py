"""Runs tools: arguments checked, time and output bounded, exceptions contained."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal

from remit.agents.tools.definition import (
    Context,
    OutcomeUnknownError,
    Tool,
    ToolError,
    ToolWaitingError,
    UnknownToolError,
    calling,
)
from remit.agents.tools.faults import is_own_fault
from remit.agents.tools.installed import TOOL_GROUP, installed_ids, installed_tool
from remit.agents.tools.output import Illustrated, json_output
from remit.kernel.errors import RemitError
from remit.kernel.loops import abandon, at_home, call_in_thread, run_blocking
from remit.kernel.secrets import ConfiguredSecrets
from remit.kernel.settings import ToolSettings

_LONGEST_END_S = 10.0


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came of a tool call.

    Attributes:
        status: ``ok``, ``error`` (it raised, or the arguments do not fit), ``timeout``,
            ``refused`` (it was not allowed), ``waiting`` (a sub-agent waits for a person: it
            has not ended), or ``unknown`` (its order ended while it ran, or the connection to
            it was lost).
        output: a JSON value; of ``waiting`` the requests; ``None`` otherwise.
        error: a sentence for the model; empty when ``ok``.
        fault: it failed by its own doing, not by that of what it was asked.
        note: what was converted or cut in ``output``, to follow "The tool ran;"; or empty.
        images: content blocks of images that ``output`` names; not part of ``TOOL_CALL``.
    """

    status: Literal["ok", "error", "timeout", "refused", "waiting", "unknown"]
    output: Any = None
    error: str = ""
    fault: bool = False
    note: str = ""
    images: tuple[Mapping[str, Any], ...] = ()


class ToolDispatcher:
    """The tools of one runtime: those it is given, and those of installed distributions.

    Args:
        tools: what there is. Ids that are not among them are looked up as entry points of the
            group ``remit.tools``, whose code is imported when an id is first asked for.
        settings: time and output limits of tools that have none of their own.
        secrets: what no result may show, whatever a tool returns or raises.
    """

    def __init__(
        self,
        tools: Iterable[Tool],
        settings: ToolSettings,
        secrets: ConfiguredSecrets | None = None,
    ) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            if tool.tool_id in self._tools:
                raise ToolError(f"There are two tools {tool.tool_id!r}.")
            self._tools[tool.tool_id] = tool
        self._settings = settings
        self._secrets = secrets
        self._running: set[asyncio.Task[ToolResult]] = set()

    def tools(self, tool_ids: Iterable[str]) -> list[Tool]:
        """The tools with these ids, in this order.

        Raises:
            UnknownToolError: one of them does not exist.
            ToolError: an installed distribution offers one that cannot be used.
        """
        return [self._tool(tool_id) for tool_id in tool_ids]

    def execute(
        self, tool_id: str, arguments: Mapping[str, Any], *, call: Context[Any] | None = None
    ) -> ToolResult:
        """:meth:`aexecute` for callers without an event loop."""
        return run_blocking(self.aexecute(tool_id, arguments, call=call))

    async def aexecute(
        self, tool_id: str, arguments: Mapping[str, Any], *, call: Context[Any] | None = None
    ) -> ToolResult:
        """Run one tool. Never raises but for its own cancellation: the rest is in the result.

        A tool that outlives its time is abandoned: a function's thread runs on, a coroutine is
        cancelled, and closed when it will not be. Either may still take effect.

        Args:
            tool_id: which one.
            arguments: by name, as JSON values.
            call: what the tool may learn about this call with :func:`current_call`.
        """
        tool = self._tools.get(tool_id)
        if tool is None:
            try:  # an import may take its time
                tool = await call_in_thread(f"remit-tool-{tool_id}", lambda: self._tool(tool_id))
            except RemitError as error:
                return ToolResult("error", error=str(error))
        run = _Run(tool, self._settings, self._secrets, call)
        context = contextvars.copy_context()
        context.run(calling.set, call)
        work = run.outcome(arguments)
        task = asyncio.get_running_loop().create_task(work, context=context)
        self._running.add(task)  # the loop itself holds tasks weakly
        task.add_done_callback(self._running.discard)
        abandon(task)  # A tool that outlives its time may end in any way.
        try:
            done, _ = await asyncio.wait({task}, timeout=run.timeout_s)
        except asyncio.CancelledError:
            await run.end(task, work)
            raise
        if not done:
            await run.end(task, work)
            return run.late()
        if task.cancelled():
            return run.failed(f"{tool_id} cancelled itself.")
        return task.result()

    def _tool(self, tool_id: str) -> Tool:
        tool = self._tools.get(tool_id) or installed_tool(tool_id)
        if tool is None:
            known = sorted({*self._tools, *installed_ids()})
            near = get_close_matches(tool_id, known, 1)
            hint = f"Did you mean {near[0]!r}? " if near else ""
            there = (
                f"There are {', '.join(known)}" if known else "None was given, none is installed"
            )
            raise UnknownToolError(
                f"There is no tool {tool_id!r}.",
                next_step=f"{hint}{there}. Give a function with tools=…, or install a "
                f"distribution with an entry point of that name in the group {TOOL_GROUP!r}.",
            )
        return self._tools.setdefault(tool_id, tool)


def _end(task: asyncio.Task[Any], work: Coroutine[Any, Any, Any], patience_s: float) -> None:
    """Cancel ``task``; one that swallows that is closed after as long again as it had."""

    def close() -> None:
        if not task.done():
            # RuntimeError: it awaits even then, or runs at this moment; no more can be done.
            with contextlib.suppress(RuntimeError, ValueError):
                work.close()
            task.cancel()

    task.cancel()
    task.get_loop().call_later(patience_s, close)


class _Run:
    """One call of one tool, from its arguments to its result."""

    def __init__(
        self,
        tool: Tool,
        settings: ToolSettings,
        secrets: ConfiguredSecrets | None,
        call: Context[Any] | None,
    ) -> None:
        self._tool = tool
        self._call = call
        self._secrets = secrets
        self.timeout_s = settings.timeout_s if tool.timeout_s is None else tool.timeout_s
        limit = tool.max_output_bytes
        self._limit = settings.max_output_bytes if limit is None else limit

    async def end(self, task: asyncio.Task[ToolResult], work: Coroutine[Any, Any, Any]) -> None:
        """Cancel it. A sub-agent is waited for: it puts its end, and what it cost, on record."""
        _end(task, work, self.timeout_s)
        if self._tool.sub_agent:
            await asyncio.wait({task}, timeout=_LONGEST_END_S)

    async def outcome(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Run it to its end; what it raises is in the result, save its own cancellation."""
        try:
            # Neither a check of arguments nor a large output may hold up the loop.
            if _is_async(self._tool.function):
                prepared = await call_in_thread(self._thread, lambda: self._prepared(arguments))
                output = self._tool.function(**prepared)
            else:
                output = await call_in_thread(self._thread, lambda: self._called(arguments))
            while inspect.isawaitable(output):  # a plain function can return one too
                output = await at_home(_awaited(output))
            if isinstance(output, ToolResult):
                return output
            return await call_in_thread(self._thread, lambda: self._shaped(output))
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return self._raised(error)
        except BaseException as error:  # noqa: BLE001 - a task passes SystemExit on to the loop
            return self._raised(error)

    def failed(self, text: str, *, fault: bool = False) -> ToolResult:
        """An error that says ``text``, cut at the limit of an output."""
        text = (
            self._hidden(text).encode("utf-8", "replace")[: self._limit].decode("utf-8", "ignore")
        )
        return ToolResult("error", error=text, fault=fault)

    def late(self) -> ToolResult:
        """The result of a run that did not end in time."""
        return ToolResult(
            "timeout",
            error=f"{self._tool.tool_id} did not end within {self.timeout_s:g} s. "
            "It may still take effect.",
            fault=self._tool.sub_agent is None,  # an agent's long answer is the request's doing
        )

    @property
    def _thread(self) -> str:
        return f"remit-tool-{self._tool.tool_id}"

    def _called(self, arguments: Mapping[str, Any]) -> Any:
        """Call a plain function; return its result, or what it returned that must be awaited."""
        try:
            output = self._tool.function(**self._prepared(arguments))
            return output if inspect.isawaitable(output) else self._shaped(output)
        except BaseException as error:  # noqa: BLE001 - a tool must not take the runtime down
            return self._raised(error)

    def _prepared(self, arguments: Any) -> Mapping[str, Any]:
        """Return the arguments as the function takes them.

        Raises:
            ToolError: they do not fit; the message says where.
        """
        tool = self._tool
        prepared = tool.prepared(arguments)
        if tool.context:
            call = self._call or Context(tool.tool_id, "", "", "")
            if problem := tool.lacks(call.deps):
                raise ToolError(problem)
            return {**prepared, tool.context: call}
        return prepared

    def _shaped(self, output: Any) -> ToolResult:
        images: tuple[Mapping[str, Any], ...] = ()
        if isinstance(output, Illustrated):
            output, images = output.value, output.images
        made = json_output(output, self._limit)
        note = self._hidden(made.note)
        return ToolResult("ok", self._hidden(made.value), note=note, images=images)

    def _hidden(self, value: Any) -> Any:
        return value if self._secrets is None else self._secrets.hidden(value)

    def _raised(self, error: BaseException) -> ToolResult:
        if isinstance(error, ToolWaitingError):
            return ToolResult("waiting", error.requests)
        try:
            text = str(error)
        except BaseException:  # noqa: BLE001 - even this is the tool's code
            text = ""
        fault = is_own_fault(error)
        if isinstance(error, OutcomeUnknownError):
            return replace(self.failed(text, fault=fault), status="unknown")
        if isinstance(error, RemitError):
            return self.failed(text, fault=fault)
        return self.failed(
            f"{self._tool.tool_id} raised {type(error).__name__}: {text}", fault=fault
        )


async def _awaited(output: Awaitable[Any]) -> Any:
    return await output


def _is_async(function: Callable[..., Any]) -> bool:
    """True when calling ``function`` gives a coroutine, partials and callable objects included."""
    return any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))
