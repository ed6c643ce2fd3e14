"""The server's ASGI application: which handler answers which path."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from remit.kernel.errors import ConfigError, RemitError, let_go
from remit.kernel.extensions import INTEROP, load_extension
from remit.ledger import LedgerRollbackError
from remit.packages import policy_epoch
from remit.providers.wire import A2A
from remit.runtime import Runtime
from remit.server import request
from remit.server.authentication import Authenticator, from_elsewhere, is_local, open_keys
from remit.server.batches import Batches
from remit.server.calls import ModelCalls
from remit.server.endpoints import Templates, call_routes, deployment_of, paths_of
from remit.server.extending import ExtensionRoutes, Handler
from remit.server.files import Files
from remit.server.guard import Guard
from remit.server.listening import most_connections
from remit.server.listing import ModelListing
from remit.server.own_key import OwnKey
from remit.server.provider_door import ProviderDoor
from remit.server.refusals import HttpError, refusal_of
from remit.server.replies import (
    Answer,
    Headers,
    Receive,
    Scope,
    Send,
    refusal,
    reply,
    reply_json,
    shape_of,
)
from remit.server.responses.background import Background
from remit.server.responses.endpoint import RESPONSE_PATHS, Responses
from remit.server.responses_socket import socket_routes
from remit.server.shares import SHARE, Share, Shares
from remit.server.telemetry import (
    CallLog,
    CallMetrics,
    context_from_headers,
    set_up_tracing,
    tracing_observer,
    with_parent,
)
from remit.server.websocket import WebSocket, refuse_socket

if TYPE_CHECKING:
    from remit.server.console import Console

_log = logging.getLogger("remit.server")

_WHOLE_S = 5.0  # to look whether the ledger has all that was seen in it
_FLUSH_S = 1.0
_EXPOSED = (  # headers that a script of another origin may read
    "x-remit-dispatch", "x-remit-exchange", "x-remit-decision", "x-remit-fallback-from",
    "x-remit-cost-usd", "x-remit-cost-certainty", "x-remit-replayed", "x-remit-dropped",
    "request-id", "x-request-id", "retry-after",
)  # fmt: skip
_OWN_PATHS = ("/api/", "/console/")  # their applications read the path as it is
_MODELS = tuple(f"{path}/" for path in paths_of("/models"))

_T = TypeVar("_T")


def _with_cors(application: Any, origins: Sequence[str]) -> Any:
    """Return an ASGI application that lets scripts of these origins call ``application``."""
    from fastapi.middleware.cors import CORSMiddleware

    return CORSMiddleware(
        application, allow_origins=origins, allow_methods=["*"], allow_headers=["*"],
        expose_headers=_EXPOSED,
    )  # fmt: skip


class App:
    """One root over HTTP.

    Model calls are answered without a framework, for speed: over :class:`Connection` they do not
    even pass through ASGI. Everything under ``/api`` is an application of its own.

    Attributes:
        direct: by path, what answers a ``POST`` that calls a model.
        runtime: the open root; closed with the application.
        metrics: of the process, whichever application counts.
        ready: whether calls are taken.

    Args:
        dev: dev mode: only this machine is answered, and no web page from elsewhere.
        metrics: counts its calls; made here when left out.
        within: what all tenants of this process hold, and the name of the one that this is.
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
                "[server.oidc] needs the extra 'oidc', which is not installed.",
                next_step="pip install 'remit[oidc]', or take its issuer out of the settings.",
            )
        self._dev = dev
        self.runtime = runtime
        self._settings = settings
        self.ready = False
        self._streams_ended = False
        self._running: list[asyncio.Task[None]] = []
        self._keys = open_keys(runtime)
        self.metrics = metrics or _metrics(runtime)
        _watch(self.metrics, runtime)
        self._observers = [*runtime.gateway.observers]
        self._traces = _observe_calls(runtime, self.metrics)
        self._authenticator = Authenticator.of_root(
            runtime, self._keys, settings.server.contract_id, dev=dev,
            on_refused=self.metrics.refused_key,
        )  # fmt: skip
        self._api = _Later(self._make_api)
        self._console = _Later(self._make_console)
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
        self._watch = functools.partial(calls.watch, settings.auth.revocation_s / 2)
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
        files, batches = Files(door), Batches(door)
        self._routes: dict[tuple[str, str], Handler] = {
            **{("GET", path): self._listing.models for path in paths_of("/models")},
            **OwnKey(runtime.budgeter, self._authenticator).routes(),
            **files.routes(),
            **batches.routes(),
            **(self._agents.cards() if self._agents is not None else {}),
            ("GET", "/healthz"): self._health,
            ("GET", "/readyz"): self._readiness,
            ("GET", "/metrics"): self._show_metrics,
        }
        self._templates = Templates({**files.templates(), **batches.templates()})
        self._methods: dict[str, list[str]] = {}
        for method, path in (*self._routes, *(("POST", path) for path in self._calls)):
            self._methods.setdefault(path, []).append(method)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI 3, but for the lifespan."""
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
        elif self._cors is not None:
            await self._cors(scope, receive, send)
        else:
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        if method == "POST":
            deployment, path = deployment_of(path)
            if (call := self._calls.get(path)) is not None:
                await request.AsgiRequest(scope, receive, send, deployment).serve(call)
                return
        elif method == "HEAD":  # The server below sends no body.
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
        """Serve a WebSocket; answer its handshake with 426 if its path has none."""
        await self._sockets.get(socket.path, refuse_socket)(socket)

    async def _answer(self, handler: Handler, scope: Scope, receive: Receive, send: Send) -> None:
        """Run a handler; what it raises is answered in the client's dialect."""
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
            # No name for it: with its traceback it would hold the body until a collection.
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
        """Paths with parameters, wrong methods and unknown paths."""
        path, method = scope["path"], scope["method"]
        if path == "/api" or path.startswith("/api/"):
            await (await self._api.made())(scope, receive, send)
        elif path == "/" or path == "/console" or path.startswith("/console/"):
            console = await self._console.made()
            if self._streams_ended:
                console.end_streams()
            await console(scope, receive, send)
        elif path.startswith(RESPONSE_PATHS):
            await self._responses.serve(scope, receive, send)
        elif path.startswith(_MODELS) and method == "GET":
            await self._listing.model(scope, receive, send)
        elif (handler := (found := self._templates.match(path)).get(method)) is not None:
            await handler(scope, receive, send)
        elif path in self._methods or found:
            allow = ", ".join(self._methods.get(path) or found)
            why = f"{path} does not take {method[:16]}; send {allow}."
            raise HttpError(405, "method_not_allowed", why, headers=[(b"allow", allow.encode())])
        else:
            raise HttpError(
                404,
                "not_found",
                "There is nothing here. Model calls go to /v1/chat/completions and /v1/messages.",
            )

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
                # Also in an outage: what came back may be an older copy.
                await asyncio.wait_for(asyncio.to_thread(ledger.require_whole), _WHOLE_S)
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
                    f"The role {identity.role} may not read; use a key whose role may.",
                )
        body, content_type = await asyncio.to_thread(self.metrics.render)
        await reply(send, Answer(200, body, content_type.encode()))

    async def start(self) -> None:
        """Do from now on what is done on a schedule."""
        self._running = [
            asyncio.create_task(self._recover()),
            asyncio.create_task(self._settle_batches()),
            asyncio.create_task(self._watch()),
        ]
        if self.metrics.shared:
            self._running.append(asyncio.create_task(self._flush_metrics()))
        self.ready = True

    async def stop(self, *, at_once: bool = True) -> None:
        """End it, once no request of it is answered any more.

        Args:
            at_once: end what runs in the background too, on record; else wait for it.
        """
        if not at_once:
            await self._responses.background.ended()
        self.ready = False
        for task in self._running:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self.runtime.gateway.batches.aclose()
        await self._responses.background.aclose()
        if self._agents is not None:
            await self._agents.aclose()
        await self.runtime.aclose()
        self.metrics.flush()
        await asyncio.to_thread(self._close)

    def is_behind(self) -> bool:
        """Whether since the root was opened a proposal was adopted or rolled back, or prices were
        changed; reads the ledger."""
        runtime = self.runtime
        if policy_epoch(runtime.ledger) != runtime.gateway.policy_epoch:
            return True
        return runtime.root_prices.behind(runtime.root, runtime.ledger)

    def end_streams(self) -> None:
        """End the console's live pages, which would go on for as long as somebody looks."""
        self._streams_ended = True
        if (console := self._console.found) is not None:
            console.end_streams()

    def _close(self) -> None:
        self.release()
        self.runtime.close()

    def release(self) -> None:
        """Let go of all but the runtime, for who opened that themselves."""
        self.runtime.gateway.observers[:] = self._observers
        self._keys.close()
        if (console := self._console.found) is not None:
            console.close()
        if self._traces is not None:
            self._traces.shutdown()

    async def _recover(self) -> None:
        while True:
            try:
                recovered = await asyncio.to_thread(self.runtime.gateway.recover)
                self.metrics.refresh()
                if recovered:
                    _log.warning("%d calls of processes that died were settled", len(recovered))
            except RemitError as error:
                _log.warning("calls of dead processes cannot be recovered: %s", error.message)
            await asyncio.sleep(self._settings.gateway.recover_every_s)

    async def _flush_metrics(self) -> None:
        """Have the other processes' scrapes see what this one counted."""
        while True:
            await asyncio.sleep(_FLUSH_S)
            self.metrics.flush()

    async def _settle_batches(self) -> None:
        while True:
            try:
                await self.runtime.gateway.batches.poll()
            except RemitError as error:
                _log.warning("batches cannot be settled: %s", error.message)
            await asyncio.sleep(self._settings.gateway.recover_every_s)


