"""Bodies read from ASGI, answers sent through ASGI, and the dialects of clients."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from remit.kernel.json_text import dump
from remit.providers.dialects import bedrock_exception
from remit.server.in_flight_limits import Share
from remit.server.refusals import HttpError, Shape, refusal_body

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]

_ERRORS_AS = {"openai": "openai.chat", "anthropic": "anthropic.messages", "a2a": "a2a.jsonrpc",
              "bedrock": "bedrock.converse", "gemini": "gemini.generate"}  # fmt: skip
WITHOUT_BODY = (204, 304)
_GEMINI = re.compile(
    r"/v1beta.*|.*/publishers/google/.*"
    r"|/v1/models/.+:(?:g|streamG)enerateContent|/v1/models/.+:(?:countTokens|e\w+|batchEmbed\w+)"
)
_OF_ANTHROPIC = ("/anthropic/", "/v1/messages", "/messages", "/managed/")
PROVE = "remit.prove"
"""Key of a request's scope: what to call when it came with a good key."""


def with_key_of_query(scope: Scope) -> Scope:
    """Return a request whose query holds no ``key``: Gemini's clients may send their key there.

    The key becomes the header ``x-goog-api-key``, so that no log or record can show it. A request
    of another dialect, or without a key in its query, is returned unchanged.

    Args:
        scope: ASGI's scope of the request.
    """
    query = scope.get("query_string", b"")
    if b"key=" not in query or dialect_of(scope["path"], ()) != "gemini":
        return scope
    headers, rest = [*scope["headers"]], []
    for one in query.split(b"&"):
        name, _, value = one.partition(b"=")
        if name == b"key":
            headers.append((b"x-goog-api-key", unquote_to_bytes(value)))
        else:
            rest.append(one)
    return {**scope, "headers": headers, "query_string": b"&".join(rest)}


async def read_body(
    receive: Receive, length: bytes | None, most: int, timeout_s: float, share: Share | None
) -> bytes:
    """Return the whole body of an ASGI request.

    Bytes are counted in ``share`` before they are read if the length is announced, else as they
    arrive.

    Args:
        receive: ASGI's function.
        length: value of the ``content-length`` header; ``None`` without it.
        most: longest body, in bytes.
        timeout_s: longest wait for the whole body, in seconds.
        share: counts the bytes of the body until the caller ends it; ``None`` to count none.

    Raises:
        HttpError: 413, the body is too long; 408, too slow; 429 or 503, memory is short; 499, the
            client disconnected.
    """
    known = check_length(length, most)
    if share is not None:
        share.take(known or 0)
    end = asyncio.get_running_loop().time() + timeout_s
    message = await next_message(receive, timeout_s)
    body: bytes = message.get("body", b"")
    if not message.get("more_body"):
        if len(body) > most:
            raise too_long(most)
        return body
    parts, size = [body], len(body)
    while message.get("more_body"):
        if size > most:
            raise too_long(most)
        message = await next_message(receive, end - asyncio.get_running_loop().time())
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if share is not None and known is None:
            share.take(len(parts[-1]), small=0)
    if size > most:
        raise too_long(most)
    return b"".join(parts)


def check_length(length: bytes | None, most: int) -> int | None:
    """Return the announced length of a body; ``None`` if it is missing or not a number.

    Args:
        length: value of the ``content-length`` header; ``None`` without it.
        most: longest body, in bytes.

    Raises:
        HttpError: 413, the length exceeds ``most`` bytes.
    """
    if length is None or not length.isdigit():
        return None
    if int(length) > most:
        raise too_long(most)
    return int(length)


async def next_message(receive: Receive, timeout_s: float) -> MutableMapping[str, Any]:
    """Return the next part of a request's body.

    Args:
        receive: ASGI's function.
        timeout_s: longest wait, in seconds.

    Raises:
        HttpError: 408, nothing came in time; 499, the client disconnected.
    """
    try:
        async with asyncio.timeout(max(0.0, timeout_s)):
            message = await receive()
    except TimeoutError as error:
        raise too_slow() from error
    if message["type"] == "http.disconnect":
        raise HttpError(499, "client_closed_request", "The client disconnected.", close=True)
    return message


