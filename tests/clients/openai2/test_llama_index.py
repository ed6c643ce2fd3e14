"""LlamaIndex: its OpenAI, Responses, Anthropic and embedding classes."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.openai import OpenAIEmbedding
from llama_index.llms.anthropic import Anthropic
from llama_index.llms.openai import OpenAI, OpenAIResponses
from pydantic import BaseModel

from tests.clients.conftest import Side


class Person(BaseModel):
    """A person."""

    name: str
    age: int


@pytest.fixture(params=["chat", "responses", "anthropic"])
def llm(request: pytest.FixtureRequest, side: Side) -> Any:
    if request.param == "anthropic":
        return Anthropic("claude-sonnet-4-5", base_url=side.url, api_key=side.key, max_retries=0)
    kind = OpenAI if request.param == "chat" else OpenAIResponses
    return kind("gpt-4o-mini", api_base=f"{side.url}/v1", api_key=side.key, max_retries=0)


def test_complete(side: Side, llm: Any) -> Any:
    return str(llm.complete("hello"))


def test_chat(side: Side, llm: Any) -> Any:
    messages = [ChatMessage(role="system", content="Be brief."),
                ChatMessage(role="user", content="hello")]  # fmt: skip
    return str(llm.chat(messages))


def test_stream(side: Side, llm: Any) -> Any:
    return [chunk.delta for chunk in llm.stream_chat([ChatMessage(role="user", content="hello")])]


def test_tool(side: Side, llm: Any) -> Any:
    def get_weather(city: str) -> str:
        """The weather of a city."""
        return f"sunny in {city}"

    answer = llm.predict_and_call(
        [FunctionTool.from_defaults(get_weather)], '[[call get_weather {"city": "Bern"}]]'
    )
    assert "sunny in Bern" in str(answer)
    return str(answer)


def test_structured(side: Side, llm: Any) -> Any:
    answer = llm.as_structured_llm(Person).complete("Ann is 41.")
    assert answer.raw.age == 41
    return str(answer)


def test_embeddings(side: Side) -> Any:
    model = OpenAIEmbedding(api_base=f"{side.url}/v1", api_key=side.key, max_retries=0)
    return [model.get_text_embedding("hello"), model.get_text_embedding_batch(["a", "b"])]
