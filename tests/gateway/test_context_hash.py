"""The hash of an exchange's request, which readers compute from the recorded request."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson
import pytest
import rfc8785

from remit.gateway import LLMGateway, PromptRequest, RouterConfig
from remit.ledger import Erased, LedgerClient, LedgerEntry
from remit.providers import Body
from remit.providers.wire import CHAT
from tests.support.requests import openai_provider, prompt_request
from tests.support.wire import completion, serve

pytestmark = pytest.mark.any_store

_RAW = b'{"model": "model-1",\n "messages": [{"role":"user", "content":"caf\\u00e9"} ,{"role": "user","content": "b"}], "n": 1e0, "tools": []}'  # noqa: E501


def _exchange(ledger: LedgerClient, request: PromptRequest, **config: Any) -> str:
    with serve(completion("hi"), completion("hi")) as server:
        gateway = LLMGateway(
            ledger,
            config=RouterConfig(default_provider="p", default_model="model-1", **config),
            dev_mode=True,
        )
        gateway.register_provider("p", openai_provider(server.url))
        response = gateway.route(request)
    assert response.outcome == "success", response.error_message
    assert ledger.read(response.exchange_entry_id).metadata["context_hash"] == response.context_hash
    return response.exchange_entry_id


def _recorded(ledger: LedgerClient, entry_id: str) -> dict[str, Any]:
    metadata: dict[str, Any] = orjson.loads(ledger.read_record(entry_id))["metadata"]
    return metadata


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (prompt_request(prompt='a "quoted" caf\u00e9\n'), 'a "quoted" caf\u00e9\n'.encode()),
        (
            prompt_request(messages=[{"role": "user", "content": "\u20ac"}]),
            rfc8785.dumps([{"role": "user", "content": "\u20ac"}]),
        ),
        (prompt_request(body=Body.read(CHAT, _RAW)), _RAW),
    ],
    ids=["prompt", "messages", "body"],
)
def test_it_is_computed_from_the_recorded_request(
    ledger: LedgerClient, request_: PromptRequest, expected: bytes
) -> None:
    entry_id = _exchange(ledger, request_)
    assert "context_hash" not in _recorded(ledger, entry_id)
    stored = ledger.read(entry_id).metadata["context_hash"]
    assert stored == hashlib.sha256(expected).hexdigest()
    (found,) = ledger.query(event_type="EXCHANGE", limit=1)
    assert found.metadata["context_hash"] == stored
    assert [*found.metadata] == sorted(found.metadata)
    assert "context_hash" not in ledger.exact(entry_id)
    (bare,) = ledger.query(event_type="EXCHANGE", limit=1, with_content=False)
    assert "context_hash" not in bare.metadata


def test_a_request_that_is_sent_otherwise_than_it_came_has_its_hash_recorded(
    ledger: LedgerClient,
) -> None:
    raw = b'{"model":"model-1","stream":true,"messages":[{"role":"user","content":"x"}]}'
    entry_id = _exchange(ledger, prompt_request(body=Body.read(CHAT, raw)))  # asks for usage too
    assert ledger.read(entry_id).metadata["changed"]
    assert "context_hash" in _recorded(ledger, entry_id)


def test_it_is_erased_with_the_request(ledger: LedgerClient) -> None:
    entry_id = _exchange(ledger, prompt_request(body=Body.read(CHAT, _RAW)))
    report = ledger.erase(entry_id=entry_id, reason="asked", requested_by="me")
    entry = ledger.read(entry_id)
    assert entry.metadata["context_hash"] == Erased(report.erasure_id)
    assert hashlib.sha256(_RAW).hexdigest() not in ledger.read_record(entry_id).decode()
    assert ledger.verify().verified


def test_a_recorded_hash_is_read_as_it_was_written(ledger: LedgerClient) -> None:
    written = {"prompt": "p", "dispatch_entry_id": "LED-00000000", "context_hash": "00"}
    entry_id = ledger.write(LedgerEntry("EXCHANGE", "S", "SUCCESS", "r", metadata=written))
    assert ledger.read(entry_id).metadata == written
