"""The adapters against a real HTTP server in the providers' wire formats."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from remit.providers import (
    AnthropicProvider,
    AsyncProvider,
    OpenAIProvider,
    ProviderError,
    ProviderResponse,
)
from tests.support.requests import (
    anthropic_provider,
    openai_provider,
    provider_request,
    provider_settings,
)
from tests.support.wire import (
    Raw,
    Step,
    completion,
    completion_stream,
    function_call,
    message,
    message_stream,
    serve,
    tool_use,
)

TOOLS = (
    {
        "name": "read_file",
        "description": "Read a file.",
        "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
    },
)
CONVERSATION = (
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "read a.txt"},
    {"role": "assistant", "content": [tool_use("read_file", {"path": "a.txt"})]},
    {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "hello"}],
    },
)


async def _ask(
    provider: AnthropicProvider | OpenAIProvider, streamed: list[str] | None = None, **changes: Any
) -> ProviderResponse:
    try:
        on_text = None if streamed is None else streamed.append
        return await provider.asend(provider_request(**changes), on_text=on_text)
    finally:
        await provider.aclose()


async def test_anthropic_request_and_answer() -> None:
    with serve(message("Hello there.")) as server:
        answer = await _ask(anthropic_provider(server.url), messages=CONVERSATION, tools=TOOLS)
        call = server.calls[0]
    assert call.path == "/v1/messages"
    assert call.headers["x-api-key"] == "sk-secret"
    assert call.headers["anthropic-version"] == "2023-06-01"
    assert call.body["system"] == "Be brief."
    assert [turn["role"] for turn in call.body["messages"]] == ["user", "assistant", "user"]
    assert call.body["messages"][2]["content"][0]["type"] == "tool_result"
    assert call.body["tools"] == [dict(TOOLS[0])]
    assert answer.content == "Hello there."
    assert (answer.input_tokens, answer.output_tokens) == (11, 7)
    assert (answer.model, answer.finish_reason) == ("claude-test-1", "stop")


async def test_openai_request_and_answer() -> None:
    with serve(completion("Hello there.")) as server:
        answer = await _ask(openai_provider(server.url), messages=CONVERSATION, tools=TOOLS)
        call = server.calls[0]
    assert call.path == "/v1/chat/completions"
    assert call.headers["Authorization"] == "Bearer sk-secret"
    roles = [turn["role"] for turn in call.body["messages"]]
    assert roles == ["system", "user", "assistant", "tool"]
    function = call.body["messages"][2]["tool_calls"][0]["function"]
    assert json.loads(function["arguments"]) == {"path": "a.txt"}
    assert call.body["messages"][3] == {
        "role": "tool", "tool_call_id": "toolu_1", "content": "hello",
    }  # fmt: skip
    assert call.body["tools"][0]["function"]["parameters"] == TOOLS[0]["input_schema"]
    assert answer.content == "Hello there."
    assert (answer.input_tokens, answer.output_tokens) == (13, 5)


@pytest.mark.parametrize("streaming", [False, True])
async def test_tool_use_comes_through_from_both(streaming: bool) -> None:
    streamed: list[str] | None = [] if streaming else None
    ours = message("Let me look.", tool_use("read_file", {"path": "dir/ä.txt"}))
    theirs = completion("Let me look.", [function_call("read_file", '{"path": "dir/ä.txt"}')])
    with serve(message_stream(ours) if streaming else ours) as server:
        first = await _ask(anthropic_provider(server.url), streamed, tools=TOOLS)
    with serve(completion_stream(theirs) if streaming else theirs) as server:
        second = await _ask(openai_provider(server.url), streamed, tools=TOOLS)
    for answer in (first, second):
        assert answer.finish_reason == "tool_use"
        assert answer.content == "Let me look."
        text, use = answer.content_blocks
        assert text == {"type": "text", "text": "Let me look."}
        assert (use["type"], use["name"]) == ("tool_use", "read_file")
        assert use["input"] == {"path": "dir/ä.txt"}
        assert answer.output_tokens in (7, 5)
    if streamed is not None:
        assert "".join(streamed) == "Let me look.Let me look."
        assert len(streamed) > 2


async def test_structured_output_is_asked_for_in_each_dialect() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    with serve(message(tool_use("answer", {"a": 1}))) as server:
        first = await _ask(anthropic_provider(server.url), response_schema=schema)
        assert server.calls[0].body["tool_choice"] == {"type": "tool", "name": "answer"}
    with serve(completion('{"a":1}')) as server:
        second = await _ask(openai_provider(server.url), response_schema=schema)
        assert server.calls[0].body["response_format"]["json_schema"]["schema"] == schema
    for answer in (first, second):
        assert json.loads(answer.content) == {"a": 1}
        assert answer.finish_reason == "stop"


async def test_cached_and_reasoning_tokens_are_parts_not_extras() -> None:
    usage = {"cache_read_input_tokens": 100, "cache_creation_input_tokens": 20}
    with serve(message("hi", **usage)) as server:
        answer = await _ask(anthropic_provider(server.url))
    assert (answer.input_tokens, answer.cached_input_tokens) == (131, 100)
    reply = completion("hi")
    reply["usage"] |= {
        "prompt_tokens_details": {"cached_tokens": 8},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    with serve(reply) as server:
        answer = await _ask(openai_provider(server.url))
    assert (answer.input_tokens, answer.cached_input_tokens) == (13, 8)
    assert (answer.output_tokens, answer.reasoning_tokens) == (5, 3)


async def test_models_that_take_no_temperature() -> None:
    with serve(completion("hi")) as server:
        await _ask(openai_provider(server.url), model_id="o3-mini")
        assert server.calls[0].body["max_completion_tokens"] == 64
        assert not {"temperature", "max_tokens"} & set(server.calls[0].body)
        settings = provider_settings("openai", send_temperature=False)
        await _ask(OpenAIProvider(f"{server.url}/v1", "", settings))
        assert "temperature" not in server.calls[1].body
        assert "authorization" not in {name.lower() for name in server.calls[1].headers}


Make = Callable[[str], AsyncProvider]
BOTH = pytest.mark.parametrize("make", [anthropic_provider, openai_provider])
HTML = Raw(b"<html><body>It works!</body></html>", content_type="text/html")


@BOTH
@pytest.mark.parametrize(
    ("step", "code", "retryable"),
    [
        (Raw(b'{"error":{"message":"slow down"}}', 429), "RATE_LIMITED", True),
        (Raw(b'{"error":{"message":"overloaded"}}', 529), "SERVER_ERROR", True),
        (Raw(b"oops", 500, "text/plain"), "SERVER_ERROR", True),
        (Raw(b'{"error":{"message":"bad key sk-secret"}}', 401),
         "AUTH_ERROR", False),
        (Raw(b'{"error":{"message":"no such field"}}', 400), "INVALID_REQUEST", False),
        (Raw(b'{"error":{"message":"prompt is too long: 9 > 8"}}', 400), "CONTEXT_LENGTH", False),
        (Raw(b'{"error":"model not found"}', 404), "INVALID_REQUEST", False),
        (HTML, "SERVER_ERROR", True),
        (Raw(b"{}"), "SERVER_ERROR", True),
        (Raw(b"[1, 2]"), "SERVER_ERROR", True),
        (Raw(b'{"choices":[{"message":{"content":7}}],"content":[],"usage":3}'),
         "SERVER_ERROR", True),
        (Raw(b'{"cut', cut=True), "SERVER_ERROR", True),
        (Raw(b"", 302, headers={"location": "http://127.0.0.1:1/"}), "INVALID_REQUEST", False),
    ],
)  # fmt: skip
async def test_what_goes_wrong_has_a_code_and_shows_no_key(
    make: Make, step: Step, code: str, retryable: bool
) -> None:
    with serve(step) as server:
        provider: Any = make(server.url)
        for streamed in (None, []):
            with pytest.raises(ProviderError) as caught:
                await provider.asend(
                    provider_request(), on_text=None if streamed is None else streamed.append
                )
            assert (caught.value.code, caught.value.retryable) == (code, retryable)
            assert "secret" not in str(caught.value)
        await provider.aclose()
    assert "secret" not in repr(provider)


@BOTH
async def test_nobody_listens(make: Make) -> None:
    provider: Any = make("http://127.0.0.1:9")
    with pytest.raises(ProviderError) as caught:
        await provider.asend(provider_request())
    assert caught.value.retryable
    assert not caught.value.maybe_billed
    await provider.aclose()


@BOTH
async def test_too_slow(make: Make) -> None:
    with serve(Raw(b"{}", delay_s=5)) as server:
        provider: Any = make(server.url)
        with pytest.raises(ProviderError) as caught:
            await provider.asend(provider_request(timeout_s=0.2))
        assert (caught.value.code, caught.value.maybe_billed) == ("TIMEOUT", True)
        await provider.aclose()


async def test_retry_after_is_read() -> None:
    with serve(Raw(b"{}", 429, headers={"retry-after": "7"})) as server:
        with pytest.raises(ProviderError) as caught:
            await _ask(anthropic_provider(server.url))
        assert caught.value.retry_after_s == 7.0


@pytest.mark.parametrize("cut_after", [1, 3, 5])
async def test_a_stream_that_breaks_is_an_error_with_what_had_come(cut_after: int) -> None:
    steps = {
        anthropic_provider: message_stream(message("Hello, world"), cut_after=cut_after),
        openai_provider: completion_stream(completion("Hello, world"), cut_after=cut_after),
    }
    for make, step in steps.items():
        streamed: list[str] = []
        with serve(step) as server:
            with pytest.raises(ProviderError) as caught:
                await _ask(make(server.url), streamed)  # type: ignore[operator]
            assert caught.value.code == "SERVER_ERROR"
            assert caught.value.maybe_billed
            assert "Hello, world".startswith("".join(streamed))


async def test_a_server_that_does_not_stream_answers_all_the_same() -> None:
    streamed: list[str] = []
    with serve(message("whole")) as server:
        await _ask(anthropic_provider(server.url), streamed)
    with serve(completion("whole")) as server:
        await _ask(openai_provider(server.url), streamed)
    assert streamed == ["whole", "whole"]


async def test_an_error_inside_a_stream() -> None:
    event = b'data: {"type":"error","error":{"message":"overloaded"}}\n\n'
    with serve(Raw(chunks=[event], content_type="text/event-stream")) as server:
        for make in (anthropic_provider, openai_provider):
            with pytest.raises(ProviderError, match="overloaded"):
                await _ask(make(server.url), [])


async def test_events_split_anywhere() -> None:
    whole = b"".join(message_stream(message("Grüße aus dem Netz")).chunks)
    pieces = [whole[i : i + 3] for i in range(0, len(whole), 3)]
    streamed: list[str] = []
    with serve(Raw(chunks=pieces, content_type="text/event-stream")) as server:
        answer = await _ask(anthropic_provider(server.url), streamed)
    assert answer.content == "".join(streamed) == "Grüße aus dem Netz"


async def test_the_official_client_and_ours_send_the_same_turns() -> None:
    """What the official SDK sends for a tool conversation is what our adapter sends."""
    anthropic = pytest.importorskip("anthropic")
    with serve(message("done")) as server:
        await _ask(
            anthropic_provider(server.url), messages=CONVERSATION, tools=TOOLS, model_id="claude-x"
        )
        client = anthropic.AsyncAnthropic(base_url=server.url, api_key="k", max_retries=0)
        answer = await client.messages.create(
            model="claude-x",
            max_tokens=64,
            system="Be brief.",
            messages=list(CONVERSATION[1:]),
            tools=list(TOOLS),
        )
        await client.close()
        ours, theirs = server.calls
    assert answer.content[0].text == "done"
    assert {key: ours.body[key] for key in theirs.body if key != "stream"} == {
        key: value for key, value in theirs.body.items() if key != "stream"
    }
