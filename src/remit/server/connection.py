"""A client's connection: model calls straight from the parser, the rest as uvicorn serves it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Any, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from remit.gateway import STOPPED_READING
from remit.server.http_call import Call
from remit.server.refusals import HttpError
from remit.server.replies import PROVE, Receive, Scope, Send, refusal, reply, shape_of
from remit.server.request import Handler
from remit.server.strangers import Strangers
from remit.server.websocket import SocketHandler, WebSocket, refuse_socket

_IDLE, _HEAD, _BODY = range(3)  # The phases of reading a request.
_OVERHEAD = 8  # Bytes of framing allowed for each byte of a body: a chunk of one byte has five.
_MOST_WAITING = 100  # requests on one connection
_MOST_FIELDS = 200  # headers of one request, and trailers
_END = "nothing more is read"


def _last_answer(status: bytes, text: str) -> bytes:
    """Return an answer in plain text after which the connection is closed."""
    body = text.encode()
    head = b"HTTP/1.1 %b\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n" % (
        status,
        len(body),
    )
    return head + b"connection: close\r\n\r\n" + body


_TOO_LARGE = _last_answer(
    b"431 Request Header Fields Too Large",
    f"The head of this request is longer than server.max_header_bytes, or has more than "
    f"{_MOST_FIELDS} headers; send less.\n",
)
_UNREADABLE = _last_answer(
    b"400 Bad Request",
    "This is no HTTP/1.1 request with one host header, its trailers are too long, or more than "
    f"{_MOST_WAITING} requests wait on this connection; send another on a new one.\n",
)


async def _refuse_full(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request for which there is no place."""
    said = "server.max_connections requests are under way, the most allowed; try again."
    error = HttpError(503, "overloaded", said, retry_after_s=1, close=True)
    await reply(send, refusal(shape_of(scope), error))


