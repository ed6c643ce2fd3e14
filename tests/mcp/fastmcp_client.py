"""The client of FastMCP, through the gateway: ``python fastmcp_client.py URL KEY``."""

from __future__ import annotations

import asyncio
import sys

from fastmcp import Client
from fastmcp.client.auth import BearerAuth


async def main(url: str, key: str) -> None:
    done: list[float] = []

    async def progress(value: float, *_: object) -> None:
        done.append(value)

    async def elicited(*_: object) -> dict[str, str]:
        return {"response": "elicited"}

    async with Client(url, auth=BearerAuth(key), elicitation_handler=elicited) as client:
        assert "test_simple_text" in [tool.name for tool in await client.list_tools()]
        result = await client.call_tool("test_simple_text", {})
        assert result.meta["remit/receipt"]["call"].startswith("LED-"), result
        await client.call_tool("test_tool_with_progress", {}, progress_handler=progress)
        assert done, "no progress"
        assert await client.read_resource("test://static-text")
        assert await client.get_prompt("test_simple_prompt")
        print(f"fastmcp: {len(done)} steps of progress, receipt {result.meta['remit/receipt']}")


asyncio.run(main(*sys.argv[1:]))
