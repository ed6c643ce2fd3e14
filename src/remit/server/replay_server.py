"""A server that answers a client's program from a recorded run.

The server has the endpoints, the limits and the streams of ``remit serve``. A
:class:`~remit.gateway.ReplayGateway` takes the gateway's place, so that nothing is sent to a
provider and nothing is appended to the recorded ledger.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NoReturn

from typing_extensions import override

from remit.gateway import Identity, RecordedCall, Recording, ReplayGateway, RouterConfig
from remit.gateway.budget import TokenBudgeter
from remit.kernel.root import Root
from remit.kernel.settings import Settings
from remit.ledger import LedgerClient
from remit.packages import prices_of
from remit.runtime import assemble_providers
from remit.server.asgi import Receive, Scope, Send, refusal, reply, reply_json, shape_of
from remit.server.authentication import Authenticator
from remit.server.calls import ModelCalls
from remit.server.in_flight_limits import Shares
from remit.server.listener import most_connections
from remit.server.local_server import LoopbackServer
from remit.server.paths import call_routes, deployment_of, paths_of
from remit.server.refusals import HttpError
from remit.server.request import AsgiRequest
from remit.server.responses.endpoint import Responses
from remit.server.responses_websocket import socket_routes
from remit.server.telemetry import CallMetrics
from remit.server.websocket import WebSocket, refuse_socket

_KEY = "recorded"  # In place of each provider's key, which no request contains.


class ReplayServer(LoopbackServer):
    """A server on a loopback port that replays a recorded run, until :meth:`close`.

    Creation starts the server in a background thread. Any key is accepted. Only requests for this
    machine are answered. A scratch ledger in a temporary directory takes the entries of the replay,
    and is deleted by :meth:`close`.

    Args:
        recording: the run. Its ledger stays open, and is only read.
        root: the root whose settings and prices apply.
        settings: the settings.
        port: the port; 0 for a free one.
        pause: awaited with each recorded call before its answer; None to answer at once.

    Raises:
        RemitError: the port is in use.
        ConfigError: the settings cannot be used.
    """

    def __init__(
        self,
        recording: Recording,
        root: Root,
        settings: Settings,
        *,
        port: int = 0,
        pause: Callable[[RecordedCall], Awaitable[None]] | None = None,
    ) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="remit-replay-")
        self._ledger: LedgerClient | None = LedgerClient(Path(self._scratch.name) / "scratch.db")
        try:
            gateway = ReplayGateway(
                recording,
                pause,
                {*settings.routing.models, *settings.routing.routes},
                ledger_client=self._ledger,
                budgeter=TokenBudgeter(self._ledger),
                config=RouterConfig.from_settings(settings, "", ""),
                dev_mode=True,
                budget_mode=settings.budget.mode,
                prices=prices_of(root, settings.budget.prices).table,
            )
            keys = {one.api_key_env: _KEY for one in settings.providers.values()}
            named = assemble_providers(settings, None, {**os.environ, **keys})
            for name, provider in named.reachable.items():
                gateway.register_provider(name, provider)
            self._start(_Application(recording, gateway, settings), settings.server, port)
        except BaseException:
            self._release()
            raise

    @override
    def close(self) -> None:
        """Stop taking calls, and wait for calls in flight. A repeated call has no effect."""
        if self._ledger is not None:
            self._stop()
            self._release()

    def _release(self) -> None:
        if self._ledger is not None:
            self._ledger.close()
            self._ledger = None
        self._scratch.cleanup()


class _Application:
    """The ASGI application of a replay: the endpoints that call models, and their list of models.

    Attributes:
        direct: handlers of ``POST`` requests, keyed by path.
    """

    def __init__(self, recording: Recording, gateway: ReplayGateway, settings: Settings) -> None:
        first = recording.ledger.read(recording.calls[0].exchange_entry_id).metadata
        identity = Identity(
            str(first["agent_id"]) or "replay", "operator", key_id=str(first.get("key_id", ""))
        )
        authenticator = Authenticator(_Recorded(identity), settings.server.contract_id)
        nothing: Any = _NotReplayed()
        responses = Responses(recording.ledger, authenticator, nothing, nothing, settings.server)
        server = settings.server
        shares = Shares(most_connections(server.max_connections), server.max_body_bytes)
        calls = ModelCalls(
            gateway, authenticator, server, responses, CallMetrics(), shares, dev=True
        )
        self._calls = call_routes(calls)
        self._sockets = socket_routes(calls, server.max_body_bytes)
        self._models = sorted({one.model_id for one in recording.calls})
        self.direct = {path.encode(): handler for path, handler in self._calls.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        if method == "POST":
            deployment, path = deployment_of(path)
            if (call := self._calls.get(path)) is not None:
                await AsgiRequest(scope, receive, send, deployment).serve(call)
                return
        if method == "GET" and path.rstrip("/") in paths_of("/models"):
            models = [{"id": name, "object": "model", "created": 0, "owned_by": "recorded"}
                      for name in self._models]  # fmt: skip
            await reply_json(send, {"object": "list", "data": models})
            return
        said = f"{method[:16]} {path[:200]} is not replayed; a replay answers calls of models."
        await reply(send, refusal(shape_of(scope), HttpError(404, "not_found", said)))

    async def answer_socket(self, socket: WebSocket) -> None:
        """Serve a client's WebSocket until its end; answer 426 if its path has none."""
        await self._sockets.get(socket.path, refuse_socket)(socket)


class _Recorded:
    """Authenticates every caller as the recorded caller."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    def authenticate(self, token: str | None) -> Identity:
        return self._identity


class _NotReplayed:
    """Stands for the parts of the server that run calls in the background or pass paths on."""

    def __getattr__(self, name: str) -> NoReturn:
        said = "Responses in the background are not replayed; send the request without background."
        raise HttpError(400, "not_replayed", said, param="background")
