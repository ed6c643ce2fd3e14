"""The webhook of approvals: signed messages, retries of answers that may pass, no redirects."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remit.agents import ApprovalQueue
from remit.agents.tools import Tool
from remit.kernel.settings import ApprovalSettings
from remit.ledger import LedgerClient
from tests.support.waiting import until
from tests.support.wire import Raw, serve

TOOL = Tool("refund", "Pay an order back.", {"type": "object"}, print)
ARGUMENTS = {"order": 12, "card": "private"}
_WEBHOOK = "remit.agents.approvals.webhook"
SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[LedgerClient]:
    """On one store: what is told does not depend on it."""
    with LedgerClient(tmp_path / "ledger.db") as client:
        yield client


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{_WEBHOOK}._PAUSES_S", (0.0, 0.01, 0.01, 0.01))


def _queue(ledger: LedgerClient, url: str, **more: Any) -> ApprovalQueue:
    settings = {
        "valid_s": 60.0, "tools": {}, "webhook": url, "webhook_secret": SECRET,
        "webhook_content": False, **more,
    }  # fmt: skip
    return ApprovalQueue(ledger, ApprovalSettings.model_validate(settings))


def _ask(queue: ApprovalQueue, number: int = 0) -> str:
    asked = {**ARGUMENTS, "number": number}
    return queue.request(TOOL, asked, session_id="SES-TOLDTOLD", agent_id="client").request_id


@pytest.mark.parametrize("content", [False, True])
def test_a_message_is_signed_and_says_what_it_may(ledger: LedgerClient, content: bool) -> None:
    with serve({}) as server:
        queue = _queue(ledger, f"{server.url}/hook", webhook_content=content)
        request_id = _ask(queue)
        until(lambda: server.calls != [])
        queue.close()
    (call,) = server.calls
    headers = {name.lower(): value for name, value in call.headers.items()}
    signed = f"{request_id}.{headers['webhook-timestamp']}.".encode() + call.raw
    digest = hmac.digest(b"k" * 32, signed, hashlib.sha256)
    assert headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
    assert headers["webhook-id"] == request_id
    assert call.body["type"] == "approval.requested"
    assert call.body["data"]["request_id"] == request_id
    assert call.body["data"]["tool_id"] == "refund"
    assert (b"private" in call.raw) is content
    assert (call.body["data"].get("arguments") == {**ARGUMENTS, "number": 0}) is content


def test_what_may_pass_is_tried_again_and_what_cannot_is_not(
    ledger: LedgerClient, caplog: pytest.LogCaptureFixture
) -> None:
    steps = [Raw(status=503), Raw(status=429), {}, Raw(status=400), Raw(status=500)]
    with serve(*steps) as server, caplog.at_level(logging.WARNING):
        queue = _queue(ledger, f"{server.url}/hook?token=hidden-token")
        taken, refused, failing = (_ask(queue, number) for number in range(3))
        until(lambda: f"{failing}: HTTP 500 (4 attempts)" in caplog.text)
        queue.close()
    ids = [call.headers["webhook-id"] for call in server.calls]
    assert ids == [taken] * 3 + [refused] + [failing] * 4
    assert f"{refused}: HTTP 400" in caplog.text
    for secret in ("hidden-token", SECRET, "private"):
        assert secret not in caplog.text


def test_redirects_are_not_followed(ledger: LedgerClient, caplog: pytest.LogCaptureFixture) -> None:
    with serve({}) as inside:
        away = Raw(status=307, headers={"location": f"{inside.url}/metadata"})
        with serve(away) as server, caplog.at_level(logging.WARNING):
            queue = _queue(ledger, server.url)
            _ask(queue)
            until(lambda: "HTTP 307, a redirect, which is not followed" in caplog.text)
            queue.close()
        assert len(server.calls) == 1
        assert inside.calls == []


def test_a_silent_host_delays_nobody(ledger: LedgerClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{_WEBHOOK}._MAX_WAITING", 5)
    monkeypatch.setattr(f"{_WEBHOOK}._CLOSE_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        queue = _queue(ledger, f"http://127.0.0.1:{port}/")
        requests = [_ask(queue, number) for number in range(12)]  # more than may wait
        assert len(queue.pending()) == len(requests)
        queue.close()


def test_addresses_that_cannot_be(ledger: LedgerClient, caplog: pytest.LogCaptureFixture) -> None:
    for url in ("file:///etc/passwd", "gopher://x", "ftp://x"):
        with pytest.raises(ValueError, match="not an http or https address"):
            _queue(ledger, url)
    with pytest.raises(ValueError, match="needs webhook_secret"):
        _queue(ledger, "http://x", webhook_secret="")
    with caplog.at_level(logging.WARNING):
        for number, url in enumerate(("http://[", "http://127.0.0.1:1/", "http://a b/", "http://")):
            queue = _queue(ledger, url)
            request_id = _ask(queue, number)
            until(lambda request_id=request_id: request_id in caplog.text)  # type: ignore[misc]
            queue.close()
    assert caplog.text.count("did not take") == 4
