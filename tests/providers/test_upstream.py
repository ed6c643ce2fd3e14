"""What a provider of one dialect is sent: a client's own bytes, spliced only where they must be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remit.providers import Body, Outgoing, ProviderError, Timeouts, UpstreamProvider
from remit.providers.wire import CHAT, COMPACT, COUNT_TOKENS, INPUT_TOKENS, MESSAGES, Endpoint
from tests.support.requests import (
    anthropic_provider,
    openai_provider,
    provider_request,
    provider_settings,
)
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


@pytest.mark.parametrize(
    ("endpoint", "raw", "model"),
    [
        (COUNT_TOKENS, b'{"messages":[{"role":"assistant","content":[{"type":"thinking",'
         b'"thinking":"a","signature":"remit-openai-reasoning:SEAL"},'
         b'{"type":"text","text":"b"}]}]}', "claude-haiku-4-5"),
        (COUNT_TOKENS, b'{"messages":[{"role":"assistant","content":[{"type":"redacted_thinking",'
         b'"data":"EmwKASEAL"},{"type":"text","text":"b"}]}]}', "glm-5"),
        (COMPACT, b'{"input":[{"type":"reasoning","encrypted_content":"remit-anthropic-sig:SEAL"},'
         b'{"role":"user","content":"b"}]}', "gpt-5"),
        (INPUT_TOKENS, b'{"input":[{"type":"reasoning","encrypted_content":"gAAAASEAL"},'
         b'{"role":"user","content":"b"}]}', "qwen3"),
    ],
)  # fmt: skip
def test_a_count_or_compaction_has_no_seals_of_other_providers(
    endpoint: Endpoint, raw: bytes, model: str
) -> None:
    provider: Any = anthropic_provider if endpoint is COUNT_TOKENS else openai_provider
    body = Body.read(endpoint, b'{"model":"%b",' % model.encode() + raw[1:])
    sent = provider("http://127.0.0.1:9").outgoing(provider_request(model_id=model, body=body))
    assert b"SEAL" not in sent.body.raw
    assert b'"b"' in sent.body.raw
    assert sent.body.changed


def test_a_provider_of_gemini_s_own_api_gets_a_signature_for_calls_of_others() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    turns = [{"role": "assistant", "tool_calls": [call, {**call, "id": "b"}]}]
    body = Body.read(CHAT, json.dumps({"model": "m", "messages": turns}).encode())
    settings = provider_settings("openai").model_copy(update={"kind": "gemini"})
    provider = UpstreamProvider("http://127.0.0.1:9", "k", settings, "mine")
    sent = provider.outgoing(provider_request(model_id="gemini-3-pro", body=body))
    first, second = sent.body.value["contents"][1]["parts"]
    assert first["thoughtSignature"] == "skip_thought_signature_validator"
    assert "thoughtSignature" not in second


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
