"""Streams from each dialect to the others: as the whole answer, and as the SDKs read them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import orjson
import pytest
from hypothesis import given, settings, strategies as st
from pydantic import TypeAdapter

from remit.kernel.exchange import BlockEnd, TextDelta
from remit.providers import ProviderError, ProviderResponse
from remit.providers.dialects import (
    DialectError,
    read_answer,
    read_request,
    stream_writer,
    write_answer,
    write_request,
)
from remit.providers.wire import stream_sum
from tests.providers.dialects.bodies import (
    ANSWERS,
    ENDPOINTS,
    ODD,
    REQUESTS,
    Reading,
    places,
    with_at,
)
from tests.providers.wire.streams import chat_chunks, message_events, response_events

CALLS = {endpoint: read_request(endpoint, REQUESTS[endpoint]) for endpoint in ENDPOINTS}
IDS: dict[str, Any] = {"answer_id": "resp_7", "created": 5, "model": "mine"}


def provider_stream(endpoint: str, whole: dict[str, Any], width: int) -> list[dict[str, Any]]:
    """The parsed events that a provider could have sent for a whole answer."""
    if endpoint == "openai.chat":
        return [orjson.loads(data) for data in chat_chunks(whole, width)[:-1]]
    cut = message_events if endpoint == "anthropic.messages" else response_events
    return [orjson.loads(data) for _, data in cut(whole, width)]


def parsed(wire: bytes) -> list[tuple[str, bytes]]:
    events = []
    for event in wire.split(b"\n\n")[:-1]:
        lines = dict(line.split(b": ", 1) for line in event.split(b"\n"))
        events.append((lines.get(b"event", b"").decode(), lines[b"data"]))
    return events


def added(endpoint: str, wire: bytes) -> dict[str, Any]:
    """What a stream adds up to by the dialect's own rules."""
    total = stream_sum(endpoint)
    for name, data in parsed(wire):
        total.add(name, data)
    assert total.ended
    return total.answer()


def passed_on(
    client: str, events: Iterable[dict[str, Any]], end: ProviderResponse, provider: str
) -> bytes:
    """What a client gets for the events of a provider."""
    reader, writer = Reading(provider), stream_writer(client, CALLS[client], **IDS)
    wire = writer.start()
    for data in events:
        wire += b"".join(map(writer.event, reader.feed(data)))
    wire += b"".join(map(writer.event, reader.finish()))
    return wire + writer.end(end)


def translated(provider: str, client: str, whole: dict[str, Any], width: int) -> bytes:
    events = provider_stream(provider, whole, width)
    return passed_on(client, events, read_answer(provider, whole), provider)


def chunks(*deltas: dict[str, Any], finish: str | None = None) -> list[dict[str, Any]]:
    """Chunks of Chat Completions; with a reason, one more that ends the answer."""
    told = [(delta, None) for delta in deltas] + ([({}, finish)] if finish else [])
    return [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
        for delta, reason in told
    ]


def as_sent(endpoint: str, answer: dict[str, Any]) -> dict[str, Any]:
    """A whole answer without the nulls that a stream leaves out."""
    if endpoint == "openai.chat":
        message = answer["choices"][0]["message"]
        kept = {key: value for key, value in message.items() if value is not None}
        kept["content"] = kept.get("content", "")
        return answer | {"choices": [answer["choices"][0] | {"message": kept}]}
    return answer


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


@cache
def _message_event() -> TypeAdapter[Any]:
    from anthropic.types import RawMessageStreamEvent

    return TypeAdapter(RawMessageStreamEvent)


@cache
def _response_event() -> TypeAdapter[Any]:
    from openai.types.responses import ResponseStreamEvent

    return TypeAdapter(ResponseStreamEvent)


def check_with_sdk(client: str, wire: bytes, whole: dict[str, Any]) -> None:
    """The SDK's types hold every event, and its accumulator gives the whole answer."""
    events = parsed(wire)
    if client == "openai.chat":
        assert events.pop()[1] == b"[DONE]"
        if b'"custom"' in wire:
            return  # the SDK's chunks have no custom tools
        from openai.lib.streaming.chat import ChatCompletionStreamState
        from openai.types.chat import ChatCompletionChunk

        state: Any = ChatCompletionStreamState()
        for _, data in events:
            state.handle_chunk(ChatCompletionChunk.model_validate_json(data))
        message = whole["choices"][0]["message"]
        final = state.current_completion_snapshot.choices[0]
        assert (final.message.content or None) == (message["content"] or None)
        assert (final.message.refusal or None) == message["refusal"]
        assert final.finish_reason == whole["choices"][0]["finish_reason"]
    elif client == "anthropic.messages":
        from anthropic.lib.streaming._messages import accumulate_event

        snapshot: Any = None
        inputs: dict[int, bytes] = {}
        for name, data in events:
            event = _message_event().validate_json(data)
            assert event.type == name
            snapshot = accumulate_event(event=event, current_snapshot=snapshot, json_bufs=inputs)
        content = snapshot.to_dict(exclude_unset=False)["content"]
        assert [block["type"] for block in content] == [block["type"] for block in whole["content"]]
        for block, expected in zip(content, whole["content"], strict=True):
            held = _without_nulls({key: block[key] for key in expected})
            assert held == _without_nulls(expected)
        assert snapshot.stop_reason == whole["stop_reason"]
        assert snapshot.usage.output_tokens == whole["usage"]["output_tokens"]
    else:
        from openai import omit
        from openai._models import construct_type_unchecked
        from openai.lib.streaming.responses._responses import ResponseStreamState
        from openai.types.responses import ResponseStreamEvent

        responses: Any = ResponseStreamState(input_tools=omit, text_format=omit)
        for number, (name, data) in enumerate(events):
            event = _response_event().validate_json(data)
            assert (event.type, event.sequence_number) == (name, number)
            raw = construct_type_unchecked(type_=ResponseStreamEvent, value=orjson.loads(data))
            responses.handle_event(raw)
        if whole["status"] == "completed":
            final = responses._completed_response
            assert [item.type for item in final.output] == [
                item["type"] for item in whole["output"]
            ]


