"""Bedrock's paths over the wire, with Amazon's own client, to providers of other APIs."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import botocore.session
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EventStreamError

from tests.server.running import Served
from tests.support import wire
from tests.support.raw_provider import RawProvider, replying, whole

BEFORE = "provider"
TOML = "[gateway]\nmax_retries = 0\nfailure_threshold = 1000\n"
_CLAUDE = "claude-sonnet-4-5"
_USAGE = {"input_tokens": 20, "output_tokens": 7, "cache_read_input_tokens": 100,
          "cache_creation_input_tokens": 30}  # fmt: skip
_NANO = 20 * 3000 + 7 * 15000 + 100 * 300 + 30 * 3750
"""Nano-dollars of that usage with Claude Sonnet."""
_SEAL = "Eg" + "A" * 60
_MESSAGE: dict[str, Any] = {
    "id": "m", "type": "message", "role": "assistant", "model": _CLAUDE,
    "content": [{"type": "thinking", "thinking": "I look.", "signature": _SEAL},
                {"type": "redacted_thinking", "data": "hidden"},
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": 1}}],
    "stop_reason": "tool_use", "stop_sequence": None, "usage": _USAGE,
}  # fmt: skip
_CONTENT = [
    {"reasoningContent": {"reasoningText": {"text": "I look.", "signature": _SEAL}}},
    {"reasoningContent": {"redactedContent": b"hidden"}},
    {"text": "Let me see."},
    {"toolUse": {"toolUseId": "toolu_1", "name": "look", "input": {"at": 1}}},
]
_SUM = {"inputTokens": 20, "outputTokens": 7, "totalTokens": 157, "cacheReadInputTokens": 100,
        "cacheWriteInputTokens": 30}  # fmt: skip
_TURN = {"role": "user", "content": [{"text": "hi"}]}
_TOOLS = {"tools": [{"toolSpec": {"name": "look", "inputSchema": {"json": {
    "type": "object", "properties": {"at": {"type": "integer"}}}}}}]}  # fmt: skip
_INVOKED = {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 50,
            "messages": [{"role": "user", "content": "hi"}]}  # fmt: skip


def _stream(*events: Any) -> bytes:
    return whole(b"".join(wire.sse(events)), kind="text/event-stream")


def _answered(path: str, raw: bytes) -> bytes:
    body = json.loads(raw) if raw else {}
    if path.endswith("/messages"):
        return _messages(body, json.dumps(body["messages"]))
    if path.endswith("/chat/completions"):
        answer = wire.completion_stream(wire.completion("Good day"))
        return whole(b"".join(answer.chunks), kind=answer.content_type)
    return whole(b'{"object":"list","data":[]}')


ANSWER = replying(_answered)


def _messages(body: dict[str, Any], text: str) -> bytes:
    """Answer as the Messages API does, which refuses members that it does not know."""
    odd = {"anthropic_version", "anthropic_beta"} & body.keys()
    if odd or "refused" in text:
        said = {"type": "error", "error": {"type": "invalid_request_error", "message": "Refused"}}
        return whole(json.dumps(said).encode(), status="400 Bad Request")
    if not body.get("stream"):
        return whole(json.dumps(_MESSAGE).encode())
    events = wire.message_events(_MESSAGE)
    if "broken" in text:
        said = {"type": "overloaded_error", "message": "Overloaded"}
        return _stream(*events[:4], {"type": "error", "error": said})
    return _stream(*events)


@pytest.fixture
def client(served: Served) -> Iterator[Any]:
    with closing(_client(served, served.token)) as opened:
        yield opened


def _client(served: Served, key: str) -> Any:
    """A client that signs with AWS keys and sends a virtual key in a header of its own.

    As a bearer token, botocore sends a key over TLS alone.
    """
    session = botocore.session.Session()
    session.set_credentials("AKIDEXAMPLE", "secret")
    client = session.create_client(
        "bedrock-runtime", region_name="us-east-1", endpoint_url=served.url,
        config=Config(retries={"total_max_attempts": 1}),
    )  # fmt: skip

    def add_key(request: Any, **_: Any) -> None:
        if key:
            request.headers["x-api-key"] = key

    client.meta.events.register("before-send.bedrock-runtime", add_key)
    return client


def _last(provider: RawProvider) -> tuple[str, dict[str, Any]]:
    path, raw = provider.seen[-1]
    return path, json.loads(raw)


def _blocks(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The blocks that the events of a Converse stream add up to."""
    blocks: dict[int, Any] = {}
    inputs: dict[int, str] = {}
    for event in events:
        if start := event.get("contentBlockStart"):
            blocks[start["contentBlockIndex"]] = {"toolUse": dict(start["start"]["toolUse"])}
        if found := event.get("contentBlockDelta"):
            at, delta = found["contentBlockIndex"], found["delta"]
            if "text" in delta:
                blocks.setdefault(at, {"text": ""})["text"] += delta["text"]
            elif "toolUse" in delta:
                inputs[at] = inputs.get(at, "") + delta["toolUse"]["input"]
                blocks[at]["toolUse"]["input"] = inputs[at]
            elif "redactedContent" in delta["reasoningContent"]:
                blocks[at] = delta
            else:
                thought = blocks.setdefault(at, {"reasoningContent": {"reasoningText": {}}})
                text = thought["reasoningContent"]["reasoningText"]
                for name, piece in delta["reasoningContent"].items():
                    text[name] = text.get(name, "") + piece
    for at, text in inputs.items():
        blocks[at]["toolUse"]["input"] = json.loads(text)
    return [blocks[at] for at in sorted(blocks)]


