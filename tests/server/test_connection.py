"""What attackers and odd clients send over one connection, and what comes back."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.server.running import Served, new_session, prompt, received, serving, statuses
from tests.support.upstream import Upstream
from tests.support.waiting import until

TOML = (
    "\n[server]\nmax_body_bytes = 200000\nmax_header_bytes = 16384\n"
    "header_timeout_s = 3.0\nbody_timeout_s = 4.0\nkeep_alive_s = 3\n"
)
_CHAT = "/v1/chat/completions"
_HEALTH = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


def _call(served: Served, text: str, *lines: str, session: str = "", stream: bool = False) -> bytes:
    named = [f"x-remit-session: {session}"] if session else []
    return served.request(prompt(text, stream=stream), *lines, *named)


@pytest.mark.parametrize(
    "lines",
    [
        ("content-length: 5", "transfer-encoding: chunked"),
        ("content-length: two",),
        ("content-length: 99999999999999999999999",),
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
def test_a_length_that_two_readers_read_differently(served: Served, lines: tuple[str, ...]) -> None:
    hidden = b"0\r\n\r\nGET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n"
    reply = served.raw(served.head(*lines) + hidden, wait_s=8)
    assert b"gpt-4o-mini" not in reply  # the hidden request is not answered as one of its own
    assert set(statuses(reply)) <= {400}


def test_another_version_of_http_or_not_one_host_is_refused(served: Served) -> None:
    """RFC 9112, sections 2.3 and 3.2."""
    for version, status in ((b"2.0", 505), (b"0.9", 505), (b"3.0", 400), (b"1.2", 400)):
        reply = served.raw(_HEALTH.replace(b"1.1", version), wait_s=8)
        assert statuses(reply) == [status], version
    for hosts in (b"", b"host: x\r\nHost: y\r\n"):
        asked = b"GET /healthz HTTP/1.1\r\nconnection: close\r\n" + hosts + b"\r\n"
        assert statuses(served.raw(asked, wait_s=8)) == [400], hosts


@pytest.mark.parametrize(
    ("codings", "status"),
    [
        (("gzip, chunked",), 501),
        (("gzip", "Chunked"), 501),
        (("deflate , gzip,\tchunked",), 501),
        (("chunked, chunked",), 400),
        (("chunked", "chunked"), 400),
        (("chunked", "gzip"), 400),
        (("chunked, gzip, chunked",), 400),
    ],
)
def test_an_unknown_coding_is_refused(
    served: Served, codings: tuple[str, ...], status: int
) -> None:
    """RFC 9112, section 6.1."""
    session, body = new_session(), json.dumps(prompt()).encode()
    head = served.head(*(f"transfer-encoding: {c}" for c in codings), f"x-remit-session: {session}")
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    assert statuses(served.raw(head + chunks, wait_s=8)) == [status]
    assert served.entries("DISPATCH", session) == []


@pytest.mark.parametrize(
    "chunks", [b"zz\r\n", b"5\r\nhelloXX", b"-1\r\n", b"5 5\r\nhello\r\n", b"fffffffffffffffff\r\n"]
)
def test_a_chunk_that_is_none(served: Served, chunks: bytes) -> None:
    session = new_session()
    head = served.head("transfer-encoding: chunked", f"x-remit-session: {session}")
    assert set(statuses(served.raw(head + chunks, wait_s=8))) <= {400}
    assert served.entries("DISPATCH", session) == []


def test_a_trailer_is_no_header(served: Served) -> None:
    asked, named = new_session(), new_session()
    body = json.dumps(prompt()).encode()
    trailers = f"x-remit-session: {named}\r\nauthorization: Bearer nobody\r\n\r\n".encode()
    head = served.head("transfer-encoding: chunked", f"x-remit-session: {asked}",
                 "connection: close")  # fmt: skip
    reply = served.raw(head + b"%x\r\n%b\r\n0\r\n" % (len(body), body) + trailers)
    assert statuses(reply) == [200]
    assert served.entries("DISPATCH", named) == []
    served.exchange(asked)


@pytest.mark.parametrize(
    "more", [b"x-a: " + b"b" * 1000, b"x-a: bbbbbbbbbbbbbbbbbbbbbbbbb\r\n"], ids=["one", "many"]
)
def test_trailers_without_end_are_cut_off(served: Served, more: bytes) -> None:
    with served.connected(
        served.head("transfer-encoding: chunked") + b"1\r\n{\r\n0\r\n"
    ) as connection:
        sent = 0
        with pytest.raises(OSError):
            while sent < 50_000_000:
                sent += connection.send(more)
        assert sent < 20_000_000  # what the two kernels keep between them


def test_many_short_trailers_or_headers_are_refused(served: Served) -> None:
    many = b"x: y\r\n" * 201 + b"\r\n"
    body = served.head("transfer-encoding: chunked") + b"1\r\n{\r\n0\r\n"
    assert statuses(served.raw(body + many, wait_s=8)) == [400]
    assert statuses(served.raw(_HEALTH.removesuffix(b"\r\n") + many, wait_s=8)) == [431]


def test_a_connection_serves_both_kinds_in_turn(served: Served) -> None:
    head = {"authorization": f"Bearer {served.token}"}
    body = json.dumps(prompt())
    with closing(http.client.HTTPConnection(*served.address, timeout=30)) as connection:
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


def test_a_key_is_needed_for_each(served: Served) -> None:
    bad = served.head("content-length: 2", token="nobody") + b"{}"
    reply = served.raw(_call(served, "hi") + bad + _call(served, "ho") + _HEALTH)
    assert statuses(reply) == [200, 401, 200, 200]
    # A client that waits to be asked for its body: the connection ends, as nobody knows whether
    # what comes next is that body.
    head = served.head("expect: 100-continue", "content-length: 100", token="nobody")
    assert statuses(served.raw(head + _HEALTH)) == [401]


def test_a_refusal_is_read_by_who_is_still_sending(served: Served) -> None:
    for lines, token, status in (
        (("content-length: 150000",), "nobody", 401),
        (("content-length: 900000000",), served.token, 413),
        (("content-length: 150000", "content-encoding: lzw"), served.token, 415),
    ):
        with served.connected(served.head(*lines, token=token)) as connection:
            for _ in range(10):  # no reset
                connection.sendall(b" " * 1000)
                time.sleep(0.02)
            reply = received(connection)
            assert statuses(reply) == [status]
            assert b"connection: close" in reply


def test_who_sends_a_refused_body_for_ever_is_cut_off(served: Served) -> None:
    with served.connected(served.head("content-length: 150000", token="nobody")) as connection:
        begun = time.monotonic()
        with pytest.raises(OSError):
            while time.monotonic() < begun + 25:
                connection.sendall(b" ")
                time.sleep(0.05)


def test_headers_of_64_kib(served: Served) -> None:
    for count, size in ((1, 65_536), (600, 100), (6000, 4)):
        lines = [f"x-{at}: {'y' * size}" for at in range(count)]
        reply = served.raw(served.head(*lines, "content-length: 0"), wait_s=10)
        assert statuses(reply) in ([431], [])
    reply = served.raw(served.head(path="/" + "x" * 70_000, method="GET"))
    assert statuses(reply) == [431]
    head = served.head(f"x-long: {'y' * 70_000}", "content-length: 0")
    with served.connected(head[:-100], wait_s=20) as connection:  # in two parts
        time.sleep(0.2)
        connection.sendall(head[-100:])
        assert statuses(received(connection)) == [431]


def test_who_stops_sending_gets_no_answer_and_leaves_a_pair(served: Served) -> None:
    session = new_session()
    with served.connected(_call(served, "hi [[delay=3]]", session=session)) as connection:
        until(lambda: len(served.entries("DISPATCH", session)) == 1)
        connection.shutdown(socket.SHUT_WR)
        received(connection)
    until(lambda: len(served.entries("EXCHANGE", session)) == 1)
    served.exchange(session)


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "evil.example:4000"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"host": "[::1"},
    ],
)
def test_dev_mode_answers_no_page_from_elsewhere(dev: Served, headers: dict[str, str]) -> None:
    for method, path, body in (
        ("POST", "/v1/chat/completions", prompt()),
        ("GET", "/api/ledger/entries", None),
        ("GET", "/v1/models", None),
        ("GET", "/console/live", None),
    ):
        status, text, _ = dev.ask(method, path, body, token="", headers=headers)
        assert status == 403, text


def test_dev_mode_answers_this_machine(dev: Served) -> None:
    port = dev.address[1]
    for host in (f"localhost:{port}", f"127.0.0.1:{port}"):
        told = {"host": host, "origin": f"http://{host}"}
        assert dev.ask("POST", "/v1/chat/completions", prompt(), token="", headers=told)[0] == 200


@pytest.fixture(scope="module")
def dev(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that asks nobody for a key."""
    with serving(tmp_path_factory.mktemp("dev") / "root", upstream.url, "--dev") as served:
        yield served


