"""Pydantic AI with its default models."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, ModelRequest

from tests.clients.conftest import Side

MODELS = ("openai:gpt-5-mini", "openai-chat:gpt-4o-mini", "openai-responses:gpt-4o-mini",
          "anthropic:claude-sonnet-4-5")  # fmt: skip


class Person(BaseModel):
    name: str
    age: int


@pytest.fixture(params=MODELS)
def agent(request: pytest.FixtureRequest, side: Side) -> Agent[None, str]:
    return Agent(request.param, instructions="Be brief.", retries=0)


def _told(result: Any) -> Any:
    kinds = [[part.part_kind for part in message.parts] for message in result.all_messages()
             if not isinstance(message, ModelRequest)]  # fmt: skip
    usage = result.usage() if callable(result.usage) else result.usage
    return [str(result.output), kinds, usage.input_tokens, usage.output_tokens]


async def test_run(side: Side, agent: Agent[None, str]) -> Any:
    return _told(await agent.run("hello"))


async def test_tools(side: Side, agent: Agent[None, str]) -> Any:
    @agent.tool_plain
    def get_weather(city: str) -> str:
        """The weather of a city."""
        return f"sunny in {city}"

    result = await agent.run(
        '[[call get_weather {"city": "Bern"}]] [[call get_weather {"city": "Rom\\u00e9"}]]'
    )
    assert result.output == "The tools said: sunny in Bern; sunny in Romé"
    return _told(result)


async def test_stream(side: Side, agent: Agent[None, str]) -> Any:
    async with agent.run_stream("hello") as result:
        return [piece async for piece in result.stream_text(delta=True, debounce_by=None)]


async def test_output_type(side: Side, agent: Agent[None, str]) -> Any:
    result = await agent.run("Ann is 41.", output_type=Person)
    assert result.output.age == 41
    return _told(result)


async def test_picture(side: Side, agent: Agent[None, str]) -> Any:
    picture = BinaryContent(b"\x89PNG\r\n\x1a\n", media_type="image/png")
    return _told(await agent.run(["What is it?", picture]))


async def test_history(side: Side, agent: Agent[None, str]) -> Any:
    first = await agent.run("hello")
    return _told(await agent.run("and again", message_history=first.all_messages()))
