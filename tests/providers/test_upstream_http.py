"""The client of providers against servers that answer with any bytes."""

from __future__ import annotations

import asyncio
import base64
import datetime
import gc
import gzip
import logging
import resource
import socket
import ssl
import weakref
import zlib
from pathlib import Path
from urllib.parse import quote

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from remit.kernel.errors import ConfigError
from remit.kernel.loops import call_in_thread
from remit.providers import HttpUpstream, ProviderError, Timeouts, UpstreamReply, passed_on
from tests.support.raw_http import (
    KEY,
    PATIENT,
    Connection,
    RawServer,
    client,
    connected,
    keeping,
    plain,
    posted,
    raw_server,
)

BODY = b'{ "a" : 1.0,\t"a":"\\ud800", "n": 12345678901234567890123 }\n'
HASTY = Timeouts(20, 0.2, 0.2)


async def failure(
    server: RawServer | str, timeouts: Timeouts = PATIENT, body: bytes = BODY, whole: bool = False
) -> ProviderError:
    """The error of a call whose answer is read to its end."""
    upstream = client(server)
    try:
        with pytest.raises(ProviderError) as caught:
            await (await posted(upstream, body, timeouts, whole=whole)).read()
    finally:
        await upstream.aclose()
    for shown in (str(caught.value), repr(caught.value), repr(upstream), repr(caught.value.args)):
        assert KEY not in shown
    assert caught.value.__cause__ is caught.value.__context__ is None
    return caught.value


def answering(*pieces: bytes, reset: bool = False, wait: bool = False):  # type: ignore[no-untyped-def]
    async def script(connection: Connection) -> None:
        await connection.request()
        for piece in pieces:
            await connection.send(piece)
            await asyncio.sleep(0.01)
        if wait:
            await asyncio.sleep(60)
        if reset:
            connection.reset()

    return script


async def events_of(reply: UpstreamReply) -> tuple[list[bytes], ProviderError | None]:
    raw: list[bytes] = []
    try:
        async for events in reply.events():
            raw += [event.raw for event in events]
    except ProviderError as error:
        return raw, error
    return raw, None


async def test_bytes_go_out_and_come_back_as_they_are() -> None:
    async with connected(keeping) as (server, upstream):
        reply = await upstream.send(
            "POST", "/messages?beta=true", BODY,
            {"content-type": "application/json", "Anthropic-Beta": "x,y", "X-API-Key": "other",
             "accept-encoding": "br"}, PATIENT,
        )  # fmt: skip
        assert await reply.read() == BODY
        assert (reply.status, reply.content_type) == (200, "application/json")
        head, body = server.requests[0]
        assert body == BODY
        assert head.startswith(b"POST /v1/messages?beta=true HTTP/1.1\r\n")
        lines = head.lower().split(b"\r\n")
        assert b"accept-encoding: identity" in lines
        assert b"anthropic-beta: x,y" in lines
        assert [line for line in lines if line.startswith(b"x-api-key")] == [
            f"x-api-key: {KEY}".lower().encode()
        ]
        assert sum(line.startswith(b"content-type") for line in lines) == 1


@pytest.mark.parametrize("left", ["kept", "in use", "in use behind a close"])
async def test_a_loop_that_ends_closes_its_connections(
    left: str,
) -> None:
    """Behind its end they would be open for as long as the client."""
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def call() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        reply = await posted(upstream, BODY)
        if left == "kept":
            assert await reply.read() == BODY
        elif left != "in use":
            await upstream.aclose()

    def run() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(call())

    async with raw_server(keeping) as server:
        upstream = client(server)
        for number in range(2):
            await asyncio.wait_for(call_in_thread("another loop", run), 20)
            assert await asyncio.wait_for(server.closed.get(), 20) == number
        gc.collect()
        assert [loop() for loop in loops] == [None, None]


