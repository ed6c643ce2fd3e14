"""Whatever comes in, the server answers with a reason, stays up, and the record is whole."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any

import pytest

from tests.server.conftest import QUICK, Serve
from tests.server.events import PATHS
from tests.server.running import Served, new_session, received, serving
from tests.support import wire
from tests.support.upstream import Upstream

LIMITS = (
    QUICK
    + """
[server]
max_body_bytes = 1048576
header_timeout_s = 1.0
body_timeout_s = 1.0
"""
)
NAMES = ("x-remit-session", "x-remit-agent", "x-remit-contract", "x-remit-work-order",
         "x-remit-subject", "idempotency-key")  # fmt: skip
dialects = pytest.mark.parametrize("dialect", PATHS)


@pytest.fixture(scope="module")
def strict(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with little patience."""
    root = tmp_path_factory.mktemp("strict") / "root"
    with serving(root, upstream.url, toml=LIMITS) as running:
        yield running


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, wire.WireServer]]:
    """A server, and an upstream that shows what it gets."""
    root = tmp_path_factory.mktemp("odd") / "root"
    with wire.serve({}) as behind, serving(root, behind.url, toml=QUICK) as running:
        yield running, behind


@pytest.fixture(autouse=True)
def _alive_after(strict: Served) -> Iterator[None]:
    yield
    assert strict.process.poll() is None
    assert strict.call("openai", "still there?")[0] == 200


def _statuses(reply: bytes) -> list[int]:
    """Of the answers in what came back."""
    return [int(found) for found in re.findall(rb"HTTP/1\.1 (\d{3}) ", reply)]


def _head(served: Served, path: str, *lines: str, method: str = "POST") -> bytes:
    named = [f"{method} {path} HTTP/1.1", "host: remit", f"authorization: Bearer {served.token}"]
    return "\r\n".join([*named, *lines, "", ""]).encode("latin-1")


def _refused(dialect: str, status: int, raw: bytes) -> dict[str, Any]:
    """An error of 4xx in the dialect's own shape."""
    assert 400 <= status < 500, (status, raw)
    body = json.loads(raw)
    assert body["error"]["message"]
    assert body["error"]["code"]
    if dialect == "anthropic":
        assert body["type"] == "error"
    else:
        assert set(body) == {"error"}
    error: dict[str, Any] = body["error"]
    return error


# -- bodies --------------------------------------------------------------------------------

_TURN = b'"messages": [{"role": "user", "content": "hi"}]'


@dialects
@pytest.mark.parametrize(
    "body",
    [
        b"", b" ", b"{", b"null", b"[]", b"1", b'"x"', b"\xff\xfe{}", b"\x00", b"{}" * 2,
        b"[" * 100_000,
        b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
        b'{"model": "gpt-4o-mini", "max_tokens": 9}',
        b'{"max_tokens": 9, ' + _TURN + b"}",
        b'{"model": "gpt-4o-mini", "max_tokens": 9, "messages": [{"role": "user", "content": "'
        + b'\xff\xfe"}]}',
        b'{"model": "gpt-4o-mini", "max_tokens": NaN, ' + _TURN + b"}",
        b'{"model": "gpt-4o-mini", "max_tokens": Infinity, ' + _TURN + b"}",
        b'{"model": "gpt-4o-mini", "max_tokens": 9, "temperature": NaN, ' + _TURN + b"}",
    ],
)  # fmt: skip
def test_bodies_that_are_none(
    strict: Served, upstream: Upstream, dialect: str, body: bytes
) -> None:
    before = upstream.count()
    status, raw, _ = strict.ask("POST", PATHS[dialect], body)
    _refused(dialect, status, raw)
    assert status == 400
    assert upstream.count() == before


