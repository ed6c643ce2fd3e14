"""Anthropic's own client."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest

from tests.clients.conftest import Side, refusal, remits_own

MODEL = "claude-sonnet-4-5"
TOOLS: list[Any] = [
    {"name": "get_weather", "description": "Weather of a city.",
     "input_schema": {"type": "object", "properties": {"city": {"type": "string"}},
                      "required": ["city"]}},
]  # fmt: skip
TWICE = '[[call get_weather {"city": "Paris"}]] [[call get_weather {"city": "Rom\\u00e9"}]]'


@pytest.fixture
def client(side: Side) -> anthropic.Anthropic:
    return anthropic.Anthropic(**side.anthropic, max_retries=0)


def _ask(text: Any, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"model": MODEL, "max_tokens": 2000, "messages": messages, **more}


def test_message(side: Side, client: anthropic.Anthropic) -> Any:
    return client.messages.create(**_ask("hello")).model_dump()


@pytest.mark.parametrize("text", [
    "hello", TWICE, "[[refuse]]", "[[say one]] [[say two]]", "[[long]]",
], ids=["text", "tools", "refusal", "blocks", "long"])  # fmt: skip
def test_stream(side: Side, client: anthropic.Anthropic, text: str) -> Any:
    with client.messages.stream(**_ask(text, tools=TOOLS)) as stream:
        kinds = [event.type for event in stream]
        return [kinds, stream.get_final_message().model_dump()]


def test_stream_events(side: Side, client: anthropic.Anthropic) -> Any:
    return [event.model_dump() for event in client.messages.create(**_ask("hello", stream=True))]


def test_everything(side: Side, client: anthropic.Anthropic) -> Any:
    kept = {"type": "ephemeral"}
    content = [
        {"type": "text", "text": "What is it?", "cache_control": kept},
        {"type": "text", "text": " Say."},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png",
                                     "data": "iVBORw0KGgo="}},
        {"type": "document", "title": "Grass", "context": "green", "citations": {"enabled": True},
         "source": {"type": "text", "media_type": "text/plain", "data": "The grass is green."}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf",
                                        "data": "JVBERi0xLjQK"}},
    ]  # fmt: skip
    return client.messages.create(**_ask(
        content, system=[{"type": "text", "text": "Be brief.", "cache_control": kept}],
        stop_sequences=["zzz"], metadata={"user_id": "u"},
        service_tier="auto", tools=[{**TOOLS[0], "cache_control": kept}],
        tool_choice={"type": "auto", "disable_parallel_tool_use": True},
    )).model_dump()  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
def test_citations(side: Side, client: anthropic.Anthropic, stream: bool) -> Any:
    document = {"type": "document", "citations": {"enabled": True}, "title": "Grass",
                "source": {"type": "text", "media_type": "text/plain",
                           "data": "The grass is green."}}  # fmt: skip
    given = _ask([document, {"type": "text", "text": "[[cite]]"}])
    if stream:
        with client.messages.stream(**given) as streamed:
            answer: Any = streamed.get_final_message()
    else:
        answer = client.messages.create(**given)
    assert answer.content[1].citations[0].cited_text == "The grass is green."
    return answer.model_dump()


@pytest.mark.parametrize("stream", [False, True])
def test_tools(side: Side, client: anthropic.Anthropic, stream: bool) -> Any:
    given = _ask(TWICE, tools=TOOLS, thinking={"type": "enabled", "budget_tokens": 1024})
    if stream:
        with client.messages.stream(**given) as streamed:
            first: Any = streamed.get_final_message()
    else:
        first = client.messages.create(**given)
    assert first.stop_reason == "tool_use"
    assert first.content[0].signature
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "is_error": False, "content": [
            {"type": "text", "text": "sunny"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png",
                                         "data": "iVBORw0KGgo="}}]}
        for block in first.content if block.type == "tool_use"
    ]  # fmt: skip
    given["messages"] += [
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": results},
    ]
    last = client.messages.create(**given)
    assert last.content[-1].text == "The tools said: sunny; sunny"
    return [first.model_dump(), last.model_dump()]


def test_tool_choice(side: Side, client: anthropic.Anthropic) -> Any:
    answer = client.messages.create(
        **_ask("hi", tools=TOOLS, tool_choice={"type": "tool", "name": "get_weather"})
    )
    assert answer.stop_reason == "tool_use"
    return answer.model_dump()


def test_structured(side: Side, client: anthropic.Anthropic) -> Any:
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"],
              "additionalProperties": False}  # fmt: skip
    answer = client.messages.create(
        **_ask("Ann is 41.", output_config={"format": {"type": "json_schema", "schema": schema}})
    )
    assert json.loads(answer.content[0].text) == {"age": 41}
    return answer.model_dump()


def test_beta(side: Side, client: anthropic.Anthropic) -> Any:
    answer = client.beta.messages.create(
        **_ask("hi", betas=["context-management-2025-06-27"],
               context_management={"edits": [{"type": "clear_tool_uses_20250919"}]})
    )  # fmt: skip
    return answer.model_dump()


def test_count_tokens(side: Side, client: anthropic.Anthropic) -> Any:
    counted = client.messages.count_tokens(
        model=MODEL, messages=[{"role": "user", "content": "hello there"}], tools=TOOLS, system="x"
    )
    return counted.model_dump()


def test_stop_and_length(side: Side, client: anthropic.Anthropic) -> Any:
    one = client.messages.create(**_ask("hello", stop_sequences=["strict"]))
    two = client.messages.create(**_ask("hello", max_tokens=3))
    assert (one.stop_sequence, two.stop_reason) == ("strict", "max_tokens")
    return [one.model_dump(), two.model_dump()]


def _refused(call: Any) -> Any:
    with pytest.raises(anthropic.APIStatusError) as caught:
        call()
    return refusal(caught.value)


@pytest.mark.parametrize("more", [
    {"extra_body": {"max_tokens": "x"}},
    {"extra_body": {"unheard_of": 1}},
    {"messages": []}, {"tools": [{"name": "bad name",
                                                               "input_schema": {}}]},
    {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x"}]}]},
    {"messages": [{"role": "user", "content": ""}, {"role": "user", "content": "x"}]},
    {"thinking": {"type": "enabled", "budget_tokens": 5000}},
    {"messages": [{"role": "user", "content": "[[status 429]]"}]},
    {"messages": [{"role": "user", "content": "[[status 529]]"}]},
], ids=["type", "unknown", "empty", "tool_name", "tool_result",
        "empty_text", "thinking", "429", "529"])  # fmt: skip
def test_refused(side: Side, client: anthropic.Anthropic, more: dict[str, Any]) -> Any:
    return _refused(lambda: client.messages.create(**{**_ask("hello"), **more}))


def test_headers(side: Side, client: anthropic.Anthropic) -> Any:
    raw = client.messages.with_raw_response.create(**_ask("hello"))
    assert raw.headers["request-id"]
    return [raw.headers.get("anthropic-ratelimit-requests-remaining"), raw.text()]


def test_batches(side: Side, client: anthropic.Anthropic) -> Any:
    params = _ask("hello", max_tokens=20)
    made = client.messages.batches.create(requests=[{"custom_id": "a", "params": params}])
    got = client.messages.batches.retrieve(made.id)
    results = [one.model_dump() for one in client.messages.batches.results(made.id)]
    listed = made.id in [one.id for one in client.messages.batches.list()]
    gone = client.messages.batches.delete(made.id)
    return [got.processing_status, results, listed, gone.model_dump()]


def test_files(side: Side, client: anthropic.Anthropic) -> Any:
    made = client.beta.files.upload(file=("a.txt", b"caf\xc3\xa9 \x00\xff", "text/plain"))
    got = client.beta.files.retrieve_metadata(made.id)
    content = client.beta.files.download(made.id).read()
    gone = client.beta.files.delete(made.id)
    assert content == b"caf\xc3\xa9 \x00\xff"
    return [made.model_dump(), got.model_dump(), gone.model_dump()]


@remits_own
def test_models(side: Side, client: anthropic.Anthropic) -> Any:
    names = [model.id for model in client.models.list()]
    found = client.models.retrieve(names[-1])
    assert found.id == names[-1]
    return sorted(found.model_dump())


async def test_async(side: Side) -> Any:
    async with anthropic.AsyncAnthropic(**side.anthropic, max_retries=0) as client:
        answer = await client.messages.create(**_ask("hello"))
        async with client.messages.stream(**_ask("hello")) as stream:
            return [answer.model_dump(), [event.type async for event in stream]]
