"""Where the models of attached runs are called: this process on loopback, or a server elsewhere."""

from __future__ import annotations

import concurrent.futures

from typing_extensions import override
from uvicorn import Server

from remit.gateway.auth import AgentTokens, agent_secret
from remit.kernel.loops import Closeable, start_background
from remit.runtime import Conversation, Runtime
from remit.server.app import App
from remit.server.interop.run import Run
from remit.server.listening import http_config, listen, url_of

_BACKLOG = 128


class Door(Closeable):
    """Attaches runs of other frameworks' agents to sessions of a runtime.

    Args:
        runtime: the open root.
        url: of a ``remit serve`` of the same root; left out, the endpoints are served by this
            process, on loopback, until the door is closed.

    Raises:
        ServerError: no port can be listened on.
    """

    def __init__(self, runtime: Runtime, url: str = "") -> None:
        self._runtime = runtime
        self._tokens = AgentTokens(agent_secret(runtime.root))
        self._app: App | None = None
        self._server: Server | None = None
        self._serving: concurrent.futures.Future[None] | None = None
        if not url:
            url = self._serve()
        self.url = url.rstrip("/")

    def attach(self, session: Conversation, task: str, *, key: str | None = None) -> Run:
        """A run of a foreign agent, begun and ended as a context manager.

        Args:
            session: of the :class:`~remit.runtime.Agent` whose tools, limits and approvals hold.
            task: what is to be done, for the record.
            key: names the run within its session; a run that was interrupted, or waited for a
                person, is gone on with under the same key and task.
        """
        return Run(session, task, key, self.url, self._tokens)

    def _serve(self) -> str:
        settings = self._runtime.loaded.settings.server
        listening = listen("127.0.0.1", 0, _BACKLOG)
        self._app = App(self._runtime)
        config = http_config(self._app, settings)
        config.lifespan = "off"  # the runtime is its opener's, not the application's
        self._server = Server(config)
        self._serving = start_background(self._server.serve([listening]))
        return url_of(listening)

    @override
    def close(self) -> None:
        """Take no more calls; those that run end first."""
        server, self._server = self._server, None
        if server is not None and self._serving is not None:
            server.should_exit = True
            self._serving.result()
        if self._app is not None:
            self._app.release()
            self._app = None
