"""The entry points of the gateway: HTTP sessions of the SDK, and a stream for stdio."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from mcp.server import Server, ServerRequestContext
from mcp.server.context import CallNext, HandlerResult
from mcp.shared.dispatcher import Outbound
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from remit import __version__
from remit.agents.tools import Pins
from remit.kernel.errors import ConfigError
from remit.kernel.secrets import ConfiguredSecrets
from remit.packages import Registry
from remit.runtime import Runtime
from remit.server.mcp.callers import Caller, CallSlots
from remit.server.mcp.gateway.relay import Relay, Served
from remit.server.mcp.gateway.rules import Rules

_RELAY = "remit.relay"
_Context = ServerRequestContext[Any, Any]


def served_by(runtime: Runtime, name: str) -> Served:
    """Return a server of ``[mcp.NAME]`` of an open root; nothing is started.

    Each result counts calls and rates for itself.

    Args:
        runtime: the open root.
        name: the NAME of the table.

    Raises:
        ConfigError: there is no server with this name.
        ToolError: its rules cannot be used.
    """
    settings = runtime.loaded.settings
    if name not in settings.mcp:
        raise ConfigError(
            f"There is no MCP server {name!r} in the configuration.",
            next_step=f"Add [mcp.{name}] to {runtime.root.config}; there are "
            f"{', '.join(sorted(settings.mcp)) or 'none'}.",
        )
    own, limits, ledger = settings.mcp[name], settings.mcp_server, runtime.ledger
    return Served(
        name=name,
        settings=own,
        rules=Rules(name, own),
        timeout_s=own.timeout_s or settings.tools.timeout_s,
        ledger=ledger,
        budgeter=runtime.budgeter,
        pins=Pins(ledger, lambda: Registry.from_ledger(ledger).permitted_tools()),
        approvals=runtime.approvals,
        secrets=ConfiguredSecrets(settings),
        slots=CallSlots(limits.calls_at_once, limits.calls_per_caller, limits.calls_waiting),
    )


async def serve_stream(served: Served, caller: Caller, receive: Any, send: Any) -> None:
    """Relay messages between one client and the server until the client's stream ends.

    A server that was started for the client is ended then, and both streams are closed.

    Args:
        served: the server.
        caller: the client.
        receive: stream of the client's messages.
        send: stream of messages to the client.
    """
    dispatcher: JSONRPCDispatcher[Any] = JSONRPCDispatcher(receive, send)
    relay = Relay(served, caller, dispatcher)
    try:
        await dispatcher.run(relay.request, lambda _, method, params: relay.notify(method, params))
    finally:
        await relay.close()


class WebEndpoint:
    """An upstream server for clients over HTTP.

    A client of a protocol up to 2025-11-25 has one connection to the server for each of its
    sessions. Later protocols have no sessions, so all requests of a user or key share one
    connection.

    Args:
        served: the server.
        caller_of: returns the sender of a message.
        idle_s: seconds after which an unused shared connection ends.
    """

    def __init__(
        self, served: Served, caller_of: Callable[[_Context], Caller], idle_s: float
    ) -> None:
        self._served = served
        self._caller_of = caller_of
        self._idle_s = idle_s
        self._shared: dict[str, tuple[Relay, float]] = {}

    def server(self) -> Server[Any]:
        """Return the SDK server whose messages are passed on unparsed."""
        server: Server[Any] = Server(self._served.name, version=__version__)
        server.middleware = [self._pass_on]
        return server

    async def close(self) -> None:
        """End the connections to the server that the requests of one caller share."""
        for relay, _ in [*self._shared.values()]:
            await relay.close()

    async def _pass_on(self, ctx: _Context, call_next: CallNext) -> HandlerResult:
        # The SDK's typed session would read, and so change, what is passed on; below it lie the
        # channel of this request and that of the connection.
        request, connection = ctx.session._request_outbound, ctx.session._connection
        caller = self._caller_of(ctx)
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            relay = await self._shared_relay(caller, connection.outbound)
        else:
            if _RELAY not in connection.state:
                made = Relay(self._served, caller, connection.outbound)
                connection.state[_RELAY] = made
                connection.exit_stack.push_async_callback(made.close)
            relay = connection.state[_RELAY]
        if ctx.request_id is not None:
            return await relay.request(request, ctx.method, ctx.params)
        if ctx.method == "notifications/initialized":
            await call_next(ctx)
        await relay.notify(ctx.method, ctx.params)
        return None

    async def _shared_relay(self, caller: Caller, standalone: Outbound) -> Relay:
        now = time.monotonic()
        for owner, (relay, used) in [*self._shared.items()]:
            if relay.upstream.over or (now - used > self._idle_s and not relay.busy):
                del self._shared[owner]
                await relay.close()
        relay, _ = self._shared.get(caller.owner) or (
            Relay(self._served, caller, standalone), now
        )  # fmt: skip
        self._shared[caller.owner] = relay, now
        return relay
