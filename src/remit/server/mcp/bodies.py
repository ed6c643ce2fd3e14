"""Bodies of requests over HTTP: read before the SDK reads them, for plain words and batches."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from mcp.types import INTERNAL_ERROR, JSONRPCMessage, JSONRPCRequest
from starlette.responses import JSONResponse, Response

from remit.server.mcp.messages import Batch, MessageError, message_of, parsed, requested_version
from remit.server.replies import Receive, Scope, Send

REQUESTED = "remit.mcp.version"
"""Key of a request's scope: the protocol version of the session that it begins."""

_App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Bodies:
    """Passes on messages, those of a batch each by itself.

    Args:
        app: takes one message a request.
        version_of: the protocol version of the session that a request belongs to; empty where
            there is no such session.
    """

    def __init__(self, app: _App, version_of: Callable[[Scope], str]) -> None:
        self._app = app
        self._version_of = version_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request whose body is complete (ASGI 3)."""
        if scope["method"] != "POST" or not _is_json(scope):
            await self._app(scope, receive, send)
            return
        first = await receive()
        data = first.get("body", b"")
        try:
            value = parsed(data)
            if isinstance(value, list):
                batch = Batch(value, self._version_of(scope))
            else:
                version = requested_version(message_of(value))
                scope = {**scope, REQUESTED: version}
        except MessageError as error:
            await JSONResponse(error.answer, 400)(scope, receive, send)
            return
        if not isinstance(value, list):
            await self._app(scope, _replayed(first, receive), send)
            return
        await asyncio.gather(
            *(self._handle(scope, receive, batch, message) for message in batch.messages)
        )
        reply = JSONResponse(batch.answers) if batch.answers else Response(status_code=202)
        await reply(scope, receive, send)

    async def _handle(
        self, scope: Scope, receive: Receive, batch: Batch, message: JSONRPCMessage
    ) -> None:
        data = message.model_dump_json(by_alias=True, exclude_unset=True).encode()
        length = (b"content-length", str(len(data)).encode())
        headers = [pair for pair in scope["headers"] if pair[0] != length[0]]
        answer = _Answer()
        body = {"type": "http.request", "body": data, "more_body": False}
        one = {**scope, "headers": [*headers, length]}
        await self._app(one, _replayed(body, receive), answer.send)
        if isinstance(message, JSONRPCRequest):
            batch.answer(message.id, answer.to(message))


class _Answer:
    """What came back for one message of a batch."""

    def __init__(self) -> None:
        self._data = b""

    async def send(self, message: Scope) -> None:
        self._data += message.get("body", b"")

    def to(self, request: JSONRPCRequest) -> dict[str, Any]:
        """The response to ``request``: JSON as it is, or the event that holds it."""
        lines = self._data.splitlines()
        texts = [line[5:] for line in lines if line.startswith(b"data:")] or [self._data]
        for text in texts:
            try:
                found = json.loads(text)
            except ValueError:
                continue
            if isinstance(found, dict) and {"result", "error"} & found.keys():
                return {**found, "id": request.id}
        error = {"code": INTERNAL_ERROR, "message": "The request was not answered."}
        return {"jsonrpc": "2.0", "id": request.id, "error": error}


def _is_json(scope: Scope) -> bool:
    types = [value for name, value in scope["headers"] if name == b"content-type"]
    return any(value.split(b";")[0].strip() == b"application/json" for value in types)


def _replayed(first: Scope, receive: Receive) -> Receive:
    messages = iter([first])

    async def replayed() -> Scope:
        return next(messages, None) or await receive()

    return replayed
