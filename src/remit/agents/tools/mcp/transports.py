"""The transport to a server of ``[mcp.NAME]``: its process or its address.

Values from the environment fill its settings, and no message or entry shows them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import httpx2
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp.types import CONNECTION_CLOSED
from pydantic import SecretStr

from remit.agents.tools.definition import ToolError
from remit.agents.tools.mcp.connection import Transport
from remit.agents.tools.mcp.process import ServerProcess
from remit.kernel.secrets import redact_secrets
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
        return lambda _: _web_streams(settings.url, headers, limit, connect_s), None
    environment = {**get_default_environment(), **secrets.filled(settings.env)}
    process = ServerProcess(settings, environment)
    return process.streams, process


@asynccontextmanager
async def _web_streams(
    url: str, headers: Mapping[str, str], limit: int, connect_s: float
) -> AsyncIterator[Any]:
    """Yield the message streams to an MCP endpoint, open while the context lasts.

    There is no time limit for an answer; the caller sets it. In place of an answer longer than
    ``limit``, and of an HTTP status from 500 on for a tool's call without a JSON-RPC error, the
    reader gets a JSON-RPC error. Nothing is sent before the first message.

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
        if response.status_code == 404 and MCP_SESSION_ID in response.request.headers:
            # The session is gone, so no call ran. Without its body, the SDK reports just that.
            response.headers["content-type"] = "text/plain"
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            response.stream = _Bounded(response.stream, limit)
        if response.status_code >= 500 and _is_call(response.request.content):
            response.headers["content-type"] = "application/json"
            response.stream = _LostAnswer(response.stream, response.status_code)

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


def _is_call(body: bytes) -> bool:
    return bool(body) and json.loads(body).get("method") == "tools/call"


class _LostAnswer(httpx2.AsyncByteStream):
    """The body of a failed tool's call: the server's JSON-RPC error, else that of a lost answer.

    A proxy answers so if the server does not in time, although the tool may have run.
    """

    def __init__(self, body: Any, status: int) -> None:
        self._body = body
        said = f"The answer was lost (HTTP {status}); the call may have taken effect."
        self._lost = {"code": CONNECTION_CLOSED, "message": said}

    async def __aiter__(self) -> AsyncIterator[bytes]:
        body = b"".join([chunk async for chunk in self._body])
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict) and isinstance(found.get("error"), dict) and "jsonrpc" in found:
            yield body
        else:
            yield json.dumps({"jsonrpc": "2.0", "id": None, "error": self._lost}).encode()

    async def aclose(self) -> None:
        await self._body.aclose()


_PLACEHOLDER = "[secret]"
_SECRET_NAME = re.compile(r"(?i)(?:key|token|secret|passw(?:or)?d|authorization)$")
_ASSIGNMENT = re.compile(r"(?P<name>-*[\w.-]+)(?:=|:\s*)")  # Such as --api-key=… and X-Key: ….
_MAX_CHARS = 2000


def mcp_origin(settings: McpServerSettings, redacted: Callable[[str], str]) -> str:
    """Return a server's command line or URL without secrets, for the ledger.

    Values of arguments and query fields whose names look secret become ``[secret]``. User name,
    password and fragment of a URL are removed; environment and headers do not appear. A command
    line is quoted as for a shell, with `` in CWD`` at its end if a folder is set. The redacted text
    is cut after 2,000 characters, and then ends with its SHA-256.

    Args:
        settings: the server's settings.
        redacted: removes known secrets from a text.
    """
    if settings.url:
        parts = urlsplit(settings.url)
        query = [
            (name, _PLACEHOLDER if _SECRET_NAME.search(name) else value)
            for name, value in parse_qsl(parts.query, keep_blank_values=True)
        ]
        host = parts.netloc.rpartition("@")[2]
        text = urlunsplit(parts._replace(netloc=host, query=urlencode(query), fragment=""))
    else:
        arguments = [settings.command]
        for argument in settings.args:
            assignment = _ASSIGNMENT.match(argument)
            if arguments[-1].startswith("-") and _SECRET_NAME.search(arguments[-1]):
                arguments.append(_PLACEHOLDER)
            elif assignment is not None and _SECRET_NAME.search(assignment["name"]):
                arguments.append(assignment[0] + _PLACEHOLDER)
            else:
                arguments.append(argument)
        text = shlex.join(arguments) + (f" in {settings.cwd}" if settings.cwd else "")
    text = redacted(text)
    if len(text) <= _MAX_CHARS:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
    return f"{text[:_MAX_CHARS]}… sha256:{digest}"


_VARIABLE = re.compile(r"\$\{(\w+)\}")
_MIN_CHARS = 6  # Shorter values (a port, "true") occur in many other texts.


class McpSecrets:
    """The values of a server's ``env`` and ``headers``.

    :meth:`filled` reads the environment and remembers filled-in values of six characters or more;
    :meth:`redacted` removes these values from texts. Remembered values are never forgotten.

    Args:
        server: the server's name, for messages.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._known: set[str] = set()

    def filled(self, values: Mapping[str, SecretStr]) -> dict[str, str]:
        """Return values with each ``${VARIABLE}`` replaced from the environment.

        Results of at least 6 characters are remembered as secrets, for :meth:`redacted`. The words
        of a value are remembered, too.

        Args:
            values: the configured values, keyed by name.

        Raises:
            ToolError: a variable is not set.
        """
        filled = {name: self._filled(value.get_secret_value()) for name, value in values.items()}
        for value in filled.values():
            self._known.update(part for part in (value, *value.split()) if len(part) >= _MIN_CHARS)
        return filled

    def redacted(self, text: str) -> str:
        """Return a text in which remembered values, and texts that look like secrets, are
        ``[secret]``.

        Longer values are replaced first.

        Args:
            text: the text, which is not changed itself.
        """
        for value in sorted(self._known, key=len, reverse=True):
            text = text.replace(value, "[secret]")
        return redact_secrets(text)

    def _filled(self, text: str) -> str:
        def value(found: re.Match[str]) -> str:
            if found[1] not in os.environ:
                raise ToolError(
                    f"The MCP server {self._server!r} needs the environment variable {found[1]}.",
                    next_step=f"Set {found[1]}, or leave it out of [mcp.{self._server}].",
                )
            return os.environ[found[1]]

        return _VARIABLE.sub(value, text)