class _Later(Generic[_T]):
    """Something that calls of models do without, made when it is first asked for: it takes time and
    memory."""

    def __init__(self, make: Callable[[], _T]) -> None:
        self._make = make
        self._task: asyncio.Task[_T] | None = None

    @property
    def found(self) -> _T | None:
        """It, where it was made."""
        task = self._task
        if task is None or not task.done() or task.cancelled() or task.exception() is not None:
            return None
        return task.result()

    async def made(self) -> _T:
        """It; one that could not be made is tried again."""
        failed = self._task is not None and self._task.done() and self._task.exception() is not None
        if self._task is None or failed:
            self._task = asyncio.create_task(asyncio.to_thread(self._make))
        return await asyncio.shield(self._task)


def _metrics(runtime: Runtime) -> CallMetrics:
    return CallMetrics(
        max_models=runtime.loaded.settings.telemetry.max_models,
        known=lambda provider, model: runtime.prices.find(provider, model) is not None,
    )


def _watch(metrics: CallMetrics, runtime: Runtime) -> None:
    metrics.watch(
        breakers=lambda: runtime.gateway.breakers,
        in_flight_calls=runtime.gateway.in_flight.count,
        ledger_entries=lambda: (runtime.ledger.head() or (-1,))[0] + 1,
    )


def _observe_calls(runtime: Runtime, metrics: CallMetrics) -> Any:
    """Have calls counted, traced and logged; what ends the traces, where there are any."""
    settings, observers = runtime.loaded.settings, runtime.gateway.observers
    observers.append(metrics)
    telemetry = settings.telemetry
    traces = set_up_tracing(telemetry.otlp_endpoint, telemetry.service_name)
    if traces is not None:
        observer = tracing_observer(traces, capture_content=telemetry.capture_content)
        if observer is not None:
            observers.append(observer)
    if settings.server.log_level in ("debug", "info"):
        observers.append(CallLog())
    return traces


def _trace_of(named: Headers) -> object | None:
    """The trace that the caller's request belongs to (W3C Trace Context)."""
    headers = {name: value.decode("latin-1") for name, value in named
               if name in (b"traceparent", b"tracestate")}  # fmt: skip
    return context_from_headers(headers.get(b"traceparent"), headers.get(b"tracestate"))


async def _refuse_from_elsewhere(scope: Scope, receive: Receive, send: Send) -> None:
    raise from_elsewhere()