_texts = st.text('aé\U0001f600"\\\n ', min_size=1, max_size=8)
_inputs = st.dictionaries(st.sampled_from(["a", "b"]), _texts | st.integers(0, 9), max_size=2)


def _blocks(thinking: dict[str, Any]) -> st.SearchStrategy[list[dict[str, Any]]]:
    calls = st.lists(st.tuples(st.sampled_from(["answer", "patch"]), _inputs, _texts), max_size=3)

    def build(thought: str, text: str, refusal: str, called: Any) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = []
        if thought:
            blocks.append({"type": "thinking", "thinking": thought, **thinking})
        if text:
            blocks.append({"type": "text", "text": text})
        if refusal and not called:
            blocks.append({"type": "refusal", "refusal": refusal})
        for number, (name, given_input, free) in enumerate(called):
            block = {"type": "tool_use", "id": f"c{number}", "name": name, "input": given_input}
            if name == "patch":
                block |= {"input": {"input": free}, "custom": True}
            blocks.append(block)
        return blocks

    maybe = _texts | st.just("")
    return st.builds(build, maybe, maybe, maybe, calls)


_ANSWERS = {
    "openai.chat": _blocks({"raw": True}),
    "openai.responses": _blocks({"encrypted": "sealed", "item_id": "rs_1"}),
    "anthropic.messages": _blocks({"signature": "sig"}),
}


@settings(max_examples=40, deadline=None)
@given(st.data(), st.sampled_from(ENDPOINTS), st.sampled_from(ENDPOINTS), st.integers(1, 6))
def test_any_stream_is_the_whole_answer(
    data: st.DataObject, provider: str, client: str, width: int
) -> None:
    blocks = data.draw(_ANSWERS[provider])
    called = any(block["type"] == "tool_use" for block in blocks)
    reason = "tool_use" if called else data.draw(st.sampled_from(["stop", "length"]))
    answer = ProviderResponse("", "m", 7, 5, reason, content_blocks=tuple(blocks))
    sent = write_answer(provider, answer, CALLS["openai.chat"], **IDS)
    wire = translated(provider, client, sent, width)
    whole = write_answer(client, read_answer(provider, sent), CALLS[client], **IDS)
    assert _essence(client, added(client, wire)) == _essence(client, whole)
    check_with_sdk(client, wire, whole)


def _essence(endpoint: str, answer: dict[str, Any]) -> dict[str, Any]:
    """An answer with its calls' arguments read: white space in them says nothing."""
    answer = as_sent(endpoint, answer)
    if endpoint == "openai.chat":
        for call in answer["choices"][0]["message"].get("tool_calls", ()):
            if "function" in call:
                call["function"]["arguments"] = orjson.loads(call["function"]["arguments"])
    elif endpoint == "openai.responses":
        for item in answer["output"]:
            if item["type"] == "function_call":
                item["arguments"] = orjson.loads(item["arguments"])
    return answer


def test_calls_that_come_mixed_are_put_in_order_for_the_messages_api() -> None:
    deltas = []
    for index, name, arguments in (
        (0, "a", '{"x":'), (1, "b", '{"y":'), (0, None, "1}"), (1, None, "2}"),
    ):  # fmt: skip
        call: dict[str, Any] = {"index": index, "function": {"arguments": arguments}}
        if name is not None:
            call |= {"id": f"call_{name}", "function": {"name": name, "arguments": arguments}}
        deltas.append({"tool_calls": [call]})
    end = ProviderResponse("", "m", 1, 1, "tool_use")
    wire = passed_on("anthropic.messages", chunks(*deltas), end, "openai.chat")
    content = added("anthropic.messages", wire)["content"]
    assert [(block["name"], block["input"]) for block in content] == [
        ("a", {"x": 1}),
        ("b", {"y": 2}),
    ]


@pytest.mark.parametrize(
    ("provider", "event"),
    [
        ("openai.chat", {"error": {"message": "down"}}),
        ("anthropic.messages", {"type": "error", "error": {"message": "down"}}),
        ("openai.responses", {"type": "error", "message": "down"}),
        (
            "openai.responses",
            {"type": "response.failed", "response": {"error": {"message": "down"}}},
        ),
    ],
)
def test_an_error_is_read_as_no_answer(provider: str, event: dict[str, Any]) -> None:
    with pytest.raises(ProviderError, match="down"):
        read_answer(provider, event)


