"""Execution of tools: arguments are checked, time and output limited, exceptions contained."""

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
    Tool,
    ToolError,
    ToolUnavailableError,
    ToolWaitingError,
    UnknownToolError,
    active_call,
)
from remit.agents.tools.entry_points import TOOL_GROUP, load_tool, offered_ids
from remit.agents.tools.output import Illustrated, json_output
from remit.kernel.errors import RemitError
from remit.kernel.loops import abandon, at_home, call_in_thread, run_blocking
from remit.kernel.secrets import ConfiguredSecrets
from remit.kernel.settings import ToolSettings

# Maximum wait for a cancelled sub-agent to record its end, seconds.
_SUB_AGENT_END_S = 10.0

# Exceptions that arguments alone can cause: other arguments may succeed.
_ARGUMENT_ERRORS = (
    RemitError, ValueError, TypeError, LookupError, ArithmeticError, FileNotFoundError,
    FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError, RecursionError,
    MemoryError,
)  # fmt: skip

# HTTP statuses below 500 that are unrelated to the request: credentials, time, limits.
_SERVICE_STATUSES = frozenset({401, 403, 407, 408, 429})


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call.

    Attributes:
        status: ``ok``; ``error`` if the tool raised or the arguments do not fit; ``timeout``;
            ``refused`` if the call was not allowed; ``waiting`` if its sub-agent waits for a person
            and the call has not ended; ``unknown`` if the order ended or the connection broke while
            the tool ran.
        output: a JSON value; the pending requests if ``waiting``; None for other failures.
        error: a sentence for the model; empty if ``ok``.
        fault: True if the tool itself is broken, whatever its arguments.
        note: what was converted or cut in ``output``, to follow "The tool ran;"; may be empty.
        images: content blocks of images that ``output`` mentions; not recorded in ``TOOL_CALL``.
    """

    status: Literal["ok", "error", "timeout", "refused", "waiting", "unknown"]
    output: Any = None
    error: str = ""
    fault: bool = False
    note: str = ""
    images: tuple[Mapping[str, Any], ...] = ()


class ToolDispatcher:
    """The tools of a runtime: given ones, and those of installed distributions.

    Args:
        tools: the tools. Other ids are looked up as entry points of the group ``remit.tools``,
            whose code is imported when an id is first requested.
        settings: time and output limits for tools without their own.
        secrets: secrets to remove from results and messages; None for none.

    Raises:
        ToolError: two tools have the same id.
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
                raise ToolError(
                    f"Two tools have the id {tool.tool_id!r}.", next_step="Rename one of them."
                )
            self._tools[tool.tool_id] = tool
        self._settings = settings
        self._secrets = secrets
        self._running: set[asyncio.Task[ToolResult]] = set()

    def tools(self, tool_ids: Iterable[str]) -> list[Tool]:
        """Return the tools with these ids, in this order.

        Raises:
            UnknownToolError: there is no tool with one of the ids.
            ToolError: an installed distribution offers a tool that cannot be used.
        """
        return [self._tool(tool_id) for tool_id in tool_ids]

    def execute(
        self, tool_id: str, arguments: Mapping[str, Any], *, call: Context[Any] | None = None
    ) -> ToolResult:
        """Run :meth:`aexecute` for callers without an event loop."""
        return run_blocking(self.aexecute(tool_id, arguments, call=call))

    async def aexecute(
        self, tool_id: str, arguments: Mapping[str, Any], *, call: Context[Any] | None = None
    ) -> ToolResult:
        """Run a tool and return its result; only the cancellation of the caller is raised.

        A tool that exceeds its time limit is abandoned: the thread of a function continues, a
        coroutine is cancelled, and closed if it ignores that. Either may still take effect.

        Args:
            tool_id: the tool.
            arguments: JSON values by name.
            call: the context that :func:`current_call` returns to the tool; may be None.
        """
        tool = self._tools.get(tool_id)
        if tool is None:
            try:  # Importing a distribution can take long, so it runs in a thread.
                tool = await call_in_thread(f"remit-tool-{tool_id}", lambda: self._tool(tool_id))
            except RemitError as error:
                return ToolResult("error", error=str(error))
        run = _Run(tool, self._settings, self._secrets, call)
        context = contextvars.copy_context()
        context.run(active_call.set, call)
        work = run.execute(arguments)
        task = asyncio.get_running_loop().create_task(work, context=context)
        self._running.add(task)  # The loop holds only a weak reference.
        task.add_done_callback(self._running.discard)
        abandon(task)  # A tool that outlives its time may end in any way.
        try:
            done, _ = await asyncio.wait({task}, timeout=run.timeout_s)
        except asyncio.CancelledError:
            await run.cancel(task, work)
            raise
        if not done:
            await run.cancel(task, work)
            return run.timed_out()
        if task.cancelled():
            return run.failed(f"{tool_id} cancelled its own task.")
        return task.result()

    def _tool(self, tool_id: str) -> Tool:
        tool = self._tools.get(tool_id) or load_tool(tool_id)
        if tool is None:
            known = sorted({*self._tools, *offered_ids()})
            near = get_close_matches(tool_id, known, 1)
            hint = f"Did you mean {near[0]!r}? " if near else ""
            available = f"Available: {', '.join(known)}" if known else "No tool is available"
            raise UnknownToolError(
                f"There is no tool {tool_id!r}.",
                next_step=f"{hint}{available}. Pass a function in tools=…, or install a "
                f"distribution with an entry point of that name in the group {TOOL_GROUP!r}.",
            )
        return self._tools.setdefault(tool_id, tool)


