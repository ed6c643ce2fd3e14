"""The server's ASGI application: which handler answers which path."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from remit.kernel.errors import RemitError
from remit.runtime import Runtime
from remit.server.api import api_application
from remit.server.authentication import Authenticator, open_keys
from remit.server.batches import Batches
from remit.server.calls import ModelCalls
from remit.server.endpoints import Templates, call_routes, paths_of
from remit.server.files import Files
from remit.server.listing import ModelListing
from remit.server.provider_door import ProviderDoor
from remit.server.refusals import HttpError
from remit.server.replies import Receive, Scope, Send, reply, reply_error, reply_json, shape_of
from remit.server.responses.background import Background
from remit.server.responses.endpoint import RESPONSE_PATHS, Responses
from remit.server.telemetry import (
    CallLog,
    CallMetrics,
    context_from_headers,
    set_up_tracing,
    tracing_observer,
    with_parent,
)

_log = logging.getLogger("remit.server")

_MODELS = tuple(f"{path}/" for path in paths_of("/models"))

_Handler = Callable[[Scope, Receive, Send], Awaitable[None]]


class App:
    """One root over HTTP.

    Model calls are answered without a framework, for speed. Everything under ``/api`` is an
    application of its own.

    Args:
        runtime: the open root; closed with the application.
        dev: dev mode: only this machine is answered, and no web page from elsewhere.
    """

    def __init__(self, runtime: Runtime, *, dev: bool = False) -> None:
        settings = runtime.loaded.settings
        self._dev = dev
        self._runtime = runtime
        self._settings = settings
        self._ready = False
        self._keys = open_keys(runtime)
        self._metrics = _metrics(runtime)
        self._traces = _observe_calls(runtime, self._metrics)
        self._authenticator = Authenticator.of_root(
            runtime, self._keys, settings.server.contract_id, dev=dev,
            on_refused=self._metrics.refused_key,
        )  # fmt: skip
        self._api = api_application(runtime, self._keys, self._authenticator)
        background = Background(runtime.gateway, runtime.leases)
        door = ProviderDoor(runtime, self._authenticator)
        self._responses = Responses(
            runtime.ledger, self._authenticator, background, door, settings.server
        )
        calls = ModelCalls(runtime.gateway, self._authenticator, settings.server, self._responses)
        self._listing = ModelListing(runtime, self._authenticator)
        files, batches = Files(door), Batches(door)
        self._routes: dict[tuple[str, str], _Handler] = {
            **call_routes(calls),
            **{("GET", path): self._listing.models for path in paths_of("/models")},
            **files.routes(),
            **batches.routes(),
            ("GET", "/healthz"): self._health,
            ("GET", "/readyz"): self._readiness,
            ("GET", "/metrics"): self._show_metrics,
        }
        self._templates = Templates({**files.templates(), **batches.templates()})
        self._methods: dict[str, list[str]] = {}
        for method, path in self._routes:
            self._methods.setdefault(path, []).append(method)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI 3."""
        kind = scope["type"]
        if kind == "http":
            if self._dev and not _is_local(scope):
                handler: _Handler = _refuse_from_elsewhere
            else:
                handler = self._routes.get((scope["method"], scope["path"]), self._other)
            await self._answer(handler, scope, receive, send)
        elif kind == "lifespan":
            await self._lifespan(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    async def _answer(self, handler: _Handler, scope: Scope, receive: Receive, send: Send) -> None:
        """Run a handler; what it raises is answered in the client's dialect."""
        started = False

        async def watched(message: Any) -> None:
            nonlocal started
            started = True
            await send(message)

        self._metrics.request_started()
        try:
            try:
                with with_parent(_trace_of(scope) if self._traces else None):
                    await handler(scope, receive, watched)
                return
            except HttpError as refusal:
                error = refusal
            except asyncio.CancelledError:
                # The client went away, or the server shuts down: the record is complete either
                # way, and the task may end normally.
                task = asyncio.current_task()
                if task is not None:
                    task.uncancel()
                error = HttpError(
                    503,
                    "shutting_down",
                    "The server is shutting down.",
                    retry_after_s=1,
                    close=True,
                )
            except Exception:  # noqa: BLE001 - answered here, whatever it was
                _log.exception("a request failed unexpectedly")
                error = HttpError(500, "internal_error", "Remit failed; see its log.")
            if not started:
                await reply_error(send, shape_of(scope), error)
        finally:
            self._metrics.request_ended()

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Paths with parameters, wrong methods and unknown paths."""
        path, method = scope["path"], scope["method"]
        if path == "/api" or path.startswith("/api/"):
            await self._api(scope, receive, send)
        elif path.startswith(RESPONSE_PATHS):
            await self._responses.serve(scope, receive, send)
        elif path.startswith(_MODELS) and method == "GET":
            await self._listing.model(scope, receive, send)
        elif (handler := (found := self._templates.match(path)).get(method)) is not None:
            await handler(scope, receive, send)
        elif path in self._methods or found:
            why = f"{path} does not take {method[:16]}."
            allow = ", ".join(self._methods.get(path) or found).encode()
            raise HttpError(405, "method_not_allowed", why, headers=[(b"allow", allow)])
        else:
            raise HttpError(
                404,
                "not_found",
                "There is nothing here. Model calls go to /v1/chat/completions and /v1/messages.",
            )

    async def _health(self, scope: Scope, receive: Receive, send: Send) -> None:
        await reply_json(send, {"status": "ok"})

    async def _readiness(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = "starting or ending"
        if self._ready:
            try:
                await asyncio.to_thread(self._runtime.ledger.head)
                problem = ""
            except RemitError as error:
                _log.warning("the ledger cannot be read: %s", error.message)
                problem = "the ledger cannot be read"
        if problem:
            await reply_json(send, {"status": "not ready", "reason": problem}, 503)
        else:
            await reply_json(send, {"status": "ready"})

    async def _show_metrics(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._settings.server.metrics_open:
            identity = self._authenticator.authenticate_now(scope["headers"]).identity
            if not identity.may("read"):
                raise HttpError(403, "forbidden", f"The role {identity.role} may not read.")
        body, content_type = await asyncio.to_thread(self._metrics.render)
        await reply(send, 200, body, content_type.encode())

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        running: list[asyncio.Task[None]] = []
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                running = [
                    asyncio.create_task(self._recover()),
                    asyncio.create_task(self._settle_batches()),
                ]
                self._ready = True
                await send({"type": "lifespan.startup.complete"})
            else:
                self._ready = False
                for task in running:
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await task
                await self._runtime.gateway.batches.aclose()
                await self._responses.background.aclose()
                await self._runtime.aclose()
                await asyncio.to_thread(self._close)
                await send({"type": "lifespan.shutdown.complete"})
                return

    def _close(self) -> None:
        self._keys.close()
        if self._traces is not None:
            self._traces.shutdown()
        self._runtime.close()

    async def _recover(self) -> None:
        while True:
            try:
                recovered = await asyncio.to_thread(self._runtime.gateway.recover)
                self._metrics.refresh()
                if recovered:
                    _log.warning("%d calls of processes that died were settled", len(recovered))
            except RemitError as error:
                _log.warning("calls of dead processes cannot be recovered: %s", error.message)
            await asyncio.sleep(self._settings.gateway.recover_every_s)

    async def _settle_batches(self) -> None:
        while True:
            try:
                await self._runtime.gateway.batches.poll()
            except RemitError as error:
                _log.warning("batches cannot be settled: %s", error.message)
            await asyncio.sleep(self._settings.gateway.recover_every_s)


def _metrics(runtime: Runtime) -> CallMetrics:
    metrics = CallMetrics(
        max_models=runtime.loaded.settings.telemetry.max_models,
        known=lambda provider, model: runtime.prices.find(provider, model) is not None,
    )
    metrics.watch(
        breakers=lambda: runtime.gateway.breakers,
        in_flight_calls=runtime.gateway.in_flight.count,
        ledger_entries=lambda: (runtime.ledger.head() or (-1,))[0] + 1,
    )
    return metrics


def _observe_calls(runtime: Runtime, metrics: CallMetrics) -> Any:
    """Have calls counted, traced and logged; what ends the traces, where there are any."""
    settings, observers = runtime.loaded.settings, runtime.gateway.observers
    observers.append(metrics)
    traces = None
    telemetry = settings.telemetry
    if telemetry.otlp_endpoint:
        traces = set_up_tracing(telemetry.otlp_endpoint, telemetry.service_name)
        observer = tracing_observer(traces, capture_content=telemetry.capture_content)
        if observer is not None:
            observers.append(observer)
    if settings.server.log_level in ("debug", "info"):
        observers.append(CallLog())
    return traces


def _is_local(scope: Scope) -> bool:
    """Whether a request names this machine, and comes from no web page from elsewhere.

    A page may send its reader's browser here, even under its own host name (DNS rebinding).
    """
    for name, value in scope["headers"]:
        if name in (b"host", b"origin"):
            text = value.decode("latin-1")
            try:
                host = urlsplit(text if name == b"origin" else f"//{text}").hostname
            except ValueError:
                return False
            if host not in ("localhost", "127.0.0.1", "::1"):
                return False
    return True


def _trace_of(scope: Scope) -> object | None:
    """The trace that the caller's request belongs to (W3C Trace Context)."""
    headers = {name: value.decode("latin-1") for name, value in scope["headers"]
               if name in (b"traceparent", b"tracestate")}  # fmt: skip
    return context_from_headers(headers.get(b"traceparent"), headers.get(b"tracestate"))


async def _refuse_from_elsewhere(scope: Scope, receive: Receive, send: Send) -> None:
    raise HttpError(403, "forbidden", "Dev mode answers to localhost alone, and no web page.")
