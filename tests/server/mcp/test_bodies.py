"""An id that is used again while the SDK still puts away what belonged to its first use."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from remit.server.mcp.bodies import Bodies

_SCOPE = {
    "method": "POST",
    "headers": [(b"content-type", b"application/json"), (b"mcp-session-id", b"one")],
}


async def test_an_id_is_free_when_all_of_its_request_is_put_away() -> None:
    began: list[int] = []
    put_away = asyncio.Event()

    async def sdk(scope: Any, receive: Any, send: Any) -> None:
        began.append(len(began))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})
        await put_away.wait()

    bodies = Bodies(sdk, lambda _: "")

    async def post(answered: asyncio.Event) -> None:
        async def receive() -> dict[str, Any]:
            return {"body": json.dumps({"jsonrpc": "2.0", "id": 5, "method": "ping"}).encode()}

        async def send(sent: dict[str, Any]) -> None:
            assert sent.get("status", 200) == 200
            if sent["type"] == "http.response.body":
                answered.set()

        await bodies(_SCOPE, receive, send)

    first, second = asyncio.Event(), asyncio.Event()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(post(first))
        await first.wait()
        group.create_task(post(second))
        for _ in range(10):
            await asyncio.sleep(0)
        assert began == [0]  # the first one's streams are still there
        put_away.set()
        await second.wait()
    assert began == [0, 1]
