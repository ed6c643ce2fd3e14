"""A model call on a client's connection: reads its body and writes its answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from remit.gateway.memory import LARGE_BYTES
from remit.server.asgi import WITHOUT_BODY, Answer, Headers, check_length, too_long, too_slow
from remit.server.in_flight_limits import Share
from remit.server.refusals import HttpError

if TYPE_CHECKING:
    from remit.server.connection import Connection

_value_of = itemgetter(1)
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_CHUNKS = b"transfer-encoding: chunked\r\n"
_CLOSE = b"connection: close\r\n"


class Call:
    """A model call on a :class:`Connection`; implements :class:`~remit.server.request.Request`.

    uvicorn's part of the protocol uses the attributes that its own cycles have.

    The path is direct: there is no ASGI scope. A body above a limit pauses reading until
    :meth:`read`. The connection makes an instance for each request, starts its handler as a task
    with :meth:`start`, and feeds its body; the handler reads and answers. All methods belong to one
    event loop.

    Args:
        connection: the connection, whose parser has read the headers.
    """

    __slots__ = (
        "_chunked", "_connection", "_expects", "_most", "_share", "_task", "_unsent", "body",
        "detached", "disconnected", "headers", "keep_alive", "path", "query", "response_complete",
        "response_started", "waiter", "whole",
    )  # fmt: skip
    deployment = ""  # Paths that name one are served as ASGI requests.

    def __init__(self, connection: Connection) -> None:
        version = connection.parser.get_http_version()
        self._connection = connection
        self._expects = connection.expect_100_continue
        self._chunked = version != "1.0"
        self.body: bytes | bytearray = b""
        self._most = HIGH_WATER_LIMIT
        self._share: Share | None = None  # Set for a body of unknown length.
        self.whole = False
        self._unsent = b""
        self.waiter: asyncio.Future[None] | None = None
        path, _, query = connection.url.partition(b"?")
        self.path = path.decode("latin-1")
        self.query = query.decode("latin-1")
        self.headers: list[tuple[bytes, bytes]] = connection.headers
        self.detached = False
        self.disconnected = False
        self.keep_alive = self._chunked and connection.parser.should_keep_alive()
        self.response_started = False
        self.response_complete = False
        self._task: asyncio.Task[None] | None = None

    def start(self, handler: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
        """Start a task that runs the handler, and register the task with the server.

        An error of the handler is logged. If the handler ends without a complete answer, the
        connection is closed.

        Args:
            handler: serves the request.
        """
        # With a name of its own a task is made faster: asyncio writes none.
        task = self._task = asyncio.Task(handler(self), loop=self._connection.loop, name="call")
        self._connection.tasks.add(task)
        task.add_done_callback(self._ended)

    def hang_up(self, why: str) -> None:
        """Note that the client is gone, and cancel the call unless :attr:`detached` is set.

        In both cases :attr:`disconnected` is set, and nothing more is sent.

        Args:
            why: the reason for a disconnect by this server, with which the task is cancelled; empty
                if the client disconnected.
        """
        self.disconnected = True
        if not self.detached and self._task is not None:
            self._task.cancel(why or None)

    def stop(self, why: str) -> None:
        """Cancel the call's task with ``why`` as the reason. Does nothing before :meth:`start`.

        Args:
            why: argument of the CancelledError.
        """
        if self._task is not None:
            self._task.cancel(why)

    # The request.

    def prove(self) -> None:
        """Tell the connection that the caller has a good key, as :meth:`Request.prove`."""
        if self._connection.stranger_at is not None:
            self._connection.prove()

    def take(self, data: bytes) -> None:
        """Add a piece of the body; pause reading if too much of it is unread.

        A body above its limit, or above the caller's share of memory, makes :meth:`read` raise
        HttpError. Pieces after the end of the answer are dropped.

        Args:
            data: the piece.
        """
        if self.response_complete:
            return
        if type(self.body) is bytes:
            self.body = bytearray(self.body)
        self.body += data
        if self.waiter is None:
            if len(self.body) > self._most:
                self._connection.flow.pause_reading()
        elif not self.waiter.done():
            try:
                if self._share is not None:
                    self._share.take(len(data), small=0)
                if len(self.body) > self._most:
                    raise too_long(self._most)
            except HttpError as error:
                self.waiter.set_exception(error)

    def wake(self) -> None:
        """Wake the reader of the body, because the rest has arrived or the client is gone."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    async def read(self, length: bytes | None, most: int, timeout_s: float, share: Share) -> bytes:
        """Return the whole body, as :meth:`Request.read`. Call it once.

        Until this method is called, reading pauses above 64 KiB of the body. If the client expects
        ``100 Continue``, that is sent. A body that has arrived already is only compared with
        ``most``.

        Args:
            length: value of the ``content-length`` header; ``None`` for a chunked body.
            most: largest size of the body in bytes.
            timeout_s: longest time for the rest of the body, in seconds.
            share: the caller's share of memory, which counts a body that has yet to arrive.

        Raises:
            HttpError: 413, the body is too long; 408, too slow; 429 or 503, memory is short.
            CancelledError: the client disconnected.
        """
        if self._connection.flow.read_paused and not self._connection.pipeline:
            self._connection.flow.resume_reading()
        if not self.whole:
            known = check_length(length, most)
            if known is None:
                self._share = share
            share.take(known or len(self.body))
            await self._rest(most, timeout_s)
        if len(self.body) > most:
            raise too_long(most)
        body, self.body = bytes(self.body), b""
        return body

    async def _rest(self, most: int, timeout_s: float) -> None:
        loop = self._connection.loop
        waiter = self.waiter = loop.create_future()
        timer = loop.call_later(timeout_s, self._late)
        self._most = most
        if self._expects and not self.body and not self.disconnected:
            self._connection.transport.write(_CONTINUE)
        try:
            await waiter
        finally:
            timer.cancel()
            self.waiter = None

    def _late(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_exception(too_slow())

    # The answer.

    @property
    def started(self) -> bool:
        """True if the head of an answer was sent; then no other answer can be sent."""
        return self.response_started

    def answer(self, answer: Answer) -> None:
        """Send a whole answer and end the request; nothing is sent if the client is gone.

        A large body is written separately.

        Args:
            answer: status, body, content type and further headers.

        Raises:
            ValueError: a header contains a control character.
        """
        status, body, kind, headers = answer
        if status in WITHOUT_BODY:
            head = [*self._head(status, headers), b"\r\n"]
        else:
            head = self._head(status, ((b"content-type", kind), *headers))
            head += (b"content-length: %d\r\n\r\n" % len(body), body)
        self.response_complete = True
        if not self.disconnected:
            if len(head[-1]) <= LARGE_BYTES:
                head = [b"".join(head)]
            for part in head:
                self._connection.transport.write(part)
        self._connection.on_response_complete()

    def begin(self, status: int, headers: Headers) -> None:
        """Begin a stream. The headers are sent with its first data; no other answer can be sent any
        more.

        Args:
            status: the HTTP status.
            headers: headers of the stream.

        Raises:
            ValueError: a header contains a control character.
        """
        head = self._head(status, headers)
        head.append(_CHUNKS + b"\r\n" if self._chunked else b"\r\n")
        self._unsent = b"".join(head)

    def write(self, data: bytes) -> None:
        """Send data of the stream without waiting; empty data is ignored.

        The first data is sent together with the headers. Nothing is sent to a client that is gone.

        Args:
            data: a piece of the stream, as a chunk if the client speaks HTTP/1.1.
        """
        if data:
            self._put(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def offer(self, data: bytes) -> bool:
        """Send data of the stream; return False, sending nothing, if earlier data is unsent.

        Data for a client that is gone is dropped, with True.

        Args:
            data: a piece of the stream.
        """
        connection = self._connection
        if connection.flow.write_paused or self._unsent:
            return False
        if not self.disconnected:
            connection.transport.write(
                b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data
            )
        return True

    def end(self, data: bytes = b"") -> None:
        """Send the last data of the stream and end the request.

        Args:
            data: the last piece; may be empty.
        """
        if self._chunked:
            data = (b"%x\r\n%b\r\n" % (len(data), data) if data else b"") + b"0\r\n\r\n"
        self._put(data)
        self.response_complete = True
        self._connection.on_response_complete()

    @property
    def full(self) -> bool:
        """True if the client reads more slowly than data is written; :meth:`drain` waits."""
        return self._connection.flow.write_paused

    def push(self) -> None:
        """Do nothing: data is sent when it is written."""

    async def drain(self) -> None:
        """Wait until the connection accepts more data. Returns also when the client disconnects."""
        flow: FlowControl = self._connection.flow
        await flow.drain()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Remove an ended call's task; close the connection if its answer is incomplete."""
        self._connection.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._connection.logger.error("Exception in a call\n", exc_info=error)
        if not self.response_complete and not self.disconnected:
            self._connection.close_soon()

    def _head(self, status: int, headers: Headers) -> list[bytes]:
        """Return the status line and headers, without the empty line at the end.

        Raises:
            ValueError: a header's value contains a control character.
        """
        parts = [STATUS_LINE[status]]
        close = not self.whole  # Unread bytes belong to this request.
        fields = [*self._connection.server_state.default_headers, *headers]
        # Tabs are allowed in values, so one search finds a control character in any of them.
        if _CONTROL.search(b"\t".join(map(_value_of, fields))):
            bad = next(name for name, value in fields if _CONTROL.search(value))
            raise ValueError(f"a header that cannot be sent: {bad!r}")
        for name, value in fields:
            if name == b"connection":
                close = True
            else:
                parts += (name, b": ", value, b"\r\n")
        if close:
            self.keep_alive = False
        if not self.keep_alive:
            parts.append(_CLOSE)
        self.response_started = True
        return parts

    def _put(self, data: bytes) -> None:
        if self._unsent:
            data, self._unsent = self._unsent + data, b""
        if not self.disconnected:
            self._connection.transport.write(data)
