"""A client's connection: model calls straight from the parser, all else through uvicorn."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Any, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from remit.gateway import STOPPED_READING
from remit.server import asgi
from remit.server.http_call import Call
from remit.server.keyless_connections import Strangers
from remit.server.request import Handler
from remit.server.websocket import SocketHandler, WebSocket, refuse_socket

_IDLE, _HEAD, _BODY = range(3)  # The phases of reading a request.
_OVERHEAD = 8  # Bytes of framing allowed for each byte of a body: a chunk of one byte has five.
_END = "nothing more is read"


class Connection(HttpToolsProtocol):
    """uvicorn's protocol with a direct path for model calls, and with more limits.

    If the application has a ``direct`` attribute (handlers keyed by path), a ``POST`` to one of
    these paths becomes a :class:`Call`, without ASGI's scope, messages and tasks. Every other
    request is an ASGI request. Both kinds can be pipelined on one connection.

    A new connection above the limit replaces the oldest one without a good key, else an idle one.
    Without either, its requests are answered 503. uvicorn makes an instance for each connection and
    calls its methods in the event loop; the limits are attributes of the class, which the server
    sets.

    Attributes:
        max_header_bytes: longest request line with all headers.
        header_timeout_s: longest time, in seconds, for the headers to arrive, from the beginning of
            the connection or from their first byte; also for the rest of a body that was answered
            early.
        stalled_s: seconds after which a client that takes nothing of its answer is disconnected,
            and its call is cancelled.
        max_socket_bytes: longest message on a WebSocket.
    """

    max_header_bytes = 0
    header_timeout_s = 0.0
    stalled_s = 60.0
    max_socket_bytes = 0

    _strangers = Strangers()  # Shared by all connections of this process.
    stranger_at: str | None = None  # The client's address until a request brings a good key.
    _phase = _IDLE
    _fed = 0  # Bytes received on this connection.
    _chunk = 0  # Bytes of the last read.
    _begun = 0  # Bytes of the read in which this head began.
    _mark = 0  # Value of `_fed` after the read in which this head or body began.
    _came = 0  # Bytes received of this body.
    _hosts = 0  # `Host` headers of this request.
    _codings: tuple[bytes, ...] = ()  # Transfer codings of this request.
    _trailers = 0
    _reply = asgi.UNREADABLE  # The reply to an unreadable request.
    _lingers = False  # True if the answer was sent early: the rest is read, dropped, and closed.
    _last_words = b""  # The answer to an unreadable request, sent after all earlier answers.
    _running: Any = None  # The cycle that is being answered: a Call, or uvicorn's.
    _deadline = 0.0
    _timer: asyncio.TimerHandle | None = None
    _left = 0  # Bytes that the client had not taken at the last check.
    _gone = ""  # The reason for a disconnect by this server.
    _socket: WebSocket | None = None  # Set once the connection has become a WebSocket.

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._direct: Mapping[bytes, Handler] = getattr(self.app, "direct", {})
        self._answer_socket: SocketHandler = getattr(self.app, "answer_socket", refuse_socket)
        self._most: int = self.config.limit_concurrency or sys.maxsize
        self.limit_concurrency = None  # Uvicorn would answer in plain text.

    # Methods that the transport calls.

    @override
    def connection_made(self, transport: Any) -> None:
        """Begin to serve a client; asyncio calls this once.

        The time limit for the headers begins. If there are more connections than allowed, another
        one is closed to make room: the oldest one that has brought no good key, else an idle one.
        If there is none, requests of the new connection are answered 503.

        Args:
            transport: asyncio's transport of the connection.
        """
        super().connection_made(transport)
        self._expect(self.header_timeout_s)
        if len(self.connections) > self._most:
            self._make_room()
        self.stranger_at = self.client[0] if self.client else ""
        self._strangers.add(self.stranger_at, self)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """End everything of a lost connection, and drop its pending requests.

        A running call is cancelled unless :attr:`Call.detached` is set; a WebSocket and an ASGI
        application see the disconnect.

        Args:
            exc: the error that ended the connection; ``None`` if either side closed it.
        """
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
        # These refer back to the connection: it would stay alive, with all bodies, until a
        # garbage collection.
        self.cycle = self.scope = self._running = None  # type: ignore[assignment]

    @override
    def shutdown(self) -> None:
        """Close the connection when the server stops, after the running answer.

        A connection whose first or next request may be arriving stays open for that request; a
        WebSocket is asked to end.
        """
        if self._running is None and (self._phase == _HEAD or not self._fed):
            return  # A request may be arriving; it gets its answer.
        if self._socket is not None:
            self._socket.end_soon()
        else:
            super().shutdown()

    def prove(self) -> None:
        """Note that a request came with a good key.

        A full server first closes connections for which this was not noted. A repeated call has no
        effect.
        """
        if self.stranger_at is not None:
            self._strangers.remove(self.stranger_at, self)
            self.stranger_at = None

    def close_now(self) -> None:
        """Close the connection at once; unsent data and pending requests are dropped."""
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
        """Parse received bytes; each complete request becomes a call, an ASGI request or a
        WebSocket.

        A head or trailer above the limits, or an unreadable request, is answered with an error
        after all earlier answers, and the connection closes; later bytes are dropped.

        Args:
            data: the bytes.
        """
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
                self._give_up(asgi.TOO_LARGE)
            elif not since and self.cycle is not None and self._running is None:
                self._expect(self.header_timeout_s)
        elif since > self.max_header_bytes + _OVERHEAD * self._came:
            self._give_up(asgi.UNREADABLE)  # The trailers or chunk extensions have no end.

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
        """Return the request's head without its ``Upgrade`` header, and install a new parser.

        The old parser takes the request for the last one in HTTP, and its body for another
        protocol's.
        """
        method, version = self.parser.get_method(), self.parser.get_http_version()
        self.parser = HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        parts = [b"%b %b HTTP/%b\r\n" % (method, self.url, version.encode())]
        parts += [b"%b: %b\r\n" % field for field in self.headers if field[0] != b"upgrade"]
        return b"".join(parts) + b"\r\n"

    @override
    def pause_writing(self) -> None:
        """Stop writing, as the client does not take its answer.

        The connection is aborted if the client takes nothing for :attr:`stalled_s` seconds.
        """
        super().pause_writing()
        self._left = self.transport.get_write_buffer_size()
        self._expect(self.stalled_s)

    @override
    def resume_writing(self) -> None:
        """Continue to write; a pipelined request begins now, or a WebSocket is read again."""
        super().resume_writing()
        if self._socket is not None:
            self.flow.resume_reading()
        elif self._running is None and self.pipeline and not self.transport.is_closing():
            self._start_asgi_task(*self.pipeline.pop())

    # Methods that the parser calls.

    @override
    def on_message_begin(self) -> None:
        """Forget URL, headers and counts of the request before; called at a new one."""
        self._phase = _HEAD
        self._mark = self._fed
        self._begun = self._chunk
        self.url = b""
        self.expect_100_continue = False
        self.headers = []
        self._hosts = self._trailers = 0
        self._codings = ()

    @override
    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header of the request, its name in lower case; trailers are counted and dropped.

        Args:
            name: the header's name, as sent.
            value: its value.

        Raises:
            ValueError: there are over 200 headers or trailers; the request is then answered with an
                error.
        """
        if self._phase != _HEAD:
            self._trailers += 1
            if self._trailers > asgi.MAX_FIELDS:
                raise ValueError(_END)
            return
        name = name.lower()
        if name == b"host":
            self._hosts += 1
        elif name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        elif name == b"transfer-encoding":
            self._codings += tuple(coding.strip() for coding in value.lower().split(b","))
        self.headers.append((name, value))
        if len(self.headers) > asgi.MAX_FIELDS:
            self._reply = asgi.TOO_LARGE
            raise ValueError(_END)

    @override
    def on_headers_complete(self) -> None:
        """Begin the request: as a call if it is a ``POST`` to a direct path, else over ASGI.

        If the server is full, the answer is 503. While an earlier answer is running, the request
        waits. An upgrade is left to :meth:`data_received`. HTTP/1.0 needs no Host header.

        Raises:
            ValueError: the head is too large, has no or several Host headers, asks for ``CONNECT``,
                another version than 1.1 or 1.0, or a transfer coding next to ``chunked``, or 100
                requests wait already; the request is then answered with an error.
        """
        if self._begun + self._fed - self._mark > self.max_header_bytes:
            size = sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size + len(self.url) > self.max_header_bytes:
                self._reply = asgi.TOO_LARGE
                raise ValueError(_END)
        version = self.parser.get_http_version()
        usual = version == "1.1" and self._hosts == 1 and len(self._codings) < 2
        if not usual and (bad := asgi.refusal_of_head(version, self._hosts, self._codings)):
            self._reply = bad
            raise ValueError(_END)
        method, upgrades, handler = self.parser.get_method(), self.parser.should_upgrade(), None
        if len(self.pipeline) >= asgi.MAX_PIPELINED or (upgrades and method == b"CONNECT"):
            raise ValueError(_END)  # The server is not a proxy.
        if upgrades:
            return  # `data_received` parses the head again without the header.
        if method == b"POST":
            handler = self._direct.get(self.url.partition(b"?")[0])
        # All connections are busy with calls if there are too many: none can be closed.
        full = len(self.connections) > self._most
        if handler is None or full:
            application = self.app
            if full:
                self.app = cast("Any", asgi.refuse_full)
            self._as_asgi()
            self.app = application
        else:
            cycle: Any = Call(self)
            self.cycle = cycle
            if self._running is None and not self.flow.write_paused:
                self._running = cycle
                cycle.start(handler)
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
        cast("dict[str, Any]", self.scope)[asgi.PROVE] = self.prove
        self.url, self.expect_100_continue = url, expect
        super().on_headers_complete()

    @override
    def on_body(self, body: bytes) -> None:
        """Hand a piece of the body to the running request.

        Args:
            body: the piece.
        """
        self._came += len(body)
        cycle: Any = self.cycle
        if type(cycle) is not Call:
            super().on_body(body)
        elif cycle.body or cycle.response_complete:
            cycle.take(body)
        else:  # Most bodies arrive in one piece.
            cycle.body = body

    @override
    def on_message_complete(self) -> None:
        """Note that the request has arrived completely, and wake a handler that reads its body.

        If its answer is already sent, the next request's time limit begins, or the connection
        closes.
        """
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

    # The order of answers.

    @override
    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._running = cycle
        if type(cycle) is Call:
            cycle.start(app)
        else:
            super()._start_asgi_task(cycle, app)

    @override
    def on_response_complete(self) -> None:
        """Begin the next pipelined request after an answer, close the connection, or wait for more.

        A client that is still sending its body is read to the end before the connection closes. The
        answer to an unreadable request is sent last. Does nothing on a lost connection.
        """
        cycle, self._running = self._running, None
        self.server_state.total_requests += 1
        if cycle is None:
            return  # The connection was lost.
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
        """Answer earlier requests, then send ``reply`` for the unreadable request, and close."""
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

    # Deadlines.

    def _expect(self, within_s: float) -> None:
        """Close the connection unless the client sends, or takes, something within ``within_s``
        seconds.

        One timer serves all requests of a connection.
        """
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
            return  # The end of the answer sets the next deadline.
        if (early_s := self._deadline - self.loop.time()) > 0.001:
            self._expect(early_s)
        elif left and left != self._left:  # A slow reader may continue; a stalled one may not.
            self._left = left
            self._expect(self.stalled_s)
        elif closing or left:
            self._gone = STOPPED_READING if answers else ""
            self.transport.abort()
        else:
            self.close_soon()

    def close_soon(self) -> None:
        """Close the connection after all written data is sent.

        The connection is aborted if the client takes nothing for :attr:`stalled_s` seconds.
        """
        self.transport.close()
        if self.parser is not None:
            self._expect(self.stalled_s)
