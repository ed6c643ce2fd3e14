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
from remit.server.current import Current
from remit.server.listening import http_config

_log = logging.getLogger("remit.server")

_LOOK_S = 0.05
_WRITTEN_S = 1.0  # for the last bytes of answers to leave
_FOLLOW_S = 2.0  # to look whether a proposal was adopted or rolled back
_TRIED_S = 60.0  # until a configuration that could not be used is read again
_LATE_S = 0.5  # for the requests of the last who connected
_CLOSE = (b"connection", b"close")
_RECORDED_S = 15.0  # for calls that were ended to be on record


class HttpServer(Server):
    """Serves one root in this process.

    After the first SIGTERM or SIGINT it is not ready any more, but takes calls for
    ``server.notice_s``; then it refuses what is new and lets calls end, for ``server.drain_s``. The
    second ends them at once, on record.

    Args:
        current: the application.
        worker: whether another process of ours passes signals on: SIGINT and SIGHUP of a terminal
            come to all of its processes, and are that one's.
        started: called once it listens.

    Attributes:
        ended_at_once: whether a second signal came.
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
        self._waiting: asyncio.Task[str] | None = None  # the one of them that has not begun

    def stop(self) -> None:
        """Give notice, and drain; called again: end at once."""
        if self.should_exit:
            self.force_exit = self.ended_at_once = True
        self.should_exit = True
        self._notice_s = self.current.loaded.settings.server.notice_s
        if self._notice_s:
            self.current.leave()
        else:
            self.current.drain()

    def step_back(self) -> None:
        """End as other processes go on: what comes is theirs, and nothing is refused here."""
        for server in self.servers:
            server.close()
        self.should_exit = True

    def reload(self) -> asyncio.Task[str]:
        """Read the configuration again, after whatever reading is under way.

        Asked for several times meanwhile, it is read once more.
        """
        if self._waiting is not None:
            return self._waiting

        async def after(earlier: asyncio.Task[str] | None) -> str:
            if earlier is not None:
                await earlier
            self._waiting = None
            return await self.current.reload(self.config, self.server_state)

        task = asyncio.get_running_loop().create_task(after(self._reloads))
        self._reloads = self._waiting = task
        return task

    async def _follow(self) -> None:
        """Read the configuration again after an adoption, a rollback, or a change of prices."""
        while True:
            await asyncio.sleep(_FOLLOW_S)
            with contextlib.suppress(RemitError):  # a ledger that does not answer is asked again
                if await asyncio.to_thread(self.current.is_behind) and await self.reload():
                    await asyncio.sleep(_TRIED_S)

    def from_elsewhere(self, work: Callable[[], Any]) -> None:
        """Do ``work`` in the event loop, from another thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(work)

    @override
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = self._loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.stop)
        if not self._worker:
            loop.add_signal_handler(signal.SIGINT, self.stop)
            loop.add_signal_handler(signal.SIGHUP, self.reload)
        yield

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._follows = asyncio.create_task(self._follow())
        if self._told is not None:
            self._told()

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        state, loop = self.server_state, asyncio.get_running_loop()
        self._follows.cancel()
        if self._notice_s:
            await self._give_notice(sockets or [])
        for connection in list(state.connections):
            connection.shutdown()  # idle ones are closed, the others close behind their answer
        await self._until(lambda: not state.tasks, self.config.timeout_graceful_shutdown or 0)
        if state.tasks:
            _log.warning("%d calls did not end in time and are ended", len(state.tasks))
            for task in state.tasks:
                task.cancel(SHUTTING_DOWN)
            await asyncio.wait(set(state.tasks), timeout=_RECORDED_S)
        for server in self.servers:
            server.close()
        for listening in sockets or []:
            listening.close()
        # Who has just connected may not have asked yet: it gets its answer, not a reset.
        await self._until(lambda: not state.connections, _LATE_S)
        for connection in list(state.connections):
            connection.transport.close()
        self.force_exit = False
        await self._until(lambda: not state.connections, _WRITTEN_S)
        for connection in list(state.connections):
            connection.transport.abort()
        await self.lifespan.shutdown()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(number)

    async def _give_notice(self, sockets: list[socket.socket]) -> None:
        """Answer as ever, but close each connection behind its answer; then listen no more, so that
        who comes late is refused before it has sent anything, and may go elsewhere."""
        state = self.server_state
        state.default_headers = [*state.default_headers, _CLOSE]
        await self._until(lambda: False, self._notice_s)
        kept = [listening.dup() for listening in sockets]
        for server in self.servers:
            server.close()
        for listening in sockets:
            listening.close()
        await asyncio.sleep(0)  # until the loop has let go of them
        for listening in kept:
            await self._accept_rest(listening)
        await self._until(lambda: False, _LATE_S)
        self.current.drain()

    async def _accept_rest(self, listening: socket.socket) -> None:
        """Answer who is connected already, and was not accepted: it would see a reset. Close.

        Not for ever where more come all the time, and as far as there are files.
        """
        loop, accepted = asyncio.get_running_loop(), list[socket.socket]()
        with listening, contextlib.suppress(OSError):
            listening.setblocking(False)
            for _ in range(self.config.backlog):
                accepted.append(listening.accept()[0])
        for client in accepted:
            await loop.connect_accepted_socket(self._connection, client)

    def _connection(self) -> asyncio.Protocol:
        """A new one, as uvicorn makes them."""
        made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made

    async def _until(self, is_so: Callable[[], bool], within_s: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + within_s
        while not is_so() and not self.force_exit and loop.time() < end:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)
