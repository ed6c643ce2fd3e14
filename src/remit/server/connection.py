"""A client's connection: model calls straight from the parser, the rest as uvicorn serves it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from typing_extensions import override
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from remit.server.replies import WITHOUT_BODY, Answer, Headers, check_length, too_long, too_slow
from remit.server.request import Handler

_IDLE, _HEAD, _BODY = range(3)  # what is read: nothing yet, a request's headers, its body

_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_CHUNKS = b"transfer-encoding: chunked\r\n"
_CLOSE = b"connection: close\r\n"
_NO_TEXT = b"content-length: 0\r\nconnection: close\r\n\r\n"
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\n" + _NO_TEXT
_UNREADABLE = b"HTTP/1.1 400 Bad Request\r\n" + _NO_TEXT
_OVERHEAD = 8  # bytes of a body's framing for each of its own: a chunk of one byte has five


_MOST_WAITING = 100  # requests on one connection
_STALLED_S = 30.0  # a client that takes nothing of its answer for so long is gone


class _RefusedError(Exception):
    """Ends the reading of a connection."""


class Connection(HttpToolsProtocol):
    """uvicorn's protocol with a way of its own for model calls, and limits that it does not have.

    An application with a ``direct`` attribute, handlers by path, gets a ``POST`` to one of these
    paths as a :class:`Call`: without ASGI's scope, messages and tasks between. Everything else is
    an ASGI request. Both kinds may follow each other on one connection, pipelined too.

    Attributes:
        max_header_bytes: of the request line and all headers.
        header_timeout_s: for them to come, from the connection's beginning or from their first
            byte; and for the rest of a body that was answered before it had come.
    """

    max_header_bytes = 0
    header_timeout_s = 0.0

    _phase = _IDLE
    _fed = 0  # bytes that came
    _chunk = 0  # bytes of what came last
    _mark = 0  # of `_fed`: after what held the beginning of this head or body
    _came = 0  # bytes of this body
    _reply = _UNREADABLE  # to what cannot be read
    _lingers = False  # answered early: what still comes is dropped, then it is closed
    _last_words = b""  # answers what cannot be read, after everything before it
    _running: Any = None  # the cycle whose answer is under way: a Call or uvicorn's
    _deadline = 0.0
    _timer: asyncio.TimerHandle | None = None
    _timer_at = 0.0
    _left = 0  # bytes that the client had not taken at the last look

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._direct: Mapping[bytes, Handler] = getattr(self.app, "direct", {})

    # What the transport calls.

    @override
    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect(self.header_timeout_s)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        self.pipeline.clear()
        running = self._running
        if running is not None:
            running.disconnected = True
            if type(running) is not Call:
                running.message_event.set()
            elif not running.detached and running.task is not None:
                running.task.cancel()
        self.flow.resume_writing()
        if exc is None:
            self.transport.close()
        self.parser = None  # type: ignore[assignment]

    @override
    def data_received(self, data: bytes) -> None:
        if self._last_words:
            return
        self._chunk = len(data)
        self._fed += self._chunk
        while data:
            try:
                self.parser.feed_data(data)
                data = b""
            except HttpParserUpgrade as upgrade:
                data = self._head_again() + data[upgrade.args[0] :]
            except HttpParserError:
                self._give_up(self._reply)
                return
        if self._phase == _IDLE:
            return
        since = self._fed - self._mark
        if self._phase == _HEAD:
            if since > self.max_header_bytes:
                self._give_up(_TOO_LARGE)
            elif not since and self.cycle is not None:
                self._expect(self.header_timeout_s)
        elif since > self.max_header_bytes + _OVERHEAD * self._came:
            self._give_up(_UNREADABLE)  # trailers or extensions of chunks without end

    def _head_again(self) -> bytes:
        """The request's head without the offer to speak another protocol, for a new parser.

        The old one takes the request for its last in HTTP, and its body for something else.
        """
        method, version = self.parser.get_method(), self.parser.get_http_version()
        self.parser = HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        parts = [b"%b %b HTTP/%b\r\n" % (method, self.url, version.encode())]
        parts += [b"%b: %b\r\n" % field for field in self.headers if field[0] != b"upgrade"]
        return b"".join(parts) + b"\r\n"

    @override
    def resume_writing(self) -> None:
        super().resume_writing()
        if self._running is None and self.pipeline and not self.transport.is_closing():
            self._start_asgi_task(*self.pipeline.pop())

    # What the parser calls.

    @override
    def on_message_begin(self) -> None:
        self._phase = _HEAD
        self._mark = self._fed
        self.url = b""
        self.expect_100_continue = False
        self.headers = []

    @override
    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase == _HEAD:  # else it is a trailer
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
            self.headers.append((name, value))

    @override
    def on_headers_complete(self) -> None:
        if self._chunk + self._fed - self._mark > self.max_header_bytes:
            size = sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size + len(self.url) > self.max_header_bytes:
                self._reply = _TOO_LARGE
                raise _RefusedError
        if len(self.pipeline) >= _MOST_WAITING:
            raise _RefusedError
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":  # we are no proxy
                raise _RefusedError
            return  # it is read again without
        handler = None
        if self.parser.get_method() == b"POST":
            handler = self._direct.get(self.url.partition(b"?")[0])
        most = self.limit_concurrency
        if handler is None or (
            most is not None and (len(self.connections) >= most or len(self.tasks) >= most)
        ):
            self._as_asgi()
        else:
            cycle: Any = Call(self)
            self.cycle = cycle
            if self._running is None and not self.flow.write_paused:
                self._start_asgi_task(cycle, handler)
            else:
                self.flow.pause_reading()
                self.pipeline.appendleft((cycle, cast("Any", handler)))
        self._phase = _BODY
        self._mark = self._fed
        self._came = 0

    def _as_asgi(self) -> None:
        url, headers, expect = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.scope["headers"] = self.headers = headers
        self.url, self.expect_100_continue = url, expect
        super().on_headers_complete()

    @override
    def on_body(self, body: bytes) -> None:
        self._came += len(body)
        cycle: Any = self.cycle
        if type(cycle) is not Call:
            super().on_body(body)
        elif cycle.body or cycle.response_complete:
            cycle.take(body)
        else:  # mostly all of it comes in one piece
            cycle.body = body

    @override
    def on_message_complete(self) -> None:
        if self._phase == _HEAD:
            return
        self._phase = _IDLE
        cycle: Any = self.cycle
        if type(cycle) is Call:
            cycle.whole = True
            if cycle.waiter is not None:
                cycle.wake()
        else:
            super().on_message_complete()
        if self._running is None:  # it was answered before it had come
            if self._lingers:
                self.close_soon()
            else:
                self._expect(self.timeout_keep_alive)

    # Which request is answered.

    @override
    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._running = cycle
        if type(cycle) is Call:
            task = cycle.task = self.loop.create_task(app(cycle))
            self.tasks.add(task)
            task.add_done_callback(cycle.ended)
        else:
            super()._start_asgi_task(cycle, app)

    @override
    def on_response_complete(self) -> None:
        cycle, self._running = self._running, None
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            self.close_soon()
            return
        unread = self._phase == _BODY and cycle is self.cycle
        if not cycle.keep_alive:
            if unread and self.transport.can_write_eof():
                # Who is still sending would see a reset, and not the answer.
                self._lingers = True
                self.transport.write_eof()
                self.flow.resume_reading()
                self._expect(self.header_timeout_s)
            else:
                self.close_soon()
            return
        if self.pipeline:  # until it is empty nothing more is read
            if not self.flow.write_paused:
                self._start_asgi_task(*self.pipeline.pop())
        elif self._last_words:
            self.transport.write(self._last_words)
            self.close_soon()
        else:
            if self.flow.read_paused:
                self.flow.resume_reading()
            self._expect(self.header_timeout_s if unread else self.timeout_keep_alive)

    def _give_up(self, reply: bytes) -> None:
        """Answer what came before, then with ``reply`` what cannot be read; and close."""
        self._last_words = reply
        running, unread = self._running, self.cycle if self._phase == _BODY else None
        if unread is not None and self.pipeline and self.pipeline[0][0] is unread:
            self.pipeline.popleft()
            unread = None
        if self.pipeline or running not in (None, unread):
            return
        if unread is None or not unread.response_started:
            self.transport.write(reply)
        self.close_soon()

    # Who lets us wait. One timer serves all requests of a connection: it looks at the deadline.

    def _expect(self, within_s: float) -> None:
        """Close the connection unless a request's headers, or its rest, come in time."""
        self._deadline = self.loop.time() + within_s
        if self._timer is None or self._timer_at > self._deadline:
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = self._deadline
        self._timer = self.loop.call_at(self._deadline, self._look)

    def _look(self) -> None:
        self._timer = None
        closing, left = self.transport.is_closing(), self.transport.get_write_buffer_size()
        if self._running is not None and not closing:
            return  # an answer is under way; its end sets the next deadline
        if self.loop.time() < self._deadline - 0.001:
            self._set_timer()
        elif left and left != self._left:  # a slow reader is not cut off, one that stopped is
            self._left = left
            self._expect(_STALLED_S)
        elif closing or left:
            self.transport.abort()
        else:
            self.close_soon()

    def close_soon(self) -> None:
        """Close the connection when what was written has left."""
        self.transport.close()
        if self.parser is not None:
            self._expect(_STALLED_S)


