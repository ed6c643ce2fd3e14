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
from mcp.types import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    PARSE_ERROR,
    REQUEST_TIMEOUT,
    Tool as Offered,
)
from pydantic import ValidationError

from remit.agents.tools.definition import (
    Context,
    Tool,
    ToolError,
    ToolUnavailableError,
    current_call,
)
from remit.agents.tools.mcp.answers import pages
from remit.agents.tools.mcp.connection import Connection, Transport
from remit.agents.tools.mcp.conversion import (
    add_mismatch,
    mcp_schema,
    mcp_tool_id,
    tool_output,
)
from remit.agents.tools.mcp.process import ServerProcess
from remit.agents.tools.mcp.resources import (
    ContextTool,
    call_context_tool,
    context_tools,
    text_lists,
)
from remit.agents.tools.mcp.text_pins import PinnedTexts
from remit.agents.tools.mcp.transports import McpSecrets, mcp_origin, mcp_transport
from remit.agents.tools.pins import PinnedTool, Pins
from remit.kernel.errors import ConfigError, excerpt
from remit.kernel.loops import Closeable, call_in_thread
from remit.kernel.schemas import schema_problem
from remit.kernel.settings import McpServerSettings

_log = logging.getLogger("remit.tools")
_T = TypeVar("_T")
_KEY = "remit/idempotency_key"
# Codes with which the SDK reports a lost answer over HTTP; over stdio only the server sends them.
_LOST_ANSWERS = (CONNECTION_CLOSED, REQUEST_TIMEOUT, INVALID_REQUEST)
_SESSION_GONE = "Session terminated"  # The SDK's message: no call ran.
_MAX_TOOLS = 1000
_PROGRESS_INTERVAL_S = 0.1
_MAX_PROGRESS_CHARS = 500
# Maximum age of a check of a remote server's definitions, seconds.
_CHECK_S = 60.0
_WITHHELD = "Not available until a person accepts its definition."
_open: weakref.WeakSet[McpServer] = weakref.WeakSet()


