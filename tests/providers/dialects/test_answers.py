"""Answers, streams and errors, read by the official SDKs over a real connection."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import openai
import pytest
from anthropic.types import Message as AnthropicMessage
from anthropic.types import RawMessageStreamEvent
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import TypeAdapter

from remit.kernel.errors import InvalidInputError
from remit.kernel.exchange import (
    PromptResponse,
    RouteOutcome,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolInputDelta,
    ToolUseStart,
)
from remit.providers.dialects.anthropic import (
    MessagesStream,
    messages_answer,
    messages_error,
    parse_messages,
)
from remit.providers.dialects.openai import (
    ChatStream,
    chat_answer,
    chat_error,
    model_list,
    parse_chat,
)
from tests.support.wire import Raw, WireServer, serve

USAGE = {
    "input_tokens": 10,
    "output_tokens": 4,
    "cached_input_tokens": 3,
    "reasoning_tokens": 2,
}
BLOCKS: tuple[dict[str, Any], ...] = (
    {"type": "thinking", "thinking": "hm"},
    {"type": "text", "text": "Reading."},
    {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a"}},
    {"type": "tool_use", "id": "t2", "name": "read", "input": {"_unparsed": "{broken"}},
)
EVENTS: tuple[StreamEvent, ...] = (
    ThinkingDelta("h"),
    ThinkingDelta("m"),
    ThinkingDelta("", "seal"),
    TextDelta("Read"),
    TextDelta("ing."),
    ToolUseStart(7, "t1", "read"),
    ToolInputDelta(7, '{"pa'),
    ToolInputDelta(7, 'th":"a"}'),
    ToolUseStart(9, "t2", "list"),
    TextDelta("Done."),
)


def response(**changes: Any) -> PromptResponse:
    given: dict[str, Any] = {
        "content": "hello",
        "outcome": RouteOutcome.SUCCESS,
        "input_tokens": 10,
        "output_tokens": 4,
        "model_id": "m",
        "provider_id": "p",
        "latency_ms": 1.0,
        "timestamp": "2026-01-01T00:00:00Z",
        "exchange_entry_id": "LED-1",
    }
    return PromptResponse(**{**given, **changes})


def chat(answered: PromptResponse, **details: int) -> dict[str, Any]:
    wire = chat_answer(answered, answer_id="a1", created=5, model="named", **details)
    ChatCompletion.model_validate(wire, strict=True)
    return wire


def message(answered: PromptResponse, **details: int) -> dict[str, Any]:
    wire = messages_answer(answered, answer_id="a1", model="named", **details)
    AnthropicMessage.model_validate(wire, strict=True)
    return wire


@contextmanager
def openai_client(server: WireServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0) as client:
        yield client


@contextmanager
def anthropic_client(server: WireServer) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="k", max_retries=0) as client:
        yield client


def streamed(*pieces: bytes) -> Raw:
    return Raw(chunks=[piece for piece in pieces if piece], content_type="text/event-stream")


def test_a_plain_answer() -> None:
    wire = chat(response(), cached_input_tokens=3, reasoning_tokens=2)
    assert wire["choices"][0]["message"] == {
        "role": "assistant",
        "content": "hello",
        "refusal": None,
    }
    assert wire["usage"] == {
        "prompt_tokens": 10,
        "completion_tokens": 4,
        "total_tokens": 14,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    wire = message(response(), cached_input_tokens=3, reasoning_tokens=2)
    assert wire["content"] == [{"type": "text", "text": "hello"}]
    assert wire["usage"] == {
        "input_tokens": 7,
        "output_tokens": 4,
        "cache_read_input_tokens": 3,
        "output_tokens_details": {"thinking_tokens": 2},
    }
    assert message(response(content=""))["content"] == []
    assert chat(response(content=""))["choices"][0]["message"]["content"] == ""


def test_an_answer_with_tool_calls() -> None:
    answered = response(content="Reading.", content_blocks=BLOCKS, finish_reason="tool_use")
    choice = chat(answered)["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Reading."
    assert choice["message"]["reasoning_content"] == "hm"
    calls = choice["message"]["tool_calls"]
    assert [call["id"] for call in calls] == ["t1", "t2"]
    assert [call["function"]["arguments"] for call in calls] == ['{"path":"a"}', "{broken"]
    wire = message(answered)
    assert wire["stop_reason"] == "tool_use"
    assert wire["content"] == [{**BLOCKS[0], "signature": ""}, *BLOCKS[1:]]
    only = response(content="", content_blocks=BLOCKS[2:3])
    choice = chat(only)["choices"][0]
    assert choice["message"]["content"] is None
    assert choice["finish_reason"] == "tool_calls"
    assert message(only)["stop_reason"] == "tool_use"


@pytest.mark.parametrize(
    ("neutral", "finish", "stop"),
    [
        ("stop", "stop", "end_turn"),
        ("length", "length", "max_tokens"),
        ("tool_use", "tool_calls", "tool_use"),
        ("content_filter", "content_filter", "refusal"),
        ("something new", "stop", "end_turn"),
    ],
)
def test_why_an_answer_ended(neutral: str, finish: str, stop: str) -> None:
    answered = response(finish_reason=neutral)
    assert chat(answered)["choices"][0]["finish_reason"] == finish
    assert message(answered)["stop_reason"] == stop


@pytest.mark.parametrize("include_usage", [True, False])
def test_a_chat_stream_as_the_sdk_reads_it(include_usage: bool) -> None:
    stream = ChatStream(answer_id="a1", created=5, model="named")
    pieces = [stream.start(), *map(stream.event, EVENTS)]
    pieces.append(stream.end("stop", USAGE, include_usage))
    with serve(streamed(*pieces)) as server, openai_client(server) as client:
        with client.chat.completions.create(
            model="named", messages=[{"role": "user", "content": "x"}], stream=True
        ) as read:
            chunks = list(read)
        with client.chat.completions.stream(
            model="named", messages=[{"role": "user", "content": "x"}]
        ) as run:
            whole = run.get_final_completion()
    for piece in b"".join(pieces).decode().split("\n\n")[:-2]:
        assert piece.startswith("data: {")
        ChatCompletionChunk.model_validate(json.loads(piece[6:]), strict=True)
    assert pieces[-1].endswith(b"data: [DONE]\n\n")
    assert {chunk.id for chunk in chunks} == {"a1"}
    assert chunks[0].choices[0].delta.role == "assistant"
    thought = [
        getattr(chunk.choices[0].delta, "reasoning_content", "")
        for chunk in chunks
        if chunk.choices
    ]
    assert "".join(filter(None, thought)) == "hm"
    choice = whole.choices[0]
    assert choice.message.content == "Reading.Done."
    assert choice.finish_reason == "tool_calls"
    told = [
        (call.id, call.function.name, call.function.arguments)
        for call in choice.message.tool_calls or ()
    ]
    assert told == [("t1", "read", '{"path":"a"}'), ("t2", "list", "{}")]
    assert (whole.usage is not None) == include_usage
    if whole.usage is not None:
        assert whole.usage.total_tokens == 14
        assert whole.usage.prompt_tokens_details is not None
        assert whole.usage.prompt_tokens_details.cached_tokens == 3


def test_a_message_stream_as_the_sdk_reads_it() -> None:
    stream = MessagesStream(answer_id="a1", model="named", input_tokens=9)
    pieces = [stream.start(), *map(stream.event, EVENTS)]
    pieces.append(stream.end("stop", USAGE, False))
    with (
        serve(streamed(*pieces)) as server,
        anthropic_client(server) as client,
        client.messages.stream(
            model="named", max_tokens=9, messages=[{"role": "user", "content": "x"}]
        ) as run,
    ):
        whole = run.get_final_message()
    assert [block.type for block in whole.content] == [
        "thinking",
        "text",
        "tool_use",
        "tool_use",
        "text",
    ]
    thinking, text, first, second, last = (block.to_dict() for block in whole.content)
    assert (thinking["thinking"], thinking["signature"]) == ("hm", "seal")
    assert (text["text"], last["text"]) == ("Reading.", "Done.")
    assert (first["id"], first["name"], first["input"]) == ("t1", "read", {"path": "a"})
    assert (second["id"], second["name"], second["input"]) == ("t2", "list", {})
    assert whole.stop_reason == "tool_use"
    assert (whole.usage.input_tokens, whole.usage.output_tokens) == (7, 4)
    _check_order(b"".join(pieces).decode())


def _check_order(wire: str) -> None:
    """Every event is one of the API's, and every block ends before the next begins."""
    adapter: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
    begun: int | None = None
    blocks = 0
    kinds = []
    for piece in wire.split("\n\n")[:-1]:
        name, data = piece.split("\n")
        event = json.loads(data.removeprefix("data: "))
        adapter.validate_python(event, strict=True)
        assert name == f"event: {event['type']}"
        kinds.append(event["type"])
        if event["type"] == "content_block_start":
            assert begun is None
            assert event["index"] == blocks
            begun, blocks = blocks, blocks + 1
        elif event["type"].startswith("content_block"):
            assert event["index"] == begun
            if event["type"] == "content_block_stop":
                begun = None
    assert begun is None
    assert (kinds[0], kinds[-2:]) == ("message_start", ["message_delta", "message_stop"])


