"""Sockets, connections and the HTTP server's configuration of ``remit serve`` and ``remit mcp``."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Any

from typing_extensions import override
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from remit.kernel.errors import RemitError
from remit.kernel.settings import ServerSettings


class ServerError(RemitError):
    """The server cannot start."""


def listen(host: str, port: int, backlog: int) -> socket.socket:
    """A socket that listens: clients may connect before the server runs.

    Raises:
        ServerError: the address cannot be listened on.
    """
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(backlog)
    except OSError as error:
        listening.close()
        raise ServerError(
            f"{host}:{port} cannot be listened on: {error.strerror}.",
            next_step="Choose another --port, or end what listens there.",
        ) from error
    listening.set_inheritable(True)
    return listening


def url_of(listening: socket.socket) -> str:
    """The URL of a listening socket, without a path."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def require_loopback(host: str) -> None:
    """Dev mode accepts everyone, so it listens on loopback only.

    Raises:
        ServerError: ``host`` is another address.
    """
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if not loopback:
        raise ServerError(
            f"Dev mode lets everybody in, so it listens on loopback only, not on {host}.",
            next_step="Leave out --dev and make keys with `remit key create`.",
        )


def http_config(application: Any, settings: ServerSettings, **more: Any) -> Config:
    """uvicorn's configuration with Remit's limits on connections, headers and time."""
    limit_headers(settings)
    return Config(
        application,
        http=GuardedProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=settings.max_connections,
        timeout_keep_alive=settings.keep_alive_s,
        timeout_graceful_shutdown=settings.drain_s,
        backlog=settings.max_connections,
        **more,
    )


def limit_headers(settings: ServerSettings) -> None:
    """Set the limits of this process's connections."""
    GuardedProtocol.max_header_bytes = settings.max_header_bytes
    GuardedProtocol.header_timeout_s = settings.header_timeout_s


_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with two limits that it does not have.

    Attributes:
        max_header_bytes: of the request line and all headers, about.
        header_timeout_s: for them to come, from the connection's beginning or from their first
            byte.
    """

    max_header_bytes = 0
    header_timeout_s = 0.0

    _size = 0
    _tail = b""
    _in_headers = True
    _deadline: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect_headers()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        if self._in_headers and not self._size:
            data = data.lstrip(b"\r\n")  # empty lines before a request say nothing (RFC 9112, 2.2)
            if not data:
                return
        if self._in_headers:
            if self._deadline is None:
                self._expect_headers()
            before, self._size = self._size, self._size + len(data)
            seen = self._tail + data
            self._tail = seen[-3:]
            # What follows the headers is body, and has a limit of its own.
            if self._size > self.max_header_bytes and (
                before > self.max_header_bytes
                or seen.find(b"\r\n\r\n", 0, self.max_header_bytes) < 0
            ):
                self._stop_timer()
                self.transport.write(_TOO_LARGE)
                self.transport.close()
                return
        super().data_received(data)

    @override
    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._stop_timer()
        super().on_headers_complete()

    @override
    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_headers = True
        self._size = 0
        self._tail = b""

    def _expect_headers(self) -> None:
        self._deadline = self.loop.call_later(self.header_timeout_s, self._too_slow)

    def _stop_timer(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        if self.cycle is not None and not self.cycle.response_complete:
            self._expect_headers()  # an answer is under way and must not be cut off
        else:
            self.transport.close()