async def disconnected(receive: Receive) -> None:
    """Return once the client has disconnected.

    Args:
        receive: ASGI's function; messages before the end are dropped.
    """
    while (await receive())["type"] != "http.disconnect":
        pass


async def first_of(wanted: Awaitable[bytes], gone: asyncio.Future[None] | None) -> bytes:
    """Return the wanted bytes; empty, and nothing more is awaited, if ``gone`` is done first.

    The unfinished work is then cancelled. An error of ``wanted`` is raised.

    Args:
        wanted: gives the bytes.
        gone: ends the wait; ``None`` for no such end.
    """
    if gone is None:
        return await wanted
    task = asyncio.ensure_future(wanted)
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        return b"" if gone.done() else await task
    finally:
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def too_slow() -> HttpError:
    """Return (not raise) the 408 for a body that did not arrive in time; the connection closes."""
    said = "The body did not arrive within server.body_timeout_s; send it without pauses."
    return HttpError(408, "request_timeout", said, close=True)


def too_long(most: int) -> HttpError:
    """Return (not raise) the 413 for a body of more than ``most`` bytes; the connection closes.

    Args:
        most: largest size of a body in bytes.
    """
    said = f"The body is longer than {most:,} bytes; send less, or raise server.max_body_bytes."
    return HttpError(413, "request_too_large", said, close=True)


class Answer(NamedTuple):
    """A complete HTTP answer.

    Attributes:
        status: HTTP status.
        body: the whole body.
        content_type: value of the ``content-type`` header.
        headers: further headers.
    """

    status: int
    body: bytes
    content_type: bytes = b"application/json"
    headers: Headers = ()


def json_answer(value: Any, status: int = 200, headers: Headers = ()) -> Answer:
    """Return an answer of JSON.

    Args:
        value: JSON data; ``bytes`` are taken as encoded already.
        status: HTTP status.
        headers: further headers.
    """
    body = value if isinstance(value, bytes) else dump(value)
    return Answer(status, body, headers=headers)


def refusal(shape: Shape, error: HttpError) -> Answer:
    """Return an error as an answer in the client's dialect, with the headers of :func:`limits_of`.

    Args:
        shape: the dialect.
        error: the error.
    """
    body = refusal_body(_ERRORS_AS[shape], error.status, error.code, error.message, error.param)
    headers = limits_of(error)
    if shape == "bedrock":
        headers = [*headers, (b"x-amzn-errortype", bedrock_exception(error.status).encode())]
    return json_answer(body, error.status, headers)


def limits_of(error: HttpError) -> Headers:
    """Return the headers of an error, with ``retry-after`` and ``connection`` if they apply.

    ``retry-after`` is in whole seconds, at least 1; ``connection: close`` follows from
    :attr:`HttpError.close`.

    Args:
        error: the error to answer.
    """
    headers = [*error.headers]
    if error.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % max(1, round(error.retry_after_s))))
    if error.close:
        headers.append((b"connection", b"close"))
    return headers


def answer_messages(answer: Answer) -> list[MutableMapping[str, Any]]:
    """Return the ASGI messages of an answer. Status 204 and 304 have no body.

    Args:
        answer: status, body, content type and headers.
    """
    status, body, kind, headers = answer
    about = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
    if status in WITHOUT_BODY:
        about, body = [], b""
    return [
        {"type": "http.response.start", "status": status, "headers": [*about, *headers]},
        {"type": "http.response.body", "body": body},
    ]


async def reply(send: Send, answer: Answer) -> None:
    """Send a complete answer.

    Args:
        send: ASGI's function that takes the answer.
        answer: the answer.
    """
    for message in answer_messages(answer):
        await send(message)


async def reply_json(send: Send, value: Any, status: int = 200) -> None:
    """Send a complete answer of JSON.

    Args:
        send: ASGI's function that takes the answer.
        value: a JSON value, or encoded bytes.
        status: the HTTP status.
    """
    await reply(send, json_answer(value, status))


async def reply_raw(
    send: Send, status: int, headers: tuple[tuple[str, str], ...], body: bytes
) -> None:
    """Send the whole answer of a provider to the client, with its length.

    Args:
        send: takes the answer.
        status: the provider's status.
        headers: headers that may be passed on.
        body: the body, which may have been changed.
    """
    named = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers]
    named.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": named})
    await send({"type": "http.response.body", "body": body})


