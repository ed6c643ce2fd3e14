"""HTTP/1.1 connections that may not dawdle, nor talk without end."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["GuardedProtocol"]

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


class GuardedProtocol(HttpToolsProtocol):
    """The server's protocol with two more limits, which it does not have itself.

    Attributes:
        max_header_bytes: of the request line and all headers, about.
        header_timeout_s: for them to come, from the connection's beginning or from their first
            byte.
    """

    max_header_bytes = 0
    header_timeout_s = 0.0

    _size = 0
    _in_headers = True
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """See :class:`asyncio.Protocol`."""
        super().connection_made(transport)
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """See :class:`asyncio.Protocol`."""
        self._end_wait()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See :class:`asyncio.Protocol`."""
        if self._in_headers:
            if self._deadline is None:
                self._expect_headers()
            self._size += len(data)
            # What is behind the headers is body, and has a limit of its own.
            if self._size > self.max_header_bytes and (
                self._size - len(data) > self.max_header_bytes
                or data.find(b"\r\n\r\n", 0, self.max_header_bytes) < 0
            ):
                self._end_wait()
                self.transport.write(_TOO_LARGE)
                self.transport.close()
                return
        super().data_received(data)

    def on_headers_complete(self) -> None:
        """See :class:`httptools.HttpRequestParser`."""
        self._in_headers = False
        self._end_wait()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """See :class:`httptools.HttpRequestParser`."""
        super().on_message_complete()
        self._in_headers = True
        self._size = 0

    def _expect_headers(self) -> None:
        self._deadline = self.loop.call_later(self.header_timeout_s, self._too_slow)

    def _end_wait(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        self.transport.close()
