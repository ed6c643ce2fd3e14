"""Google's own client of Gemini."""

from __future__ import annotations

from typing import Any

import pytest
from google import genai
from google.genai import errors, types
from google.oauth2.credentials import Credentials

from tests.clients.conftest import Side, remits_own

MODEL = "gemini-2.5-flash"
_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
_FUNCTION = types.FunctionDeclaration(
    name="get_weather", description="Weather of a city.", parameters_json_schema=_SCHEMA
)
_TOOL = types.Tool(function_declarations=[_FUNCTION])
_CALL = '[[call get_weather {"city": "Paris"}]]'
_TWICE = f'{_CALL} [[call get_weather {{"city": "Rom\\u00e9"}}]]'


@pytest.fixture(params=["gemini", "vertex"])
def client(side: Side, request: pytest.FixtureRequest) -> genai.Client:
    """The client of Google's own API, and that of Vertex AI."""
    options = types.HttpOptions(base_url=side.url)
    if request.param == "gemini":
        return genai.Client(api_key=side.key, http_options=options)
    return genai.Client(
        vertexai=True, project="p", location="l", credentials=Credentials(side.key),
        http_options=options,
    )  # fmt: skip


def _plain(answer: Any) -> Any:
    return answer.model_dump(mode="json", exclude={"sdk_http_response"})


def _config(**more: Any) -> types.GenerateContentConfig:
    off = types.AutomaticFunctionCallingConfig(disable=True)
    return types.GenerateContentConfig(automatic_function_calling=off, **more)


_TEXTS = pytest.mark.parametrize(
    "text", ["hello", _CALL, _TWICE, "[[refuse]]", "[[block]]", "[[long]]", "[[think]]"],
    ids=["text", "tool", "tools", "refusal", "blocked", "long", "thought"],
)  # fmt: skip


@_TEXTS
def test_answer(side: Side, client: genai.Client, text: str) -> Any:
    config = _config(tools=[_TOOL])
    return _plain(client.models.generate_content(model=MODEL, contents=text, config=config))


@_TEXTS
def test_stream(side: Side, client: genai.Client, text: str) -> Any:
    config = _config(tools=[_TOOL])
    events = client.models.generate_content_stream(model=MODEL, contents=text, config=config)
    return [_plain(event) for event in events]


async def test_async_stream(side: Side, client: genai.Client) -> Any:
    events = await client.aio.models.generate_content_stream(model=MODEL, contents="hello")
    return [_plain(event) async for event in events]


def test_everything(side: Side, client: genai.Client) -> Any:
    contents = [types.Content(role="user", parts=[
        types.Part.from_text(text="What is it?"),
        types.Part.from_bytes(data=b"\x89PNG\xff\xfe", mime_type="image/png"),
        types.Part.from_uri(file_uri="https://example.org/a.pdf", mime_type="application/pdf"),
    ])]  # fmt: skip
    config = _config(
        system_instruction="Be brief.", temperature=0.5, top_p=0.9, top_k=40, seed=7,
        max_output_tokens=500, stop_sequences=["END"], response_mime_type="application/json",
        response_json_schema=_SCHEMA, labels=None,
        thinking_config=types.ThinkingConfig(thinking_budget=1024, include_thoughts=True),
        safety_settings=[types.SafetySetting(
            category="HARM_CATEGORY_HATE_SPEECH", threshold="BLOCK_NONE")],
    )  # fmt: skip
    return _plain(client.models.generate_content(model=MODEL, contents=contents, config=config))


def test_tool_round_of_a_chat(side: Side, client: genai.Client) -> Any:
    chat = client.chats.create(model=MODEL, config=_config(tools=[_TOOL]))
    first = chat.send_message(_CALL)
    result = types.Part.from_function_response(name="get_weather", response={"result": "sunny"})
    return [_plain(first), _plain(chat.send_message(result)), _plain(chat.send_message("thanks"))]


def test_streamed_tool_round_of_a_chat(side: Side, client: genai.Client) -> Any:
    chat = client.chats.create(model=MODEL, config=_config(tools=[_TOOL]))
    first = [_plain(event) for event in chat.send_message_stream(_TWICE)]
    results = [types.Part.from_function_response(name="get_weather", response={"result": "sunny"})
               for _ in range(2)]  # fmt: skip
    return [first, [_plain(event) for event in chat.send_message_stream(results)]]


def test_automatic_tools(side: Side, client: genai.Client) -> Any:
    def get_weather(city: str) -> str:
        """Return the weather of a city."""
        return f"sunny in {city}"

    config = types.GenerateContentConfig(tools=[get_weather])
    return _plain(client.models.generate_content(model=MODEL, contents=_CALL, config=config))


def test_tokens(side: Side, client: genai.Client) -> Any:
    return _plain(client.models.count_tokens(model=MODEL, contents="hello"))


@pytest.mark.parametrize("contents", ["hello", ["hello", "you"]], ids=["one", "two"])
def test_embeddings(side: Side, client: genai.Client, contents: Any) -> Any:
    # The shipped table has no price of Google's embedding models, which the key's budget needs.
    return _plain(client.models.embed_content(model=MODEL, contents=contents))


@remits_own
@pytest.mark.parametrize("client", ["gemini"], indirect=True)
def test_model_list(side: Side, client: genai.Client) -> Any:
    assert f"models/{MODEL}" in [model.name for model in client.models.list()]
    return _plain(client.models.get(model=MODEL))


@pytest.mark.parametrize("text", ["[[status 400]]", "[[status 429]]", "[[status 503]]"])
def test_refusals(side: Side, client: genai.Client, text: str) -> Any:
    with pytest.raises(errors.APIError) as caught:
        client.models.generate_content(model=MODEL, contents=text)
    error = caught.value
    return {"refused": [type(error).__name__, error.code], "body": [error.status, error.message]}


def test_unknown_parts_are_refused_by_the_provider(side: Side, client: genai.Client) -> Any:
    contents = types.Content(role="nobody", parts=[types.Part.from_text(text="hello")])
    with pytest.raises(errors.ClientError) as caught:
        client.models.generate_content(model=MODEL, contents=contents)
    return {"refused": [caught.value.code, caught.value.status], "body": caught.value.message}
