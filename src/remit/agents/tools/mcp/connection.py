"""The connection to a server: a session in its own task of the background loop.

The SDK's cancel scopes belong to the task that opened them, but callers run in any loop or none. So
the session has its own task, to which callers submit work.
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
from remit.agents.tools.mcp.answers import accept_odd_answers
from remit.kernel.errors import InvalidInputError
from remit.kernel.loops import run_blocking, start_background

_MAX_UNANSWERED = 10_000
_MAX_QUESTIONS = 5
_QUESTION_CHARS = 1000
_T = TypeVar("_T")
Transport = Callable[[Callable[[str], None]], AbstractAsyncContextManager[Any]]
"""Makes the streams; takes a function that it calls with the reason why they ended."""


class Connection:
    """A session with a server. Its start begins when the object is created.

    A thread-safe handle: :meth:`submit` runs work in the session, :meth:`retire` and :meth:`stop`
    end it, :meth:`join` waits. A session that ended is not opened again. A server that sends more
    than 10,000 messages without an answer is disconnected. Questions of the server to a person are
    declined.

    Args:
        name: the server's name, for messages.
        transport: opens the streams.

    Attributes:
        process_id: the process whose background loop runs the session.
        ready: future of the initialized client; raises the error of a failed start.
        changed: True if the server announced changed tools since this was last set to False.
    """

    def __init__(self, name: str, transport: Transport) -> None:
        self._name = name
        self._problem = ""
        self._is_over = self._is_retired = False
        self._stopping = asyncio.Event()
        self._calls: set[asyncio.Task[Any] | None] = set()
        self._asked: list[list[str]] = []
        self._unanswered = 0  # Messages since the last answer.
        self._main: asyncio.Task[None] | None = None
        self.process_id = os.getpid()
        self.ready: Future[Client] = Future()
        self.changed = False
        start_background(self._serve(transport))

    @property
    def over(self) -> bool:
        """True if the session takes no more calls: it ended, or finishes its last calls."""
        return self._is_over or self._is_retired

    def submit(
        self, work: Callable[[Client], Coroutine[Any, Any, _T]], questions: list[str] | None = None
    ) -> Future[_T]:
        """Run work with the session; return its future. Cancelling the future cancels the work.

        Wait for :attr:`ready` first: the future raises TimeoutError if the client is not
        initialized. It raises ToolUnavailableError if the session has ended, and otherwise the
        work's error. The work is submitted even if the session is retired.

        Args:
            work: takes the client; runs in the background loop.
            questions: receives questions that the server asks the person while the work runs
                (elicitation), at most five. Each is declined. None to drop them.
        """
        return start_background(self._call(work, questions))

    def retire(self) -> None:
        """Set :attr:`over`, and end after the last running call; do not wait."""
        self._is_retired = True
        start_background(self._end(unless_busy=True))

    def stop(self) -> None:
        """Ask the session to end, and cancel its calls; :meth:`join` waits for the end."""
        start_background(self._end())

    def join(self, patience_s: float) -> None:
        """Wait until the session has ended; cancel it after ``patience_s`` seconds, and wait once
        more as long.

        Returns even if the session still runs then. Does not wait if called from the background
        loop.

        Args:
            patience_s: seconds of each of the two waits.
        """
        with contextlib.suppress(InvalidInputError):  # A loop cannot wait for itself.
            run_blocking(self._ended(patience_s))

    # -- in the background loop -------------------------------------------------------------

    async def _serve(self, transport: Transport) -> None:
        self._main = asyncio.current_task()
        info = Implementation(name="remit", version=__version__)
        try:
            async with Client(
                transport(self._lost), mode="auto", cache=None, client_info=info,
                message_handler=self._received, elicitation_callback=self._elicited,
            ) as client:  # fmt: skip
                accept_odd_answers(client, self._name)
                self.ready.set_result(client)
                async with _listening(client, self._received):
                    await self._stopping.wait()
        except BaseException as error:  # noqa: BLE001 - passed to the callers
            if not self.ready.done() and not isinstance(error, asyncio.CancelledError):
                self.ready.set_exception(error)
        finally:
            if not self.ready.done():
                self.ready.set_exception(self._ended_error())
            self._stop()

    async def _received(self, message: object) -> None:
        if isinstance(message, (ToolListChangedNotification, ToolsListChanged)):
            self.changed = True
        self._unanswered += 1
        if self._unanswered > _MAX_UNANSWERED:
            self._lost(f"The server sent {_MAX_UNANSWERED:,} messages without an answer.")

    async def _elicited(self, context: object, params: ElicitRequestParams) -> ElicitResult:
        """Decline a question, because no person is present; the model is shown the question."""
        for questions in self._asked:
            if len(questions) < _MAX_QUESTIONS:
                questions.append(params.message[:_QUESTION_CHARS])
        return ElicitResult(action="decline")

    async def _call(
        self, work: Callable[[Client], Coroutine[Any, Any, _T]], questions: list[str] | None
    ) -> _T:
        task = asyncio.current_task()
        self._calls.add(task)
        if questions is not None:
            self._asked.append(questions)
        try:
            if self._is_over:
                raise self._ended_error()
            found = await work(self.ready.result(0))
            self._unanswered = 0
            return found
        except (Exception, asyncio.CancelledError) as error:
            if self._is_over:
                raise self._ended_error() from error
            raise
        finally:
            self._calls.discard(task)
            self._asked = [other for other in self._asked if other is not questions]
            if self._is_retired and not self._calls:
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
        if not self._is_over:
            self._problem = problem
            self._stop()

    def _stop(self) -> None:
        self._is_over = True
        self._stopping.set()
        for call in self._calls:
            if call is not None:
                call.cancel()
        if not self.ready.done() and self._main is not None:
            self._main.cancel()

    def _ended_error(self) -> ToolUnavailableError:
        reason = self._problem or "The connection ended."
        return ToolUnavailableError(
            f"The MCP server {self._name!r} does not answer. {reason}",
            next_step="Its last call may have taken effect.",
        )


@asynccontextmanager
async def _listening(
    client: Client, received: Callable[[object], Awaitable[None]]
) -> AsyncIterator[None]:
    """Subscribe to changes of the tools; protocol 2026-07-28 sends them only on request."""

    async def listen() -> None:
        with contextlib.suppress(Exception):  # An older protocol, or a server without this feature.
            async with client.listen(tools_list_changed=True) as events:
                async for event in events:
                    await received(event)

    task = asyncio.create_task(listen())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
