"""Bodies of MCP requests over HTTP, parsed before the SDK: clear errors and batches."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from mcp.types import INTERNAL_ERROR, INVALID_REQUEST, JSONRPCMessage, JSONRPCRequest
from starlette.responses import JSONResponse, Response

from remit.server.api_guard import IDENTITY
from remit.server.asgi import Receive, Scope, Send
from remit.server.mcp.messages import Batch, MessageError, message_of, negotiated_version, parsed

VERSION = "remit.mcp.version"
"""Key of a request's scope: the :class:`Version` of the session that it begins."""

_App = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(slots=True)
class Version:
    """The protocol version of a session; empty until ``initialize`` is answered.

    Attributes:
        negotiated: the version, for example ``2025-06-18``.
    """

    negotiated: str = ""


class Bodies:
    """An ASGI layer that passes messages to the SDK one by one, also those of a batch.

    A malformed message gets 400. A batch is answered by an array, or by a stream if the server
    itself sends messages. A request with the id of an open request is refused.

    Args:
        app: the ASGI application that takes one message per request.
        version_of: returns the protocol version of a request's session; empty without a session.
    """

    def __init__(self, app: _App, version_of: Callable[[Scope], str]) -> None:
        self._app = app
        self._version_of = version_of
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
        data = first.get("body", b"")
        try:
            value = parsed(data)
            if isinstance(value, list):
                batch = Batch(value, self._version_of(scope))
            else:
                message = message_of(value)
        except MessageError as error:
            await JSONResponse(error.answer, 400)(scope, receive, send)
            return
        if isinstance(value, list):
            stream = _Stream(send)
            await asyncio.gather(
                *(self._handle(scope, receive, batch, one, stream) for one in batch.messages)
            )
            if not await stream.end(batch.answers):
                reply = JSONResponse(batch.answers) if batch.answers else Response(status_code=202)
                await reply(scope, receive, send)
        elif isinstance(message, JSONRPCRequest) and message.method == "initialize":
            version, answer = Version(), _Answer()

            async def noting(sent: Scope) -> None:
                await answer.send(sent)
                version.negotiated = negotiated_version(answer.to(message))
                await send(sent)

            await self._app({**scope, VERSION: version}, _replayed(first, receive), noting)
        else:
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

    async def _handle(
        self,
        scope: Scope,
        receive: Receive,
        batch: Batch,
        message: JSONRPCMessage,
        stream: _Stream,
    ) -> None:
        data = message.model_dump_json(by_alias=True, exclude_unset=True).encode()
        length = (b"content-length", str(len(data)).encode())
        headers = [pair for pair in scope["headers"] if pair[0] != length[0]]
        answer = _Answer(stream)
        body = {"type": "http.request", "body": data, "more_body": False}
        one = {**scope, "headers": [*headers, length]}
        await self._once(one, _replayed(body, receive), answer.send, message)
        if isinstance(message, JSONRPCRequest):
            batch.answer(message.id, answer.to(message))


class _Stream:
    """A batch's answer as a stream of events.

    An array of answers has no place for requests and notifications of the server; a stream has.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._begun = False

    async def event(self, data: bytes) -> None:
        if not self._begun:
            self._begun = True
            headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        body = b"event: message\r\ndata: " + data + b"\r\n\r\n"
        await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def end(self, answers: list[dict[str, Any]]) -> bool:
        """Send the answers and end the stream; return False if it never began."""
        if self._begun:
            await self.event(json.dumps(answers).encode())
            await self._send({"type": "http.response.body", "body": b""})
        return self._begun


class _Answer:
    """The collected answer to one message; other messages go to the stream at once."""

    def __init__(self, stream: _Stream | None = None) -> None:
        self._stream = stream
        self._data = b""
        self._read = 0

    async def send(self, message: Scope) -> None:
        self._data += message.get("body", b"")
        while self._stream is not None and (end := self._data.find(b"\n", self._read)) >= 0:
            line, self._read = self._data[self._read : end].rstrip(b"\r"), end + 1
            if line.startswith(b"data:") and b'"method"' in line:
                found = json.loads(line[5:])
                if isinstance(found, dict) and "method" in found:
                    await self._stream.event(line[5:].strip())

    def to(self, request: JSONRPCRequest) -> dict[str, Any]:
        """Return the response to ``request``, from JSON or from an event."""
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
