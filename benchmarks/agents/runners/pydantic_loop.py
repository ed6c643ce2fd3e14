"""Pydantic AI: one agent, a run for each loop. Nothing is kept.

With the option ``aiohttp`` the SDK's own client on aiohttp takes the place of httpx's.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from openai import AsyncOpenAI, DefaultAioHttpClient
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from benchmarks.agents.runners import loops, script


@asynccontextmanager
async def begin(url: str) -> AsyncIterator[loops.Loop]:
    """The loop on an upstream."""
    http = DefaultAioHttpClient() if "aiohttp" in sys.argv else None
    client = AsyncOpenAI(base_url=url, api_key="x", http_client=http)
    agent = Agent(
        OpenAIChatModel(script.MODEL, provider=OpenAIProvider(openai_client=client)),
        instructions=script.INSTRUCTIONS,
        tools=[script.find_city, script.find_weather],
    )

    async def loop(question: str) -> str:
        return (await agent.run(question)).output

    async with client:
        yield loop


if __name__ == "__main__":
    loops.main(begin)
