"""Tools by id, and their execution: arguments are checked, time and output limited, exceptions
contained.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from remit.agents.tools.decorator import tool
from remit.agents.tools.definition import (
    Context,
    Tool,
    ToolError,
    ToolUnavailableError,
    ToolWaitingError,
    UnknownToolError,
    active_call,
)
from remit.agents.tools.result_conversion import Illustrated, json_output
from remit.kernel.errors import RemitError
from remit.kernel.loops import abandon, at_home, call_in_thread, run_blocking
from remit.kernel.secrets import ConfiguredSecrets
from remit.kernel.settings import ToolSettings

TOOL_GROUP = "remit.tools"


def _load_tool(tool_id: str) -> Tool | None:
    """Import and return the installed tool with an id; None if no distribution offers it.

    A plain function becomes a tool with the id.

    Raises:
        ToolError: two distributions offer the id, the import fails, or the object is not a tool
            with that id.
    """
    found = list(entry_points(group=TOOL_GROUP, name=tool_id))
    if not found:
        return None
    if len({entry.value for entry in found}) > 1:
        raise ToolError(
            f"Several installed distributions offer a tool {tool_id!r}: "
            f"{', '.join(sorted(_distribution(entry) for entry in found))}.",
            next_step="Uninstall all but one of them.",
        )
    return _load(found[0], tool_id)


def offered_ids() -> set[str]:
    """Return the ids of the tools that installed distributions offer; import nothing."""
    return {entry.name for entry in entry_points(group=TOOL_GROUP)}


def _load(entry: EntryPoint, tool_id: str) -> Tool:
    name = f"The tool {tool_id!r} of {_distribution(entry)} ({entry.value})"
    try:
        found = entry.load()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise ToolError(
            f"{name} cannot be imported: {type(error).__name__}: {error}.",
            next_step="Fix or uninstall that distribution, or take the tool off the list.",
        ) from error
    if isinstance(found, Tool):
        if found.tool_id != tool_id:
            raise ToolError(
                f"{name} has the id {found.tool_id!r}.",
                next_step="Give the entry point and the tool the same name.",
            )
        return found
    if not inspect.isfunction(found):
        raise ToolError(
            f"{name} is a {type(found).__name__}, neither a Tool nor a function.",
            next_step="Point the entry point at a function, or at a result of @remit.tool.",
        )
    return tool(tool_id=tool_id)(found)


def _distribution(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "an unnamed distribution"


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

    Immutable.

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
    """The tools of a runtime: given ones, and the ones of installed distributions.

    Installed tools are cached after their first import. Making the object imports nothing.

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
        for given in tools:
            if given.tool_id in self._tools:
                raise ToolError(
                    f"Two tools have the id {given.tool_id!r}.", next_step="Rename one of them."
                )
            self._tools[given.tool_id] = given
        self._settings = settings
        self._secrets = secrets
        self._running: set[asyncio.Task[ToolResult]] = set()

    def tools(self, tool_ids: Iterable[str]) -> list[Tool]:
        """Return the tools with these ids, in this order, as :meth:`tool` returns or raises."""
        return [self.tool(tool_id) for tool_id in tool_ids]

    def execute(
        self, tool_id: str, arguments: Mapping[str, Any], *, call: Context[Any] | None = None
    ) -> ToolResult:
        """Run a tool and return its result, for callers without an event loop. Blocks.

        Failures of the tool, wrong arguments and an unknown id become results with an error, see
        :meth:`aexecute`. Nothing is recorded.

        Args:
            tool_id: the tool.
            arguments: JSON values by name.
            call: the context that :func:`current_call` returns to the tool; may be None.

        Raises:
            InvalidInputError: the caller is the background loop itself.
            RuntimeError: importing an installed tool raised KeyboardInterrupt.
        """
        return run_blocking(self.aexecute(tool_id, arguments, call=call))

    async def aexecute(
        self, tool_id: str, arguments: Mapping[str, Any], *, call: Context[Any] | None = None
    ) -> ToolResult:
        """Run a tool and return its result; its failures become results, not errors.

        Nothing is recorded here. Invalid arguments, an unknown tool and exceptions of the tool
        give the status ``error``; a lost service may give ``unknown``, a sub-agent that needs a
        person ``waiting``. Output is converted to JSON, cut at the limit, and stripped of known
        secrets. Importing an installed tool has no time limit. A tool that exceeds its time limit
        (``timeout``) is abandoned: the thread of a function continues, a coroutine is cancelled,
        and closed if it ignores that. Either may still take effect. The same happens if the caller
        is cancelled, and CancelledError is raised. A cancelled sub-agent is waited for, at most
        10 s.

        Args:
            tool_id: the tool.
            arguments: JSON values by name.
            call: the context that :func:`current_call` returns to the tool; may be None.

        Raises:
            RuntimeError: importing an installed tool raised KeyboardInterrupt.
        """
        tool = self._tools.get(tool_id)
        if tool is None:
            try:  # Importing a distribution can take long, so it runs in a thread.
                tool = await call_in_thread(f"remit-tool-{tool_id}", lambda: self.tool(tool_id))
            except RemitError as error:
                return ToolResult("error", error=str(error))
        timeout_s = self._settings.timeout_s if tool.timeout_s is None else tool.timeout_s
        context = contextvars.copy_context()
        context.run(active_call.set, call)
        work = self._run(tool, arguments, call)
        task = asyncio.get_running_loop().create_task(work, context=context)
        self._running.add(task)  # The loop holds only a weak reference.
        task.add_done_callback(self._running.discard)
        abandon(task)  # A tool that outlives its time may end in any way.
        try:
            done, _ = await asyncio.wait({task}, timeout=timeout_s)
        except asyncio.CancelledError:
            await _cancel(tool, task, work, timeout_s)
            raise
        if done:
            if task.cancelled():
                return self._error(tool, f"{tool_id} cancelled its own task.")
            return task.result()
        await _cancel(tool, task, work, timeout_s)
        text = f"{tool_id} did not end within {timeout_s:g} s. It may still take effect."
        # A long answer of a sub-agent is due to the request.
        return ToolResult("timeout", error=text, fault=tool.sub_agent is None)

    async def refusal(self, tool: Tool, arguments: Mapping[str, Any]) -> ToolResult | None:
        """Return the error that a call would end with because of its arguments; None if they fit.

        The check runs in a thread, and the tool does not run.

        Args:
            tool: the tool.
            arguments: JSON values by name.
        """

        def check() -> ToolResult | None:
            try:
                tool.prepared(arguments)
            except BaseException as error:  # noqa: BLE001 - a type's own code can raise anything
                return self._failure(tool, error)
            return None

        return await call_in_thread(f"remit-tool-{tool.tool_id}", check)

    def tool(self, tool_id: str) -> Tool:
        """Return a tool; import it if needed.

        Imported tools are cached. Blocks while a distribution is imported.

        Args:
            tool_id: id of an own tool or of an installed distribution.

        Raises:
            UnknownToolError: there is no tool with this id.
            ToolError: an installed distribution offers a tool that cannot be used, or several offer
                different ones under this id.
        """
        tool = self._tools.get(tool_id) or _load_tool(tool_id)
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

    async def _run(
        self, tool: Tool, arguments: Mapping[str, Any], call: Context[Any] | None
    ) -> ToolResult:
        """Run a tool to its end; only the cancellation of the task is raised."""

        def call_function() -> Any:
            try:
                output = tool.function(**_prepare(tool, arguments, call))
                return output if _is_awaitable(output) else self._convert(tool, output)
            except BaseException as error:  # noqa: BLE001 - a tool must not end the runtime
                return self._failure(tool, error)

        thread = f"remit-tool-{tool.tool_id}"
        try:
            # Checking arguments and converting a large output would block the loop.
            if _is_async(tool.function):
                prepared = await call_in_thread(thread, lambda: _prepare(tool, arguments, call))
                output = tool.function(**prepared)
            else:
                output = await call_in_thread(thread, call_function)
            while _is_awaitable(output):  # A plain function can return an awaitable too.
                output = await at_home(_awaited(output))
            if type(output) is ToolResult:
                return output
            return await call_in_thread(thread, lambda: self._convert(tool, output))
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return self._failure(tool, error)
        except BaseException as error:  # noqa: BLE001 - a task would pass SystemExit to the loop
            return self._failure(tool, error)

    def _convert(self, tool: Tool, output: Any) -> ToolResult:
        images: tuple[Mapping[str, Any], ...] = ()
        if type(output) is Illustrated:
            output, images = output.value, output.images
        value, note, found = json_output(output, self._max_output_bytes(tool))
        images = (*images, *found)
        return ToolResult("ok", self._redact(value), note=self._redact(note), images=images)

    def _failure(self, tool: Tool, error: BaseException) -> ToolResult:
        """Return the result of a call that raised an exception."""
        if isinstance(error, ToolWaitingError):
            return ToolResult("waiting", error.requests)
        try:
            text = str(error)
        except BaseException:  # noqa: BLE001 - str() runs code of the tool
            text = ""
        if not isinstance(error, RemitError):
            text = f"{tool.tool_id} raised {type(error).__name__}: {text}"
        result = self._error(tool, text, fault=is_own_fault(error))
        if isinstance(error, ToolUnavailableError) and error.is_outcome_unknown:
            return replace(result, status="unknown")
        return result

    def _error(self, tool: Tool, text: str, *, fault: bool = False) -> ToolResult:
        """Return an error result with a text, redacted and cut at the output limit."""
        encoded = self._redact(text).encode("utf-8", "replace")[: self._max_output_bytes(tool)]
        return ToolResult("error", error=encoded.decode("utf-8", "ignore"), fault=fault)

    def _max_output_bytes(self, tool: Tool) -> int:
        limit = tool.max_output_bytes
        return self._settings.max_output_bytes if limit is None else limit

    def _redact(self, value: Any) -> Any:
        return value if self._secrets is None else self._secrets.hidden(value)


