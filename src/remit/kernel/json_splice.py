"""Exact JSON text: finding, cutting and splicing members without touching the bytes around.

White space, key order, repeated names, escapes and numbers of any size stay as the client or
provider wrote them. Every function expects text that :func:`remit.kernel.json_text.load` has
accepted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import msgspec
import orjson

from remit.kernel.json_text import JsonTextError, RepeatedNameError

# Possessive, as backtracking would take a hundred bytes for each escape.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_SPACE = re.compile(rb"[ \t\n\r]*")
_KEY = re.compile(rb'[ \t\n\r]*[{,][ \t\n\r]*"([^"\\]*)"[ \t\n\r]*:[ \t\n\r]*')
_CLOSE = re.compile(rb"[ \t\n\r]*}")
_BRACKETS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)
_SCALAR = re.compile(rb"[^ \t\n\r,\]}]+")
_OPEN = b"[{"
_raw_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raw_elements = msgspec.json.Decoder(list[msgspec.Raw])


class Member(NamedTuple):
    """A member of a JSON object: its name and the offsets of its parts in the text, in bytes.

    Attributes:
        name: the name, without escapes.
        start: offset of the name's opening quote.
        value: offset of the value's first byte.
        end: offset after the value's last byte.
    """

    name: str
    start: int
    value: int
    end: int


def members(text: bytes, at: int = 0) -> Iterator[Member]:
    """Yield the members of the object at ``at``, in order; a repeated name each time.

    Args:
        text: JSON text that :func:`load` has accepted; for another text JsonTextError or IndexError
            may be raised.
        at: offset of the object's ``{``, or of white space before it. This is not checked: at any
            other value the result is undefined.

    Yields:
        The name without escapes, and the offsets of the name, of the value, and after the value.
    """
    at = _skip(text, at) + 1
    while True:
        start = _skip(text, at)
        if text[start] == 0x7D:  # }
            return
        if text[start] == 0x2C:  # ,
            start = _skip(text, start + 1)
        name_end = _match_end(_STRING, text, start)
        value = _skip(text, _skip(text, name_end) + 1)
        at = _value_end(text, value)
        name = text[start + 1 : name_end - 1]
        yield Member(
            json.loads(text[start:name_end]) if b"\\" in name else name.decode(), start, value, at
        )


def member(text: bytes, name: str, at: int = 0) -> Member | None:
    """Return the last member called ``name``, as JSON readers do; ``None`` if there is none.

    Args:
        text: JSON text that :func:`load` has accepted.
        name: name of the member, without escapes.
        at: offset of the object; white space before it is skipped.
    """
    found = None
    for found_here in members(text, at):
        if found_here.name == name:
            found = found_here
    return found


def elements(array: bytes) -> list[bytes]:
    """Return the exact text of each element of an array, with the white space around it.

    ``b"[" + b",".join(elements(array)) + b"]"`` is ``array``; of an array without elements the list
    is empty, whatever white space it holds.

    Args:
        array: JSON text of an array that :func:`load` has accepted.
    """
    try:
        parts = _raw_elements.decode(array)
    except (msgspec.DecodeError, RecursionError):
        return _scanned_elements(array)
    found = list(map(bytes, parts))
    if b"[%b]" % b",".join(found) == array:
        return found
    if b"[%b]" % b", ".join(found) == array:
        return [b" " + part if number else part for number, part in enumerate(found)]
    at = array.index(b"[") + 1
    for number, part in enumerate(found):
        rest = _skip(array, _skip(array, at) + len(part))
        found[number] = array[at:rest]
        at = rest + 1
    return found


def _scanned_elements(array: bytes) -> list[bytes]:
    found: list[bytes] = []
    at = array.index(b"[") + 1
    if array[_skip(array, at)] == 0x5D:  # ]
        return found
    while True:
        end = _skip(array, _value_end(array, _skip(array, at)))
        found.append(array[at:end])
        at = end + 1
        if array[end] == 0x5D:
            return found


def spans(
    text: bytes, names: Collection[str], *, unique: bool = False
) -> dict[str, tuple[int, int]]:
    """Return start and end of the values of the given top-level members that exist, in the order of
    the text.

    Of a name that is there twice the last member counts. Names that do not exist are left out.

    Args:
        text: JSON text of an object that :func:`load` has accepted.
        names: names of the members.
        unique: True to refuse a text that has one of the names twice.

    Returns:
        By name, the offset of the value's first byte and the offset after its last.

    Raises:
        RepeatedNameError: one of the names is there twice, and ``unique`` is True.
    """
    found: dict[str, tuple[int, int]] = {}
    at = 0
    try:
        for name, value in _raw_members.decode(text).items():
            key = _KEY.match(text, at)
            exact = bytes(value)
            if key is None or key[1] != name.encode() or not text.startswith(exact, key.end()):
                break  # a name is there twice, or written with escapes
            start = key.end()
            at = start + len(exact)
            if name in names:
                found[name] = (start, at)
        else:
            if at and _CLOSE.match(text, at):
                return found
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        pass  # text that only the slower reader takes
    found = {}
    for member in members(text):
        if member.name in names:
            if unique and member.name in found:
                raise RepeatedNameError(f"{member.name} is there twice.")
            found[member.name] = (member.value, member.end)
    return dict(sorted(found.items(), key=lambda item: item[1]))


def value_at(text: bytes, path: Sequence[str]) -> bytes | None:
    """Return the exact text of the value at ``path``, not parsed and not formatted anew.

    Of a repeated name the last member counts, as for JSON readers. Arrays are not entered.

    Args:
        text: JSON text that :func:`load` has accepted.
        path: names from the top. Empty for the whole text, without white space before it but with
            any after it.

    Returns:
        The bytes of the value; ``None`` if there is no such member, or a value on the way is not an
        object.
    """
    at = _skip(text, 0)
    end = len(text)
    for name in path:
        if text[at : at + 1] != b"{" or (found := member(text, name, at)) is None:
            return None
        at, end = found.value, found.end
    return text[at:end]


def set_member(text: bytes, path: Sequence[str], value: bytes) -> bytes:
    """Return ``text`` with the member at ``path`` set to a JSON text; all other bytes stay.

    Objects on the way that are missing, or are ``null``, are made, even the outermost. A new member
    comes first in its object. Of a repeated name, also on the way, only the last member counts.

    Args:
        text: JSON text that :func:`load` has accepted.
        path: names from the top, at least one.
        value: JSON text of the new value, which is not checked.

    Raises:
        JsonTextError: a value on the way is not an object, or ``path`` is empty.
    """
    at = 0
    for depth, name in enumerate(path):
        start = _skip(text, at)
        if text[start] != 0x7B:  # {
            if text[start : start + 4] == b"null":
                return _replaced(text, start, start + 4, _nested(path[depth:], value))
            raise JsonTextError(f"{'/'.join(path[:depth])} is not an object.")
        found = member(text, name, at)
        if found is None:
            first = text[_skip(text, start + 1)] == 0x7D
            new = _nested(path[depth:], value)[1:-1] + (b"" if first else b",")
            return _replaced(text, start + 1, start + 1, new)
        if depth == len(path) - 1:
            return _replaced(text, found.value, found.end, value)
        at = found.value
    raise JsonTextError("the path is empty")


def remove_member(text: bytes, path: Sequence[str]) -> bytes:
    """Return ``text`` without the members at ``path``, and without their commas.

    If there is no such member, ``text`` is returned unchanged. A repeated last name is removed each
    time; of a repeated name on the way only the last member is entered. Arrays are not entered.

    Args:
        text: JSON text of an object that :func:`load` has accepted.
        path: names from the top, at least one.
    """
    at = 0
    for name in path[:-1]:
        found = member(text, name, at)
        if found is None or text[found.value] != 0x7B:
            return text
        at = found.value
    cuts: list[tuple[int, int]] = []
    comma = 0  # the place of the comma after the latest member that stays
    for found in members(text, at):
        following = _skip(text, found.end)
        is_last = text[following] != 0x2C
        if found.name != path[-1]:
            comma = following
        elif not is_last:
            cuts.append((found.start, following + 1))
        elif comma:
            cuts = [cut for cut in cuts if cut[0] < comma] + [(comma, found.end)]
        else:
            cuts.append((found.start, found.end))
    kept, done = [], 0
    for start, end in cuts:
        kept.append(text[done:start])
        done = end
    return b"".join((*kept, text[done:]))


def _nested(path: Sequence[str], value: bytes) -> bytes:
    for name in reversed(path):
        value = b"{" + orjson.dumps(name) + b":" + value + b"}"
    return value


def _replaced(text: bytes, start: int, end: int, new: bytes) -> bytes:
    return b"".join((text[:start], new, text[end:]))


def _skip(text: bytes, at: int) -> int:
    return _match_end(_SPACE, text, at)


def _match_end(pattern: re.Pattern[bytes], text: bytes, at: int) -> int:
    found = pattern.match(text, at)
    if found is None:
        raise JsonTextError(f"The text is not JSON at byte {at}.")
    return found.end()


def _value_end(text: bytes, at: int) -> int:
    first = text[at : at + 1]
    if first == b'"':
        return _match_end(_STRING, text, at)
    if not first or first not in _OPEN:
        return _match_end(_SCALAR, text, at)
    depth = 0
    for found in _BRACKETS.finditer(text, at):
        token = found.group()
        if token in (b"[", b"{"):
            depth += 1
        elif token in (b"]", b"}"):
            depth -= 1
            if not depth:
                return found.end()
    raise JsonTextError(f"The text is not JSON at byte {at}.")