class McpServer(Closeable):
    """A server of ``[mcp.NAME]``, over stdio or streamable HTTP.

    The server is started when its tools are first requested; after its death, by the next call. The
    operator, not the server, decides which tools are admitted and which may be repeated. An open
    server is closed when the process exits. :meth:`tools` starts the server, :meth:`close` ends it.
    A connection inherited from a parent process is not used. Methods may be called from any thread
    but the background loop's.

    Args:
        name: the server's name; the ids of its tools begin with it.
        settings: its address and limits.
        pins: the pins of its definitions: the recorded definitions that may be called. A tool that
            differs from its pin is shown to models as pinned, and refused. None accepts every
            definition.
    """

    def __init__(self, name: str, settings: McpServerSettings, pins: Pins | None = None) -> None:
        self.name = name
        self._pins = pins
        self._refused: Mapping[str, PinnedTool] = {}
        self._offered: list[Offered] = []  # The definitions at the last check.
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
        """Return the server with a name, not yet started.

        Args:
            name: the server's name.
            known: settings of all configured servers.
            pins: the pins of its definitions; None accepts every definition.

        Raises:
            ConfigError: no server has that name.
        """
        if name not in known:
            raise ConfigError(
                f"There is no MCP server {name!r} in the configuration.",
                next_step=f"Add [mcp.{name}] to remit.toml. Configured servers: "
                f"{', '.join(sorted(known)) or 'none'}.",
            )
        return cls(name, known[name], pins)

    def __repr__(self) -> str:
        return f"McpServer({self.name!r})"

    def tools(self) -> list[Tool]:
        """Return the server's present tools; start the server if needed. Blocks.

        New definitions are pinned, and differing ones recorded as a change (``TOOL_PINNED``). A
        changed tool stays in the list with the description and schema of its pin, or without both
        if it has no pin; its calls are refused until a person accepts the change. If the server was
        made without pins, nothing is compared. Tools that the settings do not admit, or whose
        schema is not valid, are left out. A warning is logged for a changed tool, a schema that is
        not valid, and an admitted tool that the server does not offer. Opens a closed server again.

        Raises:
            ToolError: the server does not start or answer in time, its program or an environment
                variable is missing, it offers more than 1,000 tools, or two tools would have the
                same id.
            LedgerError: the ledger cannot be read or written.
        """
        self._closed = False
        return [self._shown(tool) for tool in self._checked_tools()]

    def refused(self) -> dict[str, PinnedTool]:
        """Return the refused tools and other texts of the server, by id. Blocks.

        Starts the server if needed, and compares all its definitions and texts with the pins, see
        :meth:`tools`. Empty without pins. Opens a closed server again.

        Raises:
            ToolError: the server does not start or answer in time, its program or an environment
                variable is missing, it offers more than 1,000 tools or two with one id, or a list
                of texts is malformed.
            LedgerError: the ledger cannot be read or written.
        """
        self._closed = False
        self._checked_tools()
        self._texts.lists(self._ask(self._connected(), text_lists, "texts"))
        return {**self._refused, **self._texts.refused()}

    def close(self) -> None:
        """End the connection and wait for the end.

        A server that was started here is ended with all its children. Also if none runs, calls are
        refused until :meth:`tools` or :meth:`refused` is called again. Blocks at most about eight
        times ``stop_timeout_s``.
        """
        self._end()
        self._join()

    # -- the connection --------------------------------------------------------------------

    def _own_connection(self) -> Connection | None:
        """Return the connection; None if there is none, or it belongs to the parent process."""
        found = self._connection
        return found if found is not None and found.process_id == os.getpid() else None

    def _end(self) -> None:
        self._closed = True
        if connection := self._own_connection():
            connection.stop()

    def _join(self) -> None:
        if connection := self._own_connection():
            # Stopping waits up to three times for the process, and once for the session.
            connection.join(4 * self._settings.stop_timeout_s)
        self._connection = None

    def _running(self) -> Connection:
        """Return a connection that takes calls, possibly before its start has ended.

        Raises:
            ToolError: the server is closed, or its program or an environment variable is missing.
        """
        with self._lock:
            if self._closed:
                raise ToolError(f"The MCP server {self.name!r} is closed.")
            connection = self._own_connection()
            if connection is None or connection.over:
                connection = self._connection = Connection(self.name, self._transport())
            return connection

    def _connected(self) -> Connection:
        """Return a started connection. Blocks.

        Raises:
            ToolError: the server does not start in time.
        """
        connection = self._running()
        try:
            connection.ready.result(self._settings.start_timeout_s)
        except TimeoutError:
            connection.stop()
            connection.join(4 * self._settings.stop_timeout_s)
            seconds = f"{self._settings.start_timeout_s:g}"
            raise self._not_started(f"The server did not answer within {seconds} s.") from None
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
        # Only now has the earlier connection turned out to be dead. A list can be repeated.
        if before is not None:
            before.retire()
        return self._list(self._connected())

    def _list(self, connection: Connection) -> list[Offered]:
        connection.changed = False  # First, so that a change during the listing is noticed.
        return self._ask(connection, _all_tools, "tools")

    def _ask(
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
        """Compare the present tools with the pins, and return the tools."""
        offered = self._listed()
        made = self._made(offered)
        connection = self._connection
        if self._pins is not None and connection is not None:
            waiting = self._refused or self._texts.refused()
            if waiting or offered != self._offered or not self._is_fresh():
                # Instructions are checked before tools get pins: added by a known server, they are
                # a change.
                self._texts.initialized(_initialized(connection.ready.result(0)))
                self._refused = self._pins.check(self.name, self._origin(), made)
                self._checked = connection, time.monotonic()
            self._offered = offered
        return made

    def _origin(self) -> str:
        return mcp_origin(self._settings, self._secrets.redacted)

    def _is_fresh(self) -> bool:
        """Return True if this connection's definitions were checked within the last minute."""
        connection, at = self._checked or (None, 0.0)
        return (
            connection is not None
            and connection is self._connection
            and not (connection.over or connection.changed)
            and time.monotonic() - at <= _CHECK_S
        )

    def _shown(self, tool: Tool) -> Tool:
        """Return a tool as models may see it; unaccepted texts could contain instructions."""
        refused = self._refused.get(tool.tool_id)
        if refused is None:
            return tool
        _log.warning("%s", refused.reason)
        pinned = refused.pin.read() if refused.pin is not None else None
        description, parameters, stated = pinned or (_WITHHELD, {"type": "object"}, {})
        return replace(tool, description=description, input_schema=parameters, stated=stated)

    async def _refusal(self, tool_id: str) -> str:
        """Return why a tool must not be called now; empty if it may."""
        if self._pins is None:
            return ""
        # A local server answers quickly, so its definitions are checked before every call.
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
                    "the MCP server %s offers no tool %s, which [mcp] tools lists", self.name, name
                )
        made: dict[str, Tool] = {}
        names: dict[str, str] = {}
        for tool in offered:
            if allowed and tool.name not in allowed:
                continue
            if problem := schema_problem(mcp_schema(tool.input_schema)):
                _log.warning("ignored the tool %s of the MCP server %s: the input schema is %s",
                             excerpt(tool.name), self.name, problem)  # fmt: skip
                continue
            tool_id = mcp_tool_id(self.name, tool.name)
            if tool_id in made:
                first, second = (repr(excerpt(name)) for name in (names[tool_id], tool.name))
                raise ToolError(
                    f"The tools {first} and {second} of the MCP server {self.name!r} would have "
                    f"the same id {tool_id!r}.",
                    next_step=f"List only one of them in [mcp.{self.name}] tools.",
                )
            names[tool_id] = tool.name
            made[tool_id] = self._tool(tool_id, tool)
        return [*made.values()]

    def _tool(self, tool_id: str, offered: Offered) -> Tool:
        name = offered.name

        async def function(**arguments: Any) -> Any:
            if reason := await self._refusal(tool_id):
                raise ToolError(reason)
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

    async def _call(
        self, tool: Offered, arguments: dict[str, Any], *, is_first: bool = True
    ) -> Any:
        connection = self._connection
        if connection is None or connection.over or not connection.ready.done():
            connection = await call_in_thread(f"remit-mcp-{self.name}-start", self._connected)
        call = current_call()
        meta: Any = None if call is None else {_KEY: call.idempotency_key}
        progress = _progress_callback(call)
        questions: list[str] = []
        is_sent = False

        async def work(client: Client) -> Any:
            nonlocal is_sent
            if isinstance(tool, ContextTool):
                return await call_context_tool(client, tool.name, arguments, self._texts)
            is_sent = True
            result = await client.call_tool(
                tool.name, arguments, progress_callback=progress, meta=meta
            )
            await asyncio.to_thread(add_mismatch, result, tool.output_schema)
            return tool_output(result, questions)

        try:
            return await asyncio.wrap_future(connection.submit(work, questions))
        except Exception as error:
            failure = self._failure(error, connection)
            is_gone = isinstance(error, MCPError) and error.message == _SESSION_GONE
            if is_gone and is_first and connection.over:  # A restarted server forgot its sessions.
                if reason := await self._refusal(mcp_tool_id(self.name, tool.name)):
                    raise ToolError(reason) from error
                return await self._call(tool, arguments, is_first=False)
            if isinstance(failure, ToolUnavailableError):
                failure.is_outcome_unknown = is_sent and not is_gone
            raise failure from error

    # -- failures -------------------------------------------------------------------------

    def _failure(self, error: BaseException, connection: Connection) -> ToolError:
        if isinstance(error, ToolError):
            return error
        message = f"The MCP server {self.name!r} failed: {self._reason(error)}"
        if not isinstance(error, MCPError):
            connection.retire()
        elif error.code != PARSE_ERROR:
            if self._settings.command or error.code not in _LOST_ANSWERS:
                return ToolError(message)  # A healthy server answered.
            connection.retire()
        return ToolUnavailableError(message)

    def _not_started(self, reason: str) -> ToolError:
        output = self._process.last_words() if self._process is not None else ""
        tail = f" It last printed: {self._secrets.redacted(output)}" if output else ""
        return ToolUnavailableError(
            f"The MCP server {self.name!r} did not start. {reason}{tail}",
            next_step=f"Check [mcp.{self.name}].",
        )

    def _reason(self, error: BaseException) -> str:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, ToolUnavailableError):
            return error.message
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))
            return f"A message of the server is not MCP: {place}: {first['msg']}."
        if isinstance(error, (MCPError, ToolError, RuntimeError)):
            return self._secrets.redacted(str(error))
        return f"{type(error).__name__}."


