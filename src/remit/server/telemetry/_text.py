"""Makes texts that clients chose safe to show to an operator."""

from __future__ import annotations

from typing import Any

from remit.gateway import MAX_ID_CHARS

# What ends a line somewhere, moves a terminal's cursor, or changes the direction of writing.
_HARMFUL = (
    *range(0x20),
    *range(0x7F, 0xA0),
    0x061C,
    0x200E,
    0x200F,
    *range(0x2028, 0x202F),
    *range(0x2066, 0x206A),
    *range(0xD800, 0xE000),
)

_ESCAPES = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in _HARMFUL}


def one_line(text: str) -> str:
    """``text`` with readable escapes for what is harmful in a line of a log."""
    return text if text.isascii() and text.isprintable() else text.translate(_ESCAPES)


def name_of(value: Any) -> str:
    """An id or name as text that any encoder takes, no longer than the gateway's longest id.

    A rejected request was never checked: its ids may be of any type, length and content.
    """
    text = value if isinstance(value, str) else "" if value is None else str(value)
    text = text[:MAX_ID_CHARS]
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
