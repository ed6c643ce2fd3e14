"""uvicorn's server with Remit's signals: SIGTERM drains, SIGHUP reads the configuration again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any

from typing_extensions import override
from uvicorn import Server

from remit.gateway import SHUTTING_DOWN
from remit.kernel.errors import RemitError
from remit.kernel.loops import repeat
from remit.server.current_application import Current
from remit.server.listener import http_config

_log = logging.getLogger("remit.server")

_POLL_S = 0.05
_FLUSH_S = 1.0  # Longest time for the last bytes of answers to be sent.
_CHECK_INTERVAL_S = 2.0  # Pause between checks for a changed policy or changed prices.
_RELOAD_RETRY_S = 60.0
_GRACE_S = 0.5  # Time for the requests of clients that have just connected.
_CLOSE = (b"connection", b"close")
_RECORD_S = 15.0  # Longest time for cancelled calls to be recorded.


class HttpServer(Server):
    """The HTTP server of a root in this process.

    The first SIGTERM or SIGINT reports not ready but takes calls for ``server.notice_s`` seconds;
    then new calls are refused, and calls in flight may end within ``server.drain_s`` seconds. A
    second signal cancels calls in flight, and their records say so. :meth:`reload` opens the root
    again, also by itself when the policy or the prices have changed. Run it with uvicorn's ``run``.

    Args:
        current: the application.
        worker: True if a parent process passes signals on. A terminal sends SIGINT and SIGHUP to
            all processes, so a worker ignores its own.
        started: called once the server listens.

    Attributes:
        current: as given.
        ended_at_once: True if a second signal came.
    """

    def __init__(
        self,
        current: Current,
        *,
        worker: bool = False,
        started: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(http_config(current, current.loaded.settings.server))
        self.current = current
        self.ended_at_once = False
        self._worker = worker
        self._told = started
        self._notice_s = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reloads: asyncio.Task[str] | None = None
        self._waiting: asyncio.Task[str] | None = None  # The reload that has not begun.

    def stop(self) -> None:
        """Begin to shut down; a repeated call cancels the calls in flight.

        With ``server.notice_s`` the server first reports not ready and still takes calls; without
        it, new calls are refused from now on. Returns at once.
        """
        if self.should_exit:
            self.force_exit = self.ended_at_once = True
        self.should_exit = True
        self._notice_s = self.current.loaded.settings.server.notice_s
        if self._notice_s:
            self.current.leave()
        else:
            self.current.drain()

    def step_back(self) -> None:
        """Stop accepting connections, and begin to shut down; no call is refused.

        Other processes on the same socket serve new connections. Running calls are finished, as
        after :meth:`stop`.
        """
        for server in self.servers:
            server.close()
        self.should_exit = True

    def reload(self) -> asyncio.Task[str]:
        """Start a task that reads the configuration again, after any reload under way.

        Calls that come before the next reload has begun share its task. Call it in the event loop.

        Returns:
            The task. Its result is the reason for which nothing was changed; empty if the new
            configuration is in use.
        """
        if self._waiting is not None:
            return self._waiting

        async def after(earlier: asyncio.Task[str] | None) -> str:
            if earlier is not None:
                await asyncio.wait({earlier})  # Its failure is its own callers'.
            self._waiting = None
            return await self.current.reload(self.config, self.server_state)

        task = asyncio.get_running_loop().create_task(after(self._reloads))
        self._reloads = self._waiting = task
        return task

    async def _follow(self) -> None:
        """Reload if the policy or the prices of the root have changed."""
        with contextlib.suppress(RemitError, OSError):  # The ledger may answer again.
            if await asyncio.to_thread(self.current.is_behind) and await self.reload():
                await asyncio.sleep(_RELOAD_RETRY_S)

    def from_elsewhere(self, work: Callable[[], Any]) -> None:
        """Schedule ``work`` in the event loop; called from another thread. Does not wait.

        Does nothing if the server does not run yet. The result of ``work`` is dropped.

        Args:
            work: takes no arguments.
        """
        if self._loop is not None:
            self._loop.call_soon_threadsafe(work)

    @override
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install the signal handlers: SIGTERM stops the server.

        Outside a worker process, SIGINT stops it too, and SIGHUP reloads the settings. Previous
        handlers are not restored.
        """
        loop = self._loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.stop)
        if not self._worker:
            loop.add_signal_handler(signal.SIGINT, self.stop)
            loop.add_signal_handler(signal.SIGHUP, self.reload)
        yield

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on the sockets, start the application, and report that the server is ready.

        A task then looks for a changed policy or changed prices every two seconds.

        Args:
            sockets: open sockets; ``None`` to open those of the configuration.
        """
        await super().startup(sockets)
        self._follows = asyncio.create_task(
            repeat(self._follow, _CHECK_INTERVAL_S, "changes of the root cannot be followed")
        )
        if self._told is not None:
            self._told()

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop the server: give notice, close idle connections, and finish running calls.

        Calls that do not end within ``server.drain_s`` are cancelled, and have 15 seconds to be
        recorded. A second signal ends each wait. All connections are closed, the application is
        stopped, and the signal handlers are removed.

        Args:
            sockets: the sockets that were listened on; these are closed.
        """
        state, loop = self.server_state, asyncio.get_running_loop()
        self._follows.cancel()
        if self._notice_s:
            await self._give_notice(sockets or [])
        for connection in list(state.connections):
            connection.shutdown()  # Closes an idle one now, a busy one after its answer.
        await self._until(lambda: not state.tasks, self.config.timeout_graceful_shutdown or 0)
        if state.tasks:
            _log.warning("%d calls did not end in time and are ended", len(state.tasks))
            for task in state.tasks:
                task.cancel(SHUTTING_DOWN)
            await asyncio.wait(set(state.tasks), timeout=_RECORD_S)
        for server in self.servers:
            server.close()
        for listening in sockets or []:
            listening.close()
        # A client that has just connected gets an answer, not a reset.
        await self._until(lambda: not state.connections, _GRACE_S)
        for connection in list(state.connections):
            connection.transport.close()
        self.force_exit = False
        await self._until(lambda: not state.connections, _FLUSH_S)
        for connection in list(state.connections):
            connection.transport.abort()
        await self.lifespan.shutdown()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(number)

    async def _give_notice(self, sockets: list[socket.socket]) -> None:
        """Answer as before, but close each connection after its answer; then stop listening.

        Clients that come later are refused before they have sent anything, so they can use another
        server.
        """
        state = self.server_state
        state.default_headers = [*state.default_headers, _CLOSE]
        await self._until(lambda: False, self._notice_s)
        kept = [listening.dup() for listening in sockets]
        for server in self.servers:
            server.close()
        for listening in sockets:
            listening.close()
        await asyncio.sleep(0)  # The loop releases the sockets in its next turn.
        for listening in kept:
            await self._accept_rest(listening)
        await self._until(lambda: False, _GRACE_S)
        self.current.drain()

    async def _accept_rest(self, listening: socket.socket) -> None:
        """Accept the connections in the listen queue, which would otherwise be reset, and close the
        socket.

        At most ``backlog`` connections are accepted, and fewer if file descriptors run out.
        """
        loop, accepted = asyncio.get_running_loop(), list[socket.socket]()
        with listening, contextlib.suppress(OSError):
            listening.setblocking(False)
            for _ in range(self.config.backlog):
                accepted.append(listening.accept()[0])
        for client in accepted:
            await loop.connect_accepted_socket(self._connection, client)

    def _connection(self) -> asyncio.Protocol:
        """Return a new protocol object, as uvicorn does."""
        made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made

    async def _until(self, is_so: Callable[[], bool], within_s: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + within_s
        while not is_so() and not self.force_exit and loop.time() < end:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
