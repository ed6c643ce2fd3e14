"""OpenAI's Agents SDK with its default model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from pydantic import BaseModel

import agents
from tests.clients.conftest import Side


@agents.function_tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


class Person(BaseModel):
    name: str
    age: int


@pytest.fixture(autouse=True)
def _client(side: Side) -> Iterator[None]:
    agents.set_tracing_disabled(True)
    agents.set_default_openai_client(openai.AsyncOpenAI(**side.openai, max_retries=0))
    yield
    agents.set_default_openai_api("responses")


def _told(result: Any) -> Any:
    return [result.final_output, result.to_input_list(),
            [response.usage.total_tokens for response in result.raw_responses]]  # fmt: skip


async def test_run(side: Side) -> Any:
    agent = agents.Agent(name="Helper", instructions="Be brief.")
    return _told(await agents.Runner.run(agent, "hello"))


@pytest.mark.parametrize("api", ["responses", "chat_completions"])
async def test_tools(side: Side, api: Any) -> Any:
    agents.set_default_openai_api(api)
    agent = agents.Agent(name="Helper", tools=[get_weather])
    result = await agents.Runner.run(agent, '[[call get_weather {"city": "Rom\\u00e9"}]]')
    assert result.final_output == "The tools said: sunny in Romé"
    return _told(result)


@pytest.mark.parametrize("api", ["responses", "chat_completions"])
async def test_stream(side: Side, api: Any) -> Any:
    agents.set_default_openai_api(api)
    agent = agents.Agent(name="Helper", tools=[get_weather])
    result = agents.Runner.run_streamed(agent, '[[call get_weather {"city": "Bern"}]]')
    kinds = [event.type async for event in result.stream_events()]
    assert result.final_output == "The tools said: sunny in Bern"
    return [kinds, _told(result)]


async def test_output_type(side: Side) -> Any:
    agent = agents.Agent(name="Helper", output_type=Person)
    result = await agents.Runner.run(agent, "Ann is 41.")
    assert result.final_output.age == 41
    return str(result.final_output)


async def test_handoff(side: Side) -> Any:
    other = agents.Agent(name="Other", handoff_description="Knows more.")
    agent = agents.Agent(name="Helper", handoffs=[other])
    result = await agents.Runner.run(agent, "[[call transfer_to_other {}]]")
    assert result.last_agent.name == "Other"
    return _told(result)


async def test_server_conversation(side: Side) -> Any:
    agent = agents.Agent(name="Helper")
    first = await agents.Runner.run(agent, "hello")
    second = await agents.Runner.run(
        agent, "and again", previous_response_id=first.last_response_id
    )
    return second.final_output