class Call:
    """A model call on a connection: a :class:`~remit.server.request.Request`.

    For uvicorn's part of the protocol it is a cycle as its own are.
    """

    __slots__ = (
        "_chunked", "_connection", "_expects", "_most", "_unsent", "body", "detached",
        "disconnected", "headers", "keep_alive", "path", "response_complete", "response_started",
        "task", "waiter", "whole",
    )  # fmt: skip

    def __init__(self, connection: Connection) -> None:
        version = connection.parser.get_http_version()
        self._connection = connection
        self._expects = connection.expect_100_continue
        self._chunked = version != "1.0"
        self.body: bytes | bytearray = b""
        self._most = HIGH_WATER_LIMIT
        self.whole = False
        self._unsent = b""
        self.waiter: asyncio.Future[None] | None = None
        self.path = connection.url.partition(b"?")[0].decode("latin-1")
        self.headers: list[tuple[bytes, bytes]] = connection.headers
        self.detached = False
        self.disconnected = False
        self.keep_alive = self._chunked and connection.parser.should_keep_alive()
        self.response_started = False
        self.response_complete = False
        self.task: asyncio.Task[None] | None = None

    # The request.

    def take(self, data: bytes) -> None:
        """One more piece of the body came."""
        if self.response_complete:
            return
        if type(self.body) is bytes:
            self.body = bytearray(self.body)
        self.body += data
        if len(self.body) > self._most:
            if self.waiter is None:
                self._connection.flow.pause_reading()
            elif not self.waiter.done():
                self.waiter.set_exception(too_long(self._most))

    def wake(self) -> None:
        """What the body's reader waits for is there."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    async def read(self, length: bytes | None, most: int, timeout_s: float) -> bytes:
        """The whole body; until it is asked for, little of it is kept."""
        if self._connection.flow.read_paused and not self._connection.pipeline:
            self._connection.flow.resume_reading()
        if not self.whole:
            check_length(length, most)
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
        """Whether anything of an answer is on its way."""
        return self.response_started

    def answer(self, answer: Answer) -> None:
        """Give a whole answer in one write."""
        status, body, kind, headers = answer
        if status in WITHOUT_BODY:
            head = [*self._head(status, headers), b"\r\n"]
        else:
            head = self._head(status, ((b"content-type", kind), *headers))
            head += (b"content-length: %d\r\n\r\n" % len(body), body)
        self.response_complete = True
        if not self.disconnected:
            self._connection.transport.write(b"".join(head))
        self._connection.on_response_complete()

    def begin(self, status: int, headers: Headers) -> None:
        """Begin a stream."""
        head = self._head(status, headers)
        head.append(_CHUNKS + b"\r\n" if self._chunked else b"\r\n")
        self._unsent = b"".join(head)

    def write(self, data: bytes) -> None:
        """More of it."""
        if data:
            self._put(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def offer(self, data: bytes) -> bool:
        """More of it, unless the client is slower than what was written: then it is refused."""
        connection = self._connection
        if connection.flow.write_paused or self._unsent:
            return False
        if not self.disconnected:
            connection.transport.write(
                b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data
            )
        return True

    def end(self, data: bytes = b"") -> None:
        """The rest of it."""
        if self._chunked:
            data = (b"%x\r\n%b\r\n" % (len(data), data) if data else b"") + b"0\r\n\r\n"
        self._put(data)
        self.response_complete = True
        self._connection.on_response_complete()

    @property
    def full(self) -> bool:
        """Whether the client is slower than what was written."""
        return self._connection.flow.write_paused

    async def drain(self) -> None:
        """Wait until the connection takes more."""
        flow: FlowControl = self._connection.flow
        await flow.drain()

    def ended(self, task: asyncio.Task[None]) -> None:
        """The call has ended; if its answer has not, the client has to see that."""
        self._connection.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._connection.logger.error("Exception in a call\n", exc_info=error)
        if not self.response_complete and not self.disconnected:
            self._connection.close_soon()

    def _head(self, status: int, headers: Headers) -> list[bytes]:
        """Status and headers, without the empty line behind them."""
        parts = [STATUS_LINE[status]]
        close = not self.whole  # what comes next is the rest of this request
        for name, value in (*self._connection.server_state.default_headers, *headers):
            if _CONTROL.search(value):
                raise ValueError(f"a header that cannot be sent: {name!r}")
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
