"""An MCP server as a source of tools."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, Self, TypeVar

from mcp import Client, MCPError
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, PARSE_ERROR
from mcp.types import Tool as Offered
from pydantic import ValidationError

from remit.agents.tools.definition import (
    Context,
    OutcomeUnknownError,
    Tool,
    ToolError,
    ToolUnavailableError,
    current_call,
)
from remit.agents.tools.mcp.connection import Connection, ConnectionEndedError, Transport
from remit.agents.tools.mcp.origin import mcp_origin
from remit.agents.tools.mcp.process import ServerProcess
from remit.agents.tools.mcp.resources import (
    ContextTool,
    call_context_tool,
    context_tools,
    text_lists,
)
from remit.agents.tools.mcp.results import mcp_schema, mcp_tool_id, output
from remit.agents.tools.mcp.secrets import McpSecrets
from remit.agents.tools.mcp.texts import PinnedTexts
from remit.agents.tools.mcp.transports import mcp_transport
from remit.agents.tools.pins import Pins, Refused
from remit.kernel.errors import ConfigError, excerpt
from remit.kernel.loops import Closeable, call_in_thread
from remit.kernel.schemas import schema_problem
from remit.kernel.settings import McpServerSettings

_log = logging.getLogger("remit.tools")
_T = TypeVar("_T")
_KEY = "remit/idempotency_key"
# Answers of a server that is well: it knows the call, or says what is wrong with it.
_OWN_ERRORS = (INVALID_PARAMS, METHOD_NOT_FOUND, INTERNAL_ERROR)
_MOST_TOOLS = 1000
_PROGRESS_EVERY_S = 0.1
_TEXT_CHARS = 500
_CHECK_S = 60.0  # a change that a server does not speak of is seen within this time
_UNSEEN = "Not available until a person accepts its definition."
_open: weakref.WeakSet[McpServer] = weakref.WeakSet()


class McpServer(Closeable):
    """One server of ``[mcp.NAME]``, over stdio or streamable HTTP.

    It starts when its tools are first asked for. One that died is started again by the next
    call. Nothing that it says of itself is trusted: what may be repeated, and which of its
    tools are admitted, the operator decides.

    Args:
        name: of the server; its tools' ids begin with it.
        settings: how it is reached, and its limits.
        pins: what its tools are held against: one that differs is shown to a model as it was
            pinned, and refused; left out, every definition is taken as it comes.
    """

    def __init__(self, name: str, settings: McpServerSettings, pins: Pins | None = None) -> None:
        self.name = name
        self._pins = pins
        self._refused: Mapping[str, Refused] = {}
        self._offered: list[Offered] = []  # what it listed when that was checked
        self._checked: tuple[Connection, float] | None = None
        self._settings = settings
        self._secrets = McpSecrets(name)
        self._texts = PinnedTexts(name, self._origin, pins)
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._process: ServerProcess | None = None
        self._closed = False
        _open.add(self)

    @classmethod
    def configured(
        cls, name: str, known: Mapping[str, McpServerSettings], pins: Pins | None = None
    ) -> Self:
        """The server that ``known``, the settings of all of them, has under ``name``.

        Raises:
            ConfigError: there is none.
        """
        if name not in known:
            raise ConfigError(
                f"There is no MCP server {name!r} in the configuration.",
                next_step=f"Add [mcp.{name}] to remit.toml; there are "
                f"{', '.join(sorted(known)) or 'none'}.",
            )
        return cls(name, known[name], pins)

    def __repr__(self) -> str:
        return f"McpServer({self.name!r})"

    def tools(self) -> list[Tool]:
        """What the server offers now; it is started when it does not run. Blocks until then.

        Raises:
            ToolError: it does not start or answer in time, or two of its tools would have the
                same id.
        """
        self._closed = False
        return [self._shown(tool) for tool in self._checked_tools()]

    def refused(self) -> dict[str, Refused]:
        """Return the tools and other texts of the server that wait for a person, by id. Blocks.

        Raises:
            ToolError: as :meth:`tools`.
        """
        self._closed = False
        self._checked_tools()
        self._texts.lists(self._asked(text_lists, "texts"))
        return {**self._refused, **self._texts.refused()}

    def close(self) -> None:
        """End the connection, and the server if it was started here, with all its children."""
        self._end()
        self._join()

    # -- the connection --------------------------------------------------------------------

    def _own(self) -> Connection | None:
        """The connection, unless it is another's: of the process that forked this one."""
        found = self._connection
        return found if found is not None and found.process_id == os.getpid() else None

    def _end(self) -> None:
        self._closed = True
        if connection := self._own():
            connection.stop()

    def _join(self) -> None:
        if connection := self._own():
            # Each of the three waits for the process, and some for the session's own end.
            connection.join(4 * self._settings.stop_timeout_s)
        self._connection = None

    def _running(self) -> Connection:
        """The connection that takes calls, a new one when there is none; perhaps not ready."""
        with self._lock:
            if self._closed:
                raise ToolError(f"The MCP server {self.name!r} is closed.")
            connection = self._own()
            if connection is None or connection.over:
                connection = self._connection = Connection(self.name, self._transport())
            return connection

    def _connected(self) -> Connection:
        """The connection, ready. Blocks while it starts."""
        connection = self._running()
        try:
            connection.ready.result(self._settings.start_timeout_s)
        except TimeoutError:
            connection.stop()
            connection.join(4 * self._settings.stop_timeout_s)
            seconds = f"{self._settings.start_timeout_s:g}"
            raise self._not_started(f"It did not answer within {seconds} s.") from None
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            raise self._not_started(self._reason(error)) from error
        return connection

    def _transport(self) -> Transport:
        transport, self._process = mcp_transport(self._settings, self._secrets)
        return transport

    # -- its tools -------------------------------------------------------------------------

    def _listed(self) -> list[Offered]:
        before = self._connection
        try:
            return self._list(self._connected())
        except ToolError:
            if before is None or before is not self._connection:
                raise
        # An earlier connection, whose end showed only now: listing twice changes nothing.
        if before is not None:
            before.retire()
        return self._list(self._connected())

    def _list(self, connection: Connection) -> list[Offered]:
        connection.changed = False  # before they are listed: what changes then counts
        return self._answer(connection, _all_tools, "tools")

    def _asked(self, work: Callable[[Client], Coroutine[Any, Any, _T]], listed: str) -> _T:
        return self._answer(self._connected(), work, listed)

    def _answer(
        self,
        connection: Connection,
        work: Callable[[Client], Coroutine[Any, Any, _T]],
        listed: str,
    ) -> _T:
        seconds = self._settings.start_timeout_s
        future = connection.submit(work)
        try:
            return future.result(seconds)
        except TimeoutError:
            future.cancel()
            raise ToolError(
                f"The MCP server {self.name!r} did not list its {listed} within {seconds:g} s."
            ) from None
        except Exception as error:
            raise self._failure(error, connection) from error

    def _checked_tools(self) -> list[Tool]:
        """What it offers now, held against the pins."""
        offered = self._listed()
        made = self._made(offered)
        connection = self._connection
        if self._pins is not None and connection is not None:
            waiting = self._refused or self._texts.refused()
            if waiting or offered != self._offered or not self._is_fresh():
                # Before the tools: instructions that a known server adds are a change.
                self._texts.initialized(_initialized(connection.ready.result(0)))
                self._refused = self._pins.check(self.name, self._origin(), made)
                self._checked = connection, time.monotonic()
            self._offered = offered
        return made

    def _origin(self) -> str:
        return mcp_origin(self._settings, self._secrets.redacted)

    def _is_fresh(self) -> bool:
        """Whether this connection's tools were held against the pins lately."""
        connection, at = self._checked or (None, 0.0)
        return (
            connection is not None
            and connection is self._connection
            and not (connection.over or connection.changed)
            and time.monotonic() - at <= _CHECK_S
        )

    def _shown(self, tool: Tool) -> Tool:
        """A tool as a model may see it: a definition not yet accepted could hold instructions."""
        refused = self._refused.get(tool.tool_id)
        if refused is None:
            return tool
        _log.warning("%s", refused.reason)
        pinned = refused.pin.read() if refused.pin is not None else None
        if pinned is None:
            return replace(tool, description=_UNSEEN, input_schema={"type": "object"}, stated={})
        return replace(
            tool,
            description=pinned.description,
            input_schema=pinned.parameters,
            stated=pinned.stated,
        )

    async def _refusal(self, tool_id: str) -> str:
        """Why a tool must not be called now; empty when it may."""
        if self._pins is None:
            return ""
        # To ask a server that runs here costs next to nothing: so each call is checked.
        if self._settings.command or not self._is_fresh():
            try:
                await call_in_thread(f"remit-mcp-{self.name}-check", self._checked_tools)
            except ToolError as error:
                return str(error)
        refused = self._refused.get(tool_id)
        return refused.reason if refused is not None else ""

    def _made(self, offered: list[Offered]) -> list[Tool]:
        allowed = self._settings.tools
        known = {tool.name for tool in offered}
        for name in allowed:
            if name not in known:
                _log.warning(
                    "the MCP server %s has no tool %s, which [mcp] tools names", self.name, name
                )
        made: dict[str, Tool] = {}
        names: dict[str, str] = {}
        for tool in offered:
            if allowed and tool.name not in allowed:
                continue
            if problem := schema_problem(mcp_schema(tool.input_schema)):
                _log.warning("left out: tool %s of the MCP server %s: its input schema is %s",
                             excerpt(tool.name), self.name, problem)  # fmt: skip
                continue
            tool_id = mcp_tool_id(self.name, tool.name)
            if tool_id in made:
                first, second = (repr(excerpt(name)) for name in (names[tool_id], tool.name))
                raise ToolError(
                    f"The tools {first} and {second} of the MCP server {self.name!r} would both be "
                    f"{tool_id!r}.",
                    next_step=f"Let one of them in only: [mcp.{self.name}] tools.",
                )
            names[tool_id] = tool.name
            made[tool_id] = self._tool(tool_id, tool)
        return [*made.values()]

    def _tool(self, tool_id: str, offered: Offered) -> Tool:
        name = offered.name

        async def function(**arguments: Any) -> Any:
            if why := await self._refusal(tool_id):
                raise ToolError(why)
            return await self._call(offered, arguments)

        async def refusal() -> str:
            return await self._refusal(tool_id)

        repeatable = any(fnmatchcase(name, pattern) for pattern in self._settings.idempotent)
        return Tool(
            tool_id,
            offered.description or offered.title or name,
            mcp_schema(offered.input_schema),
            function,
            on_unknown="retry" if repeatable else "ask",
            timeout_s=self._settings.timeout_s,
            stated=offered.model_dump(
                mode="json", by_alias=True, exclude_unset=True, exclude={"name", "description"}
            ),
            refusal=None if self._pins is None else refusal,
        )

    async def _call(self, tool: Offered, arguments: dict[str, Any]) -> Any:
        connection = self._connection
        if connection is None or connection.over or not connection.ready.done():
            connection = await call_in_thread(f"remit-mcp-{self.name}-start", self._connected)
        call = current_call()
        meta: Any = None if call is None else {_KEY: call.idempotency_key}
        progress = _Progress(call)
        asked: list[str] = []
        sent = False

        async def work(client: Client) -> Any:
            nonlocal sent
            if isinstance(tool, ContextTool):
                return await call_context_tool(client, tool.name, arguments, self._texts)
            sent = True
            result = await client.call_tool(
                tool.name, arguments, progress_callback=progress, meta=meta
            )
            return output(result, asked)

        try:
            return await asyncio.wrap_future(connection.submit(work, asked))
        except Exception as error:
            failure = self._failure(error, connection)
            if sent and isinstance(failure, ToolUnavailableError):  # no answer of the tool
                raise OutcomeUnknownError(failure.message, next_step=failure.next_step) from error
            raise failure from error

    # -- what went wrong -------------------------------------------------------------------

    def _failure(self, error: BaseException, connection: Connection) -> ToolError:
        if isinstance(error, ToolError):
            return error
        why = f"The MCP server {self.name!r} failed: {self._reason(error)}"
        if isinstance(error, MCPError) and error.code in _OWN_ERRORS:
            return ToolError(why)
        if not (isinstance(error, MCPError) and error.code == PARSE_ERROR):
            connection.retire()
        return ToolUnavailableError(why)

    def _not_started(self, why: str) -> ToolError:
        said = self._process.last_words() if self._process is not None else ""
        tail = f" Its last words: {self._secrets.redacted(said)}" if said else ""
        return ToolUnavailableError(
            f"The MCP server {self.name!r} did not start. {why}{tail}",
            next_step=f"Check [mcp.{self.name}].",
        )

    def _reason(self, error: BaseException) -> str:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, ConnectionEndedError):
            return error.message
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            return f"What it sent is not MCP: {'.'.join(map(str, first['loc']))}: {first['msg']}."
        if isinstance(error, (MCPError, ToolError, RuntimeError)):  # the SDK's own are plain ones
            return self._secrets.redacted(str(error))
        return f"{type(error).__name__}."


