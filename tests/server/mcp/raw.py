"""A client of MCP over HTTP by hand: for what no SDK sends."""

from __future__ import annotations

import json
from typing import Any

import httpx2

from tests.server.mcp.running import Served


class Raw:
    """A client by hand in one session of one server."""

    def __init__(self, served: Served, name: str, token: str | None = None) -> None:
        self.url = f"{served.url.rsplit('/', 1)[0]}/{name}"
        self.headers = {"accept": "application/json, text/event-stream",
                        "authorization": f"Bearer {token or served.token}"}  # fmt: skip

    def begin(self, version: str) -> str:
        params = {"protocolVersion": version, "capabilities": {"elicitation": {}, "tasks": {}},
                  "clientInfo": {"name": "raw", "version": "1"}}  # fmt: skip
        answer = self.post(request(0, "initialize", params))
        self.headers["mcp-session-id"] = answer.headers["mcp-session-id"]
        self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        (told,) = events(answer)
        return str(told["result"]["protocolVersion"])

    def post(self, body: Any) -> httpx2.Response:
        return httpx2.post(self.url, json=body, headers=self.headers, timeout=60)


def request(number: Any, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}


def call(number: Any, name: str) -> dict[str, Any]:
    return request(number, "tools/call", {"name": name, "arguments": {}})


def events(answer: httpx2.Response) -> list[Any]:
    if answer.headers["content-type"].startswith("application/json"):
        return [answer.json()]
    lines = answer.text.splitlines()
    return [json.loads(line[5:]) for line in lines if line.startswith("data:") and line[5:].strip()]
