"""Limits on the length of values on a page."""

from __future__ import annotations

from typing import Any

LONGEST = 20_000
"""The largest number of characters of one value."""

_PAGE_CHARS = 2_000_000  # After this, values are cut to _FEW characters.
_FEW = 200
_MAX_ITEMS = 1_000
_DEEPEST = 200


class Shortened:
    """A limit on the amount of text of a page; long values are cut with a notice.

    Each page has an object of its own, which counts the characters. One value has at most 20,000
    characters. After two million characters of the page, further values have at most 200.
    """

    def __init__(self) -> None:
        self._left = _PAGE_CHARS

    def cut(self, value: Any, depth: int = 0) -> Any:
        """Return JSON data with long texts and lists cut, and the number of omitted items added.

        A text has at most 20,000 characters, or 200 after two million characters of the page, which
        this method counts. Keys are cut too. A list or object has at most a thousand items; the
        further keys of an object are left out without a notice.

        Args:
            value: JSON data; not changed.
            depth: depth of ``value`` in the data. Values more than 200 deep become ``…``, except
                texts.
        """
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
                for key, one in list(value.items())[:_MAX_ITEMS]
            }
        if isinstance(value, (list, tuple)):
            made = [self.cut(one, depth + 1) for one in value[:_MAX_ITEMS]]
            if (more := len(value) - _MAX_ITEMS) > 0:
                made.append(f"… ({more:,} more)")
            return made
        return value
