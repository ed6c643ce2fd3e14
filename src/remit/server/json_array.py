"""Streams for clients of Gemini that want one JSON array instead of server-sent events."""

from __future__ import annotations

from typing import Any

from remit.providers.sse import SseParser
from remit.server.replies import Headers
from remit.server.request import Request


class ArrayRequest:
    """A :class:`Request` whose stream of server-sent events becomes the elements of an array.

    Comments are left out. All other methods and attributes are those of the request.

    Args:
        request: where the array is written.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._events = SseParser()
        self._next = b"["

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)

    def begin(self, status: int, headers: Headers) -> None:
        """Begin the answer, whose type is JSON."""
        other = [each for each in headers if each[0] != b"content-type"]
        self._request.begin(status, [(b"content-type", b"application/json"), *other])

    def write(self, data: bytes) -> None:
        """Send the elements that are complete."""
        if elements := self._elements(data):
            self._request.write(elements)

    def offer(self, data: bytes) -> bool:
        """Return False: each event is read first."""
        return False

    def end(self, data: bytes = b"") -> None:
        """Send the last elements and the end of the array."""
        elements = self._elements(data)
        self._request.end(elements + (b"[]" if self._next == b"[" else b"]"))

    def _elements(self, data: bytes) -> bytes:
        found = []
        for event in self._events.feed(data):
            if event.data:
                found.append(self._next + event.data)
                self._next = b",\r\n"
        return b"".join(found)
