"""The Responses API over a WebSocket: ``GET /v1/responses`` with an upgrade.

1. The handshake is authenticated as any request is.
2. A ``response.create`` message becomes one streamed call of ``POST /v1/responses``, with the
   headers of the handshake: same key check, budget, record and cancellation.
3. Each event of the stream becomes one message. A refusal becomes an ``error`` message with the
   status and headers that it would have over HTTP, such as ``retry-after``.

A connection remembers its last response, so that ``previous_response_id`` continues it even if
``store`` was false. The call then sends the whole conversation, so that the record holds it.
Messages of one connection are answered one after the other.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import ExitStack, suppress
from typing import Any

from remit.gateway.memory import LARGE_BYTES
from remit.kernel.json_splice import elements, members, spans
from remit.kernel.json_text import JsonTextError, dump, load
from remit.providers.sse import SseParser
from remit.providers.wire import RESPONSES, BodyError, object_in
from remit.server.asgi import Answer, Headers, limits_of
from remit.server.calls import ModelCalls
from remit.server.in_flight_limits import COPIES, Share
from remit.server.paths import paths_of
from remit.server.refusals import HttpError, refusal_body
from remit.server.websocket import SocketHandler, WebSocket

_NORMAL_CLOSURE, _GOING_AWAY = 1000, 1001
_LONGEST_S = 3600.0  # OpenAI limits a connection to the same time.
_OWN_MEMBERS = ("type", "generate", "stream", "background", "previous_response_id", "input")
_SOCKET_BETA = b"responses_websockets"  # Codex names the WebSocket itself as a beta feature.
_NOT_REPEATED = (b"idempotency-key", b"content-length", b"content-encoding", b"content-type")


def socket_routes(calls: ModelCalls, max_body_bytes: int) -> dict[str, SocketHandler]:
    """Return the handlers of WebSocket handshakes, keyed by path.

    Args:
        calls: answers the calls.
        max_body_bytes: bounds what a connection remembers of its conversation.
    """

    async def serve(socket: WebSocket) -> None:
        await ResponsesSocket(calls, socket, max_body_bytes).serve()

    return dict.fromkeys(paths_of("/responses", "openai"), serve)


class ResponsesSocket:
    """The conversation on a WebSocket.

    :meth:`serve` is called once. Only the last response with ``store: false``, or the last message
    with ``generate: false``, can be continued from memory; that ends with the connection.

    Args:
        calls: answers the calls.
        socket: the client's socket, whose handshake is not answered yet.
        max_body_bytes: bounds what the connection remembers of its conversation.
    """

    def __init__(self, calls: ModelCalls, socket: WebSocket, max_body_bytes: int) -> None:
        self._calls = calls
        self._socket = socket
        self._max_bytes = max_body_bytes
        self._last_id = ""  # Id of the response that only this connection remembers.
        self._items: list[bytes] = []  # JSON texts of items up to that response, its own included.

    async def serve(self) -> None:
        """Answer the handshake, then each message until the connection closes.

        The socket holds a place of its key during that time. After sixty minutes the socket is
        closed. Errors are answered as messages or in the handshake, such as 401, or 429 if the key
        has as many requests in progress as it may have.
        """
        socket = self._socket
        with ExitStack() as place:
            try:
                caller = await self._calls.admit(socket)
                share = place.enter_context(self._calls.hold(socket, caller))
            except HttpError as error:
                socket.refuse(error)
                return
            if not socket.accept(share):
                return
            try:
                async with asyncio.timeout(_LONGEST_S):
                    while not socket.ends_soon and (message := await socket.receive()) is not None:
                        await self._answer(message)
            except TimeoutError:
                said = "The connection has been open for 60 minutes; open a new one."
                self._refuse(HttpError(400, "websocket_connection_limit_reached", said))
                socket.close(_NORMAL_CLOSURE)
            else:
                socket.close(_GOING_AWAY if socket.ends_soon else _NORMAL_CLOSURE)

    async def _answer(self, message: bytes) -> None:
        try:
            if len(message) > LARGE_BYTES:
                value, fields, items = await asyncio.to_thread(self._read, message)
            else:
                value, fields, items = self._read(message)
        except HttpError as error:
            self._refuse(error)
            return
        kept = value.get("store") is False
        if value.get("generate") is False:
            self._warm_up(value, items)
            return
        if items is not None:
            fields.append(b'"input":[%b]' % b",".join(items))
        fields.append(b'"stream":true')
        call = _SocketCall(self._socket, b"{%b}" % b",".join(fields))
        await self._calls.serve(RESPONSES, call)
        answered = call.completed if kept and items is not None else None
        self._remember(*(answered or ("", [])), items or [])

    def _read(self, message: bytes) -> tuple[dict[str, Any], list[bytes], list[bytes] | None]:
        """Return a message's value, the texts of its members, and its input items.

        The items are None if ``input`` cannot be listed: then the member is left as it came, for
        the provider to judge.

        Raises:
            HttpError: the message is not a ``response.create`` that can be sent.
        """
        try:
            value = object_in(message) if message.lstrip()[:1] == b"{" else {}
        except BodyError as error:
            raise HttpError(400, "invalid_json", error.message) from error
        if value.get("type") != "response.create":
            said = "The message is not an object with the type response.create."
            raise HttpError(400, "invalid_request", said, param="type")
        if value.get("background"):
            said = "A background response cannot be created over a WebSocket; use HTTP."
            raise HttpError(400, "invalid_request", said, param="background")
        found = list(members(message))
        if len(found) != len(value):
            raise HttpError(400, "invalid_request", "The message contains a member twice.")
        fields = [message[each.start : each.end] for each in found if each.name not in _OWN_MEMBERS]
        previous, given = value.get("previous_response_id"), value.get("input")
        start, end = spans(message, ("input",)).get("input", (0, 0))
        if given is None and "input" not in value:
            items: list[bytes] | None = []
        elif isinstance(given, str):
            items = [b'{"type":"message","role":"user","content":%b}' % message[start:end]]
        else:
            items = elements(message[start:end]) if isinstance(given, list) else None
        if items is None:
            fields.append(b'"input":%b' % message[start:end])
        elif previous is not None and previous == self._last_id:
            items = self._items + items
            previous = None
        if previous is not None:
            fields.append(b'"previous_response_id":%b' % dump(previous))
        return value, fields, items

    def _warm_up(self, value: dict[str, Any], items: list[bytes] | None) -> None:
        """Answer a message with ``generate: false``, and keep its items without a call."""
        if items is None or value.get("previous_response_id") not in (None, self._last_id):
            said = "generate can be false for a list of items that starts or continues this chain."
            self._refuse(HttpError(400, "invalid_request", said, param="generate"))
            return
        response: dict[str, Any] = {
            "id": "resp_" + secrets.token_hex(24), "object": "response",
            "created_at": int(time.time()), "model": value.get("model"), "output": [],
            "error": None, "incomplete_details": None, "usage": None,
        }  # fmt: skip
        for number, status in enumerate(("in_progress", "completed")):
            kind = "created" if status == "in_progress" else status
            event = {"type": f"response.{kind}", "sequence_number": number,
                     "response": {**response, "status": status}}  # fmt: skip
            self._socket.send(dump(event))
        self._remember(response["id"], [], items)

    def _remember(self, response_id: str, output: list[bytes], items: list[bytes]) -> None:
        """Keep a conversation for the next message; forget a conversation longer than a body, and
        one that finds no room in memory.
        """
        self._last_id, self._items = "", []
        whole = items + output
        size = sum(map(len, whole))
        is_kept = bool(response_id) and size <= self._max_bytes
        with suppress(HttpError):
            self._socket.remember(size // COPIES if is_kept else 0)  # The texts are there once.
            if is_kept:
                self._last_id, self._items = response_id, whole

    def _refuse(self, error: HttpError) -> None:
        body = refusal_body(RESPONSES.name, error.status, error.code, error.message, error.param)
        self._socket.send(_error_message(error.status, body, limits_of(error)))


class _SocketCall:
    """A call on a WebSocket as a :class:`~remit.server.request.Request`.

    Attributes:
        completed: id and output items (JSON texts) of the response once its last event was sent;
            None before, and if it failed.
    """

    deployment = ""

    def __init__(self, socket: WebSocket, body: bytes) -> None:
        self.path, self.query = socket.path, socket.query
        self.headers = [
            each for each in _without_socket_beta(socket.headers) if each[0] not in _NOT_REPEATED
        ]
        self.headers.append((b"content-length", b"%d" % len(body)))
        self.started = self.detached = False
        self.completed: tuple[str, list[bytes]] | None = None
        self._socket = socket
        self._body = body
        self._events = SseParser()
        self._task = asyncio.current_task()
        socket.on_close(self._hang_up)

    def _hang_up(self) -> None:
        if self._task is not None and not self.detached:
            self._task.cancel()

    def prove(self) -> None:
        """Do nothing: the handshake showed a valid key."""

    def stop(self, why: str) -> None:
        """Cancel the call; ``why`` becomes the argument of its CancelledError."""
        self._socket.stop(why)

    async def read(self, length: bytes | None, most: int, timeout_s: float, share: Share) -> bytes:
        """Return the body, which was received as a message; raise HttpError if there is no room."""
        share.take(len(self._body))
        return self._body

    def answer(self, answer: Answer) -> None:
        """Send a whole answer: an ``error`` message, or the response as ``response.completed``."""
        self.started = True
        try:
            value = load(answer.body)
        except JsonTextError:
            value = answer.body.decode("utf-8", "replace")
        if answer.status >= 400 or not isinstance(value, dict):
            status = answer.status if answer.status >= 400 else 502  # no response of this API
            self._socket.send(_error_message(status, value, answer.headers))
        else:
            text = b'{"type":"response.completed","sequence_number":0,"response":%b}' % answer.body
            self._send(text)
        self._end()

    def begin(self, status: int, headers: Headers) -> None:
        """Begin a stream: a WebSocket message needs no head."""
        self.started = True

    def write(self, data: bytes) -> None:
        """Send each complete event of ``data`` as a message."""
        for event in self._events.feed(data):
            if event.data:
                self._send(event.data if isinstance(event.data, bytes) else event.data.encode())

    def offer(self, data: bytes) -> bool:
        """Send whole events; return False, sending nothing, if the client reads too slowly."""
        if self._socket.full:
            return False
        self.write(data)
        return True

    def end(self, data: bytes = b"") -> None:
        """Send the rest of the stream."""
        self.write(data)
        self._end()

    @property
    def full(self) -> bool:
        """True if the client reads more slowly than events arrive."""
        return self._socket.full

    def push(self) -> None:
        """Do nothing: messages are sent when they are written."""

    async def drain(self) -> None:
        """Wait until the connection takes more."""
        await self._socket.drain()

    def _send(self, text: bytes) -> None:
        if text.strip() == b"[DONE]":
            return
        if b'"response.completed"' in text or b'"response.incomplete"' in text:
            self.completed = _completed(text) or self.completed
        self._socket.send(text)

    def _end(self) -> None:
        self._socket.on_close(None)


def _completed(text: bytes) -> tuple[str, list[bytes]] | None:
    """Return id and output items of the last event of a response; None if it is another event."""
    try:
        event = load(text)
        if event.get("type") not in ("response.completed", "response.incomplete"):
            return None
        start, end = spans(text, ("response",))["response"]
        response = text[start:end]
        start, end = spans(response, ("output",))["output"]
        return str(event["response"]["id"]), elements(response[start:end])
    except (JsonTextError, AttributeError, KeyError, TypeError, ValueError):
        return None


def _error_message(status: int, body: Any, headers: Headers) -> bytes:
    error = body.get("error") if isinstance(body, dict) else None
    said = {"type": "error", "status": status, "error": error or {"message": str(body)}}
    named = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
    return dump({**said, "headers": named} if named else said)


def _without_socket_beta(headers: Headers) -> Headers:
    """Return the headers without the beta features that only concern the WebSocket.

    The provider is called over HTTP, so that the feature is not the provider's.
    """
    kept = []
    for name, value in headers:
        if name == b"openai-beta":
            features = [each.strip() for each in value.split(b",")]
            value = b", ".join(each for each in features if not each.startswith(_SOCKET_BETA))
            if not value:
                continue
        kept.append((name, value))
    return kept
