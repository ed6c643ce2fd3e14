"""Connections to providers: what their headers say, when waits end, and when they are closed."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket

import pytest

from remit.providers import HttpUpstream, ProviderError, Timeouts, http_connection
from tests.support.raw_http import (
    PATIENT,
    Connection,
    connected,
    keeping,
    plain,
    posted,
    raw_server,
)

CHUNKED = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
TWO_EVENTS = b"data: 1\n\ndata: [DONE]\n\n"


@pytest.mark.parametrize("bytewise", [False, True])
@pytest.mark.parametrize(
    ("before", "fields", "found"),
    [
        (b"", b"A: b \r\na:\tc\r\nB:\r\n", [("A", "b "), ("a", "c"), ("B", "")]),
        (b"\r\n", b"x: y: z\r\n", [("x", "y: z")]),
        (b"", b"x: \xc3\xa4\xff\r\n", [("x", "\u00e4\udcff")]),
        (
            b"HTTP/1.1 103 Early Hints\r\nx: early\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n",
            b"y: late\r\n",
            [("y", "late")],
        ),
    ],
)
async def test_headers_are_those_of_the_answer_as_they_came(
    before: bytes, fields: bytes, found: list[tuple[str, str]], bytewise: bool
) -> None:
    answer = before + b"HTTP/1.1 200 OK\r\n" + fields + b"content-length: 2\r\n\r\n{}"

    async def script(connection: Connection) -> None:
        await connection.request()
        for at in range(0, len(answer), 1 if bytewise else len(answer)):
            await connection.send(answer[at : at + (1 if bytewise else len(answer))])
            await asyncio.sleep(0)
        await connection.reader.read()

    async with connected(script) as (_, upstream):
        reply = await posted(upstream)
        assert [*reply.headers.items()] == [*found, ("content-length", "2")]
        assert await reply.read() == b"{}"


@pytest.mark.parametrize(
    "answer",
    [
        plain(b"{}") + plain(b"[]"),
        plain(b"{}") + b"HTTP/1.1 200 OK\r\n",
    ],
)
async def test_a_second_answer_to_one_request_reaches_nobody(answer: bytes) -> None:
    async def script(connection: Connection) -> None:
        while True:
            await connection.request()
            await connection.send(answer if connection.number == 0 else plain(b"own"))

    async with connected(script) as (_, upstream):
        read = []
        for _ in range(2):
            try:
                read.append(await (await posted(upstream)).read())
            except ProviderError as error:
                read.append(error.code.encode())
        assert read in ([b"{}", b"own"], [b"SERVER_ERROR", b"own"])


async def test_a_wait_ends_soon_after_its_time_and_nothing_looks_on() -> None:
    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.reader.read()

    async with connected(script) as (server, upstream):
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(ProviderError, match=r"no answer within 0\.05 s"):
            await posted(upstream, timeouts=Timeouts(20, 0.05, 20))
        assert loop.time() - began >= 0.05
        await server.closed.get()
        (pool,) = upstream._pools.values()
        assert not pool.open
        assert pool.due == math.inf


async def test_connections_that_wait_too_long_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "_IDLE_S", 0.05)
    async with connected(keeping) as (server, upstream):
        await (await posted(upstream)).read()
        assert await asyncio.wait_for(server.closed.get(), 20) == 0


@pytest.mark.parametrize("flood", [False, True])
async def test_a_stream_that_goes_on_behind_its_last_event_is_closed(flood: bool) -> None:
    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.send(CHUNKED + b"%x\r\n%b\r\n" % (len(TWO_EVENTS), TWO_EVENTS))
        while flood:
            await connection.send(b"10000\r\n%b\r\n" % (b":" * 65_536))
        await connection.reader.read()

    async with connected(script) as (server, upstream):
        async with await posted(upstream) as reply:
            async for events in reply.events():
                assert events
                break
        assert await asyncio.wait_for(server.closed.get(), 20) == 0


async def test_an_address_that_does_not_answer_leaves_time_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.send(plain(b"here"))

    async with raw_server(script) as server:
        with (
            socket.create_server(("127.0.0.2", server.port), backlog=0),
            contextlib.ExitStack() as full,
        ):
            for _ in range(4):  # its queue is full: it answers no more
                waiting = full.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(("127.0.0.2", server.port))
            infos = [
                (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, server.port))
                for address in ("127.0.0.2", "127.0.0.1")
            ]
            monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: infos)
            upstream = HttpUpstream(server.url.replace("127.0.0.1", "two.example"), {})
            reply = await posted(upstream, timeouts=Timeouts(5, 20, 20))
            assert await reply.read() == b"here"
            await upstream.aclose()


async def test_a_connection_serves_one_request_at_a_time() -> None:
    """Also behind an answer that came in many pieces."""

    async def script(connection: Connection) -> None:
        while True:
            _, body = await connection.request()
            answer = plain(body * 100)
            for at in range(0, len(answer), 50):
                await connection.send(answer[at : at + 50])
                await asyncio.sleep(0.001)

    async def call(number: int) -> bytes:
        reply = await upstream.send("POST", "/x", b"%d" % number, {}, PATIENT)
        return await reply.read()

    async with connected(script) as (server, upstream):
        for _ in range(3):
            assert await call(1) == b"1" * 100
        (pool,) = upstream._pools.values()
        assert len(pool.kept) == server.connections == 1
        assert await asyncio.gather(*map(call, range(4))) == [b"%d" % n * 100 for n in range(4)]


@pytest.mark.parametrize("size", [1, 600_000])
async def test_what_was_not_taken_of_an_answer_is_in_no_other(size: int) -> None:
    """All of it had come when its reader left: the connection is used again, without it."""
    rest = b"data: %b\n\n" % (b"x" * size)

    async def script(connection: Connection) -> None:
        if connection.number == 0:
            await connection.request()
            await connection.send(CHUNKED + b"9\r\ndata: 1\n\n\r\n")
            await asyncio.sleep(0.05)
            await connection.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(rest), rest))
        await keeping(connection)

    async with connected(script) as (_, upstream):
        async with await posted(upstream) as reply:
            async for _ in reply.events():
                await asyncio.sleep(0.5)  # its client is slow
                break
        own = await upstream.send("POST", "/x", b"own", {}, PATIENT)
        assert await own.read() == b"own"


async def test_a_reader_that_left_a_full_connection_leaves_it_reading() -> None:
    """So much had come at once that reading was stopped, and its end was part of it."""
    async with connected(keeping) as (server, upstream):
        reply = await posted(upstream)
        connection = reply._answer
        assert isinstance(connection, http_connection.HttpConnection)
        connection._complete = False
        connection.on_body(b"x" * 300_000)
        connection._complete = True
        await reply.aclose()
        assert await (await upstream.send("POST", "/x", b"own", {}, PATIENT)).read() == b"own"
        assert server.connections == 1


async def test_a_whole_answer_in_pieces_is_returned_at_once_and_its_connection_kept() -> None:
    async def script(connection: Connection) -> None:
        while True:
            await connection.request()
            for piece in (b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n", b"\r\n{", b'"', b'"}'):
                await connection.send(piece)
                await asyncio.sleep(0.01)

    async with connected(script) as (server, upstream):
        for _ in range(3):
            reply = await posted(upstream, whole=True)
            with pytest.raises(StopIteration) as done:  # the body is read without a wait
                reply.read().send(None)
            assert done.value.value == b'{""}'
        assert server.connections == 1


@pytest.mark.parametrize("size", [0, 1, 300_000, 2_000_000])
async def test_an_answer_is_the_same_whether_it_is_awaited_whole_or_not(size: int) -> None:
    body = b"x" * size
    async with connected(keeping) as (server, upstream):
        for whole in (True, False, True):
            assert await (await posted(upstream, body, whole=whole)).read() == body
        assert server.connections == 1


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    ("sent", "timeouts", "said"),
    [
        (b"", Timeouts(20, 0.1, 20), "no answer within 0.1 s"),
        (b"HTTP", Timeouts(20, 0.1, 20), "no answer within 0.1 s"),
        (b"HTTP/1.1 200 OK\r\n", Timeouts(20, 0.1, 20), "no answer within 0.1 s"),
        (plain(b"{}")[:-1], Timeouts(20, 20, 0.1), "the stream sent no data for 0.1 s"),
        (plain(b"{}")[:-2], Timeouts(20, 20, 0.1), "the stream sent no data for 0.1 s"),
    ],
)
async def test_an_answer_that_stops_is_a_timeout_of_its_stage(
    sent: bytes, timeouts: Timeouts, said: str, whole: bool
) -> None:
    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.send(sent)
        await connection.reader.read()

    async with connected(script) as (server, upstream):
        with pytest.raises(ProviderError, match=said) as caught:
            await (await posted(upstream, timeouts=timeouts, whole=whole)).read()
        error = caught.value
        assert (error.code, error.retryable, error.maybe_billed) == ("TIMEOUT", True, True)
        await server.closed.get()
