"""An HTTP/1.1 connection to a provider: one request at a time, and the answer as it arrives."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Any, cast

import httptools
from multidict import CIMultiDict
from typing_extensions import override

_MAX_HEADER_BYTES = 256 * 1024
_MAX_HEADERS = 1_000
_HIGH_WATER = 256 * 1024
"""Bytes that may wait for their reader; above it the connection is not read."""

_IDLE_S = 15.0  # Servers close connections that are idle for longer.
_END_S = 0.01
_TOGETHER_S = 0.1
"""The longest delay of a deadline; a timer for each wait would cost more than the wait."""
_COPY_BYTES = 65_536
"""Bodies below this size are copied behind the head, so that one write sends both."""

_FIELD = re.compile(r"([^:\r\n]+):[ \t]*([^\r\n]*)\r\n")
_BLANK = b"\r\n\r\n"


class BrokenError(Exception):
    """The connection cannot be used any more.

    Attributes:
        heard: True if a byte of an answer to the last request had come.
        is_http: True if the received bytes were HTTP.
    """

    def __init__(self, why: str, *, heard: bool, is_http: bool = True) -> None:
        super().__init__(why)
        self.heard = heard
        self.is_http = is_http


class HttpPool:
    """The connections of the running loop to one server, which callers open, with one timer.

    Attributes:
        kept: idle connections, the latest last.
        open: all open connections.
        due: time of the next check of deadlines, in the loop's time; infinite without one.
        with_loop: the generator that ends with the loop and closes all connections.
    """

    __slots__ = ("_loop", "_timer", "due", "kept", "open", "with_loop")

    def __init__(self) -> None:
        self.kept: list[HttpConnection] = []
        self.open: set[HttpConnection] = set()
        self.due = math.inf
        self.with_loop: AsyncGenerator[None, None] | None = None
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def take(self) -> HttpConnection | None:
        """Remove and return the most recent usable idle connection; ``None`` if there is none."""
        while self.kept:
            connection = self.kept.pop()
            transport = connection.transport
            if transport is not None and not transport.is_closing() and connection.failure is None:
                return connection
            connection.close()
        return None

    def lost(self, connection: HttpConnection) -> None:
        """Forget a connection that has ended; without any open one the timer is cancelled too."""
        self.open.discard(connection)
        if connection in self.kept:
            self.kept.remove(connection)
        if not self.open and self._timer is not None:
            self._timer.cancel()
            self.due, self._timer = math.inf, None

    def close(self) -> None:
        """Close all connections without a pending answer; the others stay open."""
        for connection in tuple(self.open):
            if connection.unused:
                connection.close()
        self.kept.clear()

    def abort(self) -> None:
        """Close all connections."""
        for connection in tuple(self.open):
            connection.close()
        self.kept.clear()

    def check_by(self, deadline: float) -> None:
        """Plan a check of all deadlines at ``deadline`` (the loop's time), unless one is before."""
        if deadline < self.due:
            if self._timer is not None:
                self._timer.cancel()
            self.due, self._timer = deadline, self._loop.call_at(deadline, self._check)

    def _check(self) -> None:
        now, self.due, self._timer = self._loop.time(), math.inf, None
        for connection in tuple(self.open):
            if connection.deadline <= now:
                connection.overdue()
        following = min((one.deadline for one in self.open), default=math.inf)
        if following < math.inf:  # Several deadlines that are close to each other share a check.
            self.check_by(max(following, now + _TOGETHER_S))


class HttpConnection(asyncio.Protocol):
    """An asyncio protocol for one request at a time, with the answer that is arriving.

    Args:
        pool: the pool that stores the connection between two requests and ends its waits.

    Attributes:
        begun: True if the headers of the answer have come.
        failure: the reason for which nothing more will come; ``None`` if there is none.
        status: HTTP status of the answer.
        transport: the transport; ``None`` before the connection is made and after it is lost.
        headers: headers of the answer, case-insensitive; a name may occur more than once.
        requests: number of requests so far.
        at_end: True if the whole answer has come and has been taken.
        unused: True between :meth:`leave` and the next request.
        deadline: time at which the present wait is overdue, in the loop's time.
    """

    __slots__ = (
        "_complete", "_full", "_head", "_head_bytes", "_heard", "_idle_s", "_interim", "_interims",
        "_kept", "_leaving", "_loop", "_parser", "_pass_on", "_paused", "_pieces", "_pool",
        "_uploading", "_waiter", "_waiting", "_whole", "at_end", "begun", "deadline", "failure",
        "headers", "requests", "status", "transport", "unused",
    )  # fmt: skip

    def __init__(self, pool: HttpPool) -> None:
        self._pool = pool
        self._loop = asyncio.get_running_loop()  # Each query costs a system call.
        self.transport: asyncio.Transport | None = None
        self._parser: Any = None
        self._pass_on: Callable[[bytes], bool] | None = None
        self._pieces: list[bytes] = []
        self._waiting = 0
        self._waiter: asyncio.Future[None] | None = None
        self._complete = self._interim = self._paused = self._kept = self._leaving = False
        self._heard = self._uploading = self._whole = False
        self._full: asyncio.Future[None] | None = None  # Done once more can be written.
        self._head: list[bytes] = []
        self._head_bytes = self._interims = 0
        self._idle_s = 0.0
        self.begun = self.at_end = self.unused = False
        self.failure: BrokenError | TimeoutError | None = None
        self.requests = 0
        self.deadline = 0.0
        self.status = 0
        self.headers: Mapping[str, str] = {}

    # -- requests --------------------------------------------------------------------------

    def request(
        self, head: bytes, body: bytes, timeout_s: float, whole_s: float | None = None
    ) -> asyncio.Future[None]:
        """Send a request; return a future that is done once ``begun`` or ``failure`` is set.

        The connection must be open. The future has no exception; see ``failure``.

        Args:
            head: request line and headers.
            body: the body.
            timeout_s: longest wait for the headers of the answer, in seconds.
            whole_s: longest wait between two pieces, in seconds. The future is then done only when
                the answer is complete, broken or above 256 KiB. None to wait for the headers alone.
        """
        transport = self.transport
        assert transport is not None
        self.requests += 1
        self._complete = self._interim = self._heard = False
        self.begun = self.at_end = self.unused = False
        self._head.clear()
        self._head_bytes = self._interims = 0
        self._parser = httptools.HttpResponseParser(self)
        self._whole = whole_s is not None
        self._idle_s = whole_s or 0.0
        self.deadline = deadline = self._loop.time() + timeout_s
        if deadline < self._pool.due:
            self._pool.check_by(deadline)
        waiter = self._waiter = self._loop.create_future()
        if len(body) < _COPY_BYTES:
            transport.write(head + body)
        else:
            transport.write(head)
            transport.write(body)
        return waiter

    async def upload(self, head: bytes, pieces: AsyncIterator[bytes], timeout_s: float) -> None:
        """Send a request whose body is made piece by piece; return as :meth:`request` is done.

        The server sets the pace. An answer or failure before the end of the body ends the upload,
        and the connection is then not used again.

        Args:
            head: request line and headers.
            pieces: the body, framed as the head says. Its exceptions are raised: close then.
            timeout_s: most seconds for the server to take a piece, and then to begin its answer.
        """
        waiter = self.request(head, b"", timeout_s)
        self._uploading = True
        self.deadline = math.inf  # The client may pause.
        async for piece in pieces:
            if waiter.done() or self.transport is None:
                break
            self.transport.write(piece)
            if (full := self._full) is not None:
                self._expect(timeout_s)
                await asyncio.wait((full, waiter), return_when=asyncio.FIRST_COMPLETED)
                self.deadline = math.inf
        else:
            self._uploading = False
            self._expect(timeout_s)
        await waiter

    @override
    def pause_writing(self) -> None:
        self._full = self._loop.create_future()

    @override
    def resume_writing(self) -> None:
        full, self._full = self._full, None
        if full is not None and not full.done():
            full.set_result(None)

    async def piece(
        self, timeout_s: float, pass_on: Callable[[bytes], bool] | None = None
    ) -> bytes:
        """Return the next bytes of the body, also those before a failure; empty at its end.

        Args:
            timeout_s: longest wait for more bytes, in seconds.
            pass_on: takes bytes as they arrive, without a switch of tasks. Bytes that it refuses
                are returned from here. It must not raise.

        Raises:
            TimeoutError: nothing came for ``timeout_s`` seconds.
            BrokenError: the connection broke.
        """
        pieces = self._pieces
        while not pieces:
            if self._complete:
                self.at_end = True
                return b""
            if self.failure is not None:
                raise self.failure
            self._pass_on, self._idle_s = pass_on, timeout_s
            try:
                await self._until(timeout_s)
            finally:
                self._pass_on = None
        piece = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._waiting = 0
        self.at_end = self._complete
        if self._paused and self.transport is not None:
            self._paused = False
            self.transport.resume_reading()
        return piece

    def whole_body(self) -> bytes | None:
        """Return the body and release the connection; None if incomplete, failed or closed."""
        if not self._complete or self.transport is None or self.failure is not None:
            return None
        pieces = self._pieces
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self.at_end = True
        self.leave()
        return body

    async def release(self) -> None:
        """Do as :meth:`leave`."""
        self.leave()

    def leave(self) -> None:
        """Return the connection to its pool if the answer has ended; close it otherwise.

        Unread bytes are discarded. The end may arrive just after a stream's last event, so the
        connection waits up to 10 ms for it, without delaying the caller. A connection that failed,
        that the server does not keep, or whose request was not sent whole is closed. Does nothing
        if no answer is awaited.
        """
        transport = self.transport
        if self.unused:
            return
        if transport is None or self.failure is not None or transport.is_closing():
            self.close()
            return
        # The next request must not see bytes of this answer.
        self._pieces.clear()
        self._waiting = 0
        if self._paused:
            self._paused = False
            transport.resume_reading()
        if not self._complete:
            self._leaving = self.unused = True
            self._expect(_END_S)
        elif self._kept and not transport.get_write_buffer_size():
            self.unused = True
            self._expect(_IDLE_S)
            self._pool.kept.append(self)
        else:  # The server answered before it had read the request.
            self.close()

    async def aclose(self) -> None:
        """Close the connection, as :meth:`close`."""
        self.close()

    def close(self) -> None:
        """Abort the connection and discard bytes in transit."""
        if self.transport is not None:
            self.transport.abort()

    def overdue(self) -> None:
        """End the wait: wake its caller with a TimeoutError, or close an unused connection."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            self.failure = self.failure or TimeoutError()
            self._wake()
        elif self.unused:
            self.close()

    def _until(self, timeout_s: float) -> asyncio.Future[None]:
        self._expect(timeout_s)
        waiter = self._waiter = self._loop.create_future()
        return waiter

    def _expect(self, within_s: float) -> None:
        """Set the deadline of the present wait."""
        self.deadline = deadline = self._loop.time() + within_s
        if deadline < self._pool.due:
            self._pool.check_by(deadline)

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        self._whole = False
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # -- asyncio.Protocol ------------------------------------------------------------------

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._pool.open.add(self)

    @override
    def data_received(self, data: bytes) -> None:
        """Parse received bytes, and pass the body on or keep it for :meth:`piece`.

        Sets ``failure`` and closes the connection on bytes that are not HTTP or belong to no open
        request, and on headers of over 256 KiB.
        """
        self._heard = True
        if self._parser is None or self._complete:
            # No request is open, so the bytes belong to no caller.
            self._fail(BrokenError("unasked bytes", heard=True))
            return
        if not self.begun:
            self._head.append(data)
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._wake()
        except httptools.HttpParserError:
            self._fail(BrokenError("not HTTP", heard=True, is_http=False))
        if not self.begun and self._head_bytes > _MAX_HEADER_BYTES:
            self._fail(BrokenError("endless headers", heard=True, is_http=False))
        elif self._pass_on is not None and (pieces := self._pieces):
            piece = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            if not self._paused and self._pass_on(piece):
                pieces.clear()
                self._waiting = 0
                self.deadline = self._loop.time() + self._idle_s
            else:
                self._pass_on = None
                self._wake()

    @override
    def connection_lost(self, error: Exception | None) -> None:
        """Leave the pool; end an incomplete answer and wake its caller.

        An answer without a length whose headers have come is then complete if the server closed in
        order. Otherwise ``failure`` becomes a BrokenError, unless it is set.
        """
        self._pool.lost(self)
        self.transport = None
        if self._complete:
            return
        if self.begun and error is None and self._ends_by_closing():
            self._complete = True
            self._kept = False
            self._wake()
        else:
            self._fail(BrokenError(type(error).__name__ if error else "closed", heard=self._heard))

    def _ends_by_closing(self) -> bool:
        headers = self.headers
        return not (
            self.status in (204, 304)
            or "content-length" in headers
            or "chunked" in headers.get("transfer-encoding", "").lower()
        )

    def _fail(self, failure: BrokenError) -> None:
        if self.failure is None:
            self.failure = failure
        self.close()
        self._wake()

    # -- httptools -------------------------------------------------------------------------
    # The parser checks the headers. Reading them from the bytes is faster than its callbacks.

    def on_message_begin(self) -> None:
        """Raise ValueError at a second answer to one request."""
        if self._complete:
            raise ValueError("a second answer to one request")

    def on_headers_complete(self) -> None:
        """Store status and headers of an answer, note that it has ``begun``, and wake the caller.

        A caller of the whole answer is not woken. Interim answers (1xx but 101) are skipped.

        Raises:
            ValueError: over 1,000 headers or 256 KiB of them; the parser then fails.
        """
        status: int = self._parser.get_status_code()
        if 100 <= status < 200 and status != 101:
            self._interim = True
            self._interims += 1
            return
        head = b"".join(self._head).lstrip(b"\r\n")
        self._head.clear()
        for _ in range(self._interims):
            head = head[head.index(_BLANK) + 4 :].lstrip(b"\r\n")
        start, end = head.index(b"\r\n") + 2, head.index(_BLANK) + 2
        fields = _FIELD.findall(head[start:end].decode("utf-8", "surrogateescape"))
        if len(fields) > _MAX_HEADERS or end > _MAX_HEADER_BYTES:
            raise ValueError("too many headers")
        self.headers = CIMultiDict(fields)
        self.status = status
        self.begun = True
        if self._whole:
            self._expect(self._idle_s)
        else:
            self._wake()

    def on_body(self, data: bytes) -> None:
        """Store bytes of the body and wake the reader; pause reading if more than 256 KiB wait.

        A caller of the whole answer is woken only above 256 KiB; other bytes extend its deadline.
        After :meth:`leave` the bytes are discarded, and more than 256 KiB close the connection.
        """
        self._waiting += len(data)
        if not self._leaving:
            self._pieces.append(data)
            if self._waiting > _HIGH_WATER and not self._paused and self.transport is not None:
                self._paused = True
                self.transport.pause_reading()
            if self._whole and not self._paused:
                self.deadline = self._loop.time() + self._idle_s
            elif self._waiter is not None and self._pass_on is None:
                self._wake()
        elif self._waiting > _HIGH_WATER:
            self.close()

    def on_message_complete(self) -> None:
        """Note the end of the answer, unless it is an interim one, and wake a waiting reader.

        After :meth:`leave` return to the pool; close if the connection cannot be used again.
        """
        if self._interim:
            self._interim = False
            return
        keeps = bool(self._parser.should_keep_alive()) and not self._uploading
        self._kept = keeps and self.status != 101
        self._complete = True
        if self._waiter is not None:
            self._wake()
        elif self._leaving:
            self._leaving = False
            if self._kept:
                self._expect(_IDLE_S)
                self._pool.kept.append(self)
            else:
                self.close()
