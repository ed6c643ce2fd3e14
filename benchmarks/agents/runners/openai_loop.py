"""OpenAI's Agents SDK: one agent on chat completions, tracing off. Nothing is kept.

With the option ``aiohttp`` the SDK's own client on aiohttp takes the place of httpx's.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from openai import AsyncOpenAI, DefaultAioHttpClient

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from benchmarks.agents.runners import loops, script


@asynccontextmanager
async def begin(url: str) -> AsyncIterator[loops.Loop]:
    """The loop on an upstream."""
    set_tracing_disabled(True)
    http = DefaultAioHttpClient() if "aiohttp" in sys.argv else None
    client = AsyncOpenAI(base_url=url, api_key="x", http_client=http)
    agent = Agent(
        name="bench",
        instructions=script.INSTRUCTIONS,
        model=OpenAIChatCompletionsModel(model=script.MODEL, openai_client=client),
        tools=[function_tool(script.find_city), function_tool(script.find_weather)],
    )

    async def loop(question: str) -> str:
        return str((await Runner.run(agent, question)).final_output)

    async with client:
        yield loop


if __name__ == "__main__":
    loops.main(begin)
