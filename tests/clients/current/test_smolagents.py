"""smolagents: agents that write code, and agents that call tools."""

from __future__ import annotations

from typing import Any

from smolagents import CodeAgent, OpenAIModel, ToolCallingAgent, tool

from tests.clients.conftest import Side


@tool
def get_weather(city: str) -> str:
    """The weather of a city.

    Args:
        city: which one
    """
    return f"sunny in {city}"


def _model(side: Side) -> OpenAIModel:
    return OpenAIModel("gpt-4o-mini", api_base=f"{side.url}/v1", api_key=side.key)


def test_code_agent(side: Side) -> Any:
    agent = CodeAgent(tools=[], model=_model(side), verbosity_level=0, max_steps=3)
    found = agent.run("What is it?")
    assert found == "forty-two"
    return found


def test_tool_calling_agent(side: Side) -> Any:
    agent = ToolCallingAgent([get_weather], _model(side), verbosity_level=0, max_steps=3)
    found = agent.run('[[call final_answer {"answer": "forty-two"}]]')
    assert found == "forty-two"
    return found


def test_stream(side: Side) -> Any:
    agent = CodeAgent([], _model(side), verbosity_level=0, max_steps=3, stream_outputs=True)
    return str(agent.run("What is it?"))
