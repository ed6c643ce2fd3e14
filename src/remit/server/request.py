"""A request of the endpoint table and its answer, independent of the transport."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

from remit.server.replies import (
    Answer,
    Headers,
    Receive,
    Scope,
    Send,
    answer_messages,
    read_body,
)
from remit.server.shares import Share


class Request(Protocol):
    """A request, and where its answer goes: whole, or as a stream.

    Attributes:
        path: as the client asked for it, without its query.
        headers: names in lower case; no trailers.
        started: whether anything of an answer is on its way.
        detached: whether the call goes on when its client hangs up; else its task is cancelled.
        deployment: the model that the path names, as Azure's do; empty if the body names it.
    """

    path: str
    deployment: str
    headers: list[tuple[bytes, bytes]]
    started: bool
    detached: bool

    def prove(self) -> None:
        """Note that the request came with a good key."""
        ...

    def stop(self, why: str) -> None:
        """End it: its task is cancelled with ``why``."""
        ...

    async def read(self, length: bytes | None, most: int, timeout_s: float, share: Share) -> bytes:
        """The whole body.

        Args:
            length: as its header says.
            most: bytes.
            timeout_s: for all of it to come, seconds.
            share: holds it.

        Raises:
            HttpError: it is too long or too slow, or there is no room for it.
        """
        ...

    def answer(self, answer: Answer) -> None:
        """Give a whole answer."""
        ...

    def begin(self, status: int, headers: Headers) -> None:
        """Begin an answer whose length is not known."""
        ...

    def write(self, data: bytes) -> None:
        """More of it."""
        ...

    def offer(self, data: bytes) -> bool:
        """Send more of the answer; return False, sending nothing, if earlier data is unsent."""
        ...

    def end(self, data: bytes = b"") -> None:
        """Send the rest of the answer.

        An answer that is never ended is cut off, so that the client sees the failure.
        """
        ...

    @property
    def full(self) -> bool:
        """True if the client is slower than the writes: then call :meth:`drain`."""
        ...

    async def drain(self) -> None:
        """Wait until the connection takes more."""
        ...


Handler = Callable[[Request], Awaitable[None]]


class AsgiRequest:
    """A :class:`Request` that any ASGI server carries."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, deployment: str = "") -> None:
        self.deployment = deployment
        self.path: str = scope["path"]
        self.headers: list[tuple[bytes, bytes]] = scope["headers"]
        self.started = False
        self.detached = False
        self._receive = receive
        self._send = send
        self._unsent: list[MutableMapping[str, Any]] = []
        self._watcher: asyncio.Task[None] | None = None
        self._task = asyncio.current_task()

    async def serve(self, handler: Handler) -> None:
        """Have it answered."""
        try:
            await handler(self)
        finally:
            if self._watcher is not None:
                self._watcher.cancel()
        await self.drain()

    def prove(self) -> None:
        """Any ASGI server has limits of its own."""

    def stop(self, why: str) -> None:
        """Cancel the request's call; ``why`` is the reason."""
        if self._task is not None:
            self._task.cancel(why)

    async def read(self, length: bytes | None, most: int, timeout_s: float, share: Share) -> bytes:
        """The whole body; from then on a client that hangs up ends its call."""
        body = await read_body(self._receive, length, most, timeout_s, share)
        task = asyncio.current_task()
        assert task is not None
        self._watcher = asyncio.create_task(self._watch(task))
        return body

    async def _watch(self, task: asyncio.Task[Any]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self.detached:
            task.cancel()

    def answer(self, answer: Answer) -> None:
        """Give a whole answer."""
        self.started = True
        self._unsent += answer_messages(answer)

    def begin(self, status: int, headers: Headers) -> None:
        """Begin a stream."""
        self.started = True
        message = {"type": "http.response.start", "status": status, "headers": [*headers]}
        self._unsent.append(message)

    def write(self, data: bytes) -> None:
        """More of it."""
        self._unsent.append({"type": "http.response.body", "body": data, "more_body": True})

    def offer(self, data: bytes) -> bool:
        """Never: nothing is sent but by :meth:`drain`."""
        return False

    def end(self, data: bytes = b"") -> None:
        """Send the rest of the answer."""
        self._unsent.append({"type": "http.response.body", "body": data})

    @property
    def full(self) -> bool:
        """Always: nothing is sent but by :meth:`drain`."""
        return True

    async def drain(self) -> None:
        """Send what there is."""
        unsent, self._unsent = self._unsent, []
        for message in unsent:
            await self._send(message)
