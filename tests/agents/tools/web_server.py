"""An MCP server over streamable HTTP that wants a key: ``python web_server.py PORT KEY``."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from starlette.types import ASGIApp, Receive, Scope, Send

server = MCPServer("web")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def double(number: int) -> dict[str, int]:
    """Give a number and its double."""
    return {"number": number, "double": 2 * number}


@server.tool()
def meta(ctx: Context[Any, Any]) -> str:
    """Tell the call's own key."""
    return str(dict(ctx.request_context.meta or {}).get("remit/idempotency_key"))


@server.tool()
async def hang() -> str:
    """Never end."""
    await asyncio.sleep(600)
    return ""


@server.tool()
def huge() -> str:
    """Say too much."""
    return "x" * 5_000_000


@server.tool()
def die() -> str:
    """End the server."""
    os._exit(3)


class Authenticator:
    """Lets nobody in who has no key."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self.app = app
        self.key = key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            if headers.get("authorization") != f"Bearer {self.key}":
                await send({"type": "http.response.start", "status": 401, "headers": []})
                await send({"type": "http.response.body", "body": b"no"})
                return
        await self.app(scope, receive, send)


if __name__ == "__main__":
    app = Authenticator(server.streamable_http_app(json_response="json" in sys.argv), sys.argv[2])
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="critical")