def shape_of(scope: Scope) -> Shape:
    """Return the dialect of a client, judged by the path and the headers of its request.

    Args:
        scope: ASGI's scope of the request.
    """
    return dialect_of(scope["path"], scope["headers"])


def dialect_of(path: str, headers: Headers) -> Shape:
    """Return the dialect of a client by the path of its request, else by its headers.

    ``/a2a/`` is ``a2a``; ``/model/`` and ``/bedrock/`` are ``bedrock``; ``/v1beta``, Google's
    publisher paths and ``/v1/models/`` with a method such as ``:generateContent`` are ``gemini``;
    ``/v1/messages``, ``/messages``, ``/anthropic/``, ``/managed/`` and Anthropic's publisher paths
    are ``anthropic``; ``/openai/`` and paths of chats are ``openai``. On other paths the header
    ``anthropic-version`` or ``x-goog-api-key`` decides, whichever comes first; without both the
    dialect is ``openai``.

    Args:
        path: path of the request.
        headers: headers of the request, names in lower case.
    """
    if path.startswith("/a2a/"):
        return "a2a"
    if path.startswith(("/model/", "/bedrock/")):
        return "bedrock"
    if _GEMINI.fullmatch(path) is not None and "/publishers/anthropic/" not in path:
        return "gemini"
    if "/publishers/anthropic/" in path or path.startswith(_OF_ANTHROPIC):
        return "anthropic"
    if path.startswith(("/openai/", "/v1/chat/", "/chat/")):
        return "openai"
    for name, _ in headers:
        if name == b"anthropic-version":
            return "anthropic"
        if name == b"x-goog-api-key":
            return "gemini"
    return "openai"


def last_answer(status: bytes, text: str) -> bytes:
    """Return an answer in plain text that announces the end of the connection.

    Args:
        status: code and reason, such as ``400 Bad Request``.
        text: the body.
    """
    body = text.encode()
    head = b"HTTP/1.1 %b\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n" % (
        status,
        len(body),
    )
    return head + b"connection: close\r\n\r\n" + body


MAX_PIPELINED = 100
"""Requests of one connection that wait for the answer to an earlier one."""
MAX_FIELDS = 200
"""Headers of one request, or its trailers."""
TOO_LARGE = last_answer(
    b"431 Request Header Fields Too Large",
    f"The head of this request is longer than server.max_header_bytes, or has more than "
    f"{MAX_FIELDS} headers; send less.\n",
)
UNREADABLE = last_answer(
    b"400 Bad Request",
    "This is not an HTTP/1.1 request with one host header, its trailers are too long, or more than "
    f"{MAX_PIPELINED} requests wait on this connection; send another on a new one.\n",
)
_UNKNOWN_CODING = last_answer(
    b"501 Not Implemented",
    "The only transfer coding here is chunked; name a compression in content-encoding.\n",
)
_OTHER_VERSION = last_answer(b"505 HTTP Version Not Supported", "Send HTTP/1.1 or HTTP/1.0.\n")


def refusal_of_head(version: str, hosts: int, codings: tuple[bytes, ...]) -> bytes | None:
    """Return the last answer of a connection to a head that RFC 9112 forbids; None for a good head.

    Args:
        version: the version of HTTP, such as ``1.1``. HTTP/1.0 needs no Host header.
        hosts: number of Host headers.
        codings: transfer codings in lower case; the parser refuses a single one besides
            ``chunked``.
    """
    if version not in ("1.1", "1.0"):
        return _OTHER_VERSION
    if hosts > 1 or (not hosts and version == "1.1"):
        return UNREADABLE
    if len(codings) > 1:
        *others, last = codings
        is_last = last == b"chunked" and b"chunked" not in others
        return _UNKNOWN_CODING if is_last else UNREADABLE
    return None


async def refuse_full(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer 503 to a request on a connection above ``server.max_connections``."""
    said = "The server has server.max_connections requests in flight, the most allowed; try again."
    error = HttpError(503, "overloaded", said, retry_after_s=1, close=True)
    await reply(send, refusal(shape_of(scope), error))