class Connection(HttpToolsProtocol):
    """uvicorn's protocol with a way of its own for model calls, and limits that it does not have.

    An application with a ``direct`` attribute, handlers by path, gets a ``POST`` to one of these
    paths as a :class:`Call`: without ASGI's scope, messages and tasks between. Everything else is
    an ASGI request. Both kinds may follow each other on one connection, pipelined too.

    When there are as many connections as there may be, a new one takes the place of one that has
    shown no good key, else of one that is idle.

    Attributes:
        max_header_bytes: of the request line and all headers.
        header_timeout_s: for them to come, from the connection's beginning or from their first
            byte; and for the rest of a body that was answered before it had come.
        stalled_s: a client that takes nothing of its answer for so long is gone: its call ends.
    """

    max_header_bytes = 0
    header_timeout_s = 0.0
    stalled_s = 60.0
    max_socket_bytes = 0  # the longest message on a WebSocket

    _strangers = Strangers()  # Shared by all connections of this process.
    _address: str | None = None  # Set until a request brings a good key.
    _phase = _IDLE
    _fed = 0  # bytes that came
    _chunk = 0  # bytes of what came last
    _begun = 0  # bytes of what came with the beginning of this head
    _mark = 0  # of `_fed`: after what held the beginning of this head or body
    _came = 0  # bytes of this body
    _hosts = 0  # `Host` headers of this request
    _trailers = 0
    _reply = _UNREADABLE  # The reply to an unreadable request.
    _lingers = False  # answered early: what still comes is dropped, then it is closed
    _last_words = b""  # answers what cannot be read, after everything before it
    _running: Any = None  # the cycle whose answer is under way: a Call or uvicorn's
    _deadline = 0.0
    _timer: asyncio.TimerHandle | None = None
    _left = 0  # bytes that the client had not taken at the last look
    _gone = ""  # why it is, where it did not say so itself
    _socket: WebSocket | None = None  # Set once the connection has become a WebSocket.

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._direct: Mapping[bytes, Handler] = getattr(self.app, "direct", {})
        self._answer_socket: SocketHandler = getattr(self.app, "answer_socket", refuse_socket)
        self._most: int = self.config.limit_concurrency or sys.maxsize
        self.limit_concurrency = None  # Uvicorn would answer in plain text.

    # What the transport calls.

    @override
    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect(self.header_timeout_s)
        if len(self.connections) > self._most:
            self._make_room()
        self._address = self.client[0] if self.client else ""
        self._strangers.add(self._address, self)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.connections.discard(self)
        self.prove()
        if self._timer is not None:
            self._timer.cancel()
        self.pipeline.clear()
        running = self._running
        if isinstance(running, (Call, WebSocket)):
            running.hang_up(self._gone)
        elif running is not None:
            running.disconnected = True
            running.message_event.set()
        self.flow.resume_writing()
        if exc is None:
            self.transport.close()
        self.parser = None  # type: ignore[assignment]
        # They refer back to it: with them it would stay, bodies too, until a collection.
        self.cycle = self.scope = self._running = None  # type: ignore[assignment]

    @override
    def shutdown(self) -> None:
        if self._running is None and (self._phase == _HEAD or not self._fed):
            return  # a request is on its way, or may be: it gets its answer
        if self._socket is not None:
            self._socket.end_soon()
        else:
            super().shutdown()

    def prove(self) -> None:
        """Note that a request on this connection came with a good key."""
        if self._address is not None:
            self._strangers.remove(self._address, self)
            self._address = None

    def close_now(self) -> None:
        """Close the connection and drop its pending requests."""
        self.connections.discard(self)
        self.prove()
        self.transport.abort()

    def _make_room(self) -> None:
        if (stranger := self._strangers.oldest()) is not None:
            stranger.close_now()
        else:
            waiting = cast("set[Connection]", self.connections - {self})
            idle = [one for one in waiting if one._phase != _BODY and one._running is None]
            if idle:
                longest = min(idle, key=lambda one: one._deadline)
                self.connections.discard(longest)
                longest.close_soon()

    @override
    def data_received(self, data: bytes) -> None:
        if self._last_words:
            return
        if self._socket is not None:
            self._socket.data_received(data)
            return
        self._chunk = len(data)
        self._fed += self._chunk
        while data:
            try:
                self.parser.feed_data(data)
                data = b""
            except HttpParserUpgrade as upgrade:
                rest = data[upgrade.args[0] :]
                if self._begin_socket(rest):
                    return
                data = self._head_again() + rest
            except HttpParserError:
                self._give_up(self._reply)
                return
        if self._phase == _IDLE:
            return
        since = self._fed - self._mark
        if self._phase == _HEAD:
            if since > self.max_header_bytes:
                self._give_up(_TOO_LARGE)
            elif not since and self.cycle is not None and self._running is None:
                self._expect(self.header_timeout_s)
        elif since > self.max_header_bytes + _OVERHEAD * self._came:
            self._give_up(_UNREADABLE)  # trailers or extensions of chunks without end

    def _begin_socket(self, early: bytes) -> bool:
        """Make a WebSocket of the connection; return False if the request does not ask for one.

        Args:
            early: bytes that followed the request.
        """
        offered = [value.strip().lower() for name, value in self.headers if name == b"upgrade"]
        busy = self._running is not None or self.pipeline or len(self.connections) > self._most
        if offered != [b"websocket"] or self.parser.get_method() != b"GET" or busy:
            return False
        socket = self._socket = WebSocket(self, early, self.max_socket_bytes)
        self.flow.pause_reading()
        self.cycle = self._running = cast("Any", socket)
        self._phase = _IDLE
        socket.start(self._answer_socket)
        return True

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
    def pause_writing(self) -> None:
        super().pause_writing()
        self._left = self.transport.get_write_buffer_size()
        self._expect(self.stalled_s)

    @override
    def resume_writing(self) -> None:
        super().resume_writing()
        if self._socket is not None:
            self.flow.resume_reading()
        elif self._running is None and self.pipeline and not self.transport.is_closing():
            self._start_asgi_task(*self.pipeline.pop())

    # What the parser calls.

    @override
    def on_message_begin(self) -> None:
        self._phase = _HEAD
        self._mark = self._fed
        self._begun = self._chunk
        self.url = b""
        self.expect_100_continue = False
        self.headers = []
        self._hosts = self._trailers = 0

    @override
    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase != _HEAD:
            self._trailers += 1
            if self._trailers > _MOST_FIELDS:
                raise ValueError(_END)
            return
        name = name.lower()
        if name == b"host":
            self._hosts += 1
        elif name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))
        if len(self.headers) > _MOST_FIELDS:
            self._reply = _TOO_LARGE
            raise ValueError(_END)

    @override
    def on_headers_complete(self) -> None:
        if self._begun + self._fed - self._mark > self.max_header_bytes:
            size = sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size + len(self.url) > self.max_header_bytes:
                self._reply = _TOO_LARGE
                raise ValueError(_END)
        if self._hosts != 1 and (self._hosts or self.parser.get_http_version() == "1.1"):
            raise ValueError(_END)  # RFC 9112, 3.2
        method, upgrades, handler = self.parser.get_method(), self.parser.should_upgrade(), None
        if len(self.pipeline) >= _MOST_WAITING or (upgrades and method == b"CONNECT"):
            raise ValueError(_END)  # we are no proxy
        if upgrades:
            return  # it is read again without
        if method == b"POST":
            handler = self._direct.get(self.url.partition(b"?")[0])
        # All connections are busy with calls then, so none can be closed.
        full = len(self.connections) > self._most
        if handler is None or full:
            application = self.app
            if full:
                self.app = cast("Any", _refuse_full)
            self._as_asgi()
            self.app = application
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
        cast("dict[str, Any]", self.scope)[PROVE] = self.prove
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
        if self._running is None:  # The answer was sent before the whole request arrived.
            if self._lingers:
                self.close_soon()
            else:
                self._expect(self.timeout_keep_alive)

    # Which request is answered.

    @override
    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._running = cycle
        if type(cycle) is Call:
            cycle.start(app)
        else:
            super()._start_asgi_task(cycle, app)

    @override
    def on_response_complete(self) -> None:
        cycle, self._running = self._running, None
        self.server_state.total_requests += 1
        if cycle is None:
            return  # the connection is lost
        keeps, unread = cycle.keep_alive, self._phase == _BODY and cycle is self.cycle
        lingers = unread and not keeps and self.transport.can_write_eof()
        if self.transport.is_closing() or not (keeps or lingers):
            self.close_soon()
        elif lingers:  # A client that is still sending would see a reset.
            self._lingers = True
            self.transport.write_eof()
            self.flow.resume_reading()
            self._expect(self.header_timeout_s)
        elif self.pipeline:  # No further request is read until the pipeline is empty.
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
        """Answer earlier requests, then send ``reply`` for the unreadable one, and close."""
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
        if self._timer is not None:
            if self._timer.when() <= self._deadline:
                return
            self._timer.cancel()
        self._timer = self.loop.call_at(self._deadline, self._look)

    def _look(self) -> None:
        self._timer = None
        closing, left = self.transport.is_closing(), self.transport.get_write_buffer_size()
        answers = self._running is not None and not closing
        if answers and not self.flow.write_paused:
            return  # its end sets the next deadline
        if (early_s := self._deadline - self.loop.time()) > 0.001:
            self._expect(early_s)
        elif left and left != self._left:  # a slow reader is not cut off, one that stopped is
            self._left = left
            self._expect(self.stalled_s)
        elif closing or left:
            self._gone = STOPPED_READING if answers else ""
            self.transport.abort()
        else:
            self.close_soon()

    def close_soon(self) -> None:
        """Close the connection after all written data is sent."""
        self.transport.close()
        if self.parser is not None:
            self._expect(self.stalled_s)