def _initialized(client: Client) -> dict[str, Any]:
    """Return the texts of a server's answer to ``initialize``."""
    info = client.server_info
    about = {} if info is None else info.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {"instructions": client.instructions, "serverInfo": about}


async def _all_tools(client: Client) -> list[Offered]:
    found: list[Offered] = []
    known: dict[str, Offered] = {}
    received = 0
    async for page in pages(lambda at: client.list_tools(cursor=at)):
        received += len(page.tools)
        if received > _MAX_TOOLS:
            raise ToolError(f"The server offers more than {_MAX_TOOLS:,} tools.")
        for tool in page.tools:
            if known.get(tool.name) != tool:  # Some servers repeat tools on the next page.
                found.append(tool)
                known[tool.name] = tool
    return found + await context_tools(client, {*known})


def _progress_callback(call: Context[Any] | None) -> Callable[..., Coroutine[Any, Any, None]]:
    """Return the SDK's progress callback, which reports to a call at most ten times a second.

    The call's own callback runs in the present event loop.
    """
    report = call.progress if call is not None else None
    loop = asyncio.get_running_loop()
    next_report = 0.0

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        nonlocal next_report
        now = time.monotonic()
        if report is not None and now >= next_report:
            next_report = now + _PROGRESS_INTERVAL_S
            text = (message or "")[:_MAX_PROGRESS_CHARS]
            loop.call_soon_threadsafe(report, progress, total, text)

    return on_progress


@atexit.register
def _close_all() -> None:
    servers = [*_open]
    for server in servers:
        server._end()
    for server in servers:
        server._join()
