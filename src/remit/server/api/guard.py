"""What stands before the API: who asks, and how much they may send."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from remit.server.api.errors import told
from remit.server.authentication import Authenticator
from remit.server.refusals import HttpError
from remit.server.replies import Receive, Scope, Send, read_body, reply_json

__all__ = ["IDENTITY", "Guard"]

IDENTITY = "remit.identity"
"""Where in the scope of a request it stands who asks."""

# Answers hold keys and conversations: nothing in between keeps them, or takes them for a page.
_HEADERS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


class Guard:
    """Lets through who has a key, with a whole body of bounded length.

    Nothing is read of the body, and nothing else is looked at, before it is known who asks.

    Args:
        app: what is guarded.
        door: tells who asks.
        open_path: what anybody may read.
        max_body_bytes: longest body.
        body_timeout_s: longest time for it to come.
    """

    def __init__(
        self,
        app: Any,
        door: Authenticator,
        open_path: str,
        max_body_bytes: int,
        body_timeout_s: float,
    ) -> None:
        self._app = app
        self._door = door
        self._open_path = open_path
        self._max_body_bytes = max_body_bytes
        self._body_timeout_s = body_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI 3."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def marked(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
            await send(message)

        length = next(
            (value for name, value in scope["headers"] if name == b"content-length"), None
        )
        try:
            if scope["path"] != self._open_path:
                identity = self._door.enter(scope["headers"]).identity
                scope = {**scope, IDENTITY: identity}
            body = await read_body(receive, length, self._max_body_bytes, self._body_timeout_s)
        except HttpError as error:
            status, value, headers = told(error)
            await reply_json(marked, value, status, headers)
            return
        first = True

        async def replayed() -> MutableMapping[str, Any]:
            nonlocal first
            if first:
                first = False
                return {"type": "http.request", "body": body, "more_body": False}
            return await receive()

        await self._app(scope, replayed, marked)
