"""Bodies of MCP requests over HTTP, parsed before the SDK: for clear errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from mcp.types import INVALID_REQUEST, JSONRPCMessage, JSONRPCRequest
from starlette.responses import JSONResponse

from remit.server.api_guard import IDENTITY
from remit.server.asgi import Receive, Scope, Send
from remit.server.mcp.messages import MessageError, message_of

_App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Bodies:
    """An ASGI layer that passes messages to the SDK.

    A malformed message, a batch of messages, and a request with the id of an open request get 400.

    Args:
        app: the ASGI application that takes one message per request.
    """

    def __init__(self, app: _App) -> None:
        self._app = app
        # Open requests, keyed by sender, session and id, and those of them that are answered.
        self._open: dict[tuple[str, bytes, str], asyncio.Event] = {}
        self._answered: set[tuple[str, bytes, str]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request whose body is complete (ASGI 3)."""
        if scope["method"] != "POST" or not _is_json(scope):
            # No events are kept: a client that resumes a stream gets one that goes on from now.
            headers = [pair for pair in scope["headers"] if pair[0] != b"last-event-id"]
            await self._app({**scope, "headers": headers}, receive, send)
            return
        first = await receive()
        try:
            message = message_of(first.get("body", b""))
        except MessageError as error:
            await JSONResponse(error.answer, 400)(scope, receive, send)
            return
        await self._once(scope, _replayed(first, receive), send, message)

    async def _once(
        self, scope: Scope, receive: Receive, send: Send, message: JSONRPCMessage
    ) -> None:
        """Pass one message on, unless an open request of the session has the same id.

        The SDK would answer only one of two requests with the same id, so the second is refused. If
        the first is answered but not yet cleaned up by the SDK, wait until it is.
        """
        session = dict(scope["headers"]).get(b"mcp-session-id")
        if not isinstance(message, JSONRPCRequest) or session is None:
            await self._app(scope, receive, send)
            return
        opened = repr(scope.get(IDENTITY)), session, str(message.id)
        while ended := self._open.get(opened):
            if opened not in self._answered:
                why = f"The id {message.id!r} belongs to a request that is not answered yet."
                error = MessageError(INVALID_REQUEST, why, message.id)
                await JSONResponse(error.answer, 400)(scope, receive, send)
                return
            await ended.wait()
        ended = self._open[opened] = asyncio.Event()

        async def answering(sent: Scope) -> None:
            if sent["type"] == "http.response.body" and not sent.get("more_body"):
                self._answered.add(opened)  # The client may reuse the id once it has the answer.
            await send(sent)

        try:
            await self._app(scope, receive, answering)
        finally:
            del self._open[opened]
            self._answered.discard(opened)
            ended.set()


def _is_json(scope: Scope) -> bool:
    types = [value for name, value in scope["headers"] if name == b"content-type"]
    return any(value.split(b";")[0].strip() == b"application/json" for value in types)


def _replayed(first: Scope, receive: Receive) -> Receive:
    messages = iter([first])

    async def replayed() -> Scope:
        return next(messages, None) or await receive()

    return replayed
