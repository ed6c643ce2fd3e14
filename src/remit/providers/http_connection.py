"""One HTTP/1.1 connection to a provider: requests one after the other, answers as they come."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, cast

import httptools
from multidict import CIMultiDict
from typing_extensions import override

_MOST_HEADER_BYTES = 256 * 1024
_MOST_HEADERS = 1_000
_HIGH_WATER = 256 * 1024  # bytes that wait for their reader; above it no more is read


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

    Attributes:
        status: of the answer, once :meth:`request` has returned.
        headers: of the answer, case-insensitive, a name may be there more than once.
        requests: how many have been made.
        at_end: whether all of the answer has come, and been taken.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser: Any = None
        self._pieces: deque[bytes] = deque()
        self._waiting = 0  # bytes of these
        self._waiter: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._failure: BrokenError | None = None
        self._begun = self._complete = self._interim = self._paused = self._kept = False
        self._heard = False
        self._header_bytes = 0
        self._until_closed = False
        self.requests = 0
        self.idle_since = 0.0
        self.status = 0
        self.headers: CIMultiDict[str] = CIMultiDict()

    # -- for who asks ----------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether another request may be made."""
        transport = self._transport
        return transport is not None and not transport.is_closing() and self._failure is None

    @property
    def at_end(self) -> bool:
        """Whether all of the answer has come, and been taken."""
        return self._complete and not self._pieces

    async def request(self, head: bytes, body: bytes, timeout_s: float) -> None:
        """Send a request, and wait for the headers of its answer.

        Raises:
            TimeoutError: they did not come within ``timeout_s``.
            BrokenError: nor will they.
        """
        assert self._transport is not None
        self.requests += 1
        self._begun = self._complete = self._interim = self._heard = self._until_closed = False
        self._header_bytes = 0
        self.headers = CIMultiDict()
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(head + body if len(body) < 65_536 else head)
        if len(body) >= 65_536:
            self._transport.write(body)
        while not self._begun and self._failure is None:
            await self._wait(timeout_s)
        if not self._begun:
            raise self._failure or BrokenError("closed", heard=False)

    async def piece(self, timeout_s: float) -> bytes:
        """What has come of the body; empty at its end.

        Raises:
            TimeoutError: nothing came for ``timeout_s``.
            BrokenError: it breaks off here.
        """
        while not self._pieces:
            if self._complete:
                return b""
            if self._failure is not None:
                raise self._failure
            await self._wait(timeout_s)
        piece = self._pieces.popleft() if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._waiting = 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return piece

    @property
    def can_be_kept(self) -> bool:
        """Whether the answer has ended and the server keeps the connection open."""
        if not (self.at_end and self._kept and self.is_open):
            return False
        assert self._transport is not None
        return not self._transport.get_write_buffer_size()  # else it answered before it had read

    def close(self) -> None:
        """Give the connection up, whatever is on its way."""
        if self._transport is not None:
            self._transport.abort()

    async def _wait(self, timeout_s: float) -> None:
        waiter = self._waiter = self._loop.create_future()
        timer = self._loop.call_later(timeout_s, _time_out, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiter = None

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # -- asyncio.Protocol ------------------------------------------------------------------

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    @override
    def data_received(self, data: bytes) -> None:
        self._heard = True
        if self._parser is None or self._complete:
            # An answer to nothing: whose it is cannot be known.
            self._fail(BrokenError("unasked bytes", heard=True))
            return
        if not self._begun:
            self._header_bytes += len(data)
            if self._header_bytes > _MOST_HEADER_BYTES:
                self._fail(BrokenError("endless headers", heard=True, is_http=False))
                return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._wake()
        except httptools.HttpParserError:
            self._fail(BrokenError("not HTTP", heard=True, is_http=False))

    @override
    def eof_received(self) -> bool:
        return False

    @override
    def connection_lost(self, error: Exception | None) -> None:
        if self._begun and self._until_closed and error is None and not self._complete:
            self._complete = True
            self._kept = False
            self._wake()
        elif not self._complete:
            self._fail(BrokenError(type(error).__name__ if error else "closed", heard=self._heard))
        self._transport = None

    def _fail(self, failure: BrokenError) -> None:
        if self._failure is None:
            self._failure = failure
        if self._transport is not None:
            self._transport.abort()
        self._wake()

    # -- httptools -------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """An answer begins: the one asked for, or one before it in between."""
        if self._complete:
            raise ValueError("a second answer to one request")

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, or one trailer."""
        if not self._begun:  # later ones are trailers
            if len(self.headers) >= _MOST_HEADERS:
                raise ValueError("too many headers")
            self.headers.add(name.decode("latin-1"), value.decode("utf-8", "surrogateescape"))

    def on_headers_complete(self) -> None:
        """The body follows."""
        status: int = self._parser.get_status_code()
        if 100 <= status < 200 and status != 101:
            self._interim = True
            return
        self.status = status
        self._begun = True
        headers = self.headers
        chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        bodiless = status in (204, 304)
        self._until_closed = not (chunked or bodiless or "content-length" in headers)
        self._wake()

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        self._pieces.append(data)
        self._waiting += len(data)
        if self._waiting > _HIGH_WATER and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def on_message_complete(self) -> None:
        """The body has ended."""
        if self._interim:
            self._interim = False
            self.headers = CIMultiDict()
            return
        self._kept = bool(self._parser.should_keep_alive()) and self.status != 101
        self._complete = True
        self._wake()


def _time_out(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())
