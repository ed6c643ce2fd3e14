"""The conversion of a tool's result to JSON. A result never makes a finished call fail.

A value without a JSON form is converted, a long result is cut, and a note names both. The
conversion counts the bytes of the canonical JSON and stops at the limit, so its time and memory do
not grow with the value.
"""

from __future__ import annotations

import base64
import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from numbers import Integral, Real
from pathlib import PurePath
from typing import Any
from uuid import UUID

import orjson
from pydantic import BaseModel, TypeAdapter

from remit.agents.attachments import MAX_IMAGES, File, image_of
from remit.kernel.canonical import canonical_json
from remit.kernel.errors import InvalidInputError

_MAX_DEPTH = 100  # Entries that contain a result are nested at most 200 deep.
_MAX_NOTES = 5
_AS_TEXT = (datetime, date, time, timedelta, UUID, Decimal)
_BYTES = (bytes, bytearray, memoryview)
_text: TypeAdapter[Any] = TypeAdapter(Any)


@dataclasses.dataclass(frozen=True, slots=True)
class Illustrated:
    """A result with images, for models that accept images.

    Immutable. A tool may return it; the dispatcher takes it apart.

    Attributes:
        value: the result, in which each image is mentioned.
        images: content blocks of the type ``image``.
    """

    value: Any
    images: tuple[Mapping[str, Any], ...]


def json_output(result: Any, limit: int) -> tuple[Any, str, tuple[Mapping[str, Any], ...]]:
    """Return a result as JSON data of at most ``limit`` bytes in canonical form, a note and images.

    A :class:`~remit.File` becomes its text, or its name, type and size; the first 20 images are
    also returned as content blocks. The note names what was converted or cut, to follow "The tool
    ran;"; it is empty if nothing was. Pydantic models, dataclasses, enums, dates, times, UUIDs,
    decimals, paths and tuples are converted without a note. A value without a JSON form is
    converted, never refused, and values nested more than 100 deep become a text. None is returned
    if not even a part fits. An exception of the value's own code, SystemExit included, is not
    raised but named in the note: its part becomes a text, or an object or list that ends there. A
    generator is closed after its part.

    Args:
        result: the tool's return value.
        limit: maximum size in bytes.
    """
    walk = _Walk(limit)
    value = walk.plain(result, 0)
    return value, walk.note(limit), tuple(walk.images)


class _LimitReachedError(Exception):
    """No byte is left for another value."""


