"""A tool's output as a JSON value: converted, and cut if it is longer than its limit.

The tool has run when its output is read. No output makes its call look like one that failed.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

from pydantic import BaseModel, TypeAdapter

from remit.kernel.canonical import exact_json
from remit.kernel.json_text import sound_text

# Deeper values have no canonical encoding, and Python's own stack would end soon after.
_MAX_DEPTH = 200
_AS_TEXT = (datetime, date, time, timedelta, UUID, Decimal)
_MOST_DIGITS = 4_000  # of an integer that Python writes in decimal digits
_text: TypeAdapter[Any] = TypeAdapter(Any)


def json_output(value: Any, limit: int) -> Any:
    """Return ``value`` as plain dicts, lists, texts, numbers, booleans and ``None``.

    Pydantic models, dataclasses, enums, dates, times, UUIDs, decimals and paths become what JSON
    has for them; sets and iterators become lists; bytes become text, or a ``data:`` URL with
    base64; numbers that JSON does not have become ``None``; keys and any other object become text.
    Work and memory are bounded by ``limit``, not by the value.

    Args:
        limit: the longest JSON text, in bytes. A longer value is returned as the beginning of its
            text, which ends with a note that says so.
    """
    walk = _Walk(limit)
    plain = walk.plain(value, 0)
    encoded = exact_json(plain)
    if not walk.is_full and len(encoded) <= limit:
        return plain
    text = plain if type(plain) is str else encoded.decode()
    note = (
        f"\n[The tool ran. Its result is longer than {limit:,} bytes: only its beginning is here.]"
    )
    if len(note) >= limit:
        return note[1:][:limit]
    return _cut(text, limit - len(json.dumps(note))) + note


def _cut(text: str, size: int) -> str:
    """Return the beginning of a text whose JSON takes at most ``size`` bytes, without quotes."""
    text = text[: max(0, size)]
    while (excess := len(exact_json(text)) - 2 - size) > 0:
        text = text[: len(text) - max(1, excess // 6)]
    return text


class _Walk:
    """One walk through a value.

    Attributes:
        is_full: whether something was left out, as the limit was reached.
    """

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._above: set[int] = set()
        self.is_full = False

    def plain(self, value: Any, depth: int) -> Any:
        value = _shown(value)
        kind = type(value)
        if kind is str:
            return self._text(value)
        if value is None or kind is bool:
            return self._counted(value, 4)
        if kind is int:
            return self._integer(value)
        if kind is float:
            return self._counted(value if math.isfinite(value) else None, 1)
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self._text(_decoded(value, self._left))
        if isinstance(value, Mapping):
            return self._inside(value, depth, self._members)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self._inside(value, depth, self._fields)
        for base in (str, int, float):
            if isinstance(value, base):
                return self.plain(base(value), depth)
        if isinstance(value, Iterable) and not isinstance(value, type):
            return self._inside(value, depth, self._items)
        return self._text(_described(value))

    def _counted(self, value: Any, size: int) -> Any:
        self._left -= size
        if self._left < 0:
            self.is_full = True
        return value

    def _text(self, text: str) -> str:
        if len(text) > self._left:
            text, self.is_full = text[: max(0, self._left)], True
        self._left -= len(text) + 2
        return sound_text(text)

    def _integer(self, value: int) -> int | str:
        if value.bit_length() > 3 * _MOST_DIGITS:
            return self._text(hex(value))
        return int(self._counted(value, max(1, value.bit_length() // 4)))

    def _inside(self, value: Any, depth: int, walk: Any) -> Any:
        if id(value) in self._above:
            return self._text("[a value that holds itself]")
        if depth >= _MAX_DEPTH - 1:
            return self._text(f"[nested more than {_MAX_DEPTH} deep]")
        self._counted(None, 2)
        self._above.add(id(value))
        try:
            return walk(value, depth + 1)
        finally:
            self._above.discard(id(value))

    def _members(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, item in value.items():
            if self.is_full:
                break
            found[self._text(_key(key))] = self.plain(item, depth)
        return found

    def _items(self, value: Iterable[Any], depth: int) -> list[Any]:
        if isinstance(value, (set, frozenset)):
            value = sorted(value, key=_described)
        found = []
        for item in value:  # no comprehension: its frames would count against Python's stack
            if self.is_full:
                break
            found.append(self.plain(item, depth))
        return found

    def _fields(self, value: Any, depth: int) -> dict[str, Any]:
        found = {}
        for field in dataclasses.fields(value):
            name = self._text(field.name)
            found[name] = self.plain(getattr(value, field.name), depth)
        return found


def _shown(value: Any) -> Any:
    """Return ``value``, or its counterpart in JSON."""
    if isinstance(value, BaseModel):
        try:
            return value.model_dump(mode="json", by_alias=True)
        except ValueError:  # bytes that are not UTF-8, or a value that holds itself
            return dict(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, _AS_TEXT):
        return _text.dump_python(value, mode="json")
    if isinstance(value, PurePath):
        return str(value)
    return value


def _key(key: Any) -> str:
    shown = _shown(key)
    if isinstance(shown, str):
        return str(shown)
    if shown is None or isinstance(shown, (bool, int, float)):
        return json.dumps(shown)
    return _described(shown)


def _decoded(value: bytes | bytearray | memoryview, limit: int) -> str:
    data = bytes(value[: limit + 1])
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "data:application/octet-stream;base64," + base64.b64encode(data).decode()


def _described(value: Any) -> str:
    """Return a text for an object without a form in JSON."""
    try:
        if isinstance(value, BaseException):
            return f"{type(value).__name__}: {value}"
        return repr(value)
    except Exception:  # noqa: BLE001 - the object's own code
        return f"<{type(value).__name__}>"
