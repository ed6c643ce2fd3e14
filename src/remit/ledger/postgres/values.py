"""Values as PostgreSQL's protocol carries them, to the server and from it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import asyncpg

_NULL = b"\xff\xff\xff\xff"
_AS_TEXT, _AS_BINARY = b"\x00\x00", b"\x00\x01"
_count = struct.Struct("!H").pack
_int32 = struct.Struct("!i").pack
_array_head = struct.Struct("!iiiii").pack
_array_int = struct.Struct("!iq").pack
_read_int32 = struct.Struct("!i").unpack_from

_TYPES = {"bytea": 17, "bigint": 20, "text": 25}
_READ: dict[int, Callable[[str], Any]] = {
    16: "t".__eq__,
    17: lambda text: bytes.fromhex(text[2:]),
    **dict.fromkeys((20, 21, 23, 26), int),
    **dict.fromkeys((700, 701), float),
    1700: Decimal,
}
"""By the number of a type, what reads its text; all others stay text."""


class Array(NamedTuple):
    """A parameter of many values, each of type ``bigint``, ``bytea`` or ``text``, or ``None``."""

    type: str
    values: Sequence[Any]


def to_bind(parameters: Sequence[Any]) -> list[bytes]:
    """The parts of a Bind message after the names of portal and statement."""
    formats: list[bytes] = []
    values: list[bytes] = []
    for parameter in parameters:
        form = _AS_TEXT
        if parameter is None:
            values.append(_NULL)
        else:
            if isinstance(parameter, str):
                value = _encoded(parameter)
            elif isinstance(parameter, int):  # True is 1, for a number and for a truth
                value = b"%d" % parameter
            elif isinstance(parameter, float):
                value = repr(parameter).encode()
            else:
                form = _AS_BINARY
                value = _array(parameter) if isinstance(parameter, Array) else _bytes(parameter)
            values += (_int32(len(value)), value)
        formats.append(form)
    count = _count(len(formats))
    return [count, *formats, count, *values, b"\x00\x00"]


def _array(array: Array) -> bytes:
    """The binary form of an array of one dimension."""
    number, values = _TYPES[array.type], array.values
    parts = [_array_head(1, None in values, number, len(values), 1)]
    for value in values:
        if value is None:
            parts.append(_NULL)
        elif number == 20:
            parts.append(_array_int(8, value))
        else:
            element = _encoded(value) if number == 25 else bytes(value)
            parts += (_int32(len(element)), element)
    return b"".join(parts)


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:  # as the server says of bytes that are no text
        raise asyncpg.CharacterNotInRepertoireError(str(error)) from error


def _bytes(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise asyncpg.DatatypeMismatchError(f"a {type(value).__name__} cannot be stored")


def readers_of(body: bytes) -> list[Callable[[str], Any]]:
    """What reads each column, from a RowDescription."""
    readers = []
    at = 2
    for _ in range(int.from_bytes(body[:2], "big")):
        at = body.index(b"\x00", at) + 7  # its name, table and place
        readers.append(_READ.get(_read_int32(body, at)[0], str))
        at += 12
    return readers


def row_of(body: bytes, readers: Sequence[Callable[[str], Any]]) -> tuple[Any, ...]:
    """The values of a DataRow."""
    values: list[Any] = []
    at = 2
    for reader in readers:
        length = _read_int32(body, at)[0]
        at += 4
        if length < 0:
            values.append(None)
        else:
            values.append(reader(str(body[at : at + length], "utf-8")))
            at += length
    return tuple(values)
