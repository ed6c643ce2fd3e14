"""The proxies' files in ``deploy/proxies``, read by the real nginx and the real Caddy, with TLS."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.places import PATIENCE_S, free_port, program, running
from tests.deploy.proxies import caddy, nginx
from tests.server.running import Served, serving
from tests.support.waiting import until


def chunk(text: str, reason: str | None = None) -> bytes:
    """An event of a stream of Chat Completions."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": reason}
    event = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o-mini"}
    return b"data: " + json.dumps({**event, "choices": [choice]}).encode() + b"\n\n"


class Provider:
    """A provider whose stream stops after its first piece until it is let go on."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.hung_up = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                self.wfile.write(chunk("first"))
                self.wfile.flush()
                outer.go_on.wait(PATIENCE_S)
                try:
                    self.wfile.write(chunk("last", "stop"))
                    self.wfile.write(b"data: [DONE]\n\n")
                except OSError:
                    outer.hung_up.set()

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.go_on.set()
        self.server.shutdown()
        self.server.server_close()


@dataclass
class Proxied:
    """A proxy before a server before a provider."""

    port: int
    plain: int
    served: Served
    provider: Provider
    trusted: ssl.SSLContext
    log: Path
    names: dict[str, str] = field(default_factory=lambda: {"Host": "remit.example.org"})

    def ask(
        self, method: str, path: str, body: bytes | None = None, key: str | None = None
    ) -> tuple[http.client.HTTPSConnection, http.client.HTTPResponse]:
        """A request over TLS; the connection is the caller's to close."""
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=PATIENCE_S, context=self.trusted
        )
        key = self.served.token if key is None else key
        headers = {**self.names, "authorization": f"Bearer {key}", "x-remit-session": self.session}
        connection.request(method, path, body, headers)
        return connection, connection.getresponse()

    session = "SES-PROXIED1"


@pytest.fixture(params=[nginx, caddy], ids=lambda made: made.__name__)
def proxied(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Proxied]:
    program(request.param.__name__)
    provider = Provider()
    place = tmp_path / "proxy"
    place.mkdir()
    port, plain = free_port(), free_port()
    try:
        with serving(tmp_path / "root", provider.url) as served:
            remit = served.url.removeprefix("http://")
            command = request.param(place, [remit], port, plain)
            with running(command, place / "log", place):
                trusted = ssl.create_default_context(cafile=str(place / "fullchain.pem"))
                found = Proxied(port, plain, served, provider, trusted, place / "access.log")

                def ready() -> bool:
                    try:
                        connection, answer = found.ask("GET", "/readyz")
                    except OSError:
                        return False
                    with closing(connection):
                        return answer.status == 200

                until(ready)
                yield found
                provider.go_on.set()
    finally:
        provider.close()


def body(**more: Any) -> bytes:
    messages = [{"role": "user", "content": "hi"}]
    return json.dumps(
        {"model": "gpt-4o-mini", "max_tokens": 9, "messages": messages, **more}
    ).encode()


def test_a_stream_comes_through_as_it_is_made(proxied: Proxied) -> None:
    connection, answer = proxied.ask("POST", "/v1/chat/completions", body(stream=True))
    with closing(connection):
        assert answer.status == 200
        seen = b""
        while b"first" not in seen:  # the provider says no more until this has arrived
            line = answer.readline()
            assert line, seen
            seen += line
        assert not proxied.provider.go_on.is_set()
        proxied.provider.go_on.set()
        assert answer.read().rstrip().endswith(b"data: [DONE]")
    exchange = proxied.served.exchange(proxied.session)
    assert exchange.metadata["response"] == "firstlast"


def test_who_hangs_up_ends_the_call(proxied: Proxied) -> None:
    connection, answer = proxied.ask("POST", "/v1/chat/completions", body(stream=True))
    seen = b""
    while b"first" not in seen:
        seen += answer.readline()
    answer.close()
    connection.close()
    until(lambda: proxied.served.entries("EXCHANGE", proxied.session))
    exchange = proxied.served.exchange(proxied.session)
    assert exchange.metadata["error_code"] == "CANCELLED"
    assert exchange.metadata["response"] == "first"


def test_what_is_refused_before_remit(proxied: Proxied) -> None:
    for path, status in (("/metrics", 403), ("/v1/models", 401)):
        connection, answer = proxied.ask("GET", path, key="sk-remit-of-somebody-else")
        with closing(connection):
            assert answer.status == status
    assert proxied.served.entries("DISPATCH", proxied.session) == []