def test_an_invoked_model_gets_messages(served: Served, client: Any, provider: RawProvider) -> None:
    body = {**_INVOKED, "anthropic_beta": ["context-1m-2025-08-07"]}
    answer = client.invoke_model(modelId=_CLAUDE, body=json.dumps(body))
    assert json.loads(answer["body"].read()) == _MESSAGE
    assert answer["contentType"] == "application/json"
    path, sent = _last(provider)
    assert path == "/v1/messages"
    assert sent == {"model": _CLAUDE, "max_tokens": 50, "messages": _INVOKED["messages"]}
    cost = answer["ResponseMetadata"]["HTTPHeaders"]["x-remit-cost-usd"]
    assert cost == f"{_NANO / 1e9:.9f}"
    dated = {**_INVOKED, "anthropic_version": "2026-10-21", "temperature": 0.5}
    client.invoke_model(modelId=_CLAUDE, body=json.dumps(dated))
    assert "temperature" not in _last(provider)[1]
    # A stream is the provider's own events in frames.
    answer = client.invoke_model_with_response_stream(modelId=_CLAUDE, body=json.dumps(_INVOKED))
    assert answer["contentType"] == "application/json"
    events = [json.loads(event["chunk"]["bytes"]) for event in answer["body"]]
    assert events == wire.message_events(_MESSAGE)


def test_converse_is_translated(served: Served, client: Any, provider: RawProvider) -> None:
    answer = client.converse(
        modelId=_CLAUDE, messages=[_TURN], system=[{"text": "Be brief."}], toolConfig=_TOOLS,
        inferenceConfig={"maxTokens": 50, "temperature": 0.5, "stopSequences": ["END"]},
        additionalModelRequestFields={"top_k": 5}, requestMetadata={"a": "b"},
    )  # fmt: skip
    assert answer["output"]["message"] == {"role": "assistant", "content": _CONTENT}
    assert answer["stopReason"] == "tool_use"
    assert answer["usage"] == _SUM
    headers = answer["ResponseMetadata"]["HTTPHeaders"]
    assert headers["x-remit-dropped"] == "requestMetadata"
    assert headers["x-remit-cost-usd"] == f"{_NANO / 1e9:.9f}"
    _, sent = _last(provider)
    assert sent["system"] == "Be brief."
    assert (sent["max_tokens"], sent["temperature"], sent["top_k"]) == (50, 0.5, 5)
    assert sent["stop_sequences"] == ["END"]
    assert sent["tools"][0]["input_schema"]["properties"] == {"at": {"type": "integer"}}


def test_a_conversation_returns_with_all_its_parts(client: Any, provider: RawProvider) -> None:
    result = {
        "toolUseId": "toolu_1",
        "status": "error",
        "content": [
            {"json": {"found": 1}},
            {"image": {"format": "png", "source": {"bytes": b"\x89PNG"}}},
        ],
    }
    document = {"format": "pdf", "name": "Paper", "source": {"bytes": b"%PDF"}}
    turns = [
        {"role": "user", "content": [{"text": "hi"}, {"cachePoint": {"type": "default"}}]},
        {"role": "assistant", "content": _CONTENT},
        {"role": "user", "content": [{"toolResult": result}, {"document": document}]},
    ]
    client.converse(modelId=_CLAUDE, messages=turns, toolConfig=_TOOLS)
    first, second, third = _last(provider)[1]["messages"]
    assert first["content"][0]["cache_control"] == {"type": "ephemeral"}
    assert second["content"] == _MESSAGE["content"]
    found, paper = third["content"]
    png = base64.b64encode(b"\x89PNG").decode()
    assert (found["is_error"], found["content"][0]["text"]) == (True, '{"found":1}')
    assert found["content"][1]["source"] == {
        "type": "base64", "media_type": "image/png", "data": png}  # fmt: skip
    assert paper["source"]["media_type"] == "application/pdf"
    assert paper["title"] == "Paper"


