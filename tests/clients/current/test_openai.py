"""OpenAI's own client."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from tests.clients.conftest import Side, refusal, remits_own

TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city.",
     "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                    "required": ["city"], "additionalProperties": False}, "strict": True}},
]  # fmt: skip
FLAT_TOOLS: list[Any] = [{"type": "function", **TOOLS[0]["function"]}]
PARIS_AND_ROME = (
    '[[call get_weather {"city": "Paris"}]] [[call get_weather {"city": "Rom\\u00e9"}]]'
)


class Person(BaseModel):
    name: str
    age: int


@pytest.fixture
def client(side: Side) -> openai.OpenAI:
    return openai.OpenAI(**side.openai, max_retries=0)


def _user(text: Any) -> list[Any]:
    return [{"role": "user", "content": text}]


@pytest.mark.parametrize("model", ["gpt-4o-mini", "gpt-4.1", "gpt-5-mini", "o4-mini"])
def test_chat(side: Side, client: openai.OpenAI, model: str) -> Any:
    return client.chat.completions.create(model=model, messages=_user("hello")).model_dump()


def test_chat_stream(side: Side, client: openai.OpenAI) -> Any:
    stream = client.chat.completions.create(
        model="gpt-4o-mini", messages=_user("hello"), stream=True
    )
    return [chunk.model_dump() for chunk in stream]


def test_chat_stream_usage(side: Side, client: openai.OpenAI) -> Any:
    stream = client.chat.completions.create(
        model="gpt-4o-mini", messages=_user("hello"), stream=True,
        stream_options={"include_usage": True, "include_obfuscation": False},
    )  # fmt: skip
    chunks = [chunk.model_dump() for chunk in stream]
    assert chunks[-1]["usage"]["total_tokens"] > 0
    return chunks


def test_chat_everything(side: Side, client: openai.OpenAI) -> Any:
    answer = client.chat.completions.create(
        model="gpt-4o-mini",
        messages=[
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "name": "ann", "content": [
                {"type": "text", "text": "What is on it?"}, {"type": "text", "text": " Say it."},
                {"type": "image_url", "image_url": {
                    "url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}},
            ]},
        ],
        n=2, logprobs=True, top_logprobs=1, seed=7, stop=["zzz"], logit_bias={"50256": -100},
        presence_penalty=0.1, frequency_penalty=0.2, temperature=0.30, top_p=0.9, user="u-1",
        metadata={"a": "b"}, store=False, max_completion_tokens=200, service_tier="auto",
        prediction={"type": "content", "content": "Hello"}, safety_identifier="s-1",
        prompt_cache_key="k", extra_body={"verbosity": "low"},
    )  # fmt: skip
    assert len(answer.choices) == 2
    assert answer.choices[0].logprobs is not None
    return answer.model_dump()


@pytest.mark.parametrize("stream", [False, True])
def test_chat_tools(side: Side, client: openai.OpenAI, stream: bool) -> Any:
    messages = _user(PARIS_AND_ROME)
    more: dict[str, Any] = {"model": "gpt-4o-mini", "tools": TOOLS, "parallel_tool_calls": True}
    if stream:
        with client.chat.completions.stream(messages=messages, **more) as streamed:
            first: Any = streamed.get_final_completion()
    else:
        first = client.chat.completions.create(messages=messages, **more)
    asked = first.choices[0].message
    assert [json.loads(c.function.arguments)["city"] for c in asked.tool_calls] == ["Paris", "Romé"]
    messages.append(asked.model_dump(exclude_none=True, exclude={"parsed"}) if not stream else {
        "role": "assistant", "content": None, "tool_calls": [
            {"id": c.id, "type": "function", "function": {
                "name": c.function.name, "arguments": c.function.arguments}}
            for c in asked.tool_calls]})  # fmt: skip
    for call in asked.tool_calls:
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "sunny"})
    last = client.chat.completions.create(messages=messages, **more)
    assert last.choices[0].message.content == "The tools said: sunny; sunny"
    return [first.model_dump(), last.model_dump()]


def test_chat_custom_tool(side: Side, client: openai.OpenAI) -> Any:
    answer = client.chat.completions.create(
        model="gpt-5-mini", messages=_user("[[call run print(1)]]"),
        tools=[{"type": "custom", "custom": {"name": "run", "description": "Runs code."}}],
    )  # fmt: skip
    assert answer.choices[0].message.tool_calls[0].custom.input == "print(1)"
    return answer.model_dump()


def test_chat_parse(side: Side, client: openai.OpenAI) -> Any:
    answer = client.chat.completions.parse(
        model="gpt-4o-mini", messages=_user("Ann is 41."), response_format=Person
    )
    assert answer.choices[0].message.parsed.age == 41
    return answer.model_dump()


def test_chat_parse_with_tools(side: Side, client: openai.OpenAI) -> Any:
    tool = openai.pydantic_function_tool(Person, name="note")
    answer = client.chat.completions.parse(
        model="gpt-4o-mini", messages=_user("Please note: Ann is 41."), response_format=Person,
        tools=[tool],
    )  # fmt: skip
    call = answer.choices[0].message.tool_calls[0]
    assert call.function.parsed_arguments.age == 41
    return answer.model_dump()


def test_chat_refusal(side: Side, client: openai.OpenAI) -> Any:
    answer = client.chat.completions.create(model="gpt-4o-mini", messages=_user("[[refuse]]"))
    assert answer.choices[0].message.refusal
    return answer.model_dump()


def test_chat_audio(side: Side, client: openai.OpenAI) -> Any:
    answer = client.chat.completions.create(
        model="gpt-4o-audio-preview", modalities=["text", "audio"],
        audio={"voice": "alloy", "format": "wav"},
        messages=_user([{"type": "input_audio",
                         "input_audio": {"data": "UklGRgAA", "format": "wav"}},
                        {"type": "text", "text": "Say hi"}]),
    )  # fmt: skip
    assert answer.choices[0].message.audio.transcript
    return answer.model_dump()


def test_chat_file(side: Side, client: openai.OpenAI) -> Any:
    file = {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0xLjQK"}
    answer = client.chat.completions.create(
        model="gpt-4o-mini",
        messages=_user([{"type": "text", "text": "Sum up."}, {"type": "file", "file": file}]),
    )
    return answer.model_dump()


def test_chat_helper_events(side: Side, client: openai.OpenAI) -> Any:
    with client.chat.completions.stream(
        model="gpt-4o-mini", messages=_user("[[call get_weather {\"city\": \"Oslo\"}]]"),
        tools=TOOLS, stream_options={"include_usage": True},
    ) as stream:  # fmt: skip
        kinds = [event.type for event in stream]
        assert "tool_calls.function.arguments.done" in kinds
        return [kinds, stream.get_final_completion().model_dump()]


def test_chat_raw_headers(side: Side, client: openai.OpenAI) -> Any:
    raw = client.chat.completions.with_raw_response.create(
        model="gpt-4o-mini", messages=_user("hello")
    )
    assert raw.headers["x-ratelimit-remaining-requests"] == "9999"
    assert raw.headers["x-request-id"]
    return {"org": raw.headers.get("openai-organization"), "text": raw.text}


def _refused(call: Any) -> Any:
    with pytest.raises(openai.APIStatusError) as caught:
        call()
    return refusal(caught.value)


@pytest.mark.parametrize("more", [
    {"temperature": 3.5}, {"max_tokens": "x"}, {"extra_body": {"unheard_of": 1}},
    {"messages": []}, {"tools": [{"type": "function", "function": {
        "name": "bad name"}}]}, {"model": "o4-mini", "max_tokens": 5},
    {"messages": [{"role": "tool", "tool_call_id": "x", "content": "y"}]},
    {"messages": [{"role": "user", "content": "[[status 429]]"}]},
    {"messages": [{"role": "user", "content": "[[status 500]]"}]},
], ids=["temperature", "type", "unknown", "empty", "tool_name", "reasoning", "tool_result",
        "429", "500"])  # fmt: skip
def test_chat_refused(side: Side, client: openai.OpenAI, more: dict[str, Any]) -> Any:
    given = {"model": "gpt-4o-mini", "messages": _user("hello"), **more}
    return _refused(lambda: client.chat.completions.create(**given))


async def test_chat_async(side: Side) -> Any:
    async with openai.AsyncOpenAI(**side.openai, max_retries=0) as client:
        answer = await client.chat.completions.create(model="gpt-4o-mini", messages=_user("hi"))
        stream = await client.chat.completions.create(
            model="gpt-4o-mini", messages=_user("hi"), stream=True
        )
        return [answer.model_dump(), [chunk.model_dump() async for chunk in stream]]


@pytest.mark.parametrize("model", ["gpt-4o-mini", "gpt-5-mini"])
def test_responses(side: Side, client: openai.OpenAI, model: str) -> Any:
    answer = client.responses.create(model=model, input="hello")
    assert answer.output_text.startswith("Hello")
    return answer.model_dump()


@pytest.mark.parametrize("text", [
    "hello", "[[refuse]]", "[[think]] [[say yes]]", "[[cite]]",
    '[[call get_weather {"city": "Paris"}]] [[call get_weather {"city": "Rome"}]]',
], ids=["text", "refusal", "reasoning", "citation", "tools"])  # fmt: skip
def test_responses_stream(side: Side, client: openai.OpenAI, text: str) -> Any:
    stream = client.responses.create(
        model="gpt-5-mini", input=text, stream=True, tools=FLAT_TOOLS,
        reasoning={"effort": "low", "summary": "auto"}, include=["reasoning.encrypted_content"],
    )  # fmt: skip
    return [event.model_dump() for event in stream]


def test_responses_helper(side: Side, client: openai.OpenAI) -> Any:
    with client.responses.stream(model="gpt-4o-mini", input="hello") as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert final.output_text.startswith("Hello")
    return [kinds, final.model_dump()]


def test_responses_parse(side: Side, client: openai.OpenAI) -> Any:
    answer = client.responses.parse(model="gpt-4o-mini", input="Ann is 41.", text_format=Person)
    assert answer.output_parsed.age == 41
    return answer.model_dump()


def test_responses_everything(side: Side, client: openai.OpenAI) -> Any:
    answer = client.responses.create(
        model="gpt-5-mini", instructions="Be brief.", max_output_tokens=300, metadata={"a": "b"},
        input=[
            {"role": "developer", "content": "x"},
            {"role": "user", "content": [
                {"type": "input_text", "text": "What is it?"},
                {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=",
                 "detail": "low"},
                {"type": "input_file", "filename": "a.pdf",
                 "file_data": "data:application/pdf;base64,JVBERi0xLjQK"}]},
        ],
        parallel_tool_calls=False, prompt_cache_key="k", safety_identifier="s", truncation="auto",
        text={"verbosity": "low"}, top_logprobs=0, service_tier="auto", store=False,
        reasoning={"effort": "minimal"}, include=["message.output_text.logprobs"],
    )  # fmt: skip
    return answer.model_dump()


def test_responses_tools(side: Side, client: openai.OpenAI) -> Any:
    items: list[Any] = [{"role": "user", "content": PARIS_AND_ROME}]
    more: dict[str, Any] = {"model": "gpt-5-mini", "tools": FLAT_TOOLS, "store": False,
                            "include": ["reasoning.encrypted_content"]}  # fmt: skip
    first = client.responses.create(input=items, **more)
    items += [item.model_dump(exclude_none=True) for item in first.output]
    items += [{"type": "function_call_output", "call_id": item.call_id, "output": "sunny"}
              for item in first.output if item.type == "function_call"]  # fmt: skip
    last = client.responses.create(input=items, **more)
    assert last.output_text == "The tools said: sunny; sunny"
    return [first.model_dump(), last.model_dump()]


def test_responses_custom_tool(side: Side, client: openai.OpenAI) -> Any:
    stream = client.responses.create(
        model="gpt-5-mini", input="[[call run print(1)]]", stream=True,
        tools=[{"type": "custom", "name": "run", "format": {"type": "text"}}],
    )  # fmt: skip
    return [event.model_dump() for event in stream]


def test_responses_chain(side: Side, client: openai.OpenAI) -> Any:
    first = client.responses.create(
        model="gpt-4o-mini", input='[[call get_weather {"city": "Bern"}]]', tools=FLAT_TOOLS
    )
    call = next(item for item in first.output if item.type == "function_call")
    second = client.responses.create(
        model="gpt-4o-mini", tools=FLAT_TOOLS, previous_response_id=first.id,
        input=[{"type": "function_call_output", "call_id": call.call_id, "output": "rain"}],
    )  # fmt: skip
    assert second.output_text == "The tools said: rain"
    items = client.responses.input_items.list(second.id)
    got = client.responses.retrieve(second.id)
    assert got.output_text == second.output_text
    client.responses.delete(second.id)
    gone = _refused(lambda: client.responses.retrieve(second.id))
    assert gone["refused"][1] == 404
    listed = [item.model_dump(exclude={"id"}) for item in items.data]
    return [first.model_dump(), second.model_dump(), listed,
            got.model_dump(), gone["refused"]]  # fmt: skip


@pytest.mark.parametrize("more", [
    {"temperature": 3.5}, {"extra_body": {"unheard_of": 1}}, {"max_output_tokens": 3},
    {"previous_response_id": "resp_0000000000"},
    {"input": [{"type": "function_call_output", "call_id": "x", "output": "y"}]},
    {"reasoning": {"effort": "low"}}, {"input": "[[status 429]]"},
], ids=["temperature", "unknown", "max", "previous", "order", "reasoning",
        "429"])  # fmt: skip
def test_responses_refused(side: Side, client: openai.OpenAI, more: dict[str, Any]) -> Any:
    given = {"model": "gpt-4o-mini", "input": "hello", **more}
    return _refused(lambda: client.responses.create(**given))


@remits_own
@pytest.mark.parametrize("stream", [False, True])
def test_unknown_model(side: Side, client: openai.OpenAI, stream: bool) -> None:
    """No price is known of it either, and the key has a limit in money: then that is the reason."""
    model = "gpt-4-nothing"
    chat = _refused(
        lambda: client.chat.completions.create(model=model, messages=_user("x"), stream=stream)
    )
    responses = _refused(lambda: client.responses.create(model=model, input="x", stream=stream))
    for found in (chat, responses):
        assert found["refused"][1] == (404 if side.name == "direct" else 402)


@pytest.mark.parametrize("given", ["one", ["one", "zwei"], [1, 2, 3], [[1, 2], [3]]],
                         ids=["text", "texts", "tokens", "lists"])  # fmt: skip
def test_embeddings(side: Side, client: openai.OpenAI, given: Any) -> Any:
    answer = client.embeddings.create(model="text-embedding-3-small", input=given, dimensions=4)
    assert len(answer.data[0].embedding) == 4
    return answer.model_dump()


@pytest.mark.parametrize("stream", [False, True])
def test_completions(side: Side, client: openai.OpenAI, stream: bool) -> Any:
    answer = client.completions.create(
        model="gpt-3.5-turbo-instruct", prompt="Once", max_tokens=9, stream=stream
    )
    return [chunk.model_dump() for chunk in answer] if stream else answer.model_dump()


def test_moderations(side: Side, client: openai.OpenAI) -> Any:
    given = ["a", "b"]
    return client.moderations.create(input=given, model="omni-moderation-latest").model_dump()


def test_images(side: Side, client: openai.OpenAI) -> Any:
    return client.images.generate(
        model="gpt-image-1", prompt="a cat", size="1024x1024", quality="low"
    ).model_dump()


@pytest.mark.parametrize("model", ["gpt-4o-mini-tts", "tts-1"])
def test_speech(side: Side, client: openai.OpenAI, model: str) -> Any:
    whole = client.audio.speech.create(model=model, voice="alloy", input="Hello")
    with client.audio.speech.with_streaming_response.create(
        model=model, voice="alloy", input="Hello", response_format="wav"
    ) as streamed:
        return [whole.content.hex(), streamed.read().hex()]


_SOUND = bytes(range(256)) * 40
_AUDIO = (
    "a.wav",
    b"RIFF" + (36 + len(_SOUND)).to_bytes(4, "little") + b"WAVEfmt " + (16).to_bytes(4, "little")
    + b"\1\0\1\0" + (8_000).to_bytes(4, "little") * 2 + b"\1\0\x08\0data"
    + len(_SOUND).to_bytes(4, "little") + _SOUND,
    "audio/wav",
)  # fmt: skip


def test_transcriptions(side: Side, client: openai.OpenAI) -> Any:
    whole = client.audio.transcriptions.create(model="gpt-4o-transcribe", file=_AUDIO)
    text = client.audio.transcriptions.create(
        model="gpt-4o-transcribe", file=_AUDIO, response_format="text"
    )
    stream = client.audio.transcriptions.create(
        model="gpt-4o-mini-transcribe", file=_AUDIO, stream=True
    )
    return [whole.model_dump(), text, [event.model_dump() for event in stream]]


def test_whisper(side: Side, client: openai.OpenAI) -> Any:
    one = client.audio.transcriptions.create(model="whisper-1", file=_AUDIO)
    two = client.audio.translations.create(model="whisper-1", file=_AUDIO)
    return [one.model_dump(), two.model_dump()]


def test_files(side: Side, client: openai.OpenAI) -> Any:
    made = client.files.create(file=("a.txt", b"caf\xc3\xa9 \x00\xff"), purpose="user_data")
    got = client.files.retrieve(made.id)
    content = client.files.content(made.id).content
    listed = made.id in [file.id for file in client.files.list()]
    deleted = client.files.delete(made.id)
    assert content == b"caf\xc3\xa9 \x00\xff"
    assert listed
    return [made.model_dump(), got.model_dump(), deleted.model_dump(),
            _refused(lambda: client.files.retrieve(made.id))["refused"]]  # fmt: skip


def test_batches(side: Side, client: openai.OpenAI) -> Any:
    lines = [{"custom_id": f"r{at}", "method": "POST", "url": "/v1/chat/completions",
              "body": {"model": "gpt-4o-mini", "max_tokens": 20,
                       "messages": _user(f"hello {at}")}} for at in range(2)]  # fmt: skip
    text = "\n".join(map(json.dumps, lines)).encode()
    file = client.files.create(file=("batch.jsonl", text), purpose="batch")
    batch = client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
    )
    got = client.batches.retrieve(batch.id)
    assert got.status == "completed"
    output = client.files.content(got.output_file_id or "").text
    return [batch.model_dump(), got.model_dump(), output,
            batch.id in [one.id for one in client.batches.list()]]  # fmt: skip


@remits_own
def test_models(side: Side, client: openai.OpenAI) -> Any:
    names = [model.id for model in client.models.list()]
    found = client.models.retrieve(names[-1])
    assert found.id == names[-1]
    return sorted(found.model_dump())