@dialects
@pytest.mark.parametrize(
    "change",
    [
        {"model": None}, {"model": 7}, {"model": ""}, {"model": ["gpt-4o-mini"]},
        {"model": "x" * 600}, {"model": "gpt\x00"},
        {"messages": None}, {"messages": {}}, {"messages": "hi"}, {"messages": []},
        {"max_tokens": -1}, {"max_tokens": 0}, {"max_tokens": True}, {"max_tokens": "5"},
        {"max_tokens": 1.5}, {"max_tokens": []}, {"max_tokens": 10**30},
        {"stream": "yes"}, {"stream": 1},
        {"base_url": "http://x"}, {"api_key": "sk-x"}, {"api_base": "http://x"},
        {"custom_llm_provider": "x"},
    ],
)  # fmt: skip
def test_fields_of_the_wrong_kind(
    strict: Served, upstream: Upstream, dialect: str, change: dict[str, Any]
) -> None:
    before = upstream.count()
    body = {"model": "gpt-4o-mini", "max_tokens": 9,
            "messages": [{"role": "user", "content": "hi"}], **change}  # fmt: skip
    status, raw, _ = strict.ask("POST", PATHS[dialect], body)
    _refused(dialect, status, raw)
    assert status == 400
    assert upstream.count() == before


OWN = {"openai": "gpt-4o-mini", "anthropic": "claude-sonnet-4-5"}