_OFFER = ("connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAMAAABkAAQAoA")


def test_a_body_is_one_beside_the_offer_of_a_protocol(served: Served) -> None:
    """As Java's own client does. Neither is the body lost, nor is it a request of its own."""
    session = new_session()
    hidden = b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n"
    lost = served.head(*_OFFER, f"content-length: {len(hidden)}")
    call = _call(served, "hi", *_OFFER, session=session)
    head, blank, body = call.partition(b"\r\n\r\n")
    asked = _HEALTH.replace(b"connection: close", "\r\n".join(_OFFER).encode())
    with served.connected(wait_s=20) as connection:
        for part in (lost, hidden + head + blank, body + asked + _call(served, "ho") + _HEALTH):
            connection.sendall(part)
            time.sleep(0.1)
        reply = received(connection)
    assert statuses(reply) == [400, 200, 200, 200, 200]
    assert b'"list"' not in reply
    assert b"said: ho" in reply
    served.exchange(session)


def test_many_requests_whose_answers_nobody_reads(served: Served) -> None:
    """They wait: neither requests nor answers pile up without bound."""
    before = served.rss_bytes()
    with served.connected(wait_s=3) as connection:
        one = served.head("content-length: 0", token="nobody")
        sent = 0
        with pytest.raises(OSError):
            while sent < 200_000_000:
                sent += connection.send(one * 1000)
    assert served.rss_bytes() - before < 40_000_000


def test_requests_beyond_those_that_may_wait(served: Served) -> None:
    one = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
    assert statuses(served.raw(one * 90 + _HEALTH)) == [200] * 91
    reply = statuses(served.raw(one * 1000))
    assert 100 <= len(reply) <= 200
    assert set(reply[:-1]) == {200}
    assert reply[-1] == 400
