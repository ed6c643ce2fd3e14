"""``python -m tools.site.document FILE``: what a server gives as ``/api/openapi.json``."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

from remit.gateway.auth import KeyStore
from remit.runtime import Runtime
from remit.server.api import api_application
from remit.server.authentication import Authenticator
from remit.testing import new_root


def document() -> bytes:
    """The document, from the application itself in a new root."""
    with (
        tempfile.TemporaryDirectory() as place,
        Runtime.open(new_root(Path(place, "root"))) as runtime,
        KeyStore(runtime.ledger) as keys,
    ):
        app = api_application(runtime, keys, Authenticator(keys, "PRC-PASSTHROUGH-001"))
        return asyncio.run(_get(app))


async def _get(app: Any) -> bytes:
    parts: list[bytes] = []
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET",
        "scheme": "http", "path": "/api/openapi.json", "raw_path": b"/api/openapi.json",
        "query_string": b"", "root_path": "", "headers": [], "client": None, "server": None,
    }  # fmt: skip

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            assert message["status"] == 200, message
        parts.append(message.get("body", b""))

    await app(scope, receive, send)
    return b"".join(parts)


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(document())
