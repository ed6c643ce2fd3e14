"""A stream of another protocol, which is passed on unparsed."""

from __future__ import annotations

from typing import Any

from remit.providers.wire.answer import StreamSum


class Passed(StreamSum):
    """A sum that parses nothing. Only the end of the connection ends the stream."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []

    @property
    def raw(self) -> bytes:
        """The received bytes."""
        return b"".join(self._parts)

    def add(self, name: str, data: bytes, value: Any = None) -> Any:
        """Append received bytes; return None."""
        self._parts.append(data)
        self.pieces += 1
        self.size += len(data)
        return None

    def answer(self) -> dict[str, Any]:
        """Return the received bytes as a text under ``stream``."""
        return {"stream": self.raw.decode("utf-8", "replace")}
