"""MCP over streamable HTTP: many clients of one root, each with its own key."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mcp import MCPError
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from mcp.types import INVALID_REQUEST
from starlette.requests import Request
from starlette.responses import JSONResponse

from remit.gateway.auth import Identity, token_from_headers
from remit.kernel.errors import ConfigError, RemitError
from remit.kernel.loops import repeat
from remit.kernel.settings import McpEndpointSettings
from remit.runtime import Runtime
from remit.server.api_guard import CONTEXT, IDENTITY, Guard
from remit.server.asgi import Receive, Scope, Send
from remit.server.authentication import Authenticator, open_keys
from remit.server.listener import http_config, listen, require_loopback, url_of
from remit.server.mcp.bodies import Bodies
from remit.server.mcp.callers import Caller
from remit.server.mcp.gateway import WebEndpoint, served_by
from remit.server.mcp.server import Context, all_tools, mcp_server
from remit.server.mcp.sessions import SessionGuard
from remit.server.refusals import HttpError
from remit.server.request_context import RequestContext
from remit.server.telemetry import set_up_logging

_PATH = "/mcp"
_METADATA = "/.well-known/oauth-protected-resource"
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_SINGLE = (b"host", b"origin", b"authorization", b"x-api-key", b"mcp-session-id",
           b"mcp-protocol-version")  # fmt: skip
_log = logging.getLogger("remit.mcp")


def serve_http(
    root: Path,
    *,
    dev: bool,
    flags: Mapping[str, Any],
    ready: Callable[[str], None],
    gateway: bool = False,
) -> None:
    """Serve a root at ``/mcp``, or each of its MCP servers at ``/mcp/NAME``.

    Returns after SIGTERM or SIGINT, once calls have ended.

    Args:
        root: an existing root.
        dev: accept everyone; on loopback only.
        flags: settings keyed by dotted name.
        ready: called with the URLs, separated by spaces, once the socket listens.
        gateway: serve the servers of ``[mcp.NAME]`` instead of Remit's own tools.

    Raises:
        ConfigError: the configuration is invalid, or there is no MCP server to serve.
        ToolError: the rules of a server cannot be used.
        RemitError: the address is in use, or not on loopback with ``dev``; or the root cannot be
            opened.
        LedgerError: the ledger cannot be opened.
    """
    from uvicorn import Server

    with Runtime.open(root, flags=flags) as runtime:
        own, http = runtime.loaded.settings.mcp_server, runtime.loaded.settings.server
        if dev:
            require_loopback(own.host)
        with listen(own.host, own.port, http.max_connections) as listening:
            set_up_logging(http.log_level, http.log_format)
            endpoints = _upstreams(runtime) if gateway else {}
            server = Server(http_config(_Application(runtime, dev, endpoints), http))
            paths = [f"{_PATH}/{name}" for name in endpoints] or [_PATH]
            ready(" ".join(url_of(listening) + path for path in paths))
            server.run(sockets=[listening])


class _Application:
    """The ASGI application of ``remit mcp --http``."""

    def __init__(self, runtime: Runtime, dev: bool, upstreams: Mapping[str, WebEndpoint]) -> None:
        settings = runtime.loaded.settings
        own = settings.mcp_server
        self._runtime = runtime
        self._keys = open_keys(runtime)
        authenticator = Authenticator.of_root(runtime, self._keys, dev=dev)
        self._upstreams = upstreams
        self._security = _security(own)
        if upstreams:
            servers = {f"{_PATH}/{name}": one.server() for name, one in upstreams.items()}
        else:
            servers = {_PATH: mcp_server(all_tools(runtime), settings, _caller, single_caller=dev)}
        self._managers = {
            path: StreamableHTTPSessionManager(
                server,
                security_settings=self._security,
                session_idle_timeout=own.session_idle_s,
                max_request_body_size=own.max_message_bytes,
                max_sessions=own.max_sessions,
            )
            for path, server in servers.items()
        }
        self._sessions = {
            path: SessionGuard(
                manager,
                authenticator.provider,
                per_caller=own.max_sessions
                if dev
                else min(own.max_sessions, own.sessions_per_caller),
                idle_s=own.session_idle_s,
            )
            for path, manager in self._managers.items()
        }
        self._bodies = {path: Bodies(sessions) for path, sessions in self._sessions.items()}
        self._sweep_s = settings.auth.revocation_s / 2
        self._guard = Guard(
            self._session,
            authenticator,
            _refusal,
            max_body_bytes=own.max_message_bytes,
            body_timeout_s=settings.server.body_timeout_s,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._run(receive, send)
        elif scope["path"].startswith(_METADATA) and scope["method"] == "GET":
            await self._describe(scope, receive, send)
        elif (error := self._misdirected(scope)) is not None:
            await _refusal(scope, error)(scope, receive, send)
        else:
            try:
                await self._guard(scope, receive, send)
            except Exception as error:  # noqa: BLE001 - its text may quote the client; it is not logged
                _log.error("a request over MCP failed: %s", type(error).__name__)

    async def _run(self, receive: Receive, send: Send) -> None:
        await receive()
        async with AsyncExitStack() as running:
            for manager in self._managers.values():
                await running.enter_async_context(manager.run())
            watching = [
                asyncio.ensure_future(
                    repeat(sessions.sweep, self._sweep_s, "open MCP sessions cannot be checked")
                )
                for sessions in self._sessions.values()
            ]
            await send({"type": "lifespan.startup.complete"})
            await receive()
            for task in watching:
                task.cancel()
            await asyncio.wait(watching)
        for endpoint in self._upstreams.values():
            await endpoint.close()
        # Here and not later: a server that a signal ended is ended by that signal again.
        await self._runtime.aclose()
        await asyncio.to_thread(self._close)
        await send({"type": "lifespan.shutdown.complete"})

    async def _session(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._bodies[scope["path"]](scope, receive, send)

    def _misdirected(self, scope: Scope) -> HttpError | None:
        """Return the error for an unknown path or a repeated header; else None.

        A proxy might read one of two headers, and this server the other.
        """
        if scope["path"] not in self._sessions:
            there = ", ".join(self._sessions)
            return HttpError(
                404, "not_found", f"This path does not exist. MCP is served at {there}."
            )
        names = [name for name, _ in scope["headers"]]
        for name in _SINGLE:
            if names.count(name) > 1:
                why = f"The header {name.decode()!r} was sent more than once."
                return HttpError(400, "invalid_request", why, close=True)
        return None

    async def _describe(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the metadata of RFC 9728 that a client needs to be authorized."""
        path = scope["path"].removeprefix(_METADATA) or next(iter(self._sessions))
        answer = await TransportSecurityMiddleware(self._security).validate_request(Request(scope))
        if answer is None and path in self._sessions:
            found = {
                "resource": _base_of(scope) + path,
                "resource_name": "Remit",
                "bearer_methods_supported": ["header"],
            }
            answer = JSONResponse(found)
        await (answer or _refusal(scope, HttpError(404, "not_found", "This path does not exist.")))(
            scope, receive, send
        )

    def _close(self) -> None:
        self._keys.close()
        self._runtime.close()


