"""Arguments of tool calls between dialects: one text in a stream and by id, no number rounded."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.running import Served, serving
from tests.support.raw_provider import RawProvider, whole
from tests.support.wire import completion, function_call, message, sse, tool_use

BEFORE = "provider"
_BIG = 12345678901234567890123
_CLAUDE, _GPT = "anthropic/claude-sonnet-4-5", "gpt-4o-mini"
_TEXTS = ['{"a": 1, "b" : [1,2 ,3]}', '{"a":"\\u00e9"}', '{"a":1.0,"b":1e3}', f'{{"a": {_BIG}}}',
          ' {"a":1} \n', '{"a": "cut']  # fmt: skip
_FUNCTION = {"name": "look", "parameters": {"type": "object", "properties": {}}}


def _provide(provider: RawProvider, reply: bytes) -> None:
    def answer(connection: socket.socket, path: str, raw: bytes) -> bool:
        missing = path.endswith("/responses")
        connection.sendall(whole(b"no", status="404 Not Found") if missing else reply)
        return True

    provider.answer = answer


def _claude_stream(text: str) -> bytes:
    block = {**tool_use("look", {}), "input": {}}
    begun = {**message(), "content": [], "stop_reason": None}
    halves = (text[: len(text) // 2], text[len(text) // 2 :])
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *({"type": "content_block_delta", "index": 0,
           "delta": {"type": "input_json_delta", "partial_json": half}} for half in halves),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"},
         "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]  # fmt: skip
    return b"".join(sse(events))


def _chat_stream(text: str) -> bytes:
    chunk = {"id": "c", "object": "chat.completion.chunk", "model": _GPT}
    call = {"index": 0, **function_call("look", text)}
    usage = {"prompt_tokens": 3, "completion_tokens": 9, "total_tokens": 12}
    return b"".join(sse([
        {**chunk, "choices": [{"index": 0, "delta": {"tool_calls": [call]}}]},
        {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}],
         "usage": usage},
    ]))  # fmt: skip


@pytest.mark.parametrize("text", _TEXTS)
@pytest.mark.parametrize("model", [_CLAUDE, _GPT])
def test_a_stream_and_its_response_by_id_have_the_same_arguments(
    served: Served, provider: RawProvider, model: str, text: str
) -> None:
    stream = _claude_stream if model == _CLAUDE else _chat_stream
    _provide(provider, whole(stream(text), kind="text/event-stream"))
    body = {"model": model, "input": "hi", "stream": True, "max_output_tokens": 99,
            "tools": [{"type": "function", **_FUNCTION}]}  # fmt: skip
    status, raw, _ = served.ask("POST", "/v1/responses", body)
    assert status == 200, raw
    events = [json.loads(line[6:]) for line in raw.splitlines() if line.startswith(b"data: {")]
    kind = "response.function_call_arguments"
    pieces = "".join(event["delta"] for event in events if event["type"] == f"{kind}.delta")
    (done,) = (event["arguments"] for event in events if event["type"] == f"{kind}.done")
    last = events[-1]["response"]
    status, raw, _ = served.ask("GET", f"/v1/responses/{last['id']}")
    assert pieces == done == last["output"][0]["arguments"] == text
    assert json.loads(raw)["output"] == last["output"]


_GOOGLE = f"/v1beta/models/{_CLAUDE}:generateContent"


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions", _GOOGLE])
def test_a_great_number_in_a_whole_answer_is_not_rounded(
    served: Served, provider: RawProvider, path: str
) -> None:
    answer = message(tool_use("look", {"a": _BIG}), stop="tool_use")
    _provide(provider, whole(json.dumps(answer).encode()))
    body: dict[str, Any] = {"model": _CLAUDE}
    if path == "/v1/responses":
        body |= {"input": "hi", "tools": [{"type": "function", **_FUNCTION}]}
    elif path == _GOOGLE:
        body = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
    else:
        body |= {"messages": [{"role": "user", "content": "hi"}],
                 "tools": [{"type": "function", "function": _FUNCTION}]}  # fmt: skip
    status, raw, _ = served.ask("POST", path, {**body, "max_tokens": 99} if "input" not in body else
                                {**body, "max_output_tokens": 99})  # fmt: skip
    assert status == 200, raw
    assert str(_BIG) in raw.decode()
    if path == "/v1/responses":
        _, raw, _ = served.ask("GET", f"/v1/responses/{json.loads(raw)['id']}")
        assert str(_BIG) in raw.decode()


@pytest.mark.parametrize("number", ["1e400", "9" * 4301])
def test_a_number_that_cannot_be_kept_does_not_become_null(
    served: Served, provider: RawProvider, number: str
) -> None:
    answer = json.dumps(message(tool_use("look", {"a": 0}), stop="tool_use"))
    _provide(provider, whole(answer.replace('"a": 0', f'"a": {number}').encode()))
    body = {"model": _CLAUDE, "max_tokens": 99, "messages": [{"role": "user", "content": "hi"}]}
    status, raw, headers = served.ask("POST", "/v1/chat/completions", body)
    assert (status, json.loads(raw)["error"]["code"]) == (502, "answer_untranslatable")
    assert headers["x-should-retry"] == "false"


@pytest.fixture(scope="module")
def google(provider: RawProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with a provider of Gemini's dialect, which writes arguments as objects."""
    toml = f'[providers.google]\nkind = "gemini"\nbase_url = "{provider.url}/v1beta"\n'
    toml += 'default_model = "gemini-2.5-flash"\napi_key = "AIza-up"\n'
    with serving(tmp_path_factory.mktemp("google") / "root", provider.url, toml=toml) as served:
        yield served