def test_streams_without_anything() -> None:
    stream = MessagesStream(answer_id="a1", model="named")
    _check_order((stream.start() + stream.end("stop", None)).decode())
    chunks = ChatStream(answer_id="a1", created=5, model="named")
    assert b'"usage"' not in chunks.end("length", None, True)


def test_a_second_thought_is_a_block_of_its_own() -> None:
    stream = MessagesStream(answer_id="a1", model="named")
    pieces = [stream.start(), stream.event(ThinkingDelta("a", "seal"))]
    pieces += [stream.event(ThinkingDelta("b")), stream.end("stop", USAGE)]
    wire = b"".join(pieces).decode()
    _check_order(wire)
    assert wire.count("event: content_block_start") == 2


def test_events_that_cannot_follow_each_other() -> None:
    for stream in (
        ChatStream(answer_id="a", created=1, model="m"),
        MessagesStream(answer_id="a", model="m"),
    ):
        with pytest.raises(InvalidInputError):
            stream.event(ToolInputDelta(0, "{}"))
        stream.event(ToolUseStart(0, "t", "f"))
        with pytest.raises(InvalidInputError):
            stream.event(ToolUseStart(0, "t", "f"))
    messages = MessagesStream(answer_id="a", model="m")
    messages.event(ToolUseStart(0, "t", "f"))
    messages.event(ToolUseStart(1, "u", "f"))
    with pytest.raises(InvalidInputError):
        messages.event(ToolInputDelta(0, "{}"))


