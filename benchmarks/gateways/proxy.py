"""A bare proxy, without keys, budgets or records. Run by uvicorn as ``proxy:app``.

It is what a Python gateway cannot be quicker than with these parts: a raw ASGI application, one
shared aiohttp client, bytes in and bytes out. Imports nothing of Remit.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import aiohttp

Message = MutableMapping[str, Any]
UPSTREAM_VARIABLE = "PROXY_UPSTREAM"
TIMEOUT_S = 60.0

_HEADERS = {"content-type": "application/json", "authorization": "Bearer x"}
_sessions: dict[asyncio.AbstractEventLoop, aiohttp.ClientSession] = {}


def _session() -> aiohttp.ClientSession:
    """One client per loop, made at the first request."""
    loop = asyncio.get_running_loop()
    if loop not in _sessions:
        _sessions[loop] = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )
    return _sessions[loop]


async def app(
    scope: Message,
    receive: Callable[[], Awaitable[Message]],
    send: Callable[[Message], Awaitable[None]],
) -> None:
    """Forward one request and its answer; an event stream chunk by chunk."""
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
        return
    body = bytearray()
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    url = os.environ[UPSTREAM_VARIABLE] + scope["path"]
    async with _session().post(url, data=bytes(body), headers=_HEADERS) as response:
        kind = response.headers["content-type"].encode()
        headers = [(b"content-type", kind)]
        start = {"type": "http.response.start", "status": response.status, "headers": headers}
        if kind.startswith(b"text/event-stream"):
            await send(start)
            async for chunk in response.content.iter_any():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body"})
            return
        answer = await response.read()
        headers.append((b"content-length", b"%d" % len(answer)))
        await send(start)
        await send({"type": "http.response.body", "body": answer})


async def _lifespan(
    receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            for session in _sessions.values():
                await session.close()
            return