def _caller(context: Context) -> Caller:
    """Return the sender of this message, who may differ from the one that began the session.

    Raises:
        MCPError: the request was not authenticated.
    """
    scope = getattr(context.request, "scope", {})
    identity, named = scope.get(IDENTITY), scope.get(CONTEXT)
    if not isinstance(identity, Identity) or not isinstance(named, RequestContext):
        raise MCPError(INVALID_REQUEST, "The request was not authenticated.")
    return Caller(identity, named.subject_id, named.named_session_id)


def _refusal(scope: Scope, error: HttpError) -> JSONResponse:
    """Return an error in OAuth's form; 401 has the challenge of RFC 6750, section 3."""
    code, cause = error.code, error.__cause__
    headers = {}
    if error.status == 401:
        code = "invalid_token"
        named = {name: value.decode("latin-1") for name, value in scope["headers"]}
        shown = token_from_headers(named.get(b"authorization"), named.get(b"x-api-key"))
        metadata = f"{_base_of(scope)}{_METADATA}{scope['path']}"
        challenge = f'Bearer realm="remit", resource_metadata="{metadata}"'
        headers["www-authenticate"] = challenge + ', error="invalid_token"' * (shown is not None)
    if error.retry_after_s is not None:
        headers["retry-after"] = f"{error.retry_after_s:.0f}"
    if error.close:
        headers["connection"] = "close"
    why = str(cause) if isinstance(cause, RemitError) else error.message
    return JSONResponse({"error": code, "error_description": why}, error.status, headers)


def _base_of(scope: Scope) -> str:
    """Return scheme and host as the client wrote them."""
    host = dict(scope["headers"]).get(b"host", b"localhost").decode("latin-1")
    return f"{scope['scheme']}://{quote(host, safe=':[]')}"


def _upstreams(runtime: Runtime) -> dict[str, WebEndpoint]:
    settings = runtime.loaded.settings
    if not settings.mcp:
        raise ConfigError(
            "The configuration contains no MCP server.",
            next_step=f"Add [mcp.NAME] with a command or url to {runtime.root.config}.",
        )
    idle_s = settings.mcp_server.session_idle_s
    return {name: WebEndpoint(served_by(runtime, name), _caller, idle_s) for name in settings.mcp}


def _security(own: McpEndpointSettings) -> TransportSecuritySettings:
    """Return the accepted host names and page origins, against DNS rebinding."""
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