def _cancel(task: asyncio.Task[Any], work: Coroutine[Any, Any, Any], patience_s: float) -> None:
    """Cancel a task; close its coroutine if it still runs after ``patience_s`` seconds."""

    def close() -> None:
        if not task.done():
            # RuntimeError: the coroutine awaits even then, or runs at this moment.
            with contextlib.suppress(RuntimeError, ValueError):
                work.close()
            task.cancel()

    task.cancel()
    task.get_loop().call_later(patience_s, close)


class _Run:
    """A single call of a tool, from its arguments to its result."""

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

    async def cancel(self, task: asyncio.Task[ToolResult], work: Coroutine[Any, Any, Any]) -> None:
        """Cancel the call; wait for a sub-agent, which still records its end and its cost."""
        _cancel(task, work, self.timeout_s)
        if self._tool.sub_agent:
            await asyncio.wait({task}, timeout=_SUB_AGENT_END_S)

    async def execute(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Run the tool and return its result; only the cancellation of the task is raised."""
        try:
            # Checking arguments and converting a large output would block the loop.
            if _is_async(self._tool.function):
                prepared = await call_in_thread(self._thread, lambda: self._prepared(arguments))
                output = self._tool.function(**prepared)
            else:
                output = await call_in_thread(self._thread, lambda: self._called(arguments))
            while inspect.isawaitable(output):  # A plain function can return an awaitable too.
                output = await at_home(_awaited(output))
            if isinstance(output, ToolResult):
                return output
            return await call_in_thread(self._thread, lambda: self._shaped(output))
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return self._raised(error)
        except BaseException as error:  # noqa: BLE001 - a task would pass SystemExit to the loop
            return self._raised(error)

    def failed(self, text: str, *, fault: bool = False) -> ToolResult:
        """Return an error result with a text, redacted and cut at the output limit."""
        text = (
            self._redacted(text).encode("utf-8", "replace")[: self._limit].decode("utf-8", "ignore")
        )
        return ToolResult("error", error=text, fault=fault)

    def timed_out(self) -> ToolResult:
        """Return the result of a call that exceeded its time limit."""
        return ToolResult(
            "timeout",
            error=f"{self._tool.tool_id} did not end within {self.timeout_s:g} s. "
            "It may still take effect.",
            # A long answer of a sub-agent is due to the request.
            fault=self._tool.sub_agent is None,
        )

    @property
    def _thread(self) -> str:
        return f"remit-tool-{self._tool.tool_id}"

    def _called(self, arguments: Mapping[str, Any]) -> Any:
        """Call a plain function; return its result, or the awaitable that it returned."""
        try:
            output = self._tool.function(**self._prepared(arguments))
            return output if inspect.isawaitable(output) else self._shaped(output)
        except BaseException as error:  # noqa: BLE001 - a tool must not take the runtime down
            return self._raised(error)

    def _prepared(self, arguments: Any) -> Mapping[str, Any]:
        """Return the arguments as the function takes them, with the context if it takes one.

        Raises:
            ToolError: the arguments or the turn's ``deps`` do not fit; the message says where.
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
        value, note = json_output(output, self._limit)
        return ToolResult("ok", self._redacted(value), note=self._redacted(note), images=images)

    def _redacted(self, value: Any) -> Any:
        return value if self._secrets is None else self._secrets.hidden(value)

    def _raised(self, error: BaseException) -> ToolResult:
        if isinstance(error, ToolWaitingError):
            return ToolResult("waiting", error.requests)
        try:
            text = str(error)
        except BaseException:  # noqa: BLE001 - str() runs code of the tool
            text = ""
        fault = is_own_fault(error)
        if isinstance(error, ToolUnavailableError) and error.is_outcome_unknown:
            return replace(self.failed(text, fault=fault), status="unknown")
        if isinstance(error, RemitError):
            return self.failed(text, fault=fault)
        return self.failed(
            f"{self._tool.tool_id} raised {type(error).__name__}: {text}", fault=fault
        )


def is_own_fault(error: BaseException) -> bool:
    """Return True if an exception shows that the tool itself is broken, whatever its arguments."""
    if isinstance(error, ToolUnavailableError):
        return True
    response = getattr(error, "response", None)  # Exceptions of HTTP clients have this attribute.
    status = getattr(response, "status_code", None)
    if isinstance(status, int) and 400 <= status < 500:
        return status in _SERVICE_STATUSES
    return not isinstance(error, _ARGUMENT_ERRORS)


async def _awaited(output: Awaitable[Any]) -> Any:
    return await output


def _is_async(function: Callable[..., Any]) -> bool:
    """Return True if calling an object returns a coroutine, also for partials."""
    return any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))
