"""Over streamable HTTP: for clients that share one Remit, each with a key of its own."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mcp import MCPError
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import INVALID_REQUEST

from remit.gateway.auth import (
    AgentTokenProvider,
    AgentTokens,
    AuthLimits,
    AuthProvider,
    ByTokenKind,
    Identity,
    KeyStore,
    agent_secret,
)
from remit.kernel.settings.settings import McpOfferSettings
from remit.runtime import Runtime
from remit.server.mcp.caller import DEVELOPER, Caller
from remit.server.mcp.errors import McpError
from remit.server.mcp.guard import IDENTITY, PATH, Guard, Receive, Scope, Send
from remit.server.mcp.live import Live
from remit.server.mcp.server import Context, all_offers, mcp_server
from remit.server.telemetry import set_up_logging

__all__ = ["serve_http"]

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def serve_http(
    root: Path,
    *,
    dev: bool,
    flags: Mapping[str, Any],
    ready: Callable[[str], None],
    protocol: type[asyncio.Protocol],
) -> None:
    """Serve a root at ``/mcp`` until SIGTERM or SIGINT; then let calls end, and return.

    Args:
        root: an existing root.
        dev: let everybody in; on loopback only.
        flags: settings by dotted key.
        ready: called with the URL once the socket listens.
        protocol: uvicorn's of HTTP/1.1, with the limits that it is to have.

    Raises:
        McpError: the address cannot be listened on, or must not be.
        RootError: the root cannot be opened.
        ConfigError: its configuration does not fit.
        LedgerError: its ledger cannot be opened.
    """
    import uvicorn

    with Runtime.open(root, flags=flags) as runtime:
        settings = runtime.loaded.settings
        own, http = settings.mcp_server, settings.server
        if dev and not _is_loopback(own.host):
            raise McpError(
                f"Dev mode lets everybody in, so it listens on loopback only, not on {own.host}.",
                next_step="Leave out --dev and make keys with `remit key create`.",
            )
        set_up_logging(http.log_level, http.log_format)
        with _listening(own.host, own.port, http.max_connections) as listening:
            application = _Application(runtime, dev)
            config = uvicorn.Config(
                application,
                http=protocol,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=http.max_connections,
                timeout_keep_alive=http.keep_alive_s,
                timeout_graceful_shutdown=http.drain_s,
            )
            host, port = listening.getsockname()[:2]
            ready(f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}")
            uvicorn.Server(config).run(sockets=[listening])


class _Application:
    """The ASGI application: opens what it needs when the server begins, closes it at the end."""

    def __init__(self, runtime: Runtime, dev: bool) -> None:
        settings = runtime.loaded.settings
        own = settings.mcp_server
        self._runtime = runtime
        self._keys: KeyStore | None = None
        authority: AuthProvider | None = None
        if dev:
            runtime.allow_without_limits(DEVELOPER)
        else:
            limits = AuthLimits(settings.auth.revocation_s, settings.auth.stale_after_s)
            self._keys = KeyStore(runtime.ledger, limits)
            agents = AgentTokenProvider(AgentTokens(agent_secret(runtime.root)), self._keys)
            authority = ByTokenKind(agents, self._keys)
        self._manager = StreamableHTTPSessionManager(
            mcp_server(all_offers(runtime), settings, _caller, alone=dev),
            security_settings=_security(own),
            session_idle_timeout=own.session_idle_s,
            max_request_body_size=own.max_message_bytes,
            max_sessions=own.max_sessions,
        )
        self._open = Live(
            self._manager.handle_request,
            authority,
            each=own.max_sessions if dev else min(own.max_sessions, own.sessions_per_caller),
            idle_s=own.session_idle_s,
        )
        self._look_s = settings.auth.revocation_s / 2
        self._guard = Guard(
            self._open,
            authority,
            max_body_bytes=own.max_message_bytes,
            body_timeout_s=settings.server.body_timeout_s,
            news_s=settings.auth.revocation_s,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._guard(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with self._manager.run():
            watching = asyncio.ensure_future(self._open.watch(self._look_s))
            await send({"type": "lifespan.startup.complete"})
            await receive()
            watching.cancel()
            await asyncio.wait({watching})
        # Here and not later: a server that was told to end by a signal ends by that signal.
        await self._runtime.aclose()
        await asyncio.to_thread(self._close)
        await send({"type": "lifespan.shutdown.complete"})

    def _close(self) -> None:
        if self._keys is not None:
            self._keys.close()
        self._runtime.close()


def _caller(context: Context) -> Caller:
    """Who sent this very message; whoever began the session does not count."""
    identity = getattr(context.request, "scope", {}).get(IDENTITY)
    if not isinstance(identity, Identity):
        raise MCPError(INVALID_REQUEST, "Nobody known asks.")
    return Caller(identity)


def _security(own: McpOfferSettings) -> TransportSecuritySettings:
    """Names under which it may be reached, and pages that may ask: against DNS rebinding."""
    host = f"[{own.host}]" if ":" in own.host else own.host
    names = [*_LOOPBACK, host, *own.allowed_hosts]
    hosts = [form for name in names for form in (name, f"{name}:*")]
    pages = [f"http://{name}" for name in _LOOPBACK] + [f"https://{name}" for name in _LOOPBACK]
    origins = [form for page in pages for form in (page, f"{page}:*")]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=hosts,
        allowed_origins=[*origins, *own.allowed_origins],
    )


def _listening(host: str, port: int, backlog: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=backlog)
    except OSError as error:
        raise McpError(
            f"{host}:{port} cannot be listened on: {error.strerror}.",
            next_step="Choose another --port, or end what listens there.",
        ) from error


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
