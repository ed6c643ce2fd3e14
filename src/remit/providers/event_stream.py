"""Frames of ``application/vnd.amazon.eventstream``, in which Amazon sends streams.

A frame has its length, the length of its headers, a CRC-32 of both, headers, payload, and a CRC-32
of everything before. Within Remit each frame is a server-sent event, named like the frame.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
import zlib
from collections.abc import Iterator, Mapping

from remit.kernel.json_text import JsonTextError, dump, load
from remit.providers.protocol import ProviderError
from remit.providers.sse import MAX_EVENT_BYTES, SseEvent

EVENT_STREAM = "application/vnd.amazon.eventstream"
_HEAD = struct.Struct(">II")
_CRC = struct.Struct(">I")
_SHORT = struct.Struct(">H")
_AROUND = 16  # Bytes of a frame without headers and payload.
_EXCEPTION = re.compile("[a-z][A-Za-z]{2,60}Exception")
_EXCEPTIONS = {
    "invalid_request_error": "validationException", "rate_limit_error": "throttlingException",
    "overloaded_error": "serviceUnavailableException", "timeout_error": "modelStreamErrorException",
    "authentication_error": "validationException", "billing_error": "validationException",
    "permission_error": "validationException",
}  # fmt: skip
"""Types of errors of the Messages API and the exceptions that a stream may hold."""
_TYPES = {name: kind for kind, name in reversed(_EXCEPTIONS.items())}
_TYPES["modelTimeoutException"] = "timeout_error"
_TEXT, _BYTES = 7, 6
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Bytes of each type of header value whose size is fixed."""


def frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """Return one frame with its lengths and checksums; the type of every header is text.

    Args:
        headers: its headers, such as ``:event-type``.
        payload: its payload.

    Raises:
        ValueError: a header's name has more than 255 bytes.
        struct.error: a header's value has more than 65,535 bytes.
    """
    named = b"".join(
        bytes((len(name),)) + name.encode() + bytes((_TEXT,)) + _SHORT.pack(len(text.encode()))
        + text.encode()
        for name, text in headers.items()
    )  # fmt: skip
    head = _HEAD.pack(_AROUND + len(named) + len(payload), len(named))
    checked = head + _CRC.pack(zlib.crc32(head)) + named + payload
    return checked + _CRC.pack(zlib.crc32(checked))


class FrameParser:
    """A parser of frames in pieces of any size, with the interface of
    :class:`~remit.providers.sse.SseParser`.

    Attributes:
        waiting: number of bytes of the incomplete frame.
        is_broken: True after a frame that cannot be read; :meth:`end` raises its error.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self._failure: ProviderError | None = None

    @property
    def waiting(self) -> int:
        """Number of bytes of the incomplete frame."""
        return len(self._rest)

    @property
    def is_broken(self) -> bool:
        """True after a frame that cannot be read; :meth:`end` raises its error."""
        return self._failure is not None

    def feed(self, piece: bytes) -> list[SseEvent]:
        """Return the events of the frames that ``piece`` completes, up to one that cannot be read.

        Raises no error for a frame that cannot be read: ``is_broken`` is then set, and :meth:`end`
        raises it.

        The payload of a ``chunk`` is the event within it, named by its ``type``. Any other event
        has the name and payload of its frame. An exception is an event ``error`` whose data is an
        object with the type ``error``.
        """
        events: list[SseEvent] = []
        self._rest += piece
        try:
            for event in self._complete():
                events.append(event)
        except ProviderError as error:
            self._failure = error
        return events

    def _complete(self) -> Iterator[SseEvent]:
        rest = self._rest
        while len(rest) >= _HEAD.size + _CRC.size:
            size, named = _HEAD.unpack_from(rest)
            if _CRC.unpack_from(rest, _HEAD.size)[0] != zlib.crc32(rest[: _HEAD.size]):
                raise _broken("the head of a frame has a wrong checksum")
            if size > MAX_EVENT_BYTES or size < named + _AROUND:
                raise _broken("a frame has an impossible length")
            if len(rest) < size:
                break
            whole = bytes(rest[:size])
            del rest[:size]
            if _CRC.unpack_from(whole, size - _CRC.size)[0] != zlib.crc32(whole[: -_CRC.size]):
                raise _broken("a frame has a wrong checksum")
            start = _HEAD.size + _CRC.size
            headers = dict(_headers(whole[start : start + named]))
            yield _event(headers, whole[start + named : -_CRC.size])

    def end(self) -> SseEvent | None:
        """Return None, since no event waits for the end of the body.

        Raises:
            ProviderError: a checksum is wrong, a frame has not the format or is too long, or the
                stream ended within a frame.
        """
        if self._failure is not None:
            raise self._failure
        if self._rest:
            raise _broken("the stream ended within a frame")
        return None


def _headers(named: bytes) -> Iterator[tuple[str, str]]:
    """Yield the headers that are texts."""
    at = 0
    try:
        while at < len(named):
            start = at + 1
            at = start + named[at]
            name, kind = named[start:at], named[at]
            at += 1
            if kind in (_TEXT, _BYTES):
                (size,) = _SHORT.unpack_from(named, at)
                at += _SHORT.size
                if kind == _TEXT:
                    yield name.decode(), named[at : at + size].decode()
            else:
                size = _SIZES[kind]
            at += size
        if at == len(named):
            return
    except (IndexError, KeyError, UnicodeError, struct.error):
        pass
    raise _broken("the headers of a frame cannot be read")


def _event(headers: Mapping[str, str], payload: bytes) -> SseEvent:
    kind = headers.get(":message-type", "event")
    if kind != "event":
        name = headers.get(":exception-type") or headers.get(":error-code") or kind
        message = headers.get(":error-message") or _member(payload, "message")
        said = {"type": _TYPES.get(name, "api_error"), "code": name, "message": message}
        return _sse("error", dump({"type": "error", "error": said}))
    name = headers.get(":event-type", "")
    if name != "chunk":
        return _sse(name, payload)
    try:
        data = base64.b64decode(_member(payload, "bytes"), validate=True)
    except (binascii.Error, ValueError):
        raise _broken("a chunk is not base64") from None
    return _sse(_member(data, "type"), data)


def exception_of(error: Mapping[str, object]) -> str:
    """Return the name of a stream's exception for an error of the Messages API, or for one of a
    frame.

    The name in ``code`` has precedence. Unknown types are ``internalServerException``.

    Args:
        error: the error, with ``type`` and perhaps the name of a frame's exception as ``code``.
    """
    code, kind = str(error.get("code")), str(error.get("type"))
    if _EXCEPTION.fullmatch(code):
        return code
    return _EXCEPTIONS.get(kind, "internalServerException")


def _member(data: bytes, name: str) -> str:
    """Return a member that is a text; empty for any other."""
    try:
        value = load(data)
    except JsonTextError:
        return ""
    found = value.get(name) if type(value) is dict else None
    return found if type(found) is str else ""


def _sse(name: str, data: bytes) -> SseEvent:
    name = name if name.isprintable() else ""
    lines = b"\ndata: ".join(data.splitlines())
    return SseEvent(b"event: %b\ndata: %b\n\n" % (name.encode(), lines), name, data)


def _broken(what: str) -> ProviderError:
    return ProviderError("SERVER_ERROR", f"the event stream is broken: {what}", True,
                         maybe_billed=True)  # fmt: skip