@pytest.mark.parametrize(
    "answer",
    [
        plain(b"{}"),
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n1;x=y\r\n}\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-t\r\n\r\n"
        b"2\r\n{}\r\n0\r\nx-t: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n{}",
        b"HTTP/1.0 200 OK\r\n\r\n{}",
        b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + plain(b"{}"),
    ],
)
async def test_every_way_to_frame_a_body(answer: bytes) -> None:
    for pieces in ([answer], [answer[at : at + 1] for at in range(len(answer))]):
        async with connected(answering(*pieces)) as (_, upstream):
            assert await (await posted(upstream, BODY)).read() == b"{}"


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308, 101])
async def test_redirects_are_not_followed(status: int) -> None:
    where = f"location: https://user:{quote(KEY, safe='')}@elsewhere.test/{KEY}\r\n"
    answer = f"HTTP/1.1 {status} x\r\ncontent-length: 0\r\n{where}\r\n".encode()
    async with raw_server(answering(answer)) as server:
        error = await failure(server)
    assert (error.code, error.retryable, error.maybe_billed, error.status) == (
        "SERVER_ERROR", False, False, status,
    )  # fmt: skip
    assert "elsewhere.test, which is not followed" in error.message or status == 101


@pytest.mark.parametrize(("reset", "whole"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTT",
        b"HTTP/1.1 200 OK\r\ncontent-le",
        plain(b'{"a":1}')[:-3],
        plain(b'{"a":1}')[:-7],
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{}",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n{}",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x15\x03\x01\x00\x02\x02\x50",
        b"HTTP/1.1 200 OK\r\nx-long: " + b"x" * 1_000_000,
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 10_000 + b"\r\n",
        f"HTTP/1.1 2x0 {KEY}\r\n{KEY}: {KEY}\r\n\r\n".encode(),
    ],
)
async def test_an_answer_that_breaks_off_or_is_none(
    answer: bytes, reset: bool, whole: bool
) -> None:
    async with raw_server(answering(answer, reset=reset)) as server:
        error = await failure(server, whole=whole)
    assert (error.code, error.retryable, error.maybe_billed) == ("SERVER_ERROR", True, True)


async def test_what_came_before_a_break_is_given_first() -> None:
    stream = b"data: 1\n\ndata: 2\n\nevent: x\ndata: 3"
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 500\r\n\r\n"
    for reset in (False, True):
        async with connected(answering(head + stream, reset=reset)) as (_, upstream):
            raw, error = await events_of(await posted(upstream, BODY))
            assert raw == [b"data: 1\n\n", b"data: 2\n\n", b"event: x\ndata: 3"]
            assert error is not None
            assert (error.code, error.maybe_billed, error.status) == ("SERVER_ERROR", True, 200)


async def test_time_to_the_headers_is_bounded() -> None:
    for body in (BODY, b"x" * 5_000_000):
        async with raw_server(answering(wait=True)) as server:
            error = await failure(server, HASTY, body)
        assert (error.code, error.retryable, error.maybe_billed) == ("TIMEOUT", True, True)
        assert "0.2 s" in error.message


async def test_a_slow_consumer_slows_the_server_down_and_is_no_timeout() -> None:
    sent = 0

    async def script(connection: Connection) -> None:
        nonlocal sent
        await connection.request()
        await connection.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        for _ in range(400):
            await connection.send(b"data: " + b"x" * 99_992 + b"\n\n")
            sent += 100_000

    async with connected(script) as (_, upstream):
        reply = await posted(upstream, timeouts=Timeouts(20, 20, 0.3))
        events = reply.events()
        count = len(await anext(events))
        before = -1
        while before != sent:  # until the server is held up
            before = sent
            await asyncio.sleep(0.5)
        assert sent < 20_000_000  # the kernel's buffers and little more
        async for came in events:
            assert {len(event.data) for event in came} == {99_992}
            count += len(came)
        assert count == 400


@pytest.mark.parametrize("where", ["send", "read", "events", "outside"])
async def test_a_consumer_that_is_cancelled_closes_the_connection(where: str) -> None:
    stream = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\n"

    async def script(connection: Connection) -> None:
        await connection.request()
        if where != "send":
            await connection.send(stream)
        await connection.reader.read()  # until the client closes

    begun = asyncio.Event()

    async def consume(upstream: HttpUpstream) -> None:
        if where == "send":
            begun.set()
        async with await posted(upstream, BODY) as reply:
            begun.set()
            if where == "read":
                await reply.read()
            async for _ in reply.events():
                if where == "outside":
                    await asyncio.sleep(60)

    async with connected(script) as (server, upstream):
        task = asyncio.create_task(consume(upstream))
        await begun.wait()
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.wait_for(server.closed.get(), 20) == 0
    gc.collect()


