"""The transport to a server of ``[mcp.NAME]``: its process or its address."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client

from remit.agents.tools.mcp.connection import Transport
from remit.agents.tools.mcp.environment import McpSecrets
from remit.agents.tools.mcp.process import ServerProcess
from remit.kernel.settings import McpServerSettings


def mcp_transport(
    settings: McpServerSettings, secrets: McpSecrets
) -> tuple[Transport, ServerProcess | None]:
    """Return the transport to a server, and the process to be started; None for a URL.

    Nothing is started or opened yet.

    Args:
        settings: the server's settings.
        secrets: fills ``env`` and ``headers`` from the environment.

    Raises:
        ToolError: an environment variable is not set, or the program was not found.
    """
    if settings.url:
        headers = secrets.filled(settings.headers)
        limit, connect_s = settings.max_message_bytes, settings.start_timeout_s
        return lambda _: web_streams(settings.url, headers, limit, connect_s), None
    environment = {**get_default_environment(), **secrets.filled(settings.env)}
    process = ServerProcess(settings, environment)
    return process.streams, process


@asynccontextmanager
async def web_streams(
    url: str, headers: Mapping[str, str], limit: int, connect_s: float
) -> AsyncIterator[Any]:
    """Yield the message streams to an MCP endpoint, open while the context lasts.

    There is no time limit for an answer; the caller sets it. In place of an answer longer than
    ``limit``, the reader gets a JSON-RPC error. Nothing is sent before the first message.

    Args:
        url: the endpoint.
        headers: headers of every request.
        limit: maximum size of a message in bytes.
        connect_s: time limit for connecting, and for sending, in seconds.

    Raises:
        ExceptionGroup: of httpx2.StreamError: an answer is compressed; raised out of the context.
    """

    async def bound(response: httpx2.Response) -> None:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise httpx2.StreamError("The server compressed its answer without being asked.")
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            response.stream = _Bounded(response.stream, limit)

    async with (
        httpx2.AsyncClient(
            headers={**headers, "accept-encoding": "identity"},
            timeout=httpx2.Timeout(connect_s, read=None),
            event_hooks={"response": [bound]},
        ) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=limit) as streams,
    ):
        yield streams


class _Bounded(httpx2.AsyncByteStream):
    """A response body that raises an error when it exceeds its limit."""

    def __init__(self, body: Any, limit: int) -> None:
        self._body = body
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        remaining = self._limit
        async for chunk in self._body:
            remaining -= len(chunk)
            if remaining < 0:
                raise httpx2.StreamError(f"The answer is longer than {self._limit:,} bytes.")
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()
