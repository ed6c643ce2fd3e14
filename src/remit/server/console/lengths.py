"""How much of a record a page shows: long values are cut, and the page says by how much."""

from __future__ import annotations

from typing import Any

LONGEST = 20_000
"""Characters of one value."""

_OF_A_PAGE = 2_000_000  # characters, after which values are cut to a few
_FEW = 200
_MOST_ITEMS = 1_000
_DEEPEST = 200


class Shortened:
    """Cuts the values of one page, so that neither the page nor what makes it grows with them."""

    def __init__(self) -> None:
        self._left = _OF_A_PAGE

    def cut(self, value: Any, depth: int = 0) -> Any:
        """``value``, JSON data, with its long texts and lists cut."""
        if isinstance(value, str):
            most = LONGEST if self._left > 0 else _FEW
            self._left -= min(len(value), most)
            if len(value) <= most:
                return value
            return f"{value[:most]}… ({len(value) - most:,} more characters)"
        if depth > _DEEPEST:
            return "…"
        if isinstance(value, dict):
            return {
                self.cut(key, depth + 1) if isinstance(key, str) else key: self.cut(one, depth + 1)
                for key, one in list(value.items())[:_MOST_ITEMS]
            }
        if isinstance(value, (list, tuple)):
            made = [self.cut(one, depth + 1) for one in value[:_MOST_ITEMS]]
            if (more := len(value) - _MOST_ITEMS) > 0:
                made.append(f"… ({more:,} more)")
            return made
        return value