@pytest.mark.parametrize("size", [0, 2, 1_000_000])
@pytest.mark.parametrize("how", ["gzip", "x-gzip", "deflate", "raw", "members"])
async def test_a_server_that_compresses_nevertheless(how: str, size: int) -> None:
    body = (b'{"a":[1,2,3]}' * size)[:size]
    if how == "deflate":
        data = zlib.compress(body)
    elif how == "raw":
        packer = zlib.compressobj(wbits=-15)
        data = packer.compress(body) + packer.flush()
    elif how == "members":
        data = gzip.compress(body[:1]) + gzip.compress(body[1:])
    else:
        data = gzip.compress(body)
    name = {"raw": "deflate", "members": "gzip"}.get(how, how)
    answer = plain(data, more=f"Content-Encoding: {name.upper()}\r\n")
    for pieces in ([answer], [answer[:-1], answer[-1:]]):
        async with connected(answering(*pieces)) as (_, upstream):
            assert await (await posted(upstream, BODY)).read() == body


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        ("br", b"\x0b\x02\x80{}\x03"), ("zstd", b"{}"), ("gzip, gzip", b"{}"), ("gzip", b"{}"),
        ("gzip", gzip.compress(b"{}")[:-9]), ("gzip", gzip.compress(b"{}") * 500),
        ("deflate", b"\xff\xff\xff"),
    ],
)  # fmt: skip
async def test_a_compression_that_cannot_be_undone(encoding: str, data: bytes) -> None:
    async with raw_server(answering(plain(data, more=f"content-encoding: {encoding}\r\n"))) as it:
        error = await failure(it)
    assert (error.code, error.maybe_billed, error.status) == ("SERVER_ERROR", True, 200)


async def test_a_compressed_bomb_takes_no_memory() -> None:
    packer = zlib.compressobj(9, wbits=31)
    data = b"".join(packer.compress(b"\0" * 1_000_000) for _ in range(400)) + packer.flush()
    for kind in ("application/json", "text/event-stream"):
        answer = plain(data, kind=kind, more="content-encoding: gzip\r\n")
        async with connected(answering(answer)) as (_, upstream):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            reply = await posted(upstream, BODY)
            if kind == "application/json":
                with pytest.raises(ProviderError, match="longer than 20000000 bytes"):
                    await reply.read(20_000_000)
            else:
                _, error = await events_of(reply)
                assert error is not None
                assert "longer than 64 MiB" in error.message
            more_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            assert more_kib < 250_000


async def test_a_body_above_the_bound() -> None:
    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
        for _ in range(100):
            await connection.send(b"x" * 1_000_000)

    async with raw_server(script) as server:
        error = await failure(server)
        assert (error.code, error.retryable, error.maybe_billed) == ("SERVER_ERROR", False, True)
        assert await asyncio.wait_for(server.closed.get(), 20) == 0
        upstream = client(server)
        size = 0
        async for piece in (await posted(upstream, BODY)).chunks():
            size += len(piece)
        assert size == 100_000_000
        await upstream.aclose()


async def test_time_to_connect_is_bounded() -> None:
    with socket.socket() as full:  # a queue of connections that nobody accepts
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(8)]
        for other in waiting:
            other.setblocking(False)
            other.connect_ex(("127.0.0.1", port))
        error = await failure(f"http://127.0.0.1:{port}", Timeouts(0.3, 20, 20))
        for other in waiting:
            other.close()
    assert (error.code, error.retryable, error.maybe_billed) == ("TIMEOUT", True, False)


@pytest.mark.parametrize("signed", [None, ({"Authorization": "Bearer signed-secret"}, "")])
async def test_each_header_is_sent_once(signed: tuple[dict[str, str], str] | None) -> None:
    names = ("Accept", "Host", "Content-Length", "Transfer-Encoding", "AUTHORIZATION", "X-A", "x-a")
    headers = dict.fromkeys(names, "7")
    async with connected(keeping) as (server, upstream):
        named = upstream.url("").replace("://", "://user:password@")
        both = HttpUpstream(named, {})
        for client in (upstream, both):
            reply = await client.send("POST", "/x", BODY, headers, PATIENT, signed=signed)
            assert await reply.read() == BODY
        await both.aclose()
    for head, body in server.requests:
        sent = [line.partition(b":")[0].lower() for line in head.split(b"\r\n")[1:] if line]
        assert sorted(sent) == sorted(set(sent))
        assert b"x-a" in sent
        assert b"transfer-encoding" not in sent
        assert body == BODY
        assert (b"Bearer signed-secret" in head) == (signed is not None)