def _initialized(client: Client) -> dict[str, Any]:
    """Return the texts of a server's answer to ``initialize``."""
    info = client.server_info
    about = {} if info is None else info.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {"instructions": client.instructions, "serverInfo": about}


async def _all_tools(client: Client) -> list[Offered]:
    found: list[Offered] = []
    cursor: str | None = None
    seen: set[str] = set()
    while True:
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        if len(found) > _MOST_TOOLS:
            raise ToolError(f"It offers more than {_MOST_TOOLS:,} tools.")
        cursor = page.next_cursor
        if not cursor or cursor in seen:
            return found + await context_tools(client, {tool.name for tool in found})
        seen.add(cursor)


class _Progress:
    """Passes a call's progress on to the loop of the caller, a few times a second."""

    def __init__(self, call: Context[Any] | None) -> None:
        self._report = call.progress if call is not None else None
        self._loop = asyncio.get_running_loop()
        self._next = 0.0

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        """The SDK's callback for progress."""
        now = time.monotonic()
        if self._report is not None and now >= self._next:
            self._next = now + _PROGRESS_EVERY_S
            self._loop.call_soon_threadsafe(
                self._report, progress, total, (message or "")[:_TEXT_CHARS]
            )


@atexit.register
def _close_all() -> None:
    servers = [*_open]
    for server in servers:
        server._end()
    for server in servers:
        server._join()