def test_a_stream_of_converse(served: Served, client: Any) -> None:
    answer = client.converse_stream(modelId=_CLAUDE, messages=[_TURN], toolConfig=_TOOLS)
    events = list(answer["stream"])
    assert _blocks(events) == _CONTENT
    assert [next(iter(event)) for event in events[-2:]] == ["messageStop", "metadata"]
    assert events[0] == {"messageStart": {"role": "assistant"}}
    assert events[-2]["messageStop"] == {"stopReason": "tool_use"}
    assert events[-1]["metadata"]["usage"] == _SUM


@pytest.mark.parametrize(
    ("verb", "code"),
    [("invoke", "serviceUnavailableException"), ("converse", "internalServerException")],
)
def test_an_error_inside_a_stream_is_an_exception(client: Any, verb: str, code: str) -> None:
    if verb == "invoke":
        body = {**_INVOKED, "messages": [{"role": "user", "content": "broken"}]}
        answer = client.invoke_model_with_response_stream(modelId=_CLAUDE, body=json.dumps(body))
        stream = answer["body"]
    else:
        turn = {"role": "user", "content": [{"text": "broken"}]}
        stream = client.converse_stream(modelId=_CLAUDE, messages=[turn])["stream"]
    with closing(stream), pytest.raises(EventStreamError) as caught:
        list(stream)
    assert caught.value.response["Error"]["Code"] == code
    assert caught.value.response["Error"]["Message"] == "Overloaded"


def test_errors_have_bedrocks_form(served: Served, client: Any, provider: RawProvider) -> None:
    refused = {**_INVOKED, "messages": [{"role": "user", "content": "refused"}]}
    with pytest.raises(client.exceptions.ValidationException) as caught:
        client.invoke_model(modelId=_CLAUDE, body=json.dumps(refused))
    assert caught.value.response["Error"]["Message"] == "Refused"
    turn = {"role": "user", "content": [{"text": "refused"}]}
    with pytest.raises(client.exceptions.ValidationException):
        client.converse_stream(modelId=_CLAUDE, messages=[turn])
    with pytest.raises(client.exceptions.ValidationException) as caught:
        client.converse(modelId=_CLAUDE, messages=[_TURN], promptVariables={"a": {"text": "b"}})
    assert "promptVariables" in caught.value.response["Error"]["Message"]
    status, raw, headers = served.ask("POST", "/model/x/sing", {})
    assert (status, headers["x-amzn-errortype"]) == (404, "ResourceNotFoundException")
    assert json.loads(raw)["message"].startswith("POST /model/x/sing does not exist.")
    for member in (b"inferenceConfig", b"toolConfig"):  # a limit that stands twice
        raw = b'{"messages":[{"role":"user","content":[{"text":"hi"}]}],"%b":{"a":1,"a":9}}'
        assert served.ask("POST", f"/model/{_CLAUDE}/converse", raw % member)[0] == 400
    with pytest.raises(ClientError) as unsigned, closing(_client(served, "")) as nobody:
        nobody.converse(modelId=_CLAUDE, messages=[_TURN])
    error = unsigned.value.response["Error"]
    assert error["Code"] == "UnrecognizedClientException"
    assert "AWS_BEARER_TOKEN_BEDROCK" in error["Message"]


def test_a_budget_holds(served: Served, provider: RawProvider) -> None:
    before = len(provider.seen)
    key = served.key(usd_nano=100_000).key
    for more in ({"inferenceConfig": {"maxTokens": 100_000}}, {}):
        with closing(_client(served, key)) as client, pytest.raises(ClientError) as caught:
            client.converse(modelId=_CLAUDE, messages=[_TURN], **more)
        assert caught.value.response["Error"]["Code"] == "ServiceQuotaExceededException"
        assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 402
    assert len(provider.seen) == before
