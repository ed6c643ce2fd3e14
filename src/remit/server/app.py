"""The ASGI application of a root, with the handlers of its paths.

A request takes these steps:

1. :mod:`remit.server.connection` parses it within limits of size, time and number.
2. A ``POST`` to a model's endpoint goes to :class:`~remit.server.calls.ModelCalls`, any other
   request through :meth:`App.__call__`, which finds its handler by method and path.
3. In dev mode a request that does not name this machine is refused with 403.
4. :class:`~remit.server.authentication.Authenticator` finds the caller by key or token.
5. :class:`~remit.server.in_flight_limits.Share` counts the request under the caller's key.
6. The body is read, within limits of length and time.
7. The handler answers. The gateway admits, records and settles a model call.
8. An error is answered in the client's dialect (:mod:`remit.server.refusals`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import logging
import os
import re
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from remit.kernel.errors import ConfigError, RemitError, let_go
from remit.kernel.extensions import INTEROP, load_extension
from remit.ledger import LedgerRollbackError
from remit.packages import policy_epoch
from remit.providers.wire import A2A
from remit.runtime import Runtime
from remit.server import request
from remit.server.api_guard import Guard
from remit.server.asgi import (
    Answer,
    Headers,
    Receive,
    Scope,
    Send,
    refusal,
    reply,
    reply_json,
    shape_of,
    with_key_of_query,
)
from remit.server.authentication import Authenticator, from_elsewhere, is_local, open_keys
from remit.server.batches import Batches
from remit.server.calls import ModelCalls
from remit.server.device_sign_in import DeviceSignIn
from remit.server.extensions import ExtensionRoutes, Handler
from remit.server.files import Files
from remit.server.in_flight_limits import SHARE, Share, Shares
from remit.server.key_status import own_key_routes
from remit.server.listener import most_connections
from remit.server.models import ModelListing
from remit.server.pass_through import PassThrough
from remit.server.paths import call_routes, deployment_of, find_template, paths_of, served_paths
from remit.server.provider_objects import ProviderDoor
from remit.server.refusals import HttpError, refusal_of
from remit.server.responses.background import Background
from remit.server.responses.endpoint import Responses
from remit.server.responses_websocket import socket_routes
from remit.server.stored_chats import StoredChats
from remit.server.telemetry import CallMetrics, context_from_headers, with_parent
from remit.server.telemetry.observers import call_metrics, observe_calls, watch_runtime
from remit.server.upkeep import Upkeep
from remit.server.websocket import WebSocket, refuse_socket

if TYPE_CHECKING:
    from remit.server.console import Console

_log = logging.getLogger("remit.server")

_CHECK_TIMEOUT_S = 5.0  # Longest time of the readiness check of the ledger.
_EXPOSED = (  # headers that a script of another origin may read
    "x-remit-dispatch", "x-remit-exchange", "x-remit-decision", "x-remit-fallback-from",
    "x-remit-cost-usd", "x-remit-cost-certainty", "x-remit-replayed", "x-remit-dropped",
    "request-id", "x-request-id", "retry-after",
)  # fmt: skip
_TWICE = re.compile(r"(/[^/].*?)\1(?:/|$)")  # a base URL that ends with a part of the path
_OWN_PATHS = ("/api/", "/console/")  # These applications decode the path themselves.
_MODELS = tuple(f"{path}/" for path in (*paths_of("/models"), *paths_of("/models", "gemini")))


def _with_cors(application: Any, origins: Sequence[str]) -> Any:
    """Return an ASGI application that lets scripts of ``origins`` call ``application``."""
    from fastapi.middleware.cors import CORSMiddleware

    return CORSMiddleware(
        application, allow_origins=origins, allow_methods=["*"], allow_headers=["*"],
        expose_headers=_EXPOSED,
    )  # fmt: skip


class App:
    """The ASGI application of a root.

    Model calls are answered without a framework, and over :class:`Connection` without ASGI, because
    both would cost time in each call. ``/api`` and the console are applications of their own, made
    at their first request. Creation opens the virtual keys and adds observers to the gateway.
    :meth:`start` and :meth:`stop` frame its use, both in the event loop of the requests; a stopped
    application cannot be started again. :meth:`release` closes everything but the root.

    Attributes:
        direct: handlers of ``POST`` requests that call a model, keyed by path; empty if
            ``cors_origins`` is set, because then every answer needs more headers.
        runtime: the open root, which :meth:`stop` closes.
        metrics: the metrics of the process; successive applications share them.
        ready: True between :meth:`start` and :meth:`stop`.

    Args:
        runtime: the open root.
        dev: answer only requests that name this machine, and authenticate nobody.
        metrics: metrics to count calls in; made here if left out.
        within: the shares of all tenants of the process, and the name of this tenant.

    Raises:
        ConfigError: an extra is missing that the settings need.
        LedgerError: the ledger cannot be read, or in dev mode not written.
        RemitError: the virtual keys, the secret of agent tokens or an extension cannot be used.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        dev: bool = False,
        metrics: CallMetrics | None = None,
        within: tuple[Shares, str] | None = None,
    ) -> None:
        settings = runtime.loaded.settings
        if settings.server.oidc.issuer and find_spec("jwt") is None:
            raise ConfigError(
                "[server.oidc] requires the extra 'oidc', which is not installed.",
                next_step="Run `pip install 'remit[oidc]'`, or unset the setting issuer.",
            )
        self._dev = dev
        self.runtime = runtime
        self._settings = settings
        self.ready = False
        self._streams_ended = False
        self._keys = open_keys(runtime)
        self.metrics = metrics or call_metrics(runtime)
        watch_runtime(self.metrics, runtime)
        self._observers = [*runtime.gateway.observers]
        self._traces = observe_calls(runtime, self.metrics)
        self._authenticator = Authenticator.of_root(
            runtime, self._keys, settings.server.contract_id, dev=dev,
            on_refused=self.metrics.refused_key,
        )  # fmt: skip
        # The API and the console are made at their first request, to start fast.
        self._api: Guard | None = None
        self._console: Console | None = None
        self._making = asyncio.Lock()
        background = Background(runtime.gateway, runtime.leases)
        door = ProviderDoor(runtime, self._authenticator)
        self._responses = Responses(
            runtime.ledger, self._authenticator, background, door, settings.server
        )
        server = settings.server
        most = most_connections(server.max_connections)
        self._shares = Shares(most, server.max_body_bytes, within)
        self._agents: ExtensionRoutes | None = None
        if settings.a2a:
            agents = load_extension(INTEROP, "remit.routes", "a2a")
            self._agents = agents(runtime.gateway, self._authenticator, settings)
        calls = ModelCalls(
            runtime.gateway, self._authenticator, settings.server, self._responses, self.metrics,
            self._shares, dev=dev,
        )  # fmt: skip
        self._upkeep = Upkeep(runtime, self.metrics, calls.end_calls_of_ended_keys)
        self._calls = call_routes(calls)
        if self._agents is not None:
            answer = functools.partial(calls.serve, A2A, answer=self._agents.answer)
            self._calls.update(dict.fromkeys(self._agents.paths(), answer))
        if self._traces is not None:
            self._calls = {path: functools.partial(self._traced, handler)
                           for path, handler in self._calls.items()}  # fmt: skip
        self._sockets = socket_routes(calls, settings.server.max_body_bytes)
        origins = settings.server.cors_origins
        self._cors = _with_cors(self._serve, origins) if origins else None
        self.direct: dict[bytes, request.Handler] = {}
        if not origins:  # With CORS every answer passes the middleware.
            self.direct = {path.encode(): handler for path, handler in self._calls.items()}
        self._listing = ModelListing(runtime, self._authenticator)
        stored = Files(door), Batches(door), StoredChats(runtime.ledger, door)
        self._passed = PassThrough(door)
        self._routes: dict[tuple[str, str], Handler] = {
            **{("GET", path.rstrip("/")): self._listing.models for path in _MODELS},
            **own_key_routes(runtime.budgeter, self._authenticator),
            **DeviceSignIn(runtime, self._keys, self._authenticator).routes(),
            **{route: handler for one in stored for route, handler in one.routes().items()},
            **(self._agents.cards() if self._agents is not None else {}),
            ("GET", "/healthz"): self._health,
            ("GET", "/readyz"): self._readiness,
            ("GET", "/metrics"): self._show_metrics,
        }
        self._templates = {
            template: handler
            for one in (*stored, self._responses)
            for template, handler in one.templates().items()
        }
        self._methods: dict[str, list[str]] = {}
        for method, path in (*self._routes, *(("POST", path) for path in self._calls)):
            self._methods.setdefault(path, []).append(method)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an ASGI 3 request; a WebSocket is closed. The lifespan is not handled.

        Errors are answered in the client's dialect, not raised; after the answer began they end it.
        ``HEAD`` is answered like ``GET``; the console does that itself. A slash at the end of a
        path is ignored, except there and under ``/api/``. In dev mode a request that names another
        machine is answered 403.
        """
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        scope = with_key_of_query(scope)
        if self._cors is not None:
            await self._cors(scope, receive, send)
        else:
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        if method == "POST":
            deployment, path = deployment_of(path)
            call = self._calls.get(path) or self._calls.get(path.rstrip("/"))
            if call is not None:
                await request.AsgiRequest(scope, receive, send, deployment).serve(call)
                return
        elif method == "HEAD" and path != "/" and not path.startswith("/console/"):
            # uvicorn sends no body.
            scope, method = {**scope, "method": "GET"}, "GET"
        if path.endswith("/") and not path.startswith(_OWN_PATHS):
            path = path.rstrip("/") or "/"
            scope = {**scope, "path": path}
        if self._dev and not is_local(scope["headers"]):
            handler: Handler = _refuse_from_elsewhere
        else:
            handler = self._routes.get((method, path), self._other)
        await self._answer(handler, scope, receive, send)

    async def answer_socket(self, socket: WebSocket) -> None:
        """Serve a WebSocket until its end; answer 426 if its path has none.

        Args:
            socket: the client's socket, whose handshake is not answered yet.
        """
        await self._sockets.get(socket.path, refuse_socket)(socket)

    async def _answer(self, handler: Handler, scope: Scope, receive: Receive, send: Send) -> None:
        """Run a handler; answer its error in the client's dialect.

        An error after the answer began is not answered: the connection ends without the rest.
        """
        started = False

        async def watched(message: Any) -> None:
            nonlocal started
            started = True
            await send(message)

        self.metrics.in_progress += 1
        share = scope[SHARE] = Share(self._shares)
        try:
            with with_parent(_trace_of(scope["headers"]) if self._traces else None):
                await handler(scope, receive, watched)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - answered here
            # The error is not stored: its traceback would keep the body alive until a collection.
            answer = refusal(shape_of(scope), refusal_of(error))
            let_go(error)
            if not started:
                await reply(send, answer)
        finally:
            self.metrics.in_progress -= 1
            share.end()

    async def _traced(self, handler: request.Handler, call: request.Request) -> None:
        with with_parent(_trace_of(call.headers)):
            await handler(call)

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a path with parameters, the API, the console, and unknown paths.

        Raises:
            HttpError: 404, the path is unknown; 405, the path does not take the method; 503, Remit
                was installed again. The console then answers 503 with a page.
        """
        path, method = scope["path"], scope["method"]
        if path == "/api" or path.startswith("/api/"):
            if _is_installed_again():
                raise HttpError(503, "restart_needed", _RESTART)
            async with self._making:
                if self._api is None:
                    self._api = await asyncio.to_thread(self._make_api)
            await self._api(scope, receive, send)
        elif path == "/" or path == "/console" or path.startswith("/console/"):
            if _is_installed_again():
                await reply(send, _RESTART_PAGE)
                return
            async with self._making:
                if self._console is None:
                    self._console = await asyncio.to_thread(self._make_console)
            if self._streams_ended:
                self._console.end_streams()
            await self._console(scope, receive, send)
        elif path.startswith(_MODELS) and method == "GET":
            await self._listing.model(scope, receive, send)
        elif (handler := (found := self._found(scope)).get(method)) is not None:
            await handler(scope, receive, send)
        elif path in self._methods or found:
            allow = ", ".join(self._methods.get(path) or found)
            why = f"{path} does not take {method[:16]}; send {allow}."
            raise HttpError(405, "method_not_allowed", why, headers=[(b"allow", allow.encode())])
        else:
            why = f"{method[:16]} {path[:200]} does not exist. "
            if (repeated := _TWICE.search(path[:200])) is not None:
                part = repeated[1]
                why += f"The path contains {part} twice; end the client's base URL before {part}. "
            if "//" in path:
                why += "The path contains //; end the client's base URL without a slash. "
            raise HttpError(404, "not_found", f"{why}Remit serves {served_paths()}.")

    def _found(self, scope: Scope) -> dict[str, Handler]:
        return find_template(self._templates, scope["path"]) or self._passed.find(scope)

    def _make_api(self) -> Guard:
        from remit.server.api import api_application

        return api_application(self.runtime, self._keys, self._authenticator)

    def _make_console(self) -> Console:
        from remit.server.console import Console

        return Console(self.runtime, self._keys, self._authenticator)

    async def _health(self, scope: Scope, receive: Receive, send: Send) -> None:
        await reply_json(send, {"status": "ok"})

    async def _readiness(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = "starting or ending"
        if self.ready:
            ledger = self.runtime.ledger
            try:
                if problem := ledger.outage.reason:
                    problem = f"the ledger cannot be written: {problem}"
                    ledger.probe()
                # Checked in an outage too, because an older copy may have been restored.
                await asyncio.wait_for(asyncio.to_thread(ledger.require_whole), _CHECK_TIMEOUT_S)
            except TimeoutError:
                problem = problem or "the ledger cannot be read"
            except LedgerRollbackError as error:
                problem = str(error)
                _log.warning("%s", problem)
            except RemitError as error:
                _log.warning("the ledger cannot be read: %s", error.message)
                problem = problem or "the ledger cannot be read"
        if problem:
            await reply_json(send, {"status": "not ready", "reason": problem}, 503)
        else:
            await reply_json(send, {"status": "ready"})

    async def _show_metrics(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._settings.server.metrics_open:
            identity = (await self._authenticator.caller(scope)).identity
            if not identity.may("read"):
                raise HttpError(
                    403,
                    "forbidden",
                    f"The role {identity.role} may not read; use a key with the permission read.",
                )
        body, content_type = await asyncio.to_thread(self.metrics.render)
        await reply(send, Answer(200, body, content_type.encode()))

    async def start(self) -> None:
        """Start the periodic tasks and set ``ready``.

        Call :meth:`start` once, in the event loop that serves requests. The tasks run until
        :meth:`stop`; their errors are logged.
        """
        self._upkeep.start()
        self.ready = True

    async def stop(self, *, at_once: bool = True) -> None:
        """Stop the application and close the root. No request may be in flight any more.

        Cancels the periodic tasks and the settling of batches, clears ``ready``, writes the
        metrics, and does what :meth:`release` does.

        Args:
            at_once: cancel background responses, which are recorded as ended; else wait for them.
        """
        if not at_once:
            await self._responses.background.ended()
        self.ready = False
        await self._upkeep.stop()
        await self.runtime.gateway.batches.aclose()
        await self._responses.background.aclose()
        if self._agents is not None:
            await self._agents.aclose()
        await self.runtime.aclose()
        self.metrics.flush()
        await asyncio.to_thread(self._close)

    def is_behind(self) -> bool:
        """Return True if the policy or the prices of the root changed after it was opened.

        A policy changes if a proposal is adopted or rolled back. Reads the ledger. Blocks.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        runtime = self.runtime
        if policy_epoch(runtime.ledger) != runtime.gateway.policy_epoch:
            return True
        return runtime.root_prices.behind(runtime.root, runtime.ledger)

    def end_streams(self) -> None:
        """End the console's live pages; pages that are opened later end at once too."""
        self._streams_ended = True
        if self._console is not None:
            self._console.end_streams()

    def _close(self) -> None:
        self.release()
        self.runtime.close()

    def release(self) -> None:
        """Close everything except the runtime, for callers that opened the runtime themselves.

        The gateway's observers are those from before the creation again. Keys and console are
        closed, and queued spans sent. Blocks.
        """
        self.runtime.gateway.observers[:] = self._observers
        self._keys.close()
        if self._console is not None:
            self._console.close()
        if self._traces is not None:
            self._traces.shutdown()


def _installed_file() -> tuple[int, int]:
    """Return inode and time of this module's file, which an installation replaces; 0 if missing."""
    with contextlib.suppress(OSError):
        found = os.stat(__file__)
        return found.st_ino, found.st_mtime_ns
    return 0, 0


def _installed_text() -> bytes:
    """Return the SHA-256 of this module's file; empty if it cannot be read."""
    with contextlib.suppress(OSError), open(__file__, "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
    return b""


_LOADED_FILE, _LOADED_TEXT = _installed_file(), _installed_text()
_RESTART = (
    "Remit was installed again after this server started. Restart the server to use the console "
    "and /api. Until then it answers model calls with the earlier installation."
)
# No file of the console is read for the page, because it may be of another release.
_RESTART_PAGE = Answer(
    503,
    f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>503 · Remit</title></head>
<body><main><h1>Restart needed</h1><p>{_RESTART}</p></main></body></html>""".encode(),
    b"text/html; charset=utf-8",
    [(b"content-security-policy", b"default-src 'none'")],
)


def _is_installed_again() -> bool:
    """Return True if Remit was installed again after the process loaded this module.

    The API and the console load modules and templates when a request needs them; those would be of
    another release. A new time of the file alone is no installation.
    """
    found = _installed_file()
    if found == _LOADED_FILE:
        return False
    return found[0] != _LOADED_FILE[0] or _installed_text() != _LOADED_TEXT


def _trace_of(named: Headers) -> object | None:
    """Return the caller's trace context (W3C Trace Context); ``None`` if missing."""
    headers = {name: value.decode("latin-1") for name, value in named
               if name in (b"traceparent", b"tracestate")}  # fmt: skip
    return context_from_headers(headers.get(b"traceparent"), headers.get(b"tracestate"))


async def _refuse_from_elsewhere(scope: Scope, receive: Receive, send: Send) -> None:
    raise from_elsewhere()