@pytest.mark.parametrize("headers", [{"x-a": "b\r\nc: d"}, {"x-a": "b\n"}])
async def test_headers_that_http_cannot_carry(headers: dict[str, str]) -> None:
    async with connected(keeping) as (server, upstream):
        with pytest.raises(ProviderError) as caught:
            await upstream.send("POST", "/x", BODY, headers, PATIENT)
        assert (caught.value.code, caught.value.maybe_billed) == ("INVALID_REQUEST", False)
        assert server.requests == []


@pytest.mark.parametrize("reset", [False, True])
async def test_a_connection_that_was_closed_while_it_waited(reset: bool) -> None:
    async def script(connection: Connection) -> None:
        _, body = await connection.request()
        await connection.send(plain(body))
        if connection.number < 2:
            await connection.reader.readexactly(1)  # the next request begins
            if reset:
                connection.reset()
        else:
            await keeping(connection)

    async with connected(script) as (server, upstream):
        assert await (await posted(upstream, b"1")).read() == b"1"
        with pytest.raises(ProviderError) as caught:
            await posted(upstream, b"2")
        error = caught.value
        assert (error.stale, error.retryable, error.maybe_billed) == (True, True, False)
        assert not error.speaks_of_health
        assert await (await posted(upstream, b"2", reconnect=True)).read() == b"2"
        assert [body for _, body in server.requests] == [b"1", b"2"]
        assert server.connections == 2


async def test_a_new_connection_that_breaks_is_not_one_that_waited() -> None:
    async def script(connection: Connection) -> None:
        _, body = await connection.request()
        if connection.number == 0:
            await connection.send(plain(body))
            await connection.reader.read()
        connection.reset()

    async with connected(script) as (_, upstream):
        assert await (await posted(upstream, b"1")).read() == b"1"
        with pytest.raises(ProviderError) as caught:
            await posted(upstream, b"2", reconnect=True)
        error = caught.value
        assert (error.stale, error.retryable, error.maybe_billed) == (False, True, True)
        assert error.speaks_of_health


@pytest.mark.parametrize("how", ["new connection", "late", "HTT", "HTTP/1.1 200 OK\r\nx: y\r\n"])
@pytest.mark.parametrize("reset", [False, True])
async def test_what_may_have_been_read_is_not_sent_again(how: str, reset: bool) -> None:
    async def script(connection: Connection) -> None:
        if how != "new connection":
            _, body = await connection.request()
            await connection.send(plain(body))
        await connection.request()
        if how == "late":
            await asyncio.sleep(0.4)
        if how.startswith("HTT"):
            await connection.send(how.encode())
            await asyncio.sleep(0.05)
        if reset:
            connection.reset()

    async with connected(script) as (server, upstream):
        if how != "new connection":
            await (await posted(upstream, BODY)).read()
        sent = len(server.requests)
        with pytest.raises(ProviderError) as caught:
            await (await posted(upstream, BODY)).read()
        assert caught.value.maybe_billed
        assert len(server.requests) == sent + 1


