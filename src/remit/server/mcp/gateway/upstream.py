"""A connection to an upstream server, whose messages are passed on unchanged.

The client negotiates version and capabilities with the server itself. This module only knows which
messages belong together.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import anyio
from anyio.abc import TaskStatus
from mcp import MCPError
from mcp.shared.dispatcher import (
    CallOptions,
    DispatchContext,
    OnNotify,
    OnRequest,
    ProgressFnT,
)
from mcp.shared.inbound import NAME_BEARING_METHODS, encode_header_value
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.types import CONNECTION_CLOSED, INTERNAL_ERROR, REQUEST_TIMEOUT
from mcp_types import PROTOCOL_VERSION_META_KEY

from remit.agents.tools import McpSecrets, ToolError, mcp_origin, mcp_transport
from remit.kernel.settings import McpServerSettings

_LONGEST_S = 3600.0  # A call ends after this even if its server keeps reporting progress.


class Upstream:
    """A server of ``[mcp.NAME]`` that was started, or connected to, for one client.

    Args:
        name: name of the server.
        settings: its address and limits.
        timeout_s: longest silence of a request in seconds. Progress, or a request of the server,
            restarts the time.
        on_request: answers the server's requests to the client.
        on_notify: receives its notifications to the client.
        hidden: removes configured secrets from everything the server sends.

    Attributes:
        version: the negotiated protocol version, for an HTTP header; empty before.
    """

    def __init__(
        self,
        name: str,
        settings: McpServerSettings,
        timeout_s: float,
        on_request: OnRequest,
        on_notify: OnNotify,
        hidden: Callable[[Any], Any],
    ) -> None:
        self._name = name
        self._settings = settings
        self._timeout_s = timeout_s
        self._on_request = on_request
        self._on_notify = on_notify
        self._hidden = hidden
        self._secrets = McpSecrets(name)
        self._problem = ""
        self._stopping = asyncio.Event()
        self._ready: asyncio.Future[JSONRPCDispatcher[Any]] | None = None
        self._task: asyncio.Task[None] | None = None
        self._clocks: dict[asyncio.Timeout, float] = {}  # and when each ends at the latest
        self.version = ""
        """The protocol's version, which HTTP names in a header; empty until it is negotiated."""

    @property
    def over(self) -> bool:
        """True once the connection has ended."""
        return self._task is not None and (self._task.done() or self._stopping.is_set())

    def origin(self) -> str:
        """Return the server's command or URL for the record, without secrets."""
        return mcp_origin(self._settings, self._secrets.redacted)

    async def request(
        self, method: str, params: Mapping[str, Any] | None, options: CallOptions
    ) -> dict[str, Any]:
        """Return the server's answer. Cancelling the call cancels the request at the server.

        The first request starts the server. Secrets in the answer and in errors are hidden.
        Progress, or a request of the server, restarts the time limit, for an hour at most.

        Args:
            method: method of the request.
            params: its parameters; ``None`` for none.
            options: options of the dispatcher; ``on_progress`` receives progress.

        Raises:
            MCPError: the server reports an error, does not start or answer in time, or breaks the
                protocol.
        """
        dispatcher = await self._started()
        options = {**options, "headers": self._headers(method, params)}
        if report := options.get("on_progress"):
            options["on_progress"] = self._progress_to(report)
        try:
            async with asyncio.timeout(self._timeout_s) as clock:
                self._clocks[clock] = asyncio.get_running_loop().time() + _LONGEST_S
                try:
                    result = await dispatcher.send_raw_request(method, params, options)
                    return dict(self._hidden(result))
                finally:
                    del self._clocks[clock]
        except TimeoutError:
            raise MCPError(
                REQUEST_TIMEOUT,
                f"The MCP server {self._name!r} did not answer {method} within "
                f"{self._timeout_s:g} s. The request may still take effect.",
            ) from None
        except MCPError as error:
            if error.error.code == CONNECTION_CLOSED and self.over:
                raise self._gone() from None
            said = error.error
            # What does not parse is quoted in part by the SDK: half a secret is not recognized.
            message = said.message.partition(" [type=")[0]
            raise MCPError(said.code, self._hidden(message), self._hidden(said.data)) from None

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Pass a notification on; one to a server that has ended or not started is dropped, and
        errors are ignored.

        Args:
            method: method of the notification.
            params: its parameters; ``None`` for none.
        """
        if self._ready is not None and self._ready.done() and not self.over:
            with contextlib.suppress(Exception):
                headers = self._headers(method, params)
                await self._ready.result().notify(method, params, {"headers": headers})

    def alive(self) -> None:
        """Restart the time limits of open requests, because the server is working on one.

        No request lasts longer than a fixed longest time.
        """
        now = asyncio.get_running_loop().time()
        for clock, end in self._clocks.items():
            if not clock.expired():
                clock.reschedule(min(now + self._timeout_s, end))

    async def close(self) -> None:
        """End the connection, and a server that was started here with its children.

        Waits at most a few times the stop timeout, then cancels.
        """
        self._stopping.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=4 * self._settings.stop_timeout_s)
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _started(self) -> JSONRPCDispatcher[Any]:
        if self._ready is None:
            self._ready = asyncio.get_running_loop().create_future()
            self._task = asyncio.ensure_future(self._serve(self._ready))
        done, _ = await asyncio.wait({self._ready}, timeout=self._settings.start_timeout_s)
        if not done:
            self._stopping.set()
            raise MCPError(INTERNAL_ERROR, f"The MCP server {self._name!r} did not start in time.")
        return self._ready.result()

    async def _serve(self, ready: asyncio.Future[JSONRPCDispatcher[Any]]) -> None:
        process = None
        try:
            transport, process = mcp_transport(self._settings, self._secrets)
            async with (
                transport(self._ended) as (receive, send),
                anyio.create_task_group() as group,
            ):
                dispatcher: JSONRPCDispatcher[Any] = JSONRPCDispatcher(receive, send)

                async def run(*, task_status: TaskStatus[None]) -> None:
                    await dispatcher.run(self._asked, self._told, task_status=task_status)
                    self._stopping.set()

                await group.start(run)
                ready.set_result(dispatcher)
                await self._stopping.wait()
                group.cancel_scope.cancel()
        except Exception as error:  # noqa: BLE001 - the waiting caller gets it
            self._problem = self._problem or self._reason(error)
        finally:
            self._stopping.set()
            said = self._secrets.redacted(process.last_words()) if process is not None else ""
            if said:
                self._problem = f"{self._problem} Its last words: {said}".strip()
            if not ready.done():
                ready.set_exception(self._gone("did not start"))
                ready.exception()  # marked as read: there may be no waiting caller

    async def _asked(
        self, context: DispatchContext[Any], method: str, params: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        return await self._on_request(context, method, self._hidden(params))

    async def _told(
        self, context: DispatchContext[Any], method: str, params: Mapping[str, Any] | None
    ) -> None:
        await self._on_notify(context, method, self._hidden(params))

    def _progress_to(self, report: ProgressFnT) -> ProgressFnT:
        async def progress(
            progress: float, total: float | None = None, message: str | None = None
        ) -> None:
            await report(progress, total, self._hidden(message))

        return progress

    def _ended(self, problem: str) -> None:
        self._problem = self._problem or problem
        self._stopping.set()

    def _gone(self, what: str = "does not answer") -> MCPError:
        why = self._problem or "The connection to the server ended."
        return MCPError(INTERNAL_ERROR, f"The MCP server {self._name!r} {what}. {why}")

    def _reason(self, error: BaseException) -> str:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, ToolError):
            return self._secrets.redacted(str(error))
        return f"{type(error).__name__}."

    def _headers(self, method: str, params: Mapping[str, Any] | None) -> dict[str, str]:
        """Return the HTTP headers of a message; a process ignores them."""
        meta = (params or {}).get("_meta")
        version = meta.get(PROTOCOL_VERSION_META_KEY) if isinstance(meta, dict) else None
        if not isinstance(version, str):
            return {"mcp-protocol-version": self.version} if self.version else {}
        headers = {"mcp-protocol-version": version, "mcp-method": method}
        name = (params or {}).get(NAME_BEARING_METHODS.get(method, ""))
        if isinstance(name, str):
            headers["mcp-name"] = encode_header_value(name)
        return headers