_OPENAI_ERRORS = [
    (400, "x", "invalid_request_error", openai.BadRequestError),
    (401, "x", "authentication_error", openai.AuthenticationError),
    (402, "budget_exhausted", "insufficient_quota", openai.APIStatusError),
    (403, "x", "permission_error", openai.PermissionDeniedError),
    (404, "x", "invalid_request_error", openai.NotFoundError),
    (429, "RATE_LIMITED", "rate_limit_error", openai.RateLimitError),
    (429, "BUDGET_EXHAUSTED", "insufficient_quota", openai.RateLimitError),
    (500, "x", "server_error", openai.InternalServerError),
    (503, "x", "server_error", openai.InternalServerError),
]


@pytest.mark.parametrize(("status", "code", "kind", "raised"), _OPENAI_ERRORS)
def test_errors_as_openais_sdk_reads_them(
    status: int, code: str, kind: str, raised: type[openai.APIStatusError]
) -> None:
    body = json.dumps(chat_error(status, code, "No.", "messages[0]")).encode()
    with (
        serve(Raw(body, status)) as server,
        openai_client(server) as client,
        pytest.raises(raised) as caught,
    ):
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
    error = caught.value
    assert (error.status_code, error.code, error.type) == (status, code, kind)
    assert error.param == "messages[0]"
    assert error.body["message"] == "No."  # type: ignore[index]


_ANTHROPIC_ERRORS = [
    (400, "invalid_request_error", anthropic.BadRequestError),
    (401, "authentication_error", anthropic.AuthenticationError),
    (402, "billing_error", anthropic.APIStatusError),
    (403, "permission_error", anthropic.PermissionDeniedError),
    (404, "not_found_error", anthropic.NotFoundError),
    (413, "request_too_large", anthropic.APIStatusError),
    (429, "rate_limit_error", anthropic.RateLimitError),
    (500, "api_error", anthropic.InternalServerError),
    (503, "overloaded_error", anthropic.InternalServerError),
    (504, "timeout_error", anthropic.InternalServerError),
    (529, "overloaded_error", anthropic.InternalServerError),
]


