"""What a client sends goes out, what a provider sends comes back, and both are on record."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from remit.kernel.json_text import load_exact, remove_member, set_member
from remit.ledger import LedgerEntry, wire_body
from tests.server.running import Served, new_session, serving
from tests.support.wire_corpus import CORPUS, WireExchange

PATHS = {
    "openai.chat": "/v1/chat/completions",
    "openai.responses": "/v1/responses",
    "anthropic.messages": "/v1/messages",
}


class _Provider(ThreadingHTTPServer):
    """Answers with the bytes that it is given, and keeps those that it gets."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.answer = b""
        self.streamed = False
        self.got: list[tuple[str, bytes]] = []

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}"


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Provider

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.got.append((self.path, body))
        self.send_response(200)
        kind = "text/event-stream; charset=utf-8" if self.server.streamed else "application/json"
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(self.server.answer)))
        self.send_header("x-request-id", "req-1")
        self.send_header("request-id", "req-2")
        self.send_header("x-ratelimit-remaining-tokens", "77")
        self.end_headers()
        self.wfile.write(self.server.answer)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def provider() -> Iterator[_Provider]:
    with _Provider() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def served(provider: _Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("fidelity") / "root"
    with serving(root, provider.url) as running:
        running.token = running.key(usd_nano=10**15).key
        yield running


@pytest.fixture(params=CORPUS, ids=lambda exchange: exchange.name)
def exchange(request: pytest.FixtureRequest) -> WireExchange:
    found: WireExchange = request.param
    return found


def test_bytes_go_out_and_come_back(
    served: Served, provider: _Provider, exchange: WireExchange
) -> None:
    session = new_session()
    provider.answer, provider.streamed = exchange.answer, exchange.streamed
    provider.got.clear()
    headers = {
        "x-remit-session": session, "content-type": "application/json", **dict(exchange.headers),
    }  # fmt: skip
    path = PATHS[exchange.endpoint]
    # Sound has no price and searches have no bound: a limit in US dollars refuses both.
    is_unbounded = any(field in exchange.request for field in (b'"audio"', b'"web_search_options"'))
    token = served.key().key if is_unbounded else None
    status, came, given = served.ask("POST", path, exchange.request, headers=headers, token=token)
    assert status == 200, came
    [(reached, sent)] = provider.got
    assert reached == path
    entry = served.exchange(session)
    assert entry.metadata["wire"] == exchange.endpoint
    assert _undone(sent, entry) == exchange.request
    texts = served.ledger.exact(entry.id)
    assert wire_body(texts, entry.metadata["cut"]) == sent
    if exchange.streamed:
        assert _without_remits(came, entry) == _without_usage(exchange, entry)
    else:
        assert came == exchange.answer == texts["answer"]
        assert given["x-request-id"] == "req-1"
        assert given["request-id"] == "req-2"
        assert given["x-ratelimit-remaining-tokens"] == "77"
        assert entry.metadata["answer"] == load_exact(exchange.answer)


def _undone(sent: bytes, entry: LedgerEntry) -> bytes:
    """What the client sent, by what went out and what the record says was changed."""
    for change in reversed(entry.metadata.get("changed", [])):
        path = tuple(change["path"].split("/")[1:])
        if "was" in change:
            sent = set_member(sent, path, change["was"].encode())
        else:
            sent = remove_member(sent, path)
    return sent


def _without_remits(came: bytes, entry: LedgerEntry) -> bytes:
    """A stream without the one comment that Remit adds."""
    comments = re.findall(rb": x-remit-exchange=[^\n]*\n\n", came)
    assert len(comments) == 1
    assert entry.id.encode() in comments[0]
    return came.replace(comments[0], b"")


def _without_usage(exchange: WireExchange, entry: LedgerEntry) -> bytes:
    """The provider's stream without the event that only Remit asked for."""
    asked = any("include_usage" in change["path"] for change in entry.metadata.get("changed", []))
    if not asked:
        return exchange.answer
    events = exchange.answer.split(b"\n\n")
    return b"\n\n".join(event for event in events if not _is_usage(event))


def _is_usage(event: bytes) -> bool:
    data = event.partition(b"data:")[2].strip()
    if not data.startswith(b"{"):
        return False
    value = json.loads(data)
    return value.get("choices") == [] and value.get("usage") is not None


def test_the_ledger_verifies_whatever_was_sent(served: Served) -> None:
    report = served.ledger.verify()
    assert report.verified, report