@pytest.mark.parametrize("number", [str(_BIG), "1e400"])
@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions", "/v1/messages"])
def test_a_great_number_in_a_stream_of_objects_is_not_rounded(
    google: Served, provider: RawProvider, path: str, number: str
) -> None:
    """A number that JSON text cannot repeat ends the stream with an error."""
    part = {"functionCall": {"name": "look", "args": {"a": 0}}}
    chunk = {"candidates": [{"index": 0, "content": {"role": "model", "parts": [part]},
                             "finishReason": "STOP"}]}  # fmt: skip
    wire = sse([chunk])[0].replace(b'"a": 0', f'"a": {number}'.encode())
    assert number.encode() in wire
    _provide(provider, whole(wire, kind="text/event-stream"))
    body: dict[str, Any] = {"model": "google/gemini-2.5-flash", "stream": True}
    if path == "/v1/responses":
        body |= {"input": "hi", "tools": [{"type": "function", **_FUNCTION}]}
    elif path == "/v1/messages":
        body |= {"max_tokens": 9, "messages": [{"role": "user", "content": "hi"}],
                 "tools": [{"name": "look", "input_schema": {"type": "object"}}]}  # fmt: skip
    else:
        body |= {"messages": [{"role": "user", "content": "hi"}],
                 "tools": [{"type": "function", "function": _FUNCTION}]}  # fmt: skip
    _, raw, _ = google.ask("POST", path, body)
    is_kept = number == str(_BIG)
    assert (number in raw.decode(), b"cannot be translated" in raw) == (is_kept, not is_kept), raw


def test_a_great_number_in_a_request_is_not_rounded(served: Served, provider: RawProvider) -> None:
    _provide(provider, whole(json.dumps(completion("ok")).encode()))
    body = {"model": _GPT, "max_tokens": 9, "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [tool_use("look", {"a": _BIG})]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "r"}]},
    ], "tools": [{"name": "look", "input_schema": {"type": "object"}}]}  # fmt: skip
    status, raw, _ = served.ask("POST", "/v1/messages", body)
    assert status == 200, raw
    sent = json.loads(provider.seen[-1][1])
    assert sent["messages"][1]["tool_calls"][0]["function"]["arguments"] == f'{{"a":{_BIG}}}'
