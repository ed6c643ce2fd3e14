"""A server that answers with the very bytes a test gives it, and closes when the test says."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from remit.providers import HttpUpstream, Timeouts, UpstreamReply

__all__ = ["KEY", "PATIENT", "Connection", "RawServer", "client", "connected", "keeping", "plain",
           "posted", "raw_server"]  # fmt: skip

KEY = "sk-verysecret0123456789+/="
PATIENT = Timeouts(20, 20, 20)


@dataclass
class Connection:
    """One connection as the server sees it."""

    number: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    server: RawServer

    async def request(self) -> tuple[bytes, bytes]:
        """The next request's head and body, noted; raises ``IncompleteReadError`` at the end."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        body = await self.reader.readexactly(length)
        self.server.requests.append((head, body))
        return head, body

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """Close it so that the other side sees a reset."""
        linger = struct.pack("ii", 1, 0)
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.writer.transport.abort()


@dataclass
class RawServer:
    url: str = ""
    port: int = 0
    connections: int = 0
    requests: list[tuple[bytes, bytes]] = field(default_factory=list)
    closed: asyncio.Queue[int] = field(default_factory=asyncio.Queue)  # numbers of connections


Script = Callable[[Connection], Awaitable[None]]


@contextlib.asynccontextmanager
async def raw_server(
    script: Script, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[RawServer]:
    """Runs ``script`` for each connection, and closes it after."""
    state = RawServer()
    running: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        number = state.connections
        state.connections += 1
        try:
            await script(Connection(number, reader, writer, state))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            running.discard(task)
            state.closed.put_nowait(number)
            writer.close()
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()

    server = await asyncio.start_server(serve, host, 0, ssl=tls)
    state.port = server.sockets[0].getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    state.url = f"{'https' if tls else 'http'}://{shown}:{state.port}/v1"
    try:
        yield state
    finally:
        server.close()
        for task in list(running):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def client(server: RawServer | str) -> HttpUpstream:
    url = server if isinstance(server, str) else server.url
    return HttpUpstream(url, {"authorization": f"Bearer {KEY}", "x-api-key": KEY})


@contextlib.asynccontextmanager
async def connected(
    script: Script, host: str = "127.0.0.1"
) -> AsyncIterator[tuple[RawServer, HttpUpstream]]:
    """A server and a client of it, closed at the end."""
    async with raw_server(script, host) as server:
        upstream = client(server)
        try:
            yield server, upstream
        finally:
            await upstream.aclose()


async def keeping(connection: Connection) -> None:
    """Answers each request with its own body, on one connection."""
    while True:
        _, body = await connection.request()
        await connection.send(plain(body))


def plain(
    body: bytes, status: str = "200 OK", kind: str = "application/json", more: str = ""
) -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


async def posted(
    upstream: HttpUpstream,
    body: bytes = b"{}",
    timeouts: Timeouts = PATIENT,
    *,
    reconnect: bool = False,
    whole: bool = False,
) -> UpstreamReply:
    headers = {"content-type": "application/json"}
    return await upstream.send(
        "POST", "/chat/completions", body, headers, timeouts, reconnect=reconnect, whole=whole
    )