class _Walk:
    """The conversion of a result.

    Attributes:
        left: number of bytes left.
        images: content blocks of the images.
    """

    def __init__(self, limit: int) -> None:
        self.left = limit
        self.images: list[Mapping[str, Any]] = []
        self._above: set[int] = set()
        self._changes: dict[str, None] = {}
        self._is_cut = False

    def note(self, limit: int) -> str:
        """Return the changes as a sentence; empty if there are none."""
        parts = [*self._changes][:_MAX_NOTES]
        if len(self._changes) > _MAX_NOTES:
            parts.append("and more")
        clauses = [f"its result was cut at {limit:,} bytes"] if self._is_cut else []
        if parts:
            clauses.append(f"its result is shown with {', '.join(parts)}")
        return f"{', and '.join(clauses)}." if clauses else ""

    def plain(self, value: Any, depth: int) -> Any:
        """Return a value as JSON data; a part that does not fit is cut."""
        try:
            return self._plain(value, depth)
        except _LimitReachedError:
            self._is_cut = True
            return None

    def _plain(self, value: Any, depth: int) -> Any:
        try:
            return self._converted(value, depth)
        except _LimitReachedError:
            raise
        except BaseException as error:  # noqa: BLE001 - the value's own code; the tool has run
            return self._string(self._text_instead(value, error))

    def _converted(self, value: Any, depth: int) -> Any:
        value = self._counterpart(value)
        kind = type(value)
        if kind is str:
            return self._string(value)
        if value is None or kind is bool:
            return self._counted(value, 5 if value is False else 4)
        if kind is int:
            return self._integer(value)
        if kind is float:
            return self._number(value)
        if isinstance(value, _BYTES):
            return self._bytes(value)
        if isinstance(value, str):
            return self._string(str(value))
        if isinstance(value, File):
            return self._file(value)
        if isinstance(value, Integral):
            return self._integer(int(value))
        if isinstance(value, Real):
            return self._number(float(value))
        if isinstance(value, Mapping) or (
            dataclasses.is_dataclass(value) and not isinstance(value, type)
        ):
            return self._inside(value, depth, self._members)
        if isinstance(value, Iterable) and not isinstance(value, type):
            if not isinstance(value, (list, tuple)):
                self._change(f"a {kind.__name__} as a list")
            return self._inside(value, depth, self._items)
        self._change(f"a {kind.__name__} as text")
        return self._string(_text_of(value))

    def _counterpart(self, value: Any) -> Any:
        """Return the JSON counterpart of a value; the value itself if there is none."""
        try:
            if isinstance(value, _BYTES):
                return value
            if isinstance(value, BaseModel):
                try:
                    return value.model_dump(mode="json", by_alias=True)
                except UnicodeDecodeError:  # Bytes that are not UTF-8.
                    return dict(value)
            if isinstance(value, Enum):
                return value.value
            if isinstance(value, _AS_TEXT):
                return _text.dump_python(value, mode="json")
            if isinstance(value, PurePath):
                return str(value)
            to_list = getattr(value, "tolist", None)  # Arrays and scalars of numpy.
            if callable(to_list) and not isinstance(value, type):
                return to_list()
        except BaseException as error:  # noqa: BLE001 - the value's own code; the tool has run
            return self._text_instead(value, error)
        return value

    def _text_instead(self, value: Any, error: BaseException) -> str:
        self._change(f"a {type(value).__name__} as text, since it raised {_kind(error)}")
        return _text_of(value)

    def _change(self, what: str) -> None:
        self._changes[what] = None

    def _counted(self, value: Any, size: int) -> Any:
        if size > self.left:
            raise _LimitReachedError
        self.left -= size
        return value

    def _integer(self, value: int) -> Any:
        try:
            return self._counted(value, len(str(value)))
        except ValueError:  # Python refuses to write so many digits, and readers to read them.
            self._change("a whole number without decimal digits, which are too many")
            return self._string(f"a number of {value.bit_length():,} bits")

    def _number(self, value: float) -> Any:
        try:
            return self._counted(value, len(canonical_json(value)))
        except InvalidInputError:
            self._change("great numbers as text" if isfinite(value) else "NaN and infinity as text")
            return self._string("NaN" if value != value else str(value))

    def _bytes(self, value: bytes | bytearray | memoryview) -> str:
        whole = memoryview(value).cast("B") if memoryview(value).contiguous else memoryview(b"")
        with suppress(UnicodeDecodeError):
            if len(whole) <= self.left:
                text = str(whole, "utf-8")
                if "\0" not in text:
                    self._change("bytes as text")
                    return self._string(text)
        self._change("bytes in base64")
        return self._string(base64.b64encode(whole[: self.left]).decode(), len(whole) > self.left)

    def _file(self, file: File) -> str:
        block = file.block
        if block["type"] == "text":
            return self._string(block["text"])
        image = image_of(file.data)
        if image is None or len(self.images) == MAX_IMAGES:
            return self._string(f"{str(file)[:-1]}, not shown]")
        shown = self._string(str(file))
        self.images.append(image)
        return shown

    def _string(self, text: str, is_cut: bool = False) -> str:
        """Return the beginning of a text that fits, as valid Unicode."""
        room = self.left - 2
        if room < (1 if text else 0):
            raise _LimitReachedError
        part = text[:room]
        if not part.isascii() and any("\ud800" <= letter <= "\udfff" for letter in part):
            part = part.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
            self._change("broken characters replaced")
        encoded = orjson.dumps(part)
        fits = len(encoded) - 2 <= room
        if not fits:
            part = _prefix(encoded[1 : room + 1])
            encoded = orjson.dumps(part)
        self._is_cut |= is_cut or not fits or len(text) > room
        return str(self._counted(part, len(encoded)))

    def _inside(self, value: Any, depth: int, walk: Callable[[Any, int], Any]) -> Any:
        """Return the result of ``walk`` for a container; a remark if it is circular or too deep."""
        if id(value) in self._above:
            self._change("a value that holds itself left out")
            return self._string("(holds itself)")
        if depth >= _MAX_DEPTH:
            self._change(f"what is nested more than {_MAX_DEPTH} deep left out")
            return self._string("(nested too deep)")
        self._counted(None, 2)
        self._above.add(id(value))
        try:
            return walk(value, depth)
        finally:
            self._above.discard(id(value))

    def _members(self, value: Any, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        try:
            for key, item in value.items() if isinstance(value, Mapping) else _fields_of(value):
                self._counted(None, 1 if found else 0)
                name = self._string(self._name(key))
                if self._is_cut:
                    break
                if name in found:
                    self._change(f"one of several members {name!r} left out")
                    continue
                self._counted(None, 1)
                found[name] = self._plain(item, depth + 1)
        except _LimitReachedError:
            self._is_cut = True
        except BaseException as error:  # noqa: BLE001 - the value's own code; the tool has run
            self._change(f"an end where it raised {_kind(error)}")
        return found

    def _name(self, key: Any) -> str:
        key = self._counterpart(key)
        if isinstance(key, str):
            return str(key)
        self._change("names that are no text as text")
        if key is None or isinstance(key, bool):
            return orjson.dumps(key).decode()
        return _text_of(key)

    def _items(self, value: Iterable[Any], depth: int) -> list[Any]:
        found: list[Any] = []
        try:
            if isinstance(value, (set, frozenset)) and len(value) <= self.left:
                value = sorted(value, key=_text_of)  # Equal sets give equal lists.
            with ExitStack() as end:
                if inspect.isgenerator(value):
                    end.callback(value.close)
                for item in value:  # A comprehension would add frames to Python's stack.
                    self._counted(None, 1 if found else 0)
                    found.append(self._plain(item, depth + 1))
                    if self._is_cut:
                        break
        except _LimitReachedError:
            self._is_cut = True
        except BaseException as error:  # noqa: BLE001 - an iterator's own code; the tool has run
            self._change(f"an end where it raised {_kind(error)}")
        return found


def _fields_of(value: Any) -> Iterator[tuple[str, Any]]:
    return ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))


def _prefix(encoded: bytes) -> str:
    """Return the longest valid beginning of encoded JSON string content, as text."""
    for end in range(len(encoded), max(0, len(encoded) - 12), -1):
        try:
            return str(orjson.loads(b'"' + encoded[:end] + b'"'))
        except orjson.JSONDecodeError:
            continue
    return ""


def _text_of(value: Any) -> str:
    try:
        return str(value)
    except BaseException:  # noqa: BLE001 - the value's own code
        return f"a {type(value).__name__}"


def _kind(error: BaseException) -> str:
    return type(error).__name__
