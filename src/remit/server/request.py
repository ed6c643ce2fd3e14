"""A request of the endpoint table and its answer, independent of the transport."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

from remit.server.asgi import (
    Answer,
    Headers,
    Receive,
    Scope,
    Send,
    answer_messages,
    read_body,
)
from remit.server.in_flight_limits import Share


class Request(Protocol):
    """A request, and the place where its answer is written.

    An answer is either :meth:`answer`, or :meth:`begin`, any number of :meth:`write` and
    :meth:`offer`, and :meth:`end`.

    Attributes:
        path: the path of the URL, without its query.
        query: the query of the URL, as the client wrote it; empty for none.
        headers: (name, value) pairs, names in lower case, without trailers.
        started: True if part of an answer was sent.
        detached: True if the call continues after its client disconnects; else its task is
            cancelled then.
        deployment: the model that the path names, as Azure's do; empty if the body names it.
    """

    path: str
    query: str
    deployment: str
    headers: list[tuple[bytes, bytes]]
    started: bool
    detached: bool

    def prove(self) -> None:
        """Tell the connection that the caller has a good key.

        A full server closes connections without a good key first.
        """
        ...

    def stop(self, why: str) -> None:
        """Cancel the request's task with ``why`` as the reason."""
        ...

    async def read(self, length: bytes | None, most: int, timeout_s: float, share: Share) -> bytes:
        """Return the whole body. Call it once.

        Args:
            length: value of the ``content-length`` header; ``None`` without it. A value that is no
                number counts as none.
            most: longest body, in bytes.
            timeout_s: longest time for the body to arrive, in seconds.
            share: counts the bytes of the body.

        Raises:
            HttpError: 413, the body is too long; 408, too slow; 429 or 503, memory is short; 499,
                the client disconnected.
            CancelledError: the client disconnected; raised in place of 499 by Remit's own server.
        """
        ...

    def answer(self, answer: Answer) -> None:
        """Send a complete answer and end the request."""
        ...

    def begin(self, status: int, headers: Headers) -> None:
        """Begin an answer of unknown length.

        Args:
            status: HTTP status.
            headers: headers of the answer.
        """
        ...

    def write(self, data: bytes) -> None:
        """Send data of the answer, after :meth:`begin`; never wait.

        Data that the client does not take yet stays in memory: await :meth:`drain` while
        :attr:`full`. Data for a client that has gone is dropped.

        Args:
            data: bytes of the body; they are sent in the order of the calls.
        """
        ...

    def offer(self, data: bytes) -> bool:
        """Send data of the answer; return False, sending nothing, if earlier data is unsent.

        Args:
            data: a piece of the answer.
        """
        ...

    def end(self, data: bytes = b"") -> None:
        """Send the last data of the answer and end the request.

        The connection of an answer that is never ended is closed, so that the client sees the
        failure.
        """
        ...

    @property
    def full(self) -> bool:
        """True if the client is slower than the writes; call :meth:`drain` then."""
        ...

    def push(self) -> None:
        """Have the written data sent soon, although :meth:`drain` is not called."""
        ...

    async def drain(self) -> None:
        """Wait until the connection accepts more data."""
        ...


Handler = Callable[[Request], Awaitable[None]]


class AsgiRequest:
    """A :class:`Request` on any ASGI server. Data is sent by :meth:`drain` and :meth:`push`.

    :meth:`serve` runs a handler with it. :meth:`stop` cancels the task that made the object.

    Args:
        scope: ASGI's scope.
        receive: ASGI's function.
        send: ASGI's function.
        deployment: the model that the path names; empty if the body names it.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, deployment: str = "") -> None:
        self.deployment = deployment
        self.path: str = scope["path"]
        self.query: str = scope.get("query_string", b"").decode("latin-1")
        self.headers: list[tuple[bytes, bytes]] = scope["headers"]
        self.started = False
        self.detached = False
        self._receive = receive
        self._send = send
        self._unsent: list[MutableMapping[str, Any]] = []
        self._sending = asyncio.Lock()
        self._watcher: asyncio.Task[None] | None = None
        self._pusher: asyncio.Task[None] | None = None
        self._task = asyncio.current_task()

    async def serve(self, handler: Handler) -> None:
        """Run a handler, then send all unsent data.

        An error of the handler is raised unchanged. Data is not sent then; the watch for a
        disconnect ends in any case, and nothing is sent later.

        Args:
            handler: serves the request.
        """
        try:
            await handler(self)
            if self._watcher is not None:
                self._watcher.cancel()
            await self.drain()
        finally:
            for task in (self._watcher, self._pusher):
                if task is not None:
                    task.cancel()

    def prove(self) -> None:
        """Do nothing: any ASGI server has limits of its own."""

    def stop(self, why: str) -> None:
        """Cancel the request's task with ``why`` as the reason.

        Does nothing if the request has no task.

        Args:
            why: argument of the CancelledError.
        """
        if self._task is not None:
            self._task.cancel(why)

    async def read(self, length: bytes | None, most: int, timeout_s: float, share: Share) -> bytes:
        """Return the whole body, as :meth:`Request.read`.

        From then on the call is cancelled if the client disconnects, unless it is detached.

        Args:
            length: value of the ``content-length`` header; ``None`` for a chunked body. A value
                that is no number counts as none.
            most: largest size of the body in bytes.
            timeout_s: longest time for the body, in seconds.
            share: the caller's share of memory, which counts the body.

        Raises:
            HttpError: 413, the body is too long; 408, too slow; 429 or 503, memory is short; 499,
                the client disconnected.
        """
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
        """Add a complete answer to the unsent data.

        Args:
            answer: the answer; :meth:`drain` sends it.
        """
        self.started = True
        self._unsent += answer_messages(answer)

    def begin(self, status: int, headers: Headers) -> None:
        """Add the head of a stream to the unsent data; nothing is sent yet.

        Args:
            status: the HTTP status.
            headers: headers of the stream.
        """
        self.started = True
        message = {"type": "http.response.start", "status": status, "headers": [*headers]}
        self._unsent.append(message)

    def write(self, data: bytes) -> None:
        """Add data of the stream to the unsent data.

        Args:
            data: a piece of the stream; :meth:`drain` sends it.
        """
        self._unsent.append({"type": "http.response.body", "body": data, "more_body": True})

    def offer(self, data: bytes) -> bool:
        """Return False: data waits for :meth:`drain`."""
        return False

    def end(self, data: bytes = b"") -> None:
        """Add the last data of the stream to the unsent data.

        Args:
            data: the last piece; may be empty.
        """
        self._unsent.append({"type": "http.response.body", "body": data})

    @property
    def full(self) -> bool:
        """True: data waits for :meth:`drain`."""
        return True

    def push(self) -> None:
        """Begin to send the unsent data in a task that ends with :meth:`serve`."""
        self._pusher = asyncio.create_task(self.drain())
        self._pusher.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def drain(self) -> None:
        """Send all unsent data, in order, also if it runs twice at once."""
        async with self._sending:
            while self._unsent:
                await self._send(self._unsent.pop(0))
