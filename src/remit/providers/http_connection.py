"""One HTTP/1.1 connection to a provider: requests one after the other, answers as they come."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

import httptools
from multidict import CIMultiDict
from typing_extensions import override

from remit.providers.http_pool import HttpPool

_MOST_HEADER_BYTES = 256 * 1024
_MOST_HEADERS = 1_000
_HIGH_WATER = 256 * 1024  # bytes that wait for their reader; above it no more is read
_KEPT_S = 15.0  # servers close what waits longer
_END_S = 0.01
_TWO_WRITES = 65_536  # bytes of a body that is not copied behind its head
_FIELD = re.compile(r"([^:\r\n]+):[ \t]*([^\r\n]*)\r\n")
_BLANK = b"\r\n\r\n"


class BrokenError(Exception):
    """The connection cannot be used any more.

    Attributes:
        heard: whether any byte of an answer to the last request had come.
        is_http: whether what came was HTTP.
    """

    def __init__(self, why: str, *, heard: bool, is_http: bool = True) -> None:
        super().__init__(why)
        self.heard = heard
        self.is_http = is_http


class HttpConnection(asyncio.Protocol):
    """A connection, and the answer that is on its way over it.

    Args:
        pool: where it is kept between two requests, and which ends its waits.

    Attributes:
        begun: whether the headers of the answer have come.
        failure: why nothing more will come; ``TimeoutError`` where it did not come in time.
        status: of the answer.
        headers: of the answer, case-insensitive, a name may be there more than once.
        requests: how many have been made.
        at_end: whether all of the answer has come, and been taken.
        unused: whether no answer is waited for: it waits for the next request, or is leaving.
        deadline: when what is waited for is overdue, in the loop's time.
    """

    __slots__ = (
        "_complete", "_head", "_head_bytes", "_heard", "_idle_s", "_interim", "_interims", "_kept",
        "_leaving", "_loop", "_parser", "_pass_on", "_paused", "_pieces", "_pool", "_transport",
        "_waiter", "_waiting", "at_end", "begun", "deadline", "failure", "headers", "requests",
        "status", "unused",
    )  # fmt: skip

    def __init__(self, pool: HttpPool) -> None:
        self._pool = pool
        self._loop = asyncio.get_running_loop()  # asking costs a system call each time
        self._transport: asyncio.Transport | None = None
        self._parser: Any = None
        self._pass_on: Callable[[bytes], bool] | None = None
        self._pieces: list[bytes] = []
        self._waiting = 0  # bytes of these
        self._waiter: asyncio.Future[None] | None = None
        self._complete = self._interim = self._paused = self._kept = self._leaving = False
        self._heard = False
        self._head: list[bytes] = []
        self._head_bytes = self._interims = 0
        self._idle_s = 0.0
        self.begun = self.at_end = self.unused = False
        self.failure: BrokenError | TimeoutError | None = None
        self.requests = 0
        self.deadline = 0.0
        self.status = 0
        self.headers: Mapping[str, str] = {}

    # -- for who asks ----------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether another request may be made."""
        transport = self._transport
        return transport is not None and not transport.is_closing() and self.failure is None

    def request(self, head: bytes, body: bytes, timeout_s: float) -> asyncio.Future[None]:
        """Send a request: done once its answer has ``begun``, or there is a ``failure``."""
        transport = self._transport
        assert transport is not None
        self.requests += 1
        self._complete = self._interim = self._heard = False
        self.begun = self.at_end = self.unused = False
        self._head.clear()
        self._head_bytes = self._interims = 0
        self._parser = httptools.HttpResponseParser(self)
        waiter = self._until(timeout_s)
        if len(body) < _TWO_WRITES:
            transport.write(head + body)
        else:
            transport.write(head)
            transport.write(body)
        return waiter

    async def piece(
        self, timeout_s: float, pass_on: Callable[[bytes], bool] | None = None
    ) -> bytes:
        """What has come of the body; empty at its end.

        Args:
            timeout_s: the longest wait for more.
            pass_on: takes what comes meanwhile without this being resumed; what it refuses is
                what comes back. It does not raise.

        Raises:
            TimeoutError: nothing came for ``timeout_s``.
            BrokenError: it breaks off here.
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
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return piece

    async def release(self) -> None:
        """Let another request be made over it, where its answer ends here; else close it.

        Behind a stream's last event its end is on the way: that is waited for apart from the call.
        """
        transport = self._transport
        if self.unused:
            return
        if transport is None or self.failure is not None or transport.is_closing():
            self.close()
            return
        # What was not taken of this answer must not be there for who asks next.
        self._pieces.clear()
        self._waiting = 0
        if self._paused:
            self._paused = False
            transport.resume_reading()
        if not self._complete:
            self._leaving = True
            self._leave_unused(_END_S)
        elif self._kept and not transport.get_write_buffer_size():
            self._leave_unused(_KEPT_S)
            self._pool.kept.append(self)
        else:  # it answered before it had read
            self.close()

    async def aclose(self) -> None:
        """:meth:`close`."""
        self.close()

    def close(self) -> None:
        """Give the connection up, whatever is on its way."""
        if self._transport is not None:
            self._transport.abort()

    def overdue(self) -> None:
        """Its deadline has passed."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            self.failure = self.failure or TimeoutError()
            self._wake()
        elif self.unused:
            self.close()

    def _until(self, timeout_s: float) -> asyncio.Future[None]:
        loop = self._loop
        self.deadline = loop.time() + timeout_s
        if self._pool.timer is None:
            self._pool.watch()
        waiter = self._waiter = loop.create_future()
        return waiter

    def _leave_unused(self, timeout_s: float) -> None:
        self.unused = True
        self.deadline = self._loop.time() + timeout_s
        if self._pool.timer is None:
            self._pool.watch()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # -- asyncio.Protocol ------------------------------------------------------------------

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._pool.open.add(self)

    @override
    def data_received(self, data: bytes) -> None:
        self._heard = True
        if self._parser is None or self._complete:
            # An answer to nothing: whose it is cannot be known.
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
        if not self.begun and self._head_bytes > _MOST_HEADER_BYTES:
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
    def eof_received(self) -> bool:
        return False

    @override
    def connection_lost(self, error: Exception | None) -> None:
        self._pool.lost(self)
        self._transport = None
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
    # It reads and checks the headers. It is not asked for them, as it gives them one by one.

    def on_message_begin(self) -> None:
        """An answer begins: the one asked for, or one before it in between."""
        if self._complete:
            raise ValueError("a second answer to one request")

    def on_headers_complete(self) -> None:
        """The body follows."""
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
        if len(fields) > _MOST_HEADERS or end > _MOST_HEADER_BYTES:
            raise ValueError("too many headers")
        self.headers = CIMultiDict(fields)
        self.status = status
        self.begun = True
        self._wake()

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        self._waiting += len(data)
        if not self._leaving:
            self._pieces.append(data)
            if self._waiting > _HIGH_WATER and not self._paused and self._transport is not None:
                self._paused = True
                self._transport.pause_reading()
            if self._waiter is not None and self._pass_on is None:
                self._wake()
        elif self._waiting > _HIGH_WATER:
            self.close()

    def on_message_complete(self) -> None:
        """The body has ended."""
        if self._interim:
            self._interim = False
            return
        self._kept = bool(self._parser.should_keep_alive()) and self.status != 101
        self._complete = True
        if self._waiter is not None:
            self._wake()
        elif self._leaving:
            self._leaving = False
            if self._kept:
                self._leave_unused(_KEPT_S)
                self._pool.kept.append(self)
            else:
                self.close()
