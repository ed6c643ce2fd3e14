"""One connection to a server: a session in a thread and an event loop of its own.

The SDK's cancel scopes belong to the task that opened them, and callers come from any loop and
from none: so the session has a loop of its own, and callers submit work to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from mcp import Client
from mcp.types import Implementation

from remit._version import __version__
from remit.agents.tools.tool import ToolError

__all__ = ["Connection", "ConnectionEndedError", "Ended"]

_T = TypeVar("_T")
Ended = Callable[[str], None]


class ConnectionEndedError(ToolError):
    """The server is gone, or was stopped; what was asked of it may have happened."""


class Connection:
    """A session from its start to its end. It begins to start when it is made.

    Args:
        name: of the server, for the thread and for errors.
        transport: makes the streams; takes a function that it calls with the reason why they ended.
    """

    def __init__(
        self, name: str, transport: Callable[[Ended], AbstractAsyncContextManager[Any]]
    ) -> None:
        self._name = name
        self._transport = transport
        self._lock = threading.Lock()
        self._pending: set[Future[Any]] = set()
        self._client: Client | None = None
        self._problem = ""
        self._over = self._retired = False
        self._loop = asyncio.new_event_loop()
        self._main: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self.process_id = os.getpid()
        self.ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name=f"remit-mcp-{name}", daemon=True)
        self._thread.start()

    @property
    def over(self) -> bool:
        """True when it takes no more calls."""
        return self._over or self._retired

    def submit(self, work: Callable[[Client], Coroutine[Any, Any, _T]]) -> Future[_T]:
        """Run ``work`` with the session; cancelling the future cancels the work.

        Raises:
            ConnectionEndedError: here or in the future: it is over.
        """
        future: Future[_T] = Future()
        with self._lock:
            if self._over:
                raise self._ended()
            try:
                self._loop.call_soon_threadsafe(self._begin, future, work)
            except RuntimeError:  # its loop is closed already
                raise self._ended() from None
            self._pending.add(future)
        future.add_done_callback(self._forget)
        return future

    def retire(self) -> None:
        """Take no more calls, and end with the last one that runs."""
        self._retired = True
        if not self._pending:
            self.stop()

    def stop(self) -> None:
        """Ask it to end; :meth:`join` waits for that."""
        with self._lock, contextlib.suppress(RuntimeError):  # its loop is closed
            self._loop.call_soon_threadsafe(self._stop)

    def join(self, patience_s: float) -> None:
        """Wait for the end; after ``patience_s`` seconds it is cancelled and waited for again."""
        if threading.current_thread() is self._thread:
            return
        self._thread.join(patience_s)
        if self._thread.is_alive():
            with self._lock, contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._cancel)
            self._thread.join(patience_s)

    # -- what follows runs in the session's own thread, _forget aside ----------------------

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - passed to the callers
            self._finish(error)
        else:
            self._finish(None)

    async def _serve(self) -> None:
        self._main = asyncio.current_task()
        info = Implementation(name="remit", version=__version__)
        async with Client(
            self._transport(self._lost), mode="auto", cache=None, client_info=info
        ) as client:
            self._client = client
            self.ready.set_result(None)
            await self._stopping.wait()

    def _lost(self, problem: str) -> None:
        if not self._over:
            self._problem = problem
            self._stop()

    def _stop(self) -> None:
        self._over = True
        self._stopping.set()
        if self._client is None:
            self._cancel()

    def _cancel(self) -> None:
        if self._main is not None:
            self._main.cancel()
        else:
            self._loop.call_soon(self._cancel)

    def _begin(self, future: Future[_T], work: Callable[[Client], Coroutine[Any, Any, _T]]) -> None:
        if self._client is None or future.done():
            return  # _finish reports to the callers that still wait
        task = asyncio.ensure_future(self._answer(future, work(self._client)))

        def cancelled(done: Future[_T]) -> None:
            if done.cancelled():
                with contextlib.suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(task.cancel)

        future.add_done_callback(cancelled)

    async def _answer(self, future: Future[_T], work: Coroutine[Any, Any, _T]) -> None:
        try:
            outcome = await work
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - passed to the caller
            if not future.done():
                future.set_exception(self._ended() if self._over else error)
        else:
            if not future.done():
                future.set_result(outcome)

    def _finish(self, error: BaseException | None) -> None:
        with self._lock:
            self._over = True
            waiting = [*self._pending]
        if not self.ready.done():
            stopped = error is None or isinstance(error, asyncio.CancelledError)
            self.ready.set_exception(self._ended() if stopped else error)
        for future in waiting:
            with contextlib.suppress(Exception):  # done or cancelled meanwhile
                future.set_exception(self._ended())

    def _forget(self, future: Future[Any]) -> None:
        with self._lock:
            self._pending.discard(future)
            idle = not self._pending
        if self._retired and idle:
            self.stop()

    def _ended(self) -> ConnectionEndedError:
        why = self._problem or "The connection to it ended."
        return ConnectionEndedError(
            f"The MCP server {self._name!r} does not answer. {why}",
            next_step="What was asked of it may still have happened.",
        )
