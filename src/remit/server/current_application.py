"""The application in use: opened at start, replaced on SIGHUP, refused new calls in a drain."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from uvicorn import Config
from uvicorn.server import ServerState

from remit.gateway.memory import memory
from remit.kernel.errors import RemitError
from remit.kernel.root import Root
from remit.kernel.settings import LoadedSettings, load_settings
from remit.runtime import Runtime
from remit.server import request
from remit.server.app import App
from remit.server.asgi import Receive, Scope, Send, dialect_of, refusal, reply, shape_of
from remit.server.in_flight_limits import Shares
from remit.server.listener import Options, most_connections, set_limits
from remit.server.refusals import shutting_down
from remit.server.telemetry import CallMetrics, set_up_logging
from remit.server.tenants import Dispatcher, has_tenants
from remit.server.websocket import WebSocket

_log = logging.getLogger("remit.server")

_FIXED = ("server.host", "server.port", "server.workers", "ledger.path")
"""Settings that take effect only after a restart."""
_ANSWERED = ("/healthz", "/readyz", "/metrics")  # Paths that are answered while draining.
_POLL_S = 0.05
_GC_THRESHOLD = 50_000
_SWITCH_S = 0.001
_MALLOC_OPTIONS = ((-8, 2), (-3, 256 * 1024), (-1, 1024 * 1024))
"""glibc's M_ARENA_MAX, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD, with the value that is set."""


