"""A WebSocket on a client's connection (RFC 6455), by the protocol of ``websockets`` without I/O.

The socket is an answer of the HTTP connection that never ends: the connection keeps its limits,
its place among all connections and its flow control. Text messages are received whole, one at a
time. Compression is not negotiated.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from remit.server.asgi import answer_messages, dialect_of, refusal
from remit.server.in_flight_limits import SMALL_BYTES, Share
from remit.server.refusals import HttpError

if TYPE_CHECKING:
    from remit.server.connection import Connection

_PING_S = 30.0  # A client that has not answered one ping when the next is due is gone.
_MAX_WAITING = 4  # messages received and not yet read
_STEP_BYTES = 16 * 1024  # received bytes whose frames are read at once
_MAX_FRAGMENTS = 1000  # Each short fragment of a message costs as much as a long one.
_SHORT_BYTES = 256
_HANDSHAKE = (b"host", b"upgrade", b"connection", b"sec-websocket-key", b"sec-websocket-version")
_CONTROL = (Opcode.PING, Opcode.PONG, Opcode.CLOSE)

SocketHandler = Callable[["WebSocket"], Awaitable[None]]


class WebSocket:
    """A WebSocket of a client, from its handshake to its close.

    For the connection the WebSocket takes the place of a call in progress. The handler accepts or
    refuses the handshake, then receives and sends until it returns. A client that answers no ping
    for 30 s is disconnected.

    Args:
        connection: the client's connection, whose request is the handshake.
        early: bytes that followed the request.
        max_bytes: longest message, in bytes.

    Attributes:
        path: path of the request, without its query.
        query: the query of the URL, as the client wrote it; empty for none.
        headers: headers of the handshake, names in lower case.
        response_started: True after the handshake was answered.
        keep_alive: always False: no request follows on this connection.
    """

    def __init__(self, connection: Connection, early: bytes, max_bytes: int) -> None:
        path, _, query = connection.url.partition(b"?")
        self.path, self.query = path.decode("latin-1"), query.decode("latin-1")
        self.headers: list[tuple[bytes, bytes]] = connection.headers
        self.response_started = self.response_complete = False
        self.keep_alive = False
        self._connection = connection
        self._protocol = ServerProtocol(max_size=max_bytes)
        self._early = early
        self._messages: deque[bytes] = deque()
        self._unfinished = bytearray()  # the fragments of the message that is being received
        self._fragments = 0
        self._share: Share | None = None
        self._unread = self._remembered = 0  # bytes of messages, and bytes that the handler keeps
        self._reader: asyncio.Future[None] | None = None
        self._ping: asyncio.TimerHandle | None = None
        self._pongs_missing = 0
        self._task: asyncio.Task[None] | None = None
        self._on_close: Callable[[], None] | None = None
        self._ends_soon = False

    def start(self, handler: SocketHandler) -> None:
        """Start the handler in a task; the connection closes when the handler returns.

        Args:
            handler: serves the WebSocket; it must accept or refuse the handshake.
        """
        task = self._task = self._connection.loop.create_task(self._run(handler))
        self._connection.tasks.add(task)
        task.add_done_callback(self._connection.tasks.discard)

    async def _run(self, handler: SocketHandler) -> None:
        try:
            await handler(self)
        finally:
            self.close(CloseCode.NORMAL_CLOSURE if self.response_started else CloseCode.GOING_AWAY)
            self.response_complete = True
            if self._ping is not None:
                self._ping.cancel()
            self._connection.on_response_complete()

    # The handshake.

    def prove(self) -> None:
        """Record that the client showed a valid key, so that the connection keeps its place."""
        self._connection.prove()

    def accept(self, share: Share) -> bool:
        """Answer the handshake with 101, begin to send pings, and process bytes that came early.

        Args:
            share: counts the bytes of messages that arrive or wait.

        Returns:
            False if the handshake was bad; it was answered with 4xx.
        """
        self._share = share
        head = [b"%b: %b\r\n" % field for field in self.headers if field[0] in _HANDSHAKE]
        self._protocol.receive_data(b"GET / HTTP/1.1\r\n" + b"".join(head) + b"\r\n")
        for request in self._protocol.events_received():
            assert isinstance(request, Request)
            self._protocol.send_response(self._protocol.accept(request))
        self.response_started = True
        self._flush()
        if self._protocol.state is not State.OPEN:
            return False
        self._schedule_ping()
        self._connection.flow.resume_reading()
        if self._early:
            self.data_received(self._early)
        return True

    def refuse(self, error: HttpError) -> None:
        """Answer the handshake with an HTTP refusal.

        The connection closes once the handler has returned.

        Args:
            error: the refusal, answered in the dialect of the path.
        """
        self.response_started = True
        head, body = answer_messages(refusal(dialect_of(self.path, self.headers), error))
        lines = [b"HTTP/1.1 %d " % head["status"]]
        lines += [b"%b: %b" % field for field in head["headers"] if field[0] != b"connection"]
        text = b"\r\n".join([*lines, b"connection: close", b"", body["body"]])
        self._connection.transport.write(text)

    # Messages.

    async def receive(self) -> bytes | None:
        """Return the next text message in UTF-8; None after the close of the connection.

        Waits without a limit. None is also returned if no message waits after :meth:`end_soon`.
        Reading from the client resumes if it was paused for unread messages.
        """
        while not self._messages:
            if self._protocol.state is not State.OPEN or self._ends_soon:
                return None
            self._reader = self._connection.loop.create_future()
            await self._reader
        message = self._messages.popleft()
        self._unread -= len(message)
        self._count()
        if len(self._messages) < _MAX_WAITING and self._connection.flow.read_paused:
            self._connection.flow.resume_reading()
        return message

    def send(self, text: bytes) -> None:
        """Send a text message; do nothing if the connection is closed.

        Args:
            text: the message in UTF-8.
        """
        if self._protocol.state is State.OPEN:
            self._protocol.send_text(text)
            self._flush()

    def remember(self, size: int) -> None:
        """Count the bytes that the handler keeps between messages, in place of an earlier number.

        Args:
            size: number of bytes; 0 needs no room.

        Raises:
            HttpError: 429 or 503, there is no room for more bytes; then none are counted.
        """
        self._remembered = size
        try:
            self._count()
        except HttpError:
            self._remembered = 0
            raise

    @property
    def full(self) -> bool:
        """True if the client reads more slowly than messages are sent."""
        return self._connection.flow.write_paused

    async def drain(self) -> None:
        """Wait until the connection accepts more data."""
        await self._connection.flow.drain()

    def on_close(self, callback: Callable[[], None] | None) -> None:
        """Call ``callback`` when the client closes or loses the connection; None removes it.

        An earlier callback is replaced. A close before this call is not reported.

        Args:
            callback: takes no arguments; runs in the event loop, perhaps several times.
        """
        self._on_close = callback

    def close(self, code: int) -> None:
        """Send a close frame and wake the reader; send none if the socket is not open.

        Args:
            code: a code of RFC 6455, 7.4.
        """
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(code)
            self._flush()
        self._wake()

    @property
    def ends_soon(self) -> bool:
        """True if the server stops: no further message shall be answered."""
        return self._ends_soon

    def end_soon(self) -> None:
        """Ask the handler to end after the answer in progress, because the server stops.

        Sets :attr:`ends_soon` and wakes the reader; the handler closes the connection.
        """
        self._ends_soon = True
        self._wake()

    def stop(self, why: str) -> None:
        """Cancel the handler; ``why`` becomes the argument of its CancelledError.

        Args:
            why: reason of the cancellation.
        """
        if self._task is not None:
            self._task.cancel(why)

    # Calls of the connection.

    def hang_up(self, why: str) -> None:
        """Treat the connection as lost: drop waiting messages, call the callback of
        :meth:`on_close`, and wake the reader.

        Args:
            why: the reason; not used.
        """
        self._protocol.receive_eof()
        self._closed()

    def data_received(self, data: bytes) -> None:
        """Process bytes from the client; bytes before the handshake's answer are stored.

        Messages wait for :meth:`receive`. A message that is not UTF-8 text, breaks the protocol,
        consists of over 1,000 fragments with fewer than 256 bytes on average, or finds no room in
        memory, closes the socket. Reading pauses if too many messages wait.

        Args:
            data: the bytes.
        """
        if not self.response_started:
            self._early += data
            self._connection.flow.pause_reading()
            return
        try:
            for start in range(0, len(data), _STEP_BYTES):
                self._protocol.receive_data(data[start : start + _STEP_BYTES])
                for event in self._protocol.events_received():
                    assert isinstance(event, Frame)
                    self._take(event)
                if self._protocol.state is not State.OPEN:
                    break
            self._count()
        except HttpError as error:
            self._protocol.fail(CloseCode.TRY_AGAIN_LATER, f"{error.code}: no memory for a message")
        except UnicodeDecodeError:
            self._protocol.fail(CloseCode.INVALID_DATA, "A message must be UTF-8 text.")
        self._flush()
        if self._protocol.state is not State.OPEN:
            self._closed()
        elif len(self._messages) >= _MAX_WAITING or self._connection.flow.write_paused:
            self._connection.flow.pause_reading()

    def _take(self, frame: Frame) -> None:
        if frame.opcode is Opcode.PONG:
            self._pongs_missing = 0
        if frame.opcode in _CONTROL:
            return  # answered by the protocol
        if frame.opcode is Opcode.BINARY:
            self._protocol.fail(CloseCode.UNSUPPORTED_DATA, "Messages must be text.")
        self._unfinished += frame.data
        self._unread += len(frame.data)
        self._fragments += 1
        if self._fragments > _MAX_FRAGMENTS + len(self._unfinished) // _SHORT_BYTES:
            self._protocol.fail(CloseCode.POLICY_VIOLATION, "A message has too many fragments.")
        if frame.fin:
            message = bytes(self._unfinished)
            self._unfinished = bytearray()
            self._fragments = 0
            message.decode()
            self._messages.append(message)
            self._wake()

    def _count(self) -> None:
        """Count the bytes in memory; raise HttpError if they find no room."""
        size = self._unread + len(self._protocol.reader.buffer) + self._remembered
        if self._share is not None and (size > SMALL_BYTES or self._share.size):
            self._share.resize(size if size > SMALL_BYTES else 0)

    def _closed(self) -> None:
        self._messages.clear()
        self._unfinished.clear()
        self._unread = 0
        if self._on_close is not None:
            self._on_close()
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._connection.transport.write(data)
            elif self._connection.transport.can_write_eof():
                self._connection.transport.write_eof()

    def _schedule_ping(self) -> None:
        self._ping = self._connection.loop.call_later(_PING_S, self._send_ping)

    def _send_ping(self) -> None:
        if self._connection.flow.read_paused:
            self._pongs_missing = 0  # An answer may be in the part that is not read yet.
        if self._protocol.state is not State.OPEN or self._pongs_missing:
            self._connection.transport.abort()
            return
        self._pongs_missing += 1
        self._protocol.send_ping(b"")
        self._flush()
        self._schedule_ping()


async def refuse_socket(socket: WebSocket) -> None:
    """Answer 426 to a WebSocket handshake on a path without WebSockets.

    Clients such as Codex continue over HTTP after this status.

    Args:
        socket: the WebSocket, whose handshake is not answered yet.
    """
    said = f"{socket.path[:200]} has no WebSocket; send the request over HTTP."
    socket.refuse(HttpError(426, "websocket_unsupported", said))
