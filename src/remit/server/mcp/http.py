"""MCP over streamable HTTP: many clients of one Remit, each with its own key."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mcp import MCPError
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import INVALID_REQUEST
from starlette.responses import JSONResponse

from remit.gateway.auth import Identity, token_from_headers
from remit.kernel.errors import RemitError
from remit.kernel.settings import McpEndpointSettings
from remit.runtime import Runtime
from remit.server.authentication import Authenticator, open_keys
from remit.server.guard import IDENTITY, Guard
from remit.server.listening import http_config, listen, require_loopback, url_of
from remit.server.mcp.callers import Caller
from remit.server.mcp.server import Context, all_tools, mcp_server
from remit.server.mcp.sessions import SessionGuard
from remit.server.refusals import HttpError
from remit.server.replies import Receive, Scope, Send
from remit.server.telemetry import set_up_logging

_PATH = "/mcp"
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_SINGLE = (b"host", b"origin", b"authorization", b"x-api-key", b"mcp-session-id",
           b"mcp-protocol-version")  # fmt: skip
_log = logging.getLogger("remit.mcp")


def serve_http(
    root: Path, *, dev: bool, flags: Mapping[str, Any], ready: Callable[[str], None]
) -> None:
    """Serve a root at ``/mcp`` until SIGTERM or SIGINT; then let calls end, and return.

    Args:
        root: an existing root.
        dev: accept everyone; on loopback only.
        flags: settings by dotted key.
        ready: called with the URL once the socket listens.

    Raises:
        ServerError: the address cannot be listened on, or must not be.
        RootError: the root cannot be opened.
        ConfigError: its configuration is invalid.
        LedgerError: its ledger cannot be opened.
    """
    from uvicorn import Server

    with Runtime.open(root, flags=flags) as runtime:
        own, http = runtime.loaded.settings.mcp_server, runtime.loaded.settings.server
        if dev:
            require_loopback(own.host)
        with listen(own.host, own.port, http.max_connections) as listening:
            set_up_logging(http.log_level, http.log_format)
            server = Server(http_config(_Application(runtime, dev), http))
            ready(url_of(listening) + _PATH)
            server.run(sockets=[listening])


class _Application:
    """The ASGI application of ``remit mcp --http``."""

    def __init__(self, runtime: Runtime, dev: bool) -> None:
        settings = runtime.loaded.settings
        own = settings.mcp_server
        self._runtime = runtime
        self._keys = open_keys(runtime)
        authenticator = Authenticator.of_root(runtime, self._keys, dev=dev)
        self._manager = StreamableHTTPSessionManager(
            mcp_server(all_tools(runtime), settings, _caller, single_caller=dev),
            security_settings=_security(own),
            session_idle_timeout=own.session_idle_s,
            max_request_body_size=own.max_message_bytes,
            max_sessions=own.max_sessions,
        )
        self._sessions = SessionGuard(
            self._manager,
            authenticator.provider,
            per_caller=own.max_sessions if dev else min(own.max_sessions, own.sessions_per_caller),
            idle_s=own.session_idle_s,
        )
        self._sweep_s = settings.auth.revocation_s / 2
        self._guard = Guard(
            self._sessions,
            authenticator,
            _refusal,
            max_body_bytes=own.max_message_bytes,
            body_timeout_s=settings.server.body_timeout_s,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._run(receive, send)
        elif (error := _misdirected(scope)) is not None:
            await _refusal(scope, error)(scope, receive, send)
        else:
            try:
                await self._guard(scope, receive, send)
            except Exception as error:  # noqa: BLE001 - its text may quote the client; it is not logged
                _log.error("a request over MCP failed: %s", type(error).__name__)

    async def _run(self, receive: Receive, send: Send) -> None:
        await receive()
        async with self._manager.run():
            watching = asyncio.ensure_future(self._sessions.watch(self._sweep_s))
            await send({"type": "lifespan.startup.complete"})
            await receive()
            watching.cancel()
            await asyncio.wait({watching})
        # Here and not later: a server that a signal ended is ended by that signal again.
        await self._runtime.aclose()
        await asyncio.to_thread(self._close)
        await send({"type": "lifespan.shutdown.complete"})

    def _close(self) -> None:
        self._keys.close()
        self._runtime.close()


def _caller(context: Context) -> Caller:
    """The sender of this message, not the one who began the session."""
    identity = getattr(context.request, "scope", {}).get(IDENTITY)
    if not isinstance(identity, Identity):
        raise MCPError(INVALID_REQUEST, "The request was not authenticated.")
    return Caller(identity)


def _misdirected(scope: Scope) -> HttpError | None:
    """Another path, or a header given twice: a proxy might read one and this server the other."""
    if scope["path"] != _PATH:
        return HttpError(404, "not_found", f"There is nothing here. MCP is at {_PATH}.")
    names = [name for name, _ in scope["headers"]]
    for name in _SINGLE:
        if names.count(name) > 1:
            why = f"There are several headers {name.decode()!r}."
            return HttpError(400, "invalid_request", why, close=True)
    return None


def _refusal(scope: Scope, error: HttpError) -> JSONResponse:
    """OAuth's shape of an error; with 401 the challenge of RFC 6750, section 3."""
    code, cause = error.code, error.__cause__
    headers = {}
    if error.status == 401:
        code = "invalid_token"
        named = {name: value.decode("latin-1") for name, value in scope["headers"]}
        shown = token_from_headers(named.get(b"authorization"), named.get(b"x-api-key"))
        challenge = 'Bearer realm="remit"'
        headers["www-authenticate"] = challenge + ', error="invalid_token"' * (shown is not None)
    if error.retry_after_s is not None:
        headers["retry-after"] = f"{error.retry_after_s:.0f}"
    if error.close:
        headers["connection"] = "close"
    why = str(cause) if isinstance(cause, RemitError) else error.message
    return JSONResponse({"error": code, "error_description": why}, error.status, headers)


def _security(own: McpEndpointSettings) -> TransportSecuritySettings:
    """The names that it may be reached by, and the pages that may call it (DNS rebinding)."""
    host = f"[{own.host}]" if ":" in own.host else own.host
    names = [*_LOOPBACK, host, *own.allowed_hosts]
    hosts = [form for name in names for form in (name, f"{name}:*")]
    pages = [f"{scheme}://{name}" for scheme in ("http", "https") for name in _LOOPBACK]
    origins = [form for page in pages for form in (page, f"{page}:*")]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=hosts,
        allowed_origins=[*origins, *own.allowed_origins],
    )