async def _cancel(
    tool: Tool, task: asyncio.Task[Any], work: Coroutine[Any, Any, Any], patience_s: float
) -> None:
    """Cancel a call; close its coroutine if it still runs after ``patience_s`` seconds.

    A sub-agent is waited for, because it still records its end and its cost.
    """

    def close() -> None:
        if not task.done():
            # RuntimeError: the coroutine awaits even then, or runs at this moment.
            with contextlib.suppress(RuntimeError, ValueError):
                work.close()
            task.cancel()

    task.cancel()
    task.get_loop().call_later(patience_s, close)
    if tool.sub_agent:
        await asyncio.wait({task}, timeout=_SUB_AGENT_END_S)


def _prepare(tool: Tool, arguments: Any, call: Context[Any] | None) -> Mapping[str, Any]:
    """Return the arguments as the function takes them, with the context if it takes one.

    Raises:
        ToolError: the arguments or the turn's ``deps`` do not fit; the message says where.
    """
    prepared = tool.prepared(arguments)
    if tool.context:
        call = call or Context(tool.tool_id, "", "", "")
        if problem := tool.lacks(call.deps):
            raise ToolError(problem)
        return {**prepared, tool.context: call}
    return prepared


def is_own_fault(error: BaseException) -> bool:
    """Return True if an exception shows that the tool itself is broken, whatever its arguments.

    :class:`ToolUnavailableError` always counts. An exception with ``response.status_code`` (HTTP)
    counts if that is 401, 403, 407, 408 or 429, and not if it is another 4xx. Of all others, the
    ones that arguments alone can cause do not count: other RemitErrors, ValueError, TypeError,
    LookupError, ArithmeticError, RecursionError, MemoryError, and file errors such as
    FileNotFoundError and PermissionError.

    Args:
        error: the exception of a call.
    """
    if isinstance(error, ToolUnavailableError):
        return True
    response = getattr(error, "response", None)  # Exceptions of HTTP clients have this attribute.
    status = getattr(response, "status_code", None)
    if isinstance(status, int) and 400 <= status < 500:
        return status in _SERVICE_STATUSES
    return not isinstance(error, _ARGUMENT_ERRORS)


async def _awaited(output: Awaitable[Any]) -> Any:
    return await output


def _is_awaitable(output: Any) -> bool:
    try:
        return inspect.isawaitable(output)
    except BaseException:  # noqa: BLE001 - the value's own code; the tool has run
        return False


def _is_async(function: Callable[..., Any]) -> bool:
    """Return True if calling an object returns a coroutine, also for partials."""
    return any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))