@pytest.mark.parametrize("provider", ENDPOINTS)
def test_a_stream_of_any_shape_is_translated_or_refused(provider: str) -> None:
    events = provider_stream(provider, ANSWERS[provider], 1000)
    outcomes = {"translated": 0, "refused": 0}
    for position, event in enumerate(events):
        for path in places(event):
            if "response" in path[:1] and position:
                continue
            for odd in ODD[::4]:
                changed = [*events[:position], with_at(event, path, odd), *events[position + 1 :]]
                outcomes[_fed(provider, changed)] += 1
        outcomes[_fed(provider, [*events[:position], *events[position + 1 :]])] += 1
    assert min(outcomes.values()) > 10


def _fed(provider: str, events: list[dict[str, Any]]) -> str:
    reader = Reading(provider)
    writers = [stream_writer(client, CALLS[client], **IDS) for client in ENDPOINTS]
    try:
        for data in events:
            for event in reader.feed(data):
                for writer in writers:
                    assert isinstance(writer.event(event), bytes)
        for event in reader.finish():
            for writer in writers:
                assert isinstance(writer.event(event), bytes)
    except (DialectError, ProviderError):
        return "refused"
    for writer in writers:
        assert writer.end(ProviderResponse("", "m", 1, 1))
    return "translated"


@pytest.mark.parametrize("index", [{"index": 0}, {}], ids=["equal", "missing"])
@pytest.mark.parametrize("client", ENDPOINTS)
def test_parallel_calls_whose_indices_do_not_tell_them_apart(
    client: str, index: dict[str, int]
) -> None:
    def called(identity: str, text: str) -> dict[str, Any]:
        call = {"type": "function", "function": {"name": "add", "arguments": text}}
        return {"tool_calls": [{**index, "id": identity, **call}]}

    events = chunks(
        called("call_a", '{"day":'),
        {"tool_calls": [{**index, "function": {"arguments": '"Mon"}'}}]},
        called("call_b", '{"day":"Tue"}'),
        finish="tool_calls",
    )
    total = stream_sum("openai.chat")
    for event in events:
        total.add("", orjson.dumps(event))
    end = read_answer("openai.chat", total.answer())
    wire = passed_on(client, events, end, "openai.chat")
    for endpoint, whole in (("openai.chat", total.answer()), (client, added(client, wire))):
        calls = [
            (block["name"], block["input"])
            for block in read_answer(endpoint, whole).content_blocks
            if block["type"] == "tool_use"
        ]
        assert calls == [("add", {"day": "Mon"}), ("add", {"day": "Tue"})]


@pytest.mark.parametrize("client", ["anthropic.messages", "openai.responses"])
def test_the_signature_of_a_streamed_call_comes_back_to_gemini(client: str) -> None:
    extra = {"google": {"thought_signature": "SIG"}}
    function = {"name": "look", "arguments": "{}"}
    call = {"index": 0, "id": "c", "type": "function", "function": function, "extra_content": extra}
    events = chunks({"tool_calls": [call]}, finish="tool_calls")
    end = ProviderResponse("", "m", 1, 1, "tool_use")
    answered = added(client, passed_on(client, events, end, "openai.chat"))
    said = {"role": "assistant", "content": answered["content"]} if client[0] == "a" else None
    key = "messages" if said else "input"
    body = {"model": "g", key: [said] if said else answered["output"], "max_tokens": 5}
    written = write_request(
        "openai.chat", read_request(client, body), model="g", max_output_tokens=5
    )
    assert written["messages"][0]["tool_calls"][0]["extra_content"] == extra


@pytest.mark.parametrize("reason", [None, "length"])
def test_a_call_that_is_cut_without_a_reason_is_no_answer(reason: str | None) -> None:
    call = {"index": 0, "id": "c", "function": {"name": "rm", "arguments": '{"path": "/tm'}}
    reader = Reading("openai.chat")
    choice = {"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": reason}
    reader.feed({"choices": [choice]})
    if reason is None:
        with pytest.raises(DialectError):
            reader.finish()
    else:
        assert isinstance(reader.finish()[-1], BlockEnd)


def test_the_first_candidate_of_gemini_is_found_by_its_index() -> None:
    def candidate(index: int, text: str, **more: Any) -> dict[str, Any]:
        return {"index": index, "content": {"role": "model", "parts": [{"text": text}]}, **more}

    reader = Reading("gemini.generate")
    events = reader.feed({"candidates": [candidate(1, "no"), candidate(0, "Hel")]})
    events += reader.feed({"candidates": [candidate(0, "lo", finishReason="STOP")]})
    events += reader.finish()
    said = [event.text for event in events if isinstance(event, TextDelta)]
    assert said == ["Hel", "lo"]
    assert [event.block for event in events if isinstance(event, BlockEnd)] == [
        {"type": "text", "text": "Hello"}
    ]
