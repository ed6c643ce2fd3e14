"""What attackers and odd clients send over one connection, and what comes back."""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import re
import socket
import time
import weakref
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from remit.server import connection as protocol
from remit.server.extending import Answer, Request
from remit.server.shares import Share, Shares
from tests.server.running import Served, new_session, received, serving
from tests.support.upstream import Upstream
from tests.support.waiting import until

_CHAT = "/v1/chat/completions"
_HEALTH = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def small(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with small limits."""
    limits = (
        "\n[server]\nmax_body_bytes = 200000\nmax_header_bytes = 16384\n"
        "header_timeout_s = 3.0\nbody_timeout_s = 4.0\nkeep_alive_s = 3\n"
    )
    with serving(tmp_path_factory.mktemp("small") / "root", upstream.url, toml=limits) as served:
        yield served


def _head(served: Served, *lines: str, token: str | None = None) -> bytes:
    token = served.token if token is None else token
    sent = ["POST /v1/chat/completions HTTP/1.1", "host: x", f"authorization: Bearer {token}"]
    return "\r\n".join([*sent, *lines, "", ""]).encode()


def _call(served: Served, text: str, *lines: str, session: str = "", stream: bool = False) -> bytes:
    body = json.dumps({"model": "gpt-4o-mini", "max_tokens": 9, "stream": stream,
                       "messages": [{"role": "user", "content": text}]}).encode()  # fmt: skip
    named = [f"x-remit-session: {session}"] if session else []
    return _head(served, *lines, *named, f"content-length: {len(body)}") + body


def _statuses(reply: bytes) -> list[int]:
    return [int(code) for code in re.findall(rb"HTTP/1\.1 ([1-5][0-9]{2}) ", reply)]


# -- one reading of where a request ends ----------------------------------------------------


@pytest.mark.parametrize(
    "lines",
    [
        ("content-length: 5", "transfer-encoding: chunked"),
        ("transfer-encoding: chunked", "content-length: 5"),
        ("content-length: 5", "content-length: 6"),
        ("content-length: 5, 6",),
        ("content-length: +5",),
        ("content-length: -1",),
        ("content-length : 5",),
        ("transfer-encoding: chunked, identity",),
        ("transfer-encoding: xchunked",),
        (" transfer-encoding: chunked",),
    ],
)
def test_a_length_that_two_readers_read_differently(small: Served, lines: tuple[str, ...]) -> None:
    hidden = b"0\r\n\r\nGET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n"
    reply = small.raw(_head(small, *lines) + hidden, wait_s=8)
    assert b"gpt-4o-mini" not in reply  # the hidden request is not answered as one of its own
    assert set(_statuses(reply)) <= {400}


@pytest.mark.parametrize(
    "chunks", [b"zz\r\n", b"5\r\nhelloXX", b"-1\r\n", b"5 5\r\nhello\r\n", b"fffffffffffffffff\r\n"]
)
def test_a_chunk_that_is_none(small: Served, chunks: bytes) -> None:
    session = new_session()
    head = _head(small, "transfer-encoding: chunked", f"x-remit-session: {session}")
    assert set(_statuses(small.raw(head + chunks, wait_s=8))) <= {400}
    assert small.entries("DISPATCH", session) == []


_OFFER = ("connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAMAAABkAAQAoA")


@pytest.mark.parametrize("pause_s", [0.0, 0.3])
def test_a_body_is_one_also_where_another_protocol_is_offered(
    small: Served, pause_s: float
) -> None:
    """As Java's own client does. Neither is the body lost, nor is it a request of its own."""
    session = new_session()
    hidden = b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n"
    lost = _head(small, *_OFFER, f"content-length: {len(hidden)}")
    call = _call(small, "hi", *_OFFER, session=session)
    head, blank, body = call.partition(b"\r\n\r\n")
    asked = _HEALTH.replace(b"connection: close", "\r\n".join(_OFFER).encode())
    with closing(socket.create_connection(small.address, timeout=20)) as connection:
        for part in (lost, hidden + head + blank, body + asked + _call(small, "ho") + _HEALTH):
            connection.sendall(part)
            time.sleep(pause_s)
        reply = received(connection)
    assert _statuses(reply) == [400, 200, 200, 200, 200]
    assert b'"list"' not in reply
    assert b"said: ho" in reply
    small.exchange(session)


def test_a_tunnel_is_refused(small: Served) -> None:
    reply = small.raw(b"CONNECT x:443 HTTP/1.1\r\nhost: x:443\r\n\r\n" + _HEALTH, wait_s=8)
    assert _statuses(reply) == [400]


def test_a_trailer_is_no_header(small: Served) -> None:
    asked, named = new_session(), new_session()
    body = json.dumps({"model": "gpt-4o-mini", "max_tokens": 9,
                       "messages": [{"role": "user", "content": "hi"}]}).encode()  # fmt: skip
    trailers = f"x-remit-session: {named}\r\nauthorization: Bearer nobody\r\n\r\n".encode()
    head = _head(small, "transfer-encoding: chunked", f"x-remit-session: {asked}",
                 "connection: close")  # fmt: skip
    reply = small.raw(head + b"%x\r\n%b\r\n0\r\n" % (len(body), body) + trailers)
    assert _statuses(reply) == [200]
    assert small.entries("DISPATCH", named) == []
    small.exchange(asked)


@pytest.mark.parametrize(
    "more", [b"x-a: " + b"b" * 1000, b"x-a: bbbbbbbbbbbbbbbbbbbbbbbbb\r\n"], ids=["one", "many"]
)
def test_trailers_without_end_are_cut_off(small: Served, more: bytes) -> None:
    with closing(socket.create_connection(small.address, timeout=30)) as connection:
        connection.sendall(_head(small, "transfer-encoding: chunked") + b"1\r\n{\r\n0\r\n")
        sent = 0
        with pytest.raises(OSError):
            while sent < 50_000_000:
                sent += connection.send(more)
        assert sent < 20_000_000  # what the two kernels keep between them


def test_many_short_trailers_or_headers_are_refused(small: Served) -> None:
    many = b"x: y\r\n" * 201 + b"\r\n"
    body = _head(small, "transfer-encoding: chunked") + b"1\r\n{\r\n0\r\n"
    assert _statuses(small.raw(body + many, wait_s=8)) == [400]
    assert _statuses(small.raw(_HEALTH.removesuffix(b"\r\n") + many, wait_s=8)) == [431]


@pytest.mark.parametrize("hosts", [b"", b"host: x\r\nHost: y\r\n"])
def test_a_request_names_one_host(small: Served, hosts: bytes) -> None:
    """RFC 9112, section 3.2."""
    asked = b"GET /healthz HTTP/1.1\r\nconnection: close\r\n" + hosts + b"\r\n"
    assert _statuses(small.raw(asked, wait_s=8)) == [400]


def test_chunks_of_one_byte_are_a_body(small: Served) -> None:
    session = new_session()
    _, _, body = _call(small, "x" * 20_000).partition(b"\r\n\r\n")
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    head = _head(small, "transfer-encoding: chunked", f"x-remit-session: {session}",
                 "connection: close")  # fmt: skip
    assert _statuses(small.raw(head + chunks)) == [200]
    small.exchange(session)


# -- one after the other ---------------------------------------------------------------------


def test_a_slow_first_answer_comes_first(small: Served) -> None:
    session = new_session()
    sent = [
        _call(small, "one [[delay=1]]", session=session),
        b"GET /v1/models HTTP/1.1\r\nhost: x\r\nauthorization: Bearer " + small.token.encode()
        + b"\r\n\r\n",
        _call(small, "two", session=session),
        _call(small, "three", session=session, stream=True),
        _HEALTH,
    ]  # fmt: skip
    reply = small.raw(b"".join(sent))
    assert _statuses(reply) == [200] * 5
    at = [reply.index(text) for text in (b"said: one", b'"list"', b"said: two", b"[DONE]", b'"ok"')]
    assert at == sorted(at)
    assert len(small.entries("EXCHANGE", session)) == 3


def test_what_follows_an_answer_and_is_no_request_comes_after_it(small: Served) -> None:
    session = new_session()
    reply = small.raw(
        _call(small, "hi [[delay=1]]", session=session) + b"this is no request\r\n\r\n"
    )
    assert _statuses(reply) == [200, 400]
    assert b"said: hi" in reply
    assert b"connection: close\r\n\r\nThis is not an HTTP/1.1 request" in reply
    small.exchange(session)


def test_a_broken_second_body_leaves_the_first_answer(small: Served) -> None:
    session = new_session()
    broken = _head(small, "transfer-encoding: chunked") + b"nonsense\r\n"
    reply = small.raw(_call(small, "hi [[delay=1]]", session=session) + broken)
    assert _statuses(reply) == [200, 400]
    small.exchange(session)


def test_a_connection_serves_both_kinds_in_turn(small: Served) -> None:
    head = {"authorization": f"Bearer {small.token}"}
    body = json.dumps({"model": "gpt-4o-mini", "max_tokens": 9,
                       "messages": [{"role": "user", "content": "hi"}]})  # fmt: skip
    with closing(http.client.HTTPConnection(*small.address, timeout=30)) as connection:
        sockets = set()
        for _ in range(5):
            for method, path, data in (("GET", "/v1/models", None), ("POST", _CHAT, body)):
                connection.request(method, path, data, head)
                reply = connection.getresponse()
                assert reply.status == 200, reply.read()
                reply.read()
                assert connection.sock is not None
                sockets.add(connection.sock.getsockname())
    assert len(sockets) == 1


def test_many_requests_whose_answers_nobody_reads(small: Served) -> None:
    """They wait: neither requests nor answers pile up without bound."""
    before = small.rss_bytes()
    with closing(socket.create_connection(small.address, timeout=3)) as connection:
        one = _head(small, "content-length: 0", token="nobody")
        sent = 0
        with pytest.raises(OSError):
            while sent < 200_000_000:
                sent += connection.send(one * 1000)
    assert small.rss_bytes() - before < 40_000_000


def test_requests_beyond_those_that_may_wait(small: Served) -> None:
    one = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
    assert _statuses(small.raw(one * 90 + _HEALTH)) == [200] * 91
    reply = _statuses(small.raw(one * 1000))
    assert 100 <= len(reply) <= 200
    assert set(reply[:-1]) == {200}
    assert reply[-1] == 400


def test_a_key_is_needed_for_each(small: Served) -> None:
    bad = _head(small, "content-length: 2", token="nobody") + b"{}"
    reply = small.raw(_call(small, "hi") + bad + _call(small, "ho") + _HEALTH)
    assert _statuses(reply) == [200, 401, 200, 200]


# -- slow, half closed, gone -------------------------------------------------------------------


def test_a_refusal_is_read_by_who_is_still_sending(small: Served) -> None:
    for lines, token, status in (
        (("content-length: 150000",), "nobody", 401),
        (("content-length: 900000000",), small.token, 413),
        (("content-length: 150000", "content-encoding: lzw"), small.token, 415),
    ):
        with closing(socket.create_connection(small.address, timeout=30)) as connection:
            connection.sendall(_head(small, *lines, token=token))
            for _ in range(10):  # no reset
                connection.sendall(b" " * 1000)
                time.sleep(0.02)
            reply = received(connection)
            assert _statuses(reply) == [status]
            assert b"connection: close" in reply


@pytest.mark.parametrize("after", ["", "a call"])
def test_a_refused_body_is_read_to_its_end(small: Served, after: str) -> None:
    """Also where reading had been stopped before, as so much had come."""
    chunk = b"400\r\n%b\r\n" % (b"x" * 1024)
    with closing(socket.create_connection(small.address, timeout=30)) as connection:
        begun = time.monotonic()
        before = _call(small, "hi [[delay=0.5]]") if after else b""
        connection.sendall(before + _head(small, "transfer-encoding: chunked", token="nobody"))
        for _ in range(5000):
            connection.sendall(chunk)
        connection.sendall(b"0\r\n\r\n")
        reply = received(connection)
        assert _statuses(reply) == ([200, 401] if after else [401])
        assert time.monotonic() - begun < 2.9  # not when the patience ended


def test_who_sends_a_refused_body_for_ever_is_cut_off(small: Served) -> None:
    with closing(socket.create_connection(small.address, timeout=30)) as connection:
        connection.sendall(_head(small, "content-length: 150000", token="nobody"))
        begun = time.monotonic()
        with pytest.raises(OSError):
            while time.monotonic() < begun + 25:
                connection.sendall(b" ")
                time.sleep(0.05)


def test_headers_of_64_kib_that_come_in_two_parts(small: Served) -> None:
    head = _head(small, f"x-long: {'y' * 70_000}", "content-length: 0")
    with closing(socket.create_connection(small.address, timeout=20)) as connection:
        connection.sendall(head[:-100])
        time.sleep(0.2)
        connection.sendall(head[-100:])
        reply = received(connection)
        assert _statuses(reply) == [431], reply


def test_headers_of_64_kib(small: Served) -> None:
    for count, size in ((1, 65_536), (600, 100), (6000, 4)):
        lines = [f"x-{at}: {'y' * size}" for at in range(count)]
        reply = small.raw(_head(small, *lines, "content-length: 0"), wait_s=10)
        assert _statuses(reply) in ([431], [])


def test_who_stops_sending_gets_no_answer_and_leaves_a_pair(small: Served) -> None:
    session = new_session()
    with closing(socket.create_connection(small.address, timeout=30)) as connection:
        connection.sendall(_call(small, "hi [[delay=3]]", session=session))
        until(lambda: len(small.entries("DISPATCH", session)) == 1)
        connection.shutdown(socket.SHUT_WR)
        received(connection)
    until(lambda: len(small.entries("EXCHANGE", session)) == 1)
    small.exchange(session)


def test_who_hangs_up_in_a_stream_ends_it_at_once(small: Served) -> None:
    session = new_session()
    with closing(socket.create_connection(small.address, timeout=30)) as connection:
        connection.sendall(_call(small, "hi [[slow=3]]", session=session, stream=True))
        until(lambda: len(small.entries("DISPATCH", session)) == 1)
    begun = time.monotonic()
    until(lambda: len(small.entries("EXCHANGE", session)) == 1)
    assert time.monotonic() - begun < 60
    assert small.exchange(session).metadata["outcome"] != "SUCCESS"


def test_who_was_to_be_asked_for_a_body_and_was_refused(small: Served) -> None:
    """The connection ends: nobody knows whether what comes next is that body."""
    head = _head(small, "expect: 100-continue", "content-length: 100", token="nobody")
    reply = small.raw(head + _HEALTH)
    assert _statuses(reply) == [401]


def test_an_old_client_gets_a_stream_without_chunks(small: Served) -> None:
    request = _call(small, "hi", stream=True).replace(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", 1)
    reply = small.raw(request)
    head, _, body = reply.partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert b"connection: close" in head
    assert body.startswith(b"data: ")
    assert b"data: [DONE]" in body


async def test_a_broken_answer_that_nobody_takes_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(protocol.Connection, "stalled_s", 0.2)

    class App:
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            raise NotImplementedError

        async def _breaks(self, request: Request) -> None:
            await asyncio.sleep(0.2)  # until no earlier deadline is looked at
            request.begin(200, [])
            request.write(b"x" * 50_000_000)

        def __init__(self) -> None:
            self.direct = {b"/x": self._breaks}

    config = Config(App(), proxy_headers=False, log_config=None)
    config.load()
    state, loop = ServerState(), asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: protocol.Connection(config, state, {}), "127.0.0.1", 0
    )
    address = server.sockets[0].getsockname()
    with closing(server), closing(socket.create_connection(address)) as connection:
        monkeypatch.setattr(protocol.Connection, "max_header_bytes", 1000)
        connection.sendall(b"POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
        async with asyncio.timeout(20):
            while not state.connections:
                await asyncio.sleep(0.01)
            while state.connections:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", ["call", "asgi", "broken off", "call under way", "asgi under way"])
async def test_a_lost_connection_is_freed_at_once(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what came on it: a collector that runs seldom is not waited for."""
    monkeypatch.setattr(protocol.Connection, "max_header_bytes", 1000)
    monkeypatch.setattr(protocol.Connection, "header_timeout_s", 60.0)
    goes_on = asyncio.Event()

    class App:
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if "under way" in kind:
                await goes_on.wait()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        async def _answers(self, request: Request) -> None:
            with suppress(asyncio.CancelledError):
                if "under way" in kind:
                    await goes_on.wait()
                await request.read(b"9", 100, 60.0, Share(Shares(9, 100)))
            request.answer(Answer(200, b"{}"))

        def __init__(self) -> None:
            self.direct = {b"/x": self._answers}

    config = Config(App(), proxy_headers=False, log_config=None)
    config.load()
    state, loop = ServerState(), asyncio.get_running_loop()
    made: list[weakref.ref[protocol.Connection]] = []

    def make() -> protocol.Connection:
        connection = protocol.Connection(config, state, {})
        made.append(weakref.ref(connection))
        return connection

    path, body = (b"y", b"x" * 9) if "asgi" in kind else (b"x", b"x" * (5 if "off" in kind else 9))
    server = await loop.create_server(make, "127.0.0.1", 0)
    with closing(server):
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        gc.collect()
        gc.disable()
        try:
            writer.write(b"POST /%b HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n" % path)
            writer.write(body)
            if kind in ("call", "asgi"):
                assert b" 200 " in await reader.readline()
            else:
                async with asyncio.timeout(20):
                    while not state.tasks:
                        await asyncio.sleep(0.01)
            writer.close()
            async with asyncio.timeout(20):
                while state.connections:
                    await asyncio.sleep(0.01)
                goes_on.set()
                while made[0]() is not None:
                    await asyncio.sleep(0.01)
        finally:
            gc.enable()
