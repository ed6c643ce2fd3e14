"""Whatever comes in, the server answers with a reason, stays up, and the record is whole."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.server.conftest import QUICK
from tests.server.running import PATHS, Served, prompt, received, serving, statuses
from tests.support import wire
from tests.support.upstream import Upstream

TOML = (
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
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, wire.WireServer]]:
    """A server, and an upstream that shows what it gets."""
    root = tmp_path_factory.mktemp("odd") / "root"
    with wire.serve({}) as behind, serving(root, behind.url, toml=QUICK) as running:
        yield running, behind


@pytest.fixture(autouse=True)
def _alive_after(served: Served) -> Iterator[None]:
    yield
    assert served.process.poll() is None
    assert served.call("openai", "still there?")[0] == 200


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


_TURN = b'"messages": [{"role": "user", "content": "hi"}]'


OWN = {"openai": "gpt-4o-mini", "anthropic": "claude-sonnet-4-5"}


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
def test_a_hundred_megabytes_are_not_kept(served: Served, dialect: str) -> None:
    chunk = b"10c8e0\r\n" + b"x" * 1_100_000
    for head, sent in (("content-length: 104857600", b""), ("transfer-encoding: chunked", chunk)):
        with served.connected(served.head(head, path=PATHS[dialect]) + sent) as connection:
            assert statuses(received(connection)) == [413]
    before, piece = served.rss_bytes(), b"x" * 1_000_000
    for head, chunk in (
        ("content-length: 100000000", piece),
        ("transfer-encoding: chunked", b"%x\r\n%b\r\n" % (len(piece), piece)),
    ):
        most = before
        with served.connected(wait_s=5) as connection:
            connection.sendall(served.head(head, path=PATHS[dialect]))
            with suppress(OSError):  # closed on us, which is what we want
                for _ in range(100):
                    connection.sendall(chunk)
                    most = max(most, served.rss_bytes())
            reply = received(connection)
        assert statuses(reply) in ([413], []), reply  # a reset may swallow the answer
        assert most - before < 30_000_000


@dialects
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", ["a\x7fb", "caf\xe9", "\xe2\x80\xae", "x" * 513, "a\tb"])
def test_ids_that_cannot_be_used(
    served: Served, upstream: Upstream, dialect: str, name: str, value: str
) -> None:
    before = upstream.count()
    sent = served.request(prompt(), f"{name}: {value}", "connection: close", path=PATHS[dialect])
    reply = served.raw(sent)
    assert statuses(reply) == [400], reply
    assert upstream.count() == before


def test_headers_that_come_slowly(served: Served) -> None:
    sent, slow = 0, b"GET /healthz HTTP/1.1\r\nx-slow: " + b"x" * 600
    with served.connected() as connection:
        with suppress(OSError):
            for byte in slow:
                sent += connection.send(bytes([byte]))
                time.sleep(0.05)
        assert statuses(received(connection)) == []
    assert sent < len(slow)


def test_a_body_has_one_time_limit_for_all_its_parts(served: Served) -> None:
    """Each wait is below the limit of 1 s, and both together are above it."""
    assert served.ask("POST", "/api/feedback", {})[0] == 400  # builds the API
    for path in (*PATHS.values(), "/api/feedback"):
        head = served.head("content-length: 9", "connection: close", path=path)
        with served.connected(head) as connection:
            for part in (b"{", b"       }"):
                time.sleep(0.7)
                with suppress(OSError):
                    connection.send(part)
            assert statuses(received(connection)) in ([408], []), path
        # Without a byte the answer is never lost to a reset.
        assert statuses(served.raw(head)) == [408], path


def test_methods_that_there_are_not(served: Served) -> None:
    """GET of chat completions lists the stored ones; messages take nothing but POST."""
    for path, taken in (("/v1/messages", "POST"), ("/v1/chat/completions", "GET, POST")):
        for method in ("GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"):
            status, _, headers = served.ask(method, path)
            if method in ("GET", "HEAD") and "GET" in taken:
                assert status == 200
                continue
            assert status == 405
            assert headers["allow"] == taken
    assert served.ask("POST", "/v1/models", {})[0] == 405
    for data in (b"BREW / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n",
                 b"GET / HTTP/9.9\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):  # fmt: skip
        assert statuses(served.raw(data, wait_s=5)) in ([400], [])


def test_paths_that_there_are_not(served: Served) -> None:
    for path in (
        "/v1/nope", "/v1", "/v1/chat/completions//x", "//v1/models", "/v1/models/%00",
        "/v1/models/%ff%fe", "/v1/models/..%2f..%2fetc", "/v1/models/" + "x" * 2000,
        "/..%2f..%2fetc/passwd", "/%",
    ):  # fmt: skip
        for anthropic in (False, True):
            headers = {"anthropic-version": "2023-06-01"} if anthropic else {}
            status, raw, _ = served.ask("GET", path, headers=headers)
            assert status in (404, 400), (path, status)
            if status == 404:
                dialect = "openai" if "/chat/" in path or not anthropic else "anthropic"
                _refused(dialect, status, raw)


def test_a_client_that_waits_to_be_asked_for_its_body(served: Served, session: str) -> None:
    body = json.dumps(prompt()).encode()
    head = served.head(
        "expect: 100-continue", "connection: close", f"content-length: {len(body)}",
        f"x-remit-session: {session}",
    )  # fmt: skip
    with served.connected(head) as connection:
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")
        connection.sendall(body)
        assert 200 in statuses(received(connection))
    served.exchange(session)


@pytest.mark.parametrize(
    "value", ["a\rx-evil: 1", "a\nx-evil: 1", "a\r\n x-evil: 1", "a\0b", "a\r\n\tb"]
)
def test_headers_are_not_split(served: Served, upstream: Upstream, value: str) -> None:
    reply = served.raw(served.request(prompt(), f"x-remit-agent: {value}", "connection: close"))
    assert statuses(reply) in ([400], [200]), reply
    assert b"evil" not in reply.lower()
    for entry in served.ledger.query(event_type="EXCHANGE"):
        agent = entry.metadata["agent_id"]
        assert agent.isprintable()
        assert "evil" not in agent.lower()


def test_keys_that_are_no_text(served: Served) -> None:
    for value in ("Bearer \xff\xfe", "Bearer", "Basic eDp5", "Bearer " + "x" * 9_000, ""):
        head = (f"GET /v1/models HTTP/1.1\r\nhost: x\r\nauthorization: {value}\r\n"
                "connection: close\r\n\r\n")  # fmt: skip
        assert statuses(served.raw(head.encode("latin-1"))) == [401]


def test_a_whole_url_as_target_goes_nowhere(served: Served, upstream: Upstream) -> None:
    with wire.serve({}) as elsewhere:
        before = upstream.count()
        head = served.head("connection: close", path=f"{elsewhere.url}/v1/models", method="GET")
        assert statuses(served.raw(head)) in ([200], [400], [404])
        connect = b"CONNECT 127.0.0.1:1 HTTP/1.1\r\nhost: x\r\n\r\n"
        assert statuses(served.raw(connect, wait_s=5)) == [400]
        assert elsewhere.calls == []
        assert upstream.count() == before
