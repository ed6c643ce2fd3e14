"""One connection to a server: a session in a task of the background loop.

The SDK's cancel scopes belong to the task that opened them, and callers come from any loop and
from none: so the session has a task of its own, and callers submit work to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

from mcp import Client
from mcp.shared.subscriptions import ToolsListChanged
from mcp.types import (
    ElicitRequestParams,
    ElicitResult,
    Implementation,
    ToolListChangedNotification,
)

from remit._version import __version__
from remit.agents.tools.definition import ToolUnavailableError
from remit.kernel.errors import InvalidInputError
from remit.kernel.loops import run_blocking, start_background

_MOST_MESSAGES = 10_000
_MOST_QUESTIONS = 5
_QUESTION_CHARS = 1000
_T = TypeVar("_T")
Transport = Callable[[Callable[[str], None]], AbstractAsyncContextManager[Any]]
"""Makes the streams; takes a function that it calls with the reason why they ended."""


class ConnectionEndedError(ToolUnavailableError):
    """The server is gone, or was stopped; what was asked of it may have happened."""


class Connection:
    """A session from its start to its end. It begins to start when it is made.

    Attributes:
        process_id: of the process whose background loop has the session.
        ready: the client, once it is initialized.
        changed: the server said that its tools have changed since this was last set to false.
    """

    def __init__(self, name: str, transport: Transport) -> None:
        self._name = name
        self._problem = ""
        self._over = self._retired = False
        self._stopping = asyncio.Event()
        self._calls: set[asyncio.Task[Any] | None] = set()
        self._asked: list[list[str]] = []
        self._unanswered = 0  # messages since the last answer
        self._main: asyncio.Task[None] | None = None
        self.process_id = os.getpid()
        self.ready: Future[Client] = Future()
        self.changed = False
        start_background(self._serve(transport))

    @property
    def over(self) -> bool:
        """True when it takes no more calls."""
        return self._over or self._retired

    def submit(
        self, work: Callable[[Client], Coroutine[Any, Any, _T]], asked: list[str] | None = None
    ) -> Future[_T]:
        """Run ``work`` with the session; cancelling the future cancels the work.

        Args:
            work: what to do with the client.
            asked: takes what the server asks the person meanwhile (elicitation), which is
                declined.

        The future raises :class:`ConnectionEndedError` when the session is over.
        """
        return start_background(self._call(work, asked))

    def retire(self) -> None:
        """Take no more calls, and end with the last one that runs."""
        self._retired = True
        start_background(self._end(unless_busy=True))

    def stop(self) -> None:
        """Ask it to end; :meth:`join` waits for that."""
        start_background(self._end())

    def join(self, patience_s: float) -> None:
        """Wait for the end; after ``patience_s`` seconds it is cancelled and waited for again."""
        with contextlib.suppress(InvalidInputError):  # a loop cannot wait for itself
            run_blocking(self._ended(patience_s))

    # -- what follows runs in the background loop ------------------------------------------

    async def _serve(self, transport: Transport) -> None:
        self._main = asyncio.current_task()
        info = Implementation(name="remit", version=__version__)
        try:
            async with Client(
                transport(self._lost), mode="auto", cache=None, client_info=info,
                message_handler=self._received, elicitation_callback=self._elicited,
            ) as client:  # fmt: skip
                self.ready.set_result(client)
                async with _listening(client, self._received):
                    await self._stopping.wait()
        except BaseException as error:  # noqa: BLE001 - passed to the callers
            if not self.ready.done() and not isinstance(error, asyncio.CancelledError):
                self.ready.set_exception(error)
        finally:
            if not self.ready.done():
                self.ready.set_exception(self._over_error())
            self._stop()

    async def _received(self, message: object) -> None:
        if isinstance(message, (ToolListChangedNotification, ToolsListChanged)):
            self.changed = True
        self._unanswered += 1
        if self._unanswered > _MOST_MESSAGES:
            self._lost(f"It sent {_MOST_MESSAGES:,} messages, and no answer among them.")

    async def _elicited(self, context: object, params: ElicitRequestParams) -> ElicitResult:
        """Decline: there is no person behind an agent's tools. The model is shown the question."""
        for asked in self._asked:
            if len(asked) < _MOST_QUESTIONS:
                asked.append(params.message[:_QUESTION_CHARS])
        return ElicitResult(action="decline")

    async def _call(
        self, work: Callable[[Client], Coroutine[Any, Any, _T]], asked: list[str] | None
    ) -> _T:
        task = asyncio.current_task()
        self._calls.add(task)
        if asked is not None:
            self._asked.append(asked)
        try:
            if self._over:
                raise self._over_error()
            found = await work(self.ready.result(0))
            self._unanswered = 0
            return found
        except (Exception, asyncio.CancelledError) as error:
            if self._over:
                raise self._over_error() from error
            raise
        finally:
            self._calls.discard(task)
            self._asked = [other for other in self._asked if other is not asked]
            if self._retired and not self._calls:
                self._stop()

    async def _end(self, *, unless_busy: bool = False) -> None:
        if not (unless_busy and self._calls):
            self._stop()

    async def _ended(self, patience_s: float) -> None:
        assert self._main is not None
        for _ in range(2):
            done, _pending = await asyncio.wait({self._main}, timeout=patience_s)
            if done:
                return
            self._main.cancel()

    def _lost(self, problem: str) -> None:
        if not self._over:
            self._problem = problem
            self._stop()

    def _stop(self) -> None:
        self._over = True
        self._stopping.set()
        for call in self._calls:
            if call is not None:
                call.cancel()
        if not self.ready.done() and self._main is not None:
            self._main.cancel()

    def _over_error(self) -> ConnectionEndedError:
        why = self._problem or "The connection to it ended."
        return ConnectionEndedError(
            f"The MCP server {self._name!r} does not answer. {why}",
            next_step="What was asked of it may still have happened.",
        )


@asynccontextmanager
async def _listening(
    client: Client, received: Callable[[object], Awaitable[None]]
) -> AsyncIterator[None]:
    """Hear of changed tools: since 2026-07-28 a client has to ask for that."""

    async def listen() -> None:
        with contextlib.suppress(Exception):  # an older protocol, or a server that has none
            async with client.listen(tools_list_changed=True) as events:
                async for event in events:
                    await received(event)

    task = asyncio.create_task(listen())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
