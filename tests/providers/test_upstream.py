"""What a provider of one dialect is sent: a client's own bytes, spliced only where they must be."""

from __future__ import annotations

from typing import Any

import pytest

from remit.providers import Body, Outgoing, ProviderError, Timeouts
from remit.providers.wire import CHAT, MESSAGES, Endpoint
from tests.support.requests import anthropic_provider, openai_provider, provider_request
from tests.support.wire import Raw, serve

TIMES = Timeouts(5.0, 5.0, 5.0)
ODD = b'{ "x":1.10,"model" : "m-1", "temperature": 1E0 ,"messages":[{"role":"user"}] %s}'


def _outgoing(endpoint: Endpoint, raw: bytes, *, model: str = "m-1", **changes: Any) -> Outgoing:
    provider: Any = anthropic_provider if endpoint is MESSAGES else openai_provider
    if endpoint is MESSAGES:
        changes = {}
    request = provider_request(
        model_id=model, body=Body.read(endpoint, raw), headers={"anthropic-beta": "b", "x": "y"}
    )
    return provider("http://127.0.0.1:9", **changes).outgoing(request)


@pytest.mark.parametrize("endpoint", [CHAT, MESSAGES])
def test_a_body_of_its_own_dialect_is_sent_as_it_came(endpoint: Endpoint) -> None:
    raw = ODD % b', "max_tokens": 9'
    sent = _outgoing(endpoint, raw)
    assert (sent.body.raw, sent.body.changed, sent.stream) == (raw, [], False)
    assert "x" not in sent.headers


def test_only_what_must_be_is_changed_and_each_change_is_told() -> None:
    raw = ODD % b', "stream":true'
    sent = _outgoing(CHAT, raw, model="behind", send_temperature=False)
    assert sent.asks_usage
    assert b'"x":1.10' in sent.body.raw
    assert sent.body.value["stream_options"] == {"include_usage": True}
    assert "temperature" not in sent.body.value
    told = {change["path"]: change.get("was") for change in sent.body.changed}
    assert told == {"/model": '"m-1"', "/temperature": "1E0", "/stream_options": None}
    asked = _outgoing(CHAT, ODD % b',"stream":true,"stream_options":{"include_usage":true}')
    assert (asked.asks_usage, asked.body.changed) == (False, [])


async def test_a_refusal_is_an_error_that_holds_the_answer_as_it_came() -> None:
    said = b'{"error":{"message":"no: sk-secret","type":"invalid_request_error"}}'
    headers = {"x-request-id": "r", "x-ratelimit-limit-tokens": "5", "set-cookie": "c=1"}
    with serve(Raw(said, status=418, headers=headers)) as server:
        provider = openai_provider(server.url)
        sent = provider.outgoing(provider_request(body=Body.read(CHAT, ODD % b"")))
        with pytest.raises(ProviderError) as caught:
            await provider.send(sent, TIMES)
        await provider.aclose()
    reply = caught.value.reply
    assert reply is not None
    assert (reply.endpoint, reply.status) == ("openai.chat", 418)
    assert reply.body == said.replace(b"sk-secret", b"[key]")
    shown = dict(reply.headers)
    assert (shown["x-request-id"], shown["x-ratelimit-limit-tokens"]) == ("r", "5")
    assert "set-cookie" not in shown
    assert "sk-secret" not in str(caught.value)