@pytest.mark.parametrize(("status", "kind", "raised"), _ANTHROPIC_ERRORS)
def test_errors_as_anthropics_sdk_reads_them(
    status: int, kind: str, raised: type[anthropic.APIStatusError]
) -> None:
    body = json.dumps(messages_error(status, "x", "No.")).encode()
    with (
        serve(Raw(body, status)) as server,
        anthropic_client(server) as client,
        pytest.raises(raised) as caught,
    ):
        client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "x"}])
    assert caught.value.status_code == status
    assert caught.value.body == {"type": "error", "error": {"type": kind, "message": "No."}}


def test_errors_in_the_midst_of_a_stream() -> None:
    chunks = ChatStream(answer_id="a1", created=5, model="named")
    pieces = [chunks.start(), chunks.event(TextDelta("a")), chunks.error(503, "DOWN", "Gone.")]
    with (
        serve(streamed(*pieces)) as server,
        openai_client(server) as client,
        client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "x"}], stream=True
        ) as read,
        pytest.raises(openai.APIError, match=r"Gone\.") as caught,
    ):
        list(read)
    assert caught.value.code == "DOWN"
    events = MessagesStream(answer_id="a1", model="named")
    pieces = [events.start(), events.event(TextDelta("a")), events.error(503, "DOWN", "Gone.")]
    with (
        serve(streamed(*pieces)) as server,
        anthropic_client(server) as client,
        client.messages.create(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "x"}], stream=True
        ) as events_read,
        pytest.raises(anthropic.APIStatusError, match=r"Gone\.") as refused,
    ):
        list(events_read)
    assert refused.value.body == messages_error(503, "DOWN", "Gone.")


def test_bodies_as_the_sdks_send_them() -> None:
    schema: dict[str, object] = {"type": "object", "properties": {}}
    with serve(chat(response())) as server, openai_client(server) as client:
        whole = client.chat.completions.create(
            model="m",
            messages=[{"role": "user", "content": "x"}],
            tools=[{"type": "function", "function": {"name": "f", "parameters": schema}}],
            max_completion_tokens=7,
            extra_body={"x_new": 1},
        )
        call = parse_chat(server.calls[0].body)
    assert whole.choices[0].message.content == "hello"
    assert (call.model, call.max_tokens, call.parameters) == ("m", 7, {"x_new": 1})
    assert call.tools == ({"name": "f", "input_schema": schema},)
    with serve(message(response())) as server, anthropic_client(server) as client:
        answered = client.messages.create(
            model="m",
            max_tokens=7,
            system="Be brief.",
            messages=[{"role": "user", "content": "x"}],
            tools=[{"name": "f", "input_schema": schema}],
            extra_body={"x_new": 1},
        )
        call = parse_messages(server.calls[0].body)
    assert answered.content[0].to_dict() == {"type": "text", "text": "hello"}
    assert (call.model, call.max_tokens, call.parameters) == ("m", 7, {"x_new": 1})
    assert [each["role"] for each in call.messages] == ["system", "user"]
    assert call.tools == ({"name": "f", "input_schema": schema},)


def test_an_echoed_answer_of_the_sdk_is_taken_back() -> None:
    """Clients send ``model_dump()`` of an answer as the next call's history."""
    answered = response(content="Reading.", content_blocks=BLOCKS, finish_reason="tool_use")
    echoed = ChatCompletion.model_validate(chat(answered)).choices[0].message.model_dump()
    call = parse_chat({"model": "m", "messages": [{"role": "user", "content": "x"}, echoed]})
    assert call.messages[1]["content"] == list(BLOCKS[1:])
    wire = AnthropicMessage.model_validate(message(answered))
    turn = {"role": "assistant", "content": [block.model_dump() for block in wire.content]}
    body = {"model": "m", "max_tokens": 9, "messages": [turn]}
    kept = parse_messages(body).messages[0]["content"]
    assert [block["type"] for block in kept] == [block["type"] for block in BLOCKS]


def test_a_list_of_models() -> None:
    wire = model_list([("a", "openai"), ("b", "anthropic")])
    models = [openai.types.Model.model_validate(each, strict=True) for each in wire["data"]]
    assert wire["object"] == "list"
    assert [(model.id, model.owned_by) for model in models] == [("a", "openai"), ("b", "anthropic")]
