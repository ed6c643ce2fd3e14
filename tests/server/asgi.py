"""Requests to an application by ASGI alone, as another server would carry them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

__all__ = ["AsgiRequest"]


@dataclass
class AsgiRequest:
    """One request and its answer.

    Attributes:
        chunks: pieces of the body that the application has not read.
        gone: set when the client hangs up.
        told: messages of the application.
    """

    chunks: list[bytes]
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    told: list[dict[str, Any]] = field(default_factory=list)

    async def to(
        self, app: Any, method: str, path: str, *, query: str = "",
        headers: Iterable[tuple[bytes, bytes]] = ((b"host", b"localhost"),), version: str = "1.1",
    ) -> AsgiRequest:  # fmt: skip
        """Send it."""
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": version, "scheme": "http",
            "method": method, "path": unquote(path), "raw_path": path.encode(), "root_path": "",
            "query_string": query.encode(), "headers": list(headers),
            "server": ("127.0.0.1", 1), "client": ("127.0.0.1", 2),
        }  # fmt: skip
        await app(scope, self._receive, self._send)
        return self

    async def _receive(self) -> dict[str, Any]:
        if not self.chunks:
            await self.gone.wait()
            return {"type": "http.disconnect"}
        chunk = self.chunks.pop(0)
        return {"type": "http.request", "body": chunk, "more_body": bool(self.chunks)}

    async def _send(self, message: Any) -> None:
        self.told.append(dict(message))

    @property
    def status(self) -> int:
        return int(self.told[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.told[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.told[1:])

    @property
    def json(self) -> Any:
        return json.loads(self.body)
