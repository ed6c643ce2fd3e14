"""The sum of stream pieces for fields with no special rule.

Strings are joined, nested objects merged, lists of objects with an ``index`` merged by it, other
lists continued, and everything else replaced. ``null`` replaces nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remit.kernel.exchange import text_of

_LABELS = frozenset({"id", "type", "role", "format", "object", "status", "call_id"})
"""Strings that name a thing: a server may repeat them in each piece, and none sends parts."""

_DEEPEST = 16
"""Levels that are added up; what lies deeper is replaced."""


class Pieces(list[str]):
    """The pieces of a text of which more may come.

    Attributes:
        joins: how often the pieces were joined in place.
    """

    __slots__ = ("joins",)

    def __init__(self, pieces: Iterable[str] = ()) -> None:
        super().__init__(pieces)
        self.joins = 0

    def join(self) -> str:
        """Join the pieces in place and return the text."""
        if len(self) != 1:
            self[:] = ("".join(self),)
            self.joins += 1
        return self[0]


class Cursor:
    """The part of a growing text that was read.

    Attributes:
        size: number of characters read.
    """

    __slots__ = ("_index", "_joins", "size")

    def __init__(self) -> None:
        self.size = 0
        self._index = self._joins = 0

    def new(self, value: Pieces | str | list[Any]) -> str:
        """Return the text that was added since the last call.

        Args:
            value: the text: pieces, a text, or a list of parts with texts.
        """
        if type(value) is Pieces and value.joins == self._joins and self._index >= 0:
            text = "".join(value[self._index :])
        else:  # joined since the last call, or in another form
            text = self.text(value)[self.size :]
        self._index, self._joins = (
            (len(value), value.joins) if type(value) is Pieces else (-1, self._joins)
        )
        self.size += len(text)
        return text

    def text(self, value: Any) -> str:
        """Return a whole text in any of the forms of :meth:`new`; empty for any other value."""
        return "".join(value) if type(value) is Pieces else text_of(settled(value))


def grow(into: dict[str, Any], delta: dict[str, Any], depth: int = 0) -> None:
    """Add one piece to the sum; :func:`settled` reads the sum.

    Texts are appended, but labels such as ``id`` and ``type`` replace the earlier ones. Objects
    grow member by member, elements of lists by their ``index``. A null replaces nothing.

    Args:
        into: the sum; changed in place.
        delta: the piece; not changed, but may share values with ``into`` afterwards.
    """
    for key, value in delta.items():
        have = into.get(key)
        if value is None:
            into.setdefault(key, None)
        elif type(value) is str:
            if key in _LABELS:
                if value or have is None:
                    into[key] = value
            elif type(have) is Pieces:
                # A function's name comes whole, once or with each piece.
                if key != "name" or "".join(have) != value:
                    have.append(value)
            elif type(have) is list:  # parts first, a text then
                have.append({"type": "text", "text": value})
            elif type(have) is str:
                into[key] = Pieces((have, value))
            else:
                into[key] = Pieces((value,))
        elif depth >= _DEEPEST:
            into[key] = value
        elif type(value) is dict:
            if type(have) is not dict:
                have = into[key] = {}
            grow(have, value, depth + 1)
        elif type(value) is list:
            if type(have) is Pieces and any(have):  # a text first, parts then
                have = into[key] = [{"type": "text", "text": "".join(have)}]
            elif type(have) is not list:
                have = into[key] = []
            _grow_list(have, value, depth + 1)
        else:
            into[key] = value


def _grow_list(into: list[Any], more: list[Any], depth: int) -> None:
    if more and type(more[0]) is dict and _same(more, into):
        return
    for entry in more:
        index = entry.get("index") if type(entry) is dict else None
        if type(index) is not int:
            into.append(entry)
            continue
        for have in reversed(into):
            if type(have) is dict and have.get("index") == index:
                break
        else:
            have = {}
            into.append(have)
        grow(have, entry, depth)


def _same(one: list[Any], other: list[Any]) -> bool:
    try:
        return one == other
    except RecursionError:
        return False


def grow_calls(into: list[Any], more: list[Any]) -> None:
    """Add the pieces of tool calls in one delta to the known calls, in place."""
    for entry in more:
        if type(entry) is not dict:
            continue
        have = call_of(into, entry)
        if have is None:
            have = {}
            into.append(have)
        grow(have, entry)


def call_of(calls: list[Any], entry: dict[str, Any]) -> Any:
    """Return the call that a piece continues, or None if the piece begins a call.

    That is the latest call with its ``index``; without an ``index``, the latest of all. Some
    servers leave it out or give all calls the same one: a piece with a name begins a call if its
    ``id`` differs, or if it has neither ``id`` nor ``index``.

    Args:
        calls: objects with ``index`` and ``id``, in the order in which they began.
        entry: one element of a delta's ``tool_calls``.
    """
    index, identity = entry.get("index"), entry.get("id")
    found = None
    for call in reversed(calls):
        if type(index) is not int or call.get("index") == index:
            found = call
            break
    if found is not None and _has_name(entry):
        known = found.get("id")
        if (identity and known and identity != known) or (not identity and type(index) is not int):
            return None
    return found


def _has_name(call: dict[str, Any]) -> bool:
    function = call.get("function") or call.get("custom")
    return type(function) is dict and bool(function.get("name"))


def settled(value: Any, depth: int = 0) -> Any:
    """Return the result of :func:`grow` with its texts joined.

    The pieces are joined in place too, so that a long text is not in memory twice. Objects and
    lists of the result are new.
    """
    if type(value) is Pieces:
        return value.join()
    if depth > 2 * _DEEPEST + 4:  # a list and the object in it count one level in grow
        return value
    if type(value) is dict:
        return {key: settled(each, depth + 1) for key, each in value.items()}
    if type(value) is list:
        return [settled(each, depth + 1) for each in value]
    return value
