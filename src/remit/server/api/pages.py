"""Answers as JSON, page by page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, TypeVar

import orjson
from fastapi import Response

from remit.kernel.errors import InvalidInputError
from remit.ledger import Erased, LedgerEntry

__all__ = ["Listed", "answer", "page_of", "slice_of"]

_FULL_BYTES = 8 * 1024 * 1024

_T = TypeVar("_T")

Listed = tuple[str, str, Any]
"""A cursor, the list that the item belongs to, and the item."""


def answer(value: Any, status: int = 200) -> Response:
    """A JSON answer; entries and erased content as the command line shows them."""
    return Response(_dump(value), status, media_type="application/json")


def page_of(found: Iterable[Listed], limit: int, *lists: str) -> dict[str, Any]:
    """The first ``limit`` items, in their lists, and the cursor to go on from.

    A page ends earlier when it has grown large: prompts can be megabytes each. It has at least
    one item, so that paging comes to an end.
    """
    page: dict[str, Any] = {name: [] for name in lists}
    size, last, number = 0, "", 0
    for cursor, name, item in found:
        if number == limit or size >= _FULL_BYTES:
            return {**page, "next_cursor": last}
        encoded = _dump(item)
        page[name].append(orjson.Fragment(encoded))
        size, last, number = size + len(encoded), cursor, number + 1
    return {**page, "next_cursor": None}


def slice_of(
    items: Sequence[_T], cursors: Iterable[str], cursor: str | None, limit: int
) -> tuple[list[_T], str | None]:
    """The items after ``cursor``, and the cursor of the next page.

    Raises:
        InvalidInputError: the list has no such cursor.
    """
    places = list(cursors)
    first = 0
    if cursor is not None:
        if cursor not in places:
            raise InvalidInputError("The cursor is unknown.", next_step="Begin again without one.")
        first = places.index(cursor) + 1
    end = first + limit
    more = places[end - 1] if end < len(places) else None
    return list(islice(items, first, end)), more


def _dump(value: Any) -> bytes:
    return orjson.dumps(value, default=_plain, option=orjson.OPT_PASSTHROUGH_DATACLASS)


def _plain(value: Any) -> Any:
    if isinstance(value, Erased):
        return {"$erased": value.erasure_id}
    if isinstance(value, LedgerEntry):
        return value.to_dict()
    raise TypeError(type(value).__name__)