@dialects
@pytest.mark.parametrize(
    "change",
    [
        {"messages": [1]}, {"messages": [[]]}, {"messages": [{}]},
        {"messages": [{"role": "user"}]}, {"messages": [{"role": None, "content": "x"}]},
        {"messages": [{"role": "user", "content": 5}]},
        {"messages": [{"role": "user", "content": [5]}]},
        {"messages": [{"role": "user", "content": [{"text": "x"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": {}}]}]},
        {"max_tokens": 10**12},
        {"temperature": -0.1}, {"temperature": "hot"}, {"temperature": True}, {"temperature": {}},
        {"tools": {}}, {"tools": [1]}, {"tools": [{"name": 5}]}, {"tools": "all"},
        {"stream_options": 5}, {"n": -1}, {"x": {"": [None, {"$content": 1}]}},
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_other_fields_are_the_providers_to_judge(
    odd: tuple[Served, wire.WireServer], session: str, dialect: str, change: dict[str, Any],
    stream: bool,
) -> None:  # fmt: skip
    served, behind = odd
    refusal = json.dumps({"type": "error", "error": {"message": "odd", "x": [1.50, "\ud800"]}})
    behind.script = [wire.Raw(refusal.encode(), status=418, headers={"request-id": "r1"})]
    body = {"model": OWN[dialect], "max_tokens": 9, "stream": stream,
            "messages": [{"role": "user", "content": "hi"}], **change}  # fmt: skip
    named = {"x-remit-session": session}
    status, raw, headers = served.ask("POST", PATHS[dialect], body, headers=named)
    assert (status, raw, headers["request-id"]) == (418, refusal.encode(), "r1")
    sent = behind.calls[-1].body
    if dialect == "openai" and stream and "stream_options" not in change:
        assert sent.pop("stream_options") == {"include_usage": True}
    assert sent == body
    entry = served.exchange(session)
    assert (entry.decision, entry.metadata["error_code"]) == ("ERROR", "INVALID_REQUEST")


@dialects
@pytest.mark.parametrize(
    "member",
    [
        b'"x": "\\ud800"', b'"temperature": 1e999', b'"seed": 123456789012345678901234567890',
        b'"x": 1.10', b'"x" :  [ 1,2 ]', b'"a": 1, "a": 2', b'"x": "\\u00e9"', b'"x": -0.0',
    ],
)  # fmt: skip
def test_a_body_reaches_the_provider_byte_for_byte(
    odd: tuple[Served, wire.WireServer], session: str, dialect: str, member: bytes
) -> None:
    served, behind = odd
    behind.script = [wire.completion("hi") if dialect == "openai" else wire.message("hi")]
    body = b'{"max_tokens":9, %s,"model": "%s" , %s}' % (member, OWN[dialect].encode(), _TURN)
    named = {"x-remit-session": session}
    status, raw, _ = served.ask("POST", PATHS[dialect], body, headers=named)
    assert status == 200
    assert raw == json.dumps(behind.script[0]).encode()
    assert behind.calls[-1].raw == body
    exact = served.ledger.exact(served.exchange(session).id)
    assert exact["answer"] == raw
    assert isinstance(exact["parameters"], bytes)
    assert member in exact["parameters"]


@dialects
def test_a_model_that_nobody_knows(strict: Served, session: str, dialect: str) -> None:
    """It is the provider's to say; here it answers to any name."""
    status, _, headers = strict.call(dialect, "hi", model="no-such-model", session=session)
    assert status == 200
    assert headers["x-remit-cost-certainty"] == "unpriced"
    assert "x-remit-cost-usd" not in headers
    assert "cost_usd" not in strict.exchange(session).metadata
    key = strict.key(usd_nano=10**9)
    status, raw, _ = strict.call(dialect, "hi", model="no-such-model", token=key.key)
    assert status == 402
    assert _refused(dialect, status, raw)["code"] in ("unpriced", "budget_exhausted")


@dialects
def test_numbers_that_no_record_holds_exactly(strict: Served, dialect: str) -> None:
    for text in ("9007199254740993", "1e400", "123456789012345678901234567890", "-0.0"):
        body = (f'{{"model": "gpt-4o-mini", "max_tokens": 9, "x_seed": {text}, '
                '"messages": [{"role": "user", "content": "hi"}]}').encode()  # fmt: skip
        status, raw, _ = strict.ask("POST", PATHS[dialect], body)
        assert status in (200, 400), raw


@dialects
def test_a_body_that_is_too_long(strict: Served, dialect: str) -> None:
    with closing(socket.create_connection(strict.address, timeout=60)) as connection:
        connection.sendall(_head(strict, PATHS[dialect], "content-length: 104857600"))
        assert _statuses(received(connection)) == [413]


@dialects
def test_a_hundred_megabytes_are_not_kept(strict: Served, dialect: str) -> None:
    before = strict.rss_bytes()
    piece = b"x" * 1_000_000
    for head, chunk in (
        ("content-length: 100000000", piece),
        ("transfer-encoding: chunked", b"%x\r\n%b\r\n" % (len(piece), piece)),
    ):
        most = before
        with closing(socket.create_connection(strict.address, timeout=5)) as connection:
            connection.sendall(_head(strict, PATHS[dialect], head))
            with suppress(OSError):  # closed on us, which is what we want
                for _ in range(100):
                    connection.sendall(chunk)
                    most = max(most, strict.rss_bytes())
            reply = received(connection)
        assert _statuses(reply) in ([413], []), reply  # a reset may swallow the answer
        assert most - before < 30_000_000


@dialects
def test_a_chunked_body_is_counted(strict: Served, dialect: str) -> None:
    with closing(socket.create_connection(strict.address, timeout=60)) as connection:
        connection.sendall(_head(strict, PATHS[dialect], "transfer-encoding: chunked"))
        for _ in range(11):
            connection.sendall(b"186a0\r\n" + b"x" * 100_000 + b"\r\n")
        assert _statuses(received(connection)) == [413]


@dialects
def test_a_chunked_body_within_the_limit(strict: Served, session: str, dialect: str) -> None:
    body = json.dumps({"model": "gpt-4o-mini", "max_tokens": 9,
                       "messages": [{"role": "user", "content": "hi"}]}).encode()  # fmt: skip
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    head = _head(strict, PATHS[dialect], "transfer-encoding: chunked", "connection: close",
                 f"x-remit-session: {session}")  # fmt: skip
    assert _statuses(strict.raw(head + chunks)) == [200]
    assert strict.exchange(session).metadata["response"] == "You said: hi"


# -- headers -------------------------------------------------------------------------------


@dialects
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", ["a\x7fb", "caf\xe9", "\xe2\x80\xae", "x" * 513, "a\tb"])
def test_ids_that_cannot_be_used(
    strict: Served, upstream: Upstream, dialect: str, name: str, value: str
) -> None:
    before = upstream.count()
    body = json.dumps({"model": "gpt-4o-mini", "max_tokens": 9,
                       "messages": [{"role": "user", "content": "hi"}]})  # fmt: skip
    head = _head(strict, PATHS[dialect], f"{name}: {value}", f"content-length: {len(body)}",
                 "connection: close")  # fmt: skip
    reply = strict.raw(head + body.encode())
    assert _statuses(reply) == [400], reply
    assert upstream.count() == before


@pytest.mark.parametrize(
    "value", ["a\rx-evil: 1", "a\nx-evil: 1", "a\r\n x-evil: 1", "a\0b", "a\r\n\tb"]
)
def test_headers_are_not_split(strict: Served, upstream: Upstream, value: str) -> None:
    body = json.dumps({"model": "gpt-4o-mini", "max_tokens": 9,
                       "messages": [{"role": "user", "content": "hi"}]})  # fmt: skip
    head = _head(strict, "/v1/chat/completions", f"x-remit-agent: {value}",
                 f"content-length: {len(body)}", "connection: close")  # fmt: skip
    reply = strict.raw(head + body.encode())
    assert _statuses(reply) in ([400], [200]), reply
    assert b"evil" not in reply.lower()
    for entry in strict.ledger.query(event_type="EXCHANGE"):
        agent = entry.metadata["agent_id"]
        assert agent.isprintable()
        assert "evil" not in agent.lower()


def test_headers_that_are_too_large(strict: Served) -> None:
    for lines in (["x-long: " + "x" * 70_000], [f"x-{n}: {'y' * 100}" for n in range(700)]):
        reply = strict.raw(_head(strict, "/v1/models", *lines, method="GET"))
        assert _statuses(reply) == [431]
    reply = strict.raw(_head(strict, "/" + "x" * 70_000, method="GET"))
    assert _statuses(reply) == [431]


def test_keys_that_are_no_text(strict: Served) -> None:
    for value in ("Bearer \xff\xfe", "Bearer", "Basic eDp5", "Bearer " + "x" * 9_000, ""):
        head = (f"GET /v1/models HTTP/1.1\r\nhost: x\r\nauthorization: {value}\r\n"
                "connection: close\r\n\r\n")  # fmt: skip
        assert _statuses(strict.raw(head.encode("latin-1"))) == [401]


@pytest.mark.parametrize(
    "lines",
    [
        ["content-length: 2", "content-length: 3"],
        ["content-length: -1"],
        ["content-length: +2"],
        ["content-length: 2, 3"],
        ["content-length: two"],
        ["content-length: 2", "transfer-encoding: chunked"],
        ["transfer-encoding: chunked, identity"],
        ["content-length : 2"],
        ["content-length: 99999999999999999999999"],
    ],
)
def test_lengths_that_can_be_read_in_two_ways(
    strict: Served, upstream: Upstream, lines: list[str]
) -> None:
    before = upstream.count()
    reply = strict.raw(_head(strict, "/v1/chat/completions", *lines) + b"{}", wait_s=5)
    assert _statuses(reply) in ([400], [413]), reply
    assert upstream.count() == before


# -- dawdling ------------------------------------------------------------------------------


def test_headers_that_come_slowly(strict: Served) -> None:
    sent, slow = 0, b"GET /healthz HTTP/1.1\r\nx-slow: " + b"x" * 600
    with closing(socket.create_connection(strict.address, timeout=60)) as connection:
        with suppress(OSError):
            for byte in slow:
                sent += connection.send(bytes([byte]))
                time.sleep(0.05)
        assert _statuses(received(connection)) == []
    assert sent < len(slow)


def test_connections_that_say_nothing(strict: Served) -> None:
    with ExitStack() as opened:
        idle = [
            opened.enter_context(closing(socket.create_connection(strict.address, timeout=60)))
            for _ in range(50)
        ]
        assert strict.ask("GET", "/healthz")[0] == 200
        for connection in idle:
            assert received(connection) == b""


@dialects
def test_a_body_that_comes_slowly(strict: Served, dialect: str) -> None:
    with closing(socket.create_connection(strict.address, timeout=60)) as connection:
        connection.sendall(_head(strict, PATHS[dialect], "content-length: 1000"))
        with suppress(OSError):
            for _ in range(30):
                connection.send(b" ")
                time.sleep(0.1)
        assert _statuses(received(connection)) in ([408], [])
    # Without a byte the answer is never lost to a reset.
    head = _head(strict, PATHS[dialect], "content-length: 1000")
    assert _statuses(strict.raw(head)) == [408]


def test_too_many_connections(serve: Serve) -> None:
    """Those that have shown no key make room, the oldest first; who comes with one is answered."""
    toml = "\n[server]\nmax_connections = 12\nheader_timeout_s = 120.0\n"
    with serve(toml=toml) as served, ExitStack() as opened:
        strangers = [
            opened.enter_context(closing(socket.create_connection(served.address, timeout=30)))
            for _ in range(40)
        ]
        assert served.call("openai", "hi")[0] == 200
        for connection in strangers[: 40 + 1 - 12]:
            with suppress(ConnectionError):
                assert connection.recv(1) == b""
        strangers[-1].sendall(_head(served, "/healthz", "connection: close", method="GET"))
        assert _statuses(received(strangers[-1])) == [200]
        assert served.ask("GET", "/healthz")[0] == 200


# -- requests of another kind --------------------------------------------------------------


def test_pipelined_requests_are_answered_in_turn(strict: Served) -> None:
    session = new_session()
    parts = []
    for text in ("one", "two"):
        body = json.dumps({"model": "gpt-4o-mini", "max_tokens": 9,
                           "messages": [{"role": "user", "content": text}]})  # fmt: skip
        parts.append(_head(strict, "/v1/chat/completions", f"content-length: {len(body)}",
                           f"x-remit-session: {session}") + body.encode())  # fmt: skip
    parts.append(_head(strict, "/healthz", "connection: close", method="GET"))
    reply = strict.raw(b"".join(parts))
    assert _statuses(reply) == [200, 200, 200]
    assert reply.index(b"said: one") < reply.index(b"said: two") < reply.index(b'"ok"')
    assert len(strict.entries("EXCHANGE", session)) == 2


def test_methods_that_there_are_not(strict: Served) -> None:
    for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS"):
        status, _, headers = strict.ask(method, "/v1/chat/completions")
        assert status == 405
        assert headers["allow"] == "POST"
    assert strict.ask("HEAD", "/v1/chat/completions")[0] == 405
    assert strict.ask("POST", "/v1/models", {})[0] == 405
    for data in (b"BREW / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n",
                 b"GET / HTTP/9.9\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):  # fmt: skip
        assert _statuses(strict.raw(data, wait_s=5)) in ([400], [])


def test_paths_that_there_are_not(strict: Served) -> None:
    for path in (
        "/v1/nope", "/v1", "/v1/chat/completions//x", "//v1/models", "/v1/models/%00",
        "/v1/models/%ff%fe", "/v1/models/..%2f..%2fetc", "/v1/models/" + "x" * 2000,
        "/..%2f..%2fetc/passwd", "/%",
    ):  # fmt: skip
        for anthropic in (False, True):
            headers = {"anthropic-version": "2023-06-01"} if anthropic else {}
            status, raw, _ = strict.ask("GET", path, headers=headers)
            assert status in (404, 400), (path, status)
            if status == 404:
                dialect = "openai" if "/chat/" in path or not anthropic else "anthropic"
                _refused(dialect, status, raw)


def test_a_request_for_a_socket(strict: Served) -> None:
    reply = strict.raw(
        _head(strict, "/v1/models", "upgrade: websocket", "connection: upgrade, close",
              "sec-websocket-version: 13", "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
              method="GET"), wait_s=5,
    )  # fmt: skip
    assert b" 101 " not in reply
    (status,) = _statuses(reply)
    assert status in (200, 400, 404, 426)


def test_a_whole_url_as_target_goes_nowhere(strict: Served, upstream: Upstream) -> None:
    with wire.serve({}) as elsewhere:
        before = upstream.count()
        head = _head(strict, f"{elsewhere.url}/v1/models", "connection: close", method="GET")
        assert _statuses(strict.raw(head)) in ([200], [400], [404])
        connect = b"CONNECT 127.0.0.1:1 HTTP/1.1\r\nhost: x\r\n\r\n"
        assert all(status >= 400 for status in _statuses(strict.raw(connect, wait_s=5)))
        assert elsewhere.calls == []
        assert upstream.count() == before


def test_a_client_that_waits_to_be_asked_for_its_body(strict: Served, session: str) -> None:
    body = json.dumps({"model": "gpt-4o-mini", "max_tokens": 9,
                       "messages": [{"role": "user", "content": "hi"}]}).encode()  # fmt: skip
    with closing(socket.create_connection(strict.address, timeout=60)) as connection:
        connection.sendall(
            _head(strict, "/v1/chat/completions", "expect: 100-continue", "connection: close",
                  f"content-length: {len(body)}", f"x-remit-session: {session}")
        )  # fmt: skip
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")
        connection.sendall(body)
        assert 200 in _statuses(received(connection))
    strict.exchange(session)
