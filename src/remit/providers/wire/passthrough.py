"""A stream of another protocol, which is passed on and kept as it came."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from remit.providers.wire.delta import Pieces
from remit.providers.wire.usage import Usage


class Passed:
    """A :class:`~remit.providers.wire.answer.StreamSum` that reads nothing."""

    at_once: ClassVar[re.Pattern[bytes] | None] = None

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.pieces = self.size = 0
        self.error: Any = None
        self.is_last = False

    @property
    def raw(self) -> bytes:
        """All that came."""
        return b"".join(self._parts)

    @property
    def ended(self) -> bool:
        """Never: it is the connection that says so."""
        return False

    @property
    def first(self) -> bool:
        """Whether anything came."""
        return bool(self._parts)

    @property
    def text(self) -> str:
        """None: what is text in it is unknown."""
        return ""

    @property
    def usage(self) -> Usage | None:
        """None is reported."""
        return None

    def add(self, name: str, data: bytes) -> Any:
        """More of it."""
        self._parts.append(data)
        self.pieces += 1
        self.size += len(data)
        return None

    def appended(self, value: Any) -> tuple[str, Pieces] | None:
        """Never: each piece is kept."""
        return None

    def answer(self) -> dict[str, Any]:
        """What came before it broke off."""
        return {"stream": self.raw.decode("utf-8", "replace")}
