"""Ways in that should not be: other pages, other names, packets cut where it hurts."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.server.conftest import Serve
from tests.server.running import Served, new_session, received, serving
from tests.support.upstream import Upstream

_BODY = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "hello"}]}


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
        ("POST", "/v1/chat/completions", _BODY),
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
        assert dev.ask("POST", "/v1/chat/completions", _BODY, token="", headers=told)[0] == 200


@pytest.fixture(scope="module")
def dev(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that asks nobody for a key."""
    with serving(tmp_path_factory.mktemp("dev") / "root", upstream.url, "--dev") as served:
        yield served


@pytest.mark.parametrize("name", ["base_url", "api_base", "api_key"])
@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_a_body_names_no_upstream_and_no_header(
    served: Served, session: str, dialect: str, name: str
) -> None:
    status, body, _ = served.call(
        dialect, "hello", session=session, **{name: "http://127.0.0.1:1/\r\nx-evil: 1"}
    )
    assert status == 400
    assert name in json.loads(body)["error"]["message"]
    assert served.entries("DISPATCH", session) == []


def test_the_end_of_the_headers_may_come_in_two_packets(served: Served) -> None:
    body = json.dumps({**_BODY, "user": "x" * 80_000}).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {served.token}\r\n"
        f"x-remit-session: {new_session()}\r\nconnection: close\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    ).encode()
    with closing(socket.create_connection(served.address, timeout=60)) as connection:
        connection.sendall(head[:-2])
        time.sleep(0.2)
        connection.sendall(head[-2:] + body)
        assert received(connection).startswith(b"HTTP/1.1 200")


def test_an_empty_line_behind_a_body_ends_nothing(serve: Serve) -> None:
    toml = "[server]\nheader_timeout_s = 0.5\n"
    with serve(toml=toml) as served:
        body = json.dumps(
            {**_BODY, "messages": [{"role": "user", "content": "[[delay=1.5]] hello"}]}
        ).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
            f"authorization: Bearer {served.token}\r\ncontent-length: {len(body)}\r\n\r\n"
        ).encode()
        with closing(socket.create_connection(served.address, timeout=60)) as connection:
            connection.sendall(head + body)
            time.sleep(0.2)
            connection.sendall(b"\r\n")
            assert received(connection).startswith(b"HTTP/1.1 200")