@pytest.fixture
def certificate(tmp_path: Path) -> ssl.SSLContext:
    """Of nobody's trust."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "nobody")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(1))
        .not_valid_after(now + datetime.timedelta(1))
        .sign(key, hashes.SHA256())
    )
    place = tmp_path / "pem"
    place.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(place)
    return context


async def test_a_certificate_that_nobody_vouches_for(certificate: ssl.SSLContext) -> None:
    async with raw_server(keeping, tls=certificate) as server:
        error = await failure(server)
        assert server.requests == []
    assert (error.code, error.retryable, error.maybe_billed) == ("SERVER_ERROR", True, False)
    assert "cannot be reached" in error.message


@pytest.mark.parametrize("scheme", ["http://", "", " http://"])
async def test_the_environments_proxy_is_used(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    async with raw_server(keeping) as proxy:
        monkeypatch.setenv(
            "http_proxy", f"{scheme}user:{quote(KEY, safe='')}@127.0.0.1:{proxy.port}"
        )
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        upstream = client("http://provider.test/v1")
        assert await (await posted(upstream, BODY)).read() == BODY
        head, _ = proxy.requests[0]
        assert head.startswith(b"POST http://provider.test/v1/chat/completions HTTP/1.1\r\n")
        assert b"proxy-authorization: basic" in head.lower()
        await upstream.aclose()


@pytest.mark.parametrize(
    "stated",
    ["socks5://127.0.0.1:1", "https://127.0.0.1:1", "http://", "::::", "http://127.0.0.1:99999"],
)
def test_a_proxy_of_another_kind_is_refused_before_a_call(
    monkeypatch: pytest.MonkeyPatch, stated: str
) -> None:
    monkeypatch.setenv("http_proxy", stated)
    monkeypatch.setenv("no_proxy", "other.test")
    with pytest.raises(ConfigError, match="http_proxy does not name an HTTP proxy"):
        client("http://provider.test/v1")
    client("http://other.test/v1")
    client("https://provider.test/v1")


async def test_nothing_listens_and_credentials_are_shown_nowhere(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        error = await failure(f"http://user:{quote(KEY, safe='')}@127.0.0.1:{port}/v1")
    assert (error.code, error.retryable, error.maybe_billed) == ("SERVER_ERROR", True, False)
    assert f"http://127.0.0.1:{port}/v1 cannot be reached" in error.message
    assert KEY not in caplog.text


@pytest.mark.parametrize("framed", [True, False])
async def test_an_answer_that_comes_before_the_request_is_read(framed: bool) -> None:
    async def script(connection: Connection) -> None:
        if connection.number == 0:
            await connection.reader.readuntil(b"\r\n\r\n")
            if framed:
                await connection.send(plain(b"too large", "413 Payload Too Large"))
            else:
                await connection.send(b"HTTP/1.1 413 x\r\nconnection: close\r\n\r\ntoo large")
                connection.writer.write_eof()
            await connection.reader.read()
        else:
            await keeping(connection)

    async with connected(script) as (server, upstream):
        reply = await posted(upstream, b"x" * 30_000_000)
        assert (reply.status, await reply.read()) == (413, b"too large")
        await reply.aclose()
        assert await (await posted(upstream, BODY)).read() == BODY
        assert server.connections == 2
        assert [body for _, body in server.requests] == [BODY]


async def test_credentials_that_a_server_sends_back_do_not_come_through() -> None:
    stream = b"data: 1\n\ndata: " + KEY.encode() + b"\n\ndata: Bearer " + KEY.encode()
    for kind in ("application/json", "text/event-stream"):
        async with connected(answering(plain(stream, kind=kind))) as (_, upstream):
            reply = await posted(upstream, BODY)
            if kind == "application/json":
                assert await reply.read() == stream.replace(KEY.encode(), b"[key]")
            else:
                raw, _ = await events_of(reply)
                assert b"".join(raw) == stream.replace(KEY.encode(), b"[key]")


async def test_credentials_in_headers_and_in_other_spellings_do_not_come_through() -> None:
    key = "sk-very/secret+0123456789=="
    coded = base64.b64encode(key.encode()).decode()
    spelled = (key, f"Bearer {key}", quote(key, safe=""), coded)
    head = "".join(f"x-request-id: {one}\r\n" for one in spelled)
    body = "\n".join(spelled).encode()
    answer = f"HTTP/1.1 200 OK\r\n{head}content-length: {len(body)}\r\n\r\n".encode() + body
    async with raw_server(answering(answer)) as server:
        upstream = HttpUpstream(server.url, {"authorization": f"Bearer {key}"})
        reply = await posted(upstream, BODY)
        shown = [value for name, value in passed_on(reply.headers) if name == "x-request-id"]
        said = (await reply.read()).decode()
        await upstream.aclose()
    assert len(shown) == len(spelled)
    for text in (*shown, said):
        assert not any(one in text for one in (key, quote(key, safe=""), coded.rstrip("=")))
    assert all("[key]" in one for one in shown)
