"""An MCP server over HTTP by hand that misbehaves: ``python -m tests.server.mcp.hostile_web``.

It prints its address. Its tools misbehave by themselves; ``?version=…`` in its address is the
protocol version that it negotiates, whatever the client asks for.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

HUGE = 50_000_000
NAMES = ["echo", "huge_json", "huge_event", "endless", "tells_error", "tells_progress", "tells_log",
         "asks", "breaks_off", "resumes", "numbers", "stalls"]  # fmt: skip
_LATE: dict[str, Any] = {}  # answers by event id
COUNTS = {"echo": 0, "stalls": 0}


def _event(message: dict[str, Any], event_id: str = "") -> str:
    named = f"id: {event_id}\nretry: 10\n" if event_id else ""
    return f"{named}event: message\ndata: {json.dumps({'jsonrpc': '2.0', **message})}\n\n"


def _text(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


async def _stream(number: Any, name: str, params: dict[str, Any], told: str) -> AsyncIterator[str]:
    done = {"id": number, "result": _text(name)}
    token = params.get("_meta", {}).get("progressToken")
    if name == "huge_event":
        for _ in range(HUGE // 1_000_000):
            yield "data: " + "x" * 1_000_000 + "\n"
        yield "\n"
    elif name == "endless":
        data = {"level": "info", "data": "x" * 1000}
        while True:
            yield _event({"method": "notifications/message", "params": data})
            await asyncio.sleep(0)
    elif name == "tells_progress":
        about = {"progressToken": token, "progress": 1, "message": f"with {told}"}
        yield _event({"method": "notifications/progress", "params": about})
        yield _event(done)
    elif name == "tells_log":
        data = {"level": "info", "data": {"header": told}}
        yield _event({"method": "notifications/message", "params": data})
        yield _event(done)
    elif name == "asks":
        asked = {
            "message": f"Is it {told}?",
            "requestedSchema": {"type": "object", "properties": {}},
        }
        yield _event({"id": "q", "method": "elicitation/create", "params": asked})
        yield _event(
            {
                "id": number,
                "result": _text(
                    str(await _LATE.setdefault("q", asyncio.get_running_loop().create_future()))
                ),
            }
        )
        del _LATE["q"]
    elif name == "breaks_off":
        yield _event({"method": "notifications/message", "params": {"level": "info", "data": "x"}})
    elif name == "resumes":
        _LATE["1"] = done
        yield "id: 1\nretry: 10\ndata:\n\n"


async def answer(request: Request) -> Response:
    if request.method == "GET":
        late = _LATE.pop(request.headers.get("last-event-id", ""), None)
        if late is None:
            return Response(status_code=405)
        return StreamingResponse(iter([_event(late, "2")]), media_type="text/event-stream")
    if request.method == "DELETE":
        return Response(status_code=200)
    message = await request.json()
    method, params, number = message.get("method"), message.get("params") or {}, message.get("id")
    if method is None:
        _LATE["q"].set_result(message.get("result", message.get("error")))
    if number is None or method is None:
        return Response(status_code=202)
    told = request.headers.get("authorization", "")
    told = f"{told} {told.partition(' ')[2]}"
    result: Any = {}
    headers = {}
    if method == "initialize":
        version = request.query_params.get("version") or params["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {"tools": {}, "logging": {}},
                  "serverInfo": {"name": "hostile", "version": "1"}}  # fmt: skip
        headers = {"mcp-session-id": "one"}
    elif method == "tools/list":
        result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in NAMES]}
    elif method == "tools/call":
        name = params["name"]
        if name in COUNTS:
            COUNTS[name] += 1
        if name == "stalls":
            await asyncio.sleep(600)
        if name == "echo":
            result = _text(f"echo {COUNTS}")
        elif name == "numbers":
            odd = '{"a": 1e999, "b": 123456789012345678901234567890, "c": NaN}'
            text = f'{{"content": [], "structuredContent": {odd}}}'
            text = f'{{"jsonrpc": "2.0", "id": {json.dumps(number)}, "result": {text}}}'
            return Response(text, media_type="application/json")
        elif name == "huge_json":
            result = _text("x" * HUGE)
        elif name == "tells_error":
            error = {"code": -32050, "message": f"no: {told}", "data": {"header": told}}
            return JSONResponse({"jsonrpc": "2.0", "id": number, "error": error})
        else:
            return StreamingResponse(
                _stream(number, name, params, told), media_type="text/event-stream"
            )
    elif method != "ping":
        error = {"code": -32601, "message": f"no such thing for {told}"}
        return JSONResponse({"jsonrpc": "2.0", "id": number, "error": error})
    return JSONResponse({"jsonrpc": "2.0", "id": number, "result": result}, headers=headers)


if __name__ == "__main__":
    listening = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
    routes = [Route("/mcp", answer, methods=["GET", "POST", "DELETE"])]
    uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="error")).run(
        sockets=[listening]
    )
