"""CrewAI: a crew of one over both providers."""

from __future__ import annotations

from typing import Any

import pytest
from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

from tests.clients.conftest import Side

MODELS = ["openai/gpt-4o-mini", "anthropic/claude-sonnet-4-5"]


@tool("get_weather")
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


def _kickoff(side: Side, model: str, text: str, tools: list[Any]) -> str:
    base = side.url if model.startswith("anthropic") else f"{side.url}/v1"
    llm = LLM(model=model, base_url=base, api_key=side.key)
    agent = Agent(role="Helper", goal="Help.", backstory="x", llm=llm, tools=tools, max_iter=3)
    task = Task(description=text, expected_output="A word.", agent=agent)
    return str(Crew(agents=[agent], tasks=[task], verbose=False, tracing=False).kickoff())


@pytest.mark.parametrize("model", MODELS)
def test_crew(side: Side, model: str) -> Any:
    return _kickoff(side, model, "What is it?", [])


@pytest.mark.parametrize("model", MODELS)
def test_crew_with_tool(side: Side, model: str) -> Any:
    return _kickoff(side, model, '[[call get_weather {"city": "Bern"}]]', [get_weather])
