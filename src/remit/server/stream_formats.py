"""Streams for clients that read no server-sent events: Gemini's JSON arrays, Amazon's frames."""

from __future__ import annotations

import base64
from typing import Any, cast

from remit.kernel.json_text import JsonTextError, dump, load
from remit.providers import EVENT_STREAM, exception_of, frame
from remit.providers.dialects import bedrock_exception
from remit.providers.sse import SseEvent, SseParser
from remit.providers.wire import CONVERSE, GENERATE, Endpoint
from remit.server.asgi import Answer, Headers
from remit.server.request import Request

_JSON = "application/json"


def reframed(endpoint: Endpoint, request: Request) -> Request:
    """Return a request whose answer has the form that its path demands.

    Gemini's paths of ``generateContent`` and ``streamGenerateContent`` without ``alt=sse`` get
    :class:`ArrayRequest`, Bedrock's paths get :class:`FrameRequest`; both leave an answer that is
    no stream unchanged. Any other request is returned itself.

    Args:
        endpoint: the endpoint of the path.
        request: a request whose path names a model.
    """
    if endpoint is GENERATE and "alt=sse" not in request.query.split("&"):
        return cast("Request", ArrayRequest(request))
    if "/model/" in request.path:
        return cast("Request", FrameRequest(request, is_invoke=endpoint is not CONVERSE))
    return request


class _Reframed:
    """A :class:`Request` that changes the events of its stream. Comments are left out.

    All other methods and attributes are those of the request.

    Args:
        request: where the stream is written.
    """

    content_type: bytes

    def __init__(self, request: Request) -> None:
        self._request = request
        self._events = SseParser()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)

    def framed(self, event: SseEvent) -> bytes:
        """Return an event in the client's form."""
        raise NotImplementedError

    def begin(self, status: int, headers: Headers) -> None:
        """Begin the answer with the type of the client's form."""
        other = [each for each in headers if each[0] != b"content-type"]
        self._request.begin(status, [(b"content-type", self.content_type), *other])

    def write(self, data: bytes) -> None:
        """Send the events that are complete."""
        if wire := self._framed(data):
            self._request.write(wire)

    def offer(self, data: bytes) -> bool:
        """Return False: each event is read first."""
        return False

    def end(self, data: bytes = b"") -> None:
        """Send the last events and end the answer."""
        self._request.end(self._framed(data))

    def _framed(self, data: bytes) -> bytes:
        return b"".join([self.framed(event) for event in self._events.feed(data) if event.data])


class ArrayRequest(_Reframed):
    """A request of Gemini's, the events of whose answer become elements of a JSON array.

    The answer is a stream of ``application/json``. Comments are left out. A whole answer, such as
    an error, is sent unchanged.
    """

    content_type = _JSON.encode()
    _next = b"["

    def framed(self, event: SseEvent) -> bytes:
        """Return an event's data after ``[`` for the first event, else after a comma."""
        before, self._next = self._next, b",\r\n"
        return before + event.data

    def end(self, data: bytes = b"") -> None:
        """Send the last elements and the end of the array."""
        elements = self._framed(data)
        self._request.end(elements + (b"[]" if self._next == b"[" else b"]"))


class FrameRequest(_Reframed):
    """A request of Bedrock's: events become frames, and errors have Bedrock's form.

    Comments are left out. A whole answer is sent unchanged, except an error.

    Args:
        request: where the answer is written.
        is_invoke: True if each event is the base64 of a chunk, as InvokeModel has it.
    """

    content_type = EVENT_STREAM.encode()

    def __init__(self, request: Request, *, is_invoke: bool) -> None:
        super().__init__(request)
        self._is_invoke = is_invoke

    def begin(self, status: int, headers: Headers) -> None:
        """Begin the answer, which states the type of the events within the frames."""
        within = (b"x-amzn-bedrock-content-type", _JSON.encode())
        super().begin(status, [*headers, within] if self._is_invoke else headers)

    def answer(self, answer: Answer) -> None:
        """Send a complete answer; an error (400 and above) gets Bedrock's form and headers.

        The body of an error becomes an object with ``message``, ``type``, ``code`` and ``param``,
        as far as stated.

        Args:
            answer: the answer; an error whose body has no member ``error`` keeps its body.
        """
        if answer.status >= 400:
            body = answer.body if b'"error"' not in answer.body else dump(_said(answer.body))
            named = (b"x-amzn-errortype", bedrock_exception(answer.status).encode())
            headers = [each for each in answer.headers if each[0] != named[0]]
            answer = Answer(answer.status, body, headers=[*headers, named])
        self._request.answer(answer)

    def framed(self, event: SseEvent) -> bytes:
        """Return the frame of an event, whose data becomes the frame's JSON.

        An event named ``error`` becomes an exception with its message only. With ``is_invoke`` any
        other event is a ``chunk`` with the data in base64.
        """
        about = {":content-type": _JSON}
        if event.name == "error":
            said = _said(event.data)
            headers = {":exception-type": exception_of(said), **about, ":message-type": "exception"}
            return frame(headers, dump({"message": said.get("message")}))
        if self._is_invoke:
            data = dump({"bytes": base64.b64encode(event.data).decode()})
            return frame({":event-type": "chunk", **about, ":message-type": "event"}, data)
        return frame({":event-type": event.name, **about, ":message-type": "event"}, event.data)


def _said(body: bytes) -> dict[str, Any]:
    """Return message, type, code and parameter of an error in any dialect."""
    try:
        value = load(body)
    except JsonTextError:
        return {"message": body.decode("utf-8", "replace")}
    error = value.get("error", value) if isinstance(value, dict) else value
    if not isinstance(error, dict):
        return {"message": str(error)}
    return {name: error[name] for name in ("message", "type", "code", "param") if error.get(name)}
