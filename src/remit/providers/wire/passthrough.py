"""A stream of another protocol, which is passed on unparsed."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from remit.providers.wire.delta import Pieces
from remit.providers.wire.usage import Usage


class Passed:
    """A :class:`~remit.providers.wire.answer.StreamSum` that parses nothing."""

    at_once: ClassVar[re.Pattern[bytes] | None] = None

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.pieces = self.size = 0
        self.error: Any = None
        self.is_last = False

    @property
    def raw(self) -> bytes:
        """The received bytes."""
        return b"".join(self._parts)

    @property
    def ended(self) -> bool:
        """Always False: only the end of the connection ends the stream."""
        return False

    @property
    def first(self) -> bool:
        """True if anything was received."""
        return bool(self._parts)

    @property
    def text(self) -> str:
        """Always empty: the text in the stream is unknown."""
        return ""

    @property
    def usage(self) -> Usage | None:
        """No usage: the property is always None."""
        return None

    def add(self, name: str, data: bytes, value: Any = None) -> Any:
        """Append received bytes; return None."""
        self._parts.append(data)
        self.pieces += 1
        self.size += len(data)
        return None

    def appended(self, value: Any) -> tuple[str, Pieces] | None:
        """Return None: each piece is kept whole."""
        return None

    def answer(self) -> dict[str, Any]:
        """Return the received bytes as a text under ``stream``."""
        return {"stream": self.raw.decode("utf-8", "replace")}