class Current:
    """The ASGI application of a server, which passes requests to the application opened last.

    Creation opens the root, sets up logging, and changes limits of garbage collection, thread
    switches and the allocator for the process. :meth:`reload` replaces the application,
    :meth:`leave` and :meth:`drain` prepare the end. The ASGI lifespan starts and stops the
    application.

    Args:
        options: options of the server.

    Attributes:
        direct: :attr:`App.direct` of the application in use. Connections hold this mapping, so it
            is changed in place.

    Raises:
        RemitError: the root cannot be opened, or its application cannot be made.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._metrics: CallMetrics | None = None
        self._leaving = self._draining = False
        self._sockets: set[WebSocket] = set()
        self._retiring: set[asyncio.Task[None]] = set()
        self._app = self._opened()
        self.direct: dict[bytes, request.Handler] = {**self._app.direct}
        _settle_memory()
        # Bounds how long the ledger's thread waits for the event loop to release the interpreter.
        sys.setswitchinterval(_SWITCH_S)

    @property
    def loaded(self) -> LoadedSettings:
        """The settings in force, with their sources; replaced by :meth:`reload`."""
        return self._app.runtime.loaded

    def _opened(self, kept: Mapping[str, Any] | None = None) -> App | Dispatcher:
        options = self._options
        flags = {**options.flags, **(kept or {})}
        runtime = Runtime.open(Path(options.root), flags=flags, by=options.by)
        settings = runtime.loaded.settings.server
        memory.limit = settings.memory_bytes
        shares = None
        if self._has_tenants():
            most = most_connections(settings.max_connections)
            shares = Shares(most, settings.max_body_bytes, of="tenant")
        try:
            within = (shares, "") if shares is not None else None
            app = App(runtime, dev=options.dev, metrics=self._metrics, within=within)
        except BaseException:
            runtime.close()
            raise
        self._metrics = app.metrics
        set_up_logging(settings.log_level, settings.log_format)
        return app if shares is None else Dispatcher(app, options, shares)

    def _has_tenants(self) -> bool:
        return not self._options.dev and has_tenants(Path(self._options.root))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an ASGI 3 request; while draining refuse all but health and metrics with 503.

        The ASGI lifespan starts the application, and at its end waits for replaced applications
        and stops the present one.
        """
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif self._draining and scope["type"] == "http" and scope["path"] not in _ANSWERED:
            await reply(send, refusal(shape_of(scope), shutting_down()))
        else:
            await self._app(scope, receive, send)

    async def answer_socket(self, socket: WebSocket) -> None:
        """Serve a WebSocket with the application in force; while draining, refuse with 503.

        Args:
            socket: the WebSocket, whose handshake is not answered yet.
        """
        if self._draining:
            socket.refuse(shutting_down())
            return
        self._sockets.add(socket)
        try:
            await self._app.answer_socket(socket)
        finally:
            self._sockets.discard(socket)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        await self._app.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await asyncio.gather(*self._retiring)
        await self._app.stop()
        await send({"type": "lifespan.shutdown.complete"})

    def is_behind(self) -> bool:
        """Return True if the root must be opened again.

        That is so if the policy or the prices of the root changed after it was opened, or if the
        first tenant was made. Reads the ledger. Blocks.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        if self._has_tenants() and isinstance(self._app, App):
            return True
        return self._app.is_behind()

    def leave(self) -> None:
        """Report not ready from now on; calls are still taken."""
        self._leaving = True
        self._app.ready = False

    def drain(self) -> None:
        """Report not ready, refuse new requests with 503 and end the console's live pages.

        Requests for health and metrics are still answered, and calls in flight are finished. Later
        calls of :meth:`reload` change nothing. Can be called again without effect, and cannot be
        undone.
        """
        self.leave()
        self._draining = True
        self._app.end_streams()
        self.direct.update(dict.fromkeys(self.direct, _refuse))

    async def reload(self, config: Config, state: ServerState) -> str:
        """Open the root again with its present configuration, and pass new requests to the result.

        Calls in flight finish in the old application, which is then stopped in the background. Live
        pages and WebSockets of the old application are ended. Host, port, workers and the ledger's
        path apply only after a restart; a warning names those that changed.

        Args:
            config: uvicorn's configuration, whose limits are replaced.
            state: uvicorn's state, which holds the connections and tasks of calls in flight.

        Returns:
            The reason for which the old application stays: the root cannot be opened, which is
            logged too, and the old settings are recorded again; or the server shuts down. Empty if
            the new application is in use.
        """
        old = self._app
        try:
            kept = await asyncio.to_thread(self._kept)
            app = await asyncio.to_thread(self._opened, kept)
        except (RemitError, OSError) as error:  # OSError: the machine may lack file descriptors.
            _log.error(
                "the new configuration cannot be used, and the old one stays in force: %s", error
            )
            with contextlib.suppress(RemitError):  # The settings may be recorded already.
                await asyncio.to_thread(old.runtime.record_settings, self._options.by)
            return str(error)
        if self._leaving:
            await app.stop()
            return "The server is shutting down."
        await app.start()
        self._app = app
        self.direct.clear()
        self.direct.update(app.direct)
        set_limits(config, app.runtime.loaded.settings.server)
        old.end_streams()  # Their pages reconnect to the new application.
        for socket in self._sockets:  # Their clients reconnect, too.
            socket.end_soon()
        task = asyncio.create_task(_retire(old, state))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)
        was, now = old.runtime.effective.values, app.runtime.effective.values
        changed = [key for key in sorted({*was, *now}) if was.get(key) != now.get(key)]
        _log.log(
            logging.WARNING if changed else logging.INFO,
            "the configuration was read again by process %d; changed: %s",
            os.getpid(), ", ".join(changed) or "nothing",
        )  # fmt: skip
        return ""

    def _kept(self) -> dict[str, Any]:
        """Return the values in force of changed settings that need a restart; log each."""
        options = self._options
        wanted = load_settings(Root(Path(options.root)).config, flags=options.flags)
        new, now = ({key: value for key, value, _ in one.rows()} for one in (wanted, self.loaded))
        kept = {key: now[key] for key in _FIXED if new[key] != now[key]}
        for key in kept:
            _log.warning(
                "%s takes effect after a restart of the server; the old value stays in force", key
            )
        return kept


async def _refuse(call: request.Request) -> None:
    call.answer(refusal(dialect_of(call.path, call.headers), shutting_down()))


async def _retire(old: App | Dispatcher, state: ServerState) -> None:
    """Stop an application after its requests and tasks have ended."""
    while any(connection.pipeline for connection in state.connections):  # type: ignore[union-attr]  # noqa: ASYNC110
        await asyncio.sleep(_POLL_S)
    if running := set(state.tasks):
        await asyncio.wait(running)
    await old.stop(at_once=False)
    gc.unfreeze()
    _settle_memory()


def _settle_memory() -> None:
    """Exempt present objects from garbage collection, and set limits for the allocator.

    The objects of a call are freed by reference counts. By default glibc keeps a heap for each
    thread and raises the size from which a block is returned to the system; the resident size would
    then grow for hours.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
    with contextlib.suppress(AttributeError, OSError):  # Not every C library has these options.
        for option, value in _MALLOC_OPTIONS:
            ctypes.CDLL(None).mallopt(option, value)
