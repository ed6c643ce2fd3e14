"""A tool's output as a JSON value: one walk with an early end, however large it is."""

from __future__ import annotations

import dataclasses
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

from pydantic import BaseModel, TypeAdapter

from remit.kernel.canonical import canonical_json
from remit.kernel.errors import InvalidInputError

# Deeper values have no canonical encoding, and Python's own stack would end soon after.
_MAX_DEPTH = 200
_AS_TEXT = (datetime, date, time, timedelta, UUID, Decimal)
_text: TypeAdapter[Any] = TypeAdapter(Any)


class OutputError(ValueError):
    """What came back has no JSON form, or a longer one than allowed; the text says which."""


def json_output(value: Any, limit: int) -> Any:
    """``value`` as plain dicts, lists, texts, numbers, booleans and ``None``.

    Pydantic models, dataclasses, enums, dates, times, UUIDs, decimals and paths become what
    JSON has for them. Work and memory are bounded by ``limit``, the longest canonical JSON in
    bytes, not by the value.

    Raises:
        OutputError: bytes, NaN, a foreign type, a value that holds itself, or too long.
    """
    plain = _Walk(limit).plain(value, 0)
    try:
        size = len(canonical_json(plain))
    except InvalidInputError as error:
        raise OutputError(f"returned no JSON: {error.message}") from error
    if size > limit:
        raise _too_long(limit)
    return plain


def _too_long(limit: int) -> OutputError:
    return OutputError(f"returned more than {limit:,} bytes, which is the limit.")


class _Walk:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._left = limit
        self._above: set[int] = set()

    def plain(self, value: Any, depth: int) -> Any:
        value = _shown(value)
        kind = type(value)
        if kind is str:
            return self._counted(value, len(value) + 2)
        if value is None or kind is bool or kind is int or kind is float:
            return self._counted(value, 1)
        if isinstance(value, (bytes, bytearray, memoryview)):
            raise OutputError("returned bytes, not JSON.")
        if isinstance(value, dict):
            return self._inside(value, depth, self._members)
        if isinstance(value, (list, tuple)):
            return self._inside(value, depth, self._items)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self._inside(value, depth, self._fields)
        for base in (str, int, float):
            if isinstance(value, base):
                return self.plain(base(value), depth)
        raise OutputError(f"returned no JSON: it holds a {kind.__name__}.")

    def _counted(self, value: Any, size: int) -> Any:
        self._left -= size
        if self._left < 0:
            raise _too_long(self._limit)
        return value

    def _inside(self, value: Any, depth: int, walk: Any) -> Any:
        if id(value) in self._above:
            raise OutputError("returned no JSON: a value holds itself.")
        if depth >= _MAX_DEPTH:
            raise OutputError(f"returned no JSON: it is nested more than {_MAX_DEPTH} deep.")
        self._counted(None, 2)
        self._above.add(id(value))
        try:
            return walk(value, depth + 1)
        finally:
            self._above.discard(id(value))

    def _members(self, value: dict[Any, Any], depth: int) -> dict[str, Any]:
        found = {}
        for key, item in value.items():
            name = _shown(key)
            if not isinstance(name, str):
                raise OutputError(
                    f"returned no JSON: an object has a key that is a {type(name).__name__}."
                )
            found[self._counted(str(name), len(name) + 3)] = self.plain(item, depth)
        return found

    def _items(self, value: list[Any] | tuple[Any, ...], depth: int) -> list[Any]:
        found = []
        for item in value:  # no comprehension: its frames would count against Python's stack
            found.append(self.plain(item, depth))
        return found

    def _fields(self, value: Any, depth: int) -> dict[str, Any]:
        found = {}
        for field in dataclasses.fields(value):
            name = self._counted(field.name, len(field.name) + 3)
            found[name] = self.plain(getattr(value, field.name), depth)
        return found


def _shown(value: Any) -> Any:
    """``value``, or its counterpart in JSON."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, _AS_TEXT):
        return _text.dump_python(value, mode="json")
    if isinstance(value, PurePath):
        return str(value)
    return value
