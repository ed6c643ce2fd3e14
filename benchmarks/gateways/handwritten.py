"""The recording floor: a proxy written by hand, protocols on both sides, and what it records.

    python handwritten.py --port PORT --upstream URL --key KEY [--record FILE]

For each call: the key is checked, the body's JSON read once, and with ``--record`` one record
made durable before the upstream is asked and one before the answer (of a stream: its end) goes
out. A record's hash covers the hash before it; all that wait share a transaction (SQLite, one
table, WAL, ``synchronous=FULL``). No budgets, routes, retries, indexes or observers.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import itertools
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import cast
from urllib.parse import urlsplit

import httptools
import orjson
import uvloop

HEAD = b"HTTP/1.1 %d OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
BACKLOG = 1024
Waiting = tuple[bytes, Callable[[], None]]


class Recorder:
    """A thread that commits all records that wait, each chained to the one before.

    Args:
        path: of the SQLite file to make.
        loop: runs what waits for a record.
    """

    def __init__(self, path: str, loop: asyncio.AbstractEventLoop) -> None:
        self._path = path
        self._loop = loop
        self._waiting: queue.SimpleQueue[Waiting] = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def append(self, record: bytes, durable: Callable[[], None]) -> None:
        """Have a record written; ``durable`` is called on the loop when it is."""
        self._waiting.put((record, durable))

    def _work(self) -> None:
        database = sqlite3.connect(self._path, isolation_level=None)
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        database.execute("CREATE TABLE records (seq INTEGER PRIMARY KEY, hash BLOB, record BLOB)")
        head = bytes(32)
        while True:
            batch = [self._waiting.get()]
            while not self._waiting.empty():
                batch.append(self._waiting.get())
            rows = []
            for record, _ in batch:
                head = hashlib.sha256(head + record).digest()
                rows.append((head, record))
            database.execute("BEGIN IMMEDIATE")
            database.executemany("INSERT INTO records (hash, record) VALUES (?, ?)", rows)
            database.execute("COMMIT")
            self._loop.call_soon_threadsafe(_go_on, batch)


def _go_on(batch: list[Waiting]) -> None:
    for _, durable in batch:
        durable()


class Proxy:
    """What all connections share.

    Args:
        upstream: the base URL.
        key: that callers must have.
        record: file of the records; None records nothing.
    """

    def __init__(self, upstream: str, key: str, record: str | None) -> None:
        parts = urlsplit(upstream)
        self.address = (parts.hostname or "", parts.port or 80)
        self.host = parts.netloc.encode()
        self.keys = {hashlib.sha256(key.encode()).digest()}
        self.idle: list[Upstream] = []
        self.calls = itertools.count()
        self.loop = asyncio.get_running_loop()
        self._recorder = Recorder(record, self.loop) if record else None

    def append(self, record: bytes, durable: Callable[[], None]) -> None:
        """Record where records are kept; then, or else at once, go on."""
        if self._recorder:
            self._recorder.append(record, durable)
        else:
            durable()

    def ask(self, caller: Caller) -> None:
        """Send a caller's request on a connection that is free, or a new one."""
        if self.idle:
            self.idle.pop().send(caller)
        else:
            caller.connecting = self.loop.create_task(self._connect(caller))

    async def _connect(self, caller: Caller) -> None:
        _, upstream = await self.loop.create_connection(lambda: Upstream(self), *self.address)
        upstream.send(caller)


class Caller(asyncio.Protocol):
    """A client's connection, which has one call at a time."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._parser = httptools.HttpRequestParser(self)
        self.connecting: asyncio.Task[None] | None = None
        self.path = b""
        self.body = b""
        self._key = b""
        self._call = 0
        self._answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop, as the next two."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Read on."""
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        """Called by the parser, as the next four."""
        self._key = self.body = b""

    def on_url(self, url: bytes) -> None:
        """The path."""
        self.path = url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Only the key matters."""
        if name.lower() == b"authorization":
            self._key = value.removeprefix(b"Bearer ")

    def on_body(self, body: bytes) -> None:
        """A piece of it."""
        self.body += body

    def on_message_complete(self) -> None:
        """Check, read, record, ask."""
        if hashlib.sha256(self._key).digest() not in self._proxy.keys:
            self._transport.write(HEAD % (401, 2) + b"{}")
            return
        model = orjson.dumps(orjson.loads(self.body)["model"])
        self._call = next(self._proxy.calls)
        self._proxy.append(
            b'{"type":"DISPATCH","call":%d,"at":%.6f,"model":%b,"request":%b}'
            % (self._call, time.time(), model, self.body),
            self._dispatched,
        )

    def _dispatched(self) -> None:
        self._proxy.ask(self)

    def begin_stream(self) -> None:
        """The upstream streams."""
        self._transport.write(STREAM_HEAD)

    def chunk(self, body: bytes) -> None:
        """Pass a piece of a stream on."""
        self._transport.write(b"%x\r\n%b\r\n" % (len(body), body))

    def answered(self, status: int, body: bytes, streamed: bool) -> None:
        """The upstream has answered: record that, and let the client have it, or its end."""
        self._answer = b"0\r\n\r\n" if streamed else HEAD % (status, len(body)) + body
        self._proxy.append(
            b'{"type":"EXCHANGE","call":%d,"at":%.6f,"status":%d,"answer":%b}'
            % (self._call, time.time(), status, body),
            self._recorded,
        )

    def _recorded(self) -> None:
        self._transport.write(self._answer)


class Upstream(asyncio.Protocol):
    """A connection to the upstream, in :attr:`Proxy.idle` while nobody has it."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._caller: Caller | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop, as the next two."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        """A call that waits is told; else nobody has it any more."""
        if self._caller:
            self._caller.answered(502, b"{}", streamed=False)
        elif self in self._proxy.idle:
            self._proxy.idle.remove(self)

    def data_received(self, data: bytes) -> None:
        """Read on."""
        self._parser.feed_data(data)

    def send(self, caller: Caller) -> None:
        """Ask for a caller."""
        self._caller = caller
        self._parser = httptools.HttpResponseParser(self)
        self._body = b""
        self._streams = False
        self._transport.write(
            b"POST %b HTTP/1.1\r\nhost: %b\r\nauthorization: Bearer x\r\n"
            b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
            % (caller.path, self._proxy.host, len(caller.body), caller.body)
        )

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser, as the next two."""
        if name.lower() == b"content-type" and value.startswith(b"text/event-stream"):
            self._streams = True
            assert self._caller
            self._caller.begin_stream()

    def on_body(self, body: bytes) -> None:
        """A piece of it."""
        self._body += body
        if self._streams:
            assert self._caller
            self._caller.chunk(body)

    def on_message_complete(self) -> None:
        """Free for the next call."""
        caller, self._caller = self._caller, None
        self._proxy.idle.append(self)
        assert caller
        caller.answered(self._parser.get_status_code(), self._body, self._streams)


async def serve(given: argparse.Namespace) -> None:
    """Until the process is ended."""
    proxy = Proxy(given.upstream, given.key, given.record)
    server = await proxy.loop.create_server(
        lambda: Caller(proxy), "127.0.0.1", given.port, backlog=BACKLOG
    )
    await server.serve_forever()


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(prog="handwritten.py")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--record", metavar="FILE")
    uvloop.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
