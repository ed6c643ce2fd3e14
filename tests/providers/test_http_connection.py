"""Connections to providers: what their headers say, when waits end, and when they are closed."""

from __future__ import annotations

import asyncio
import contextlib
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
