"""Servers on a loopback port, for a root that this process has opened."""

from __future__ import annotations

from typing import Any

from typing_extensions import override
from uvicorn import Server

from remit.kernel.loops import Closeable, start_background
from remit.kernel.settings import ServerSettings
from remit.runtime import Runtime
from remit.server.app import App
from remit.server.listener import http_config, listen, url_of

_BACKLOG = 128


class LoopbackServer(Closeable):
    """A server of a runtime's endpoints for clients on this machine, running until :meth:`close`.

    Creation starts the server in a background thread. The port is chosen by the system. Requests
    need a key, as those of ``remit serve`` do. The application's periodic tasks do not run.

    Args:
        runtime: the open root, which stays open after :meth:`close`.

    Attributes:
        url: the server's URL, without a path.

    Raises:
        RemitError: no port is free, or the application cannot be made, as by :class:`App`.
    """

    def __init__(self, runtime: Runtime) -> None:
        app = App(runtime)
        try:
            self._start(app, runtime.loaded.settings.server)
        except BaseException:
            app.release()
            raise
        self._app: App | None = app

    def _start(self, application: Any, settings: ServerSettings, port: int = 0) -> None:
        listening = listen("127.0.0.1", port, _BACKLOG)
        self.url = url_of(listening)
        config = http_config(application, settings)
        config.lifespan = "off"  # The opener of the root closes it.
        self._server = Server(config)
        self._serving = start_background(self._server.serve([listening]))

    def _stop(self) -> None:
        self._server.should_exit = True
        self._serving.result()

    @override
    def close(self) -> None:
        """Stop taking calls, and wait for calls in flight. The runtime stays open.

        A repeated call has no effect.
        """
        app, self._app = self._app, None
        if app is not None:
            self._stop()
            app.release()
