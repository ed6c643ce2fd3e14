"""Queries: the arguments of callers as filters, and pages that stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal, TypedDict

from remit.kernel.errors import InvalidInputError
from remit.ledger.entry import LedgerEntry, entry_id, parse_entry_id
from remit.ledger.reader import EntryRow, decode_record
from remit.ledger.record import is_plain_text
from remit.ledger.store import Filter, Store

Order = Literal["asc", "desc"]

_GREATEST = (1 << 63) - 1  # a 64-bit integer column
_FIRST_PAGE = 16  # small, for callers that want only the first match


class Equalities(TypedDict, total=False):
    """The columns a query may compare; ``None`` compares nothing."""

    event_type: str | None
    submission_id: str | None
    session_id: str | None
    work_order_id: str | None
    agent_id: str | None
    tier: str | None
    framework_id: str | None
    contract_id: str | None
    model_id: str | None
    outcome: str | None


def build_filter(
    equals: Equalities,
    since: str | datetime | None,
    until: str | datetime | None,
    after: str | int | None,
    limit: int | None,
    order: str,
) -> Filter:
    """A filter from a caller's arguments; raises InvalidInputError or TypeError."""
    if unknown := equals.keys() - Equalities.__annotations__.keys():
        raise TypeError(f"query() got an unexpected keyword argument {min(unknown)!r}")
    if order not in ("asc", "desc"):
        raise InvalidInputError(f"order is {order!r}; use 'asc' or 'desc'.")
    if limit is not None and limit < 0:
        raise InvalidInputError("limit is negative.")
    for name, value in equals.items():
        if value is not None and not is_plain_text(value):
            raise InvalidInputError(
                f"{name} is not a text, or holds a NUL character or a lone surrogate."
            )
    return Filter(
        equals={name: str(value) for name, value in equals.items() if value is not None},
        since=_instant(since),
        until=_instant(until),
        after=to_seq(after),
        descending=order == "desc",
    )


def pages(store: Store, where: Filter, limit: int | None, size: int) -> Iterator[list[EntryRow]]:
    """Matching rows, page by page, each fetched when it is needed."""
    left = limit
    now = _FIRST_PAGE if limit is None else size
    while left is None or left > 0:
        rows = store.page(where, now if left is None else min(now, left))
        if not rows:
            return
        yield rows
        left = None if left is None else left - len(rows)
        where = replace(where, after=rows[-1].seq)
        now = min(now * 4, size)


def find_orphans(store: Store, size: int) -> list[LedgerEntry]:
    """``DISPATCH`` entries with neither ``EXCHANGE`` nor ``EXCHANGE_ORPHANED``."""
    closed: set[str] = set()
    for event_type in ("EXCHANGE", "EXCHANGE_ORPHANED"):
        for rows in pages(store, Filter(equals={"event_type": event_type}), None, size):
            closed.update(
                str(decode_record(row)["metadata"].get("dispatch_entry_id", "")) for row in rows
            )
    return [
        entry
        for rows in pages(store, Filter(equals={"event_type": "DISPATCH"}), None, size)
        for entry in store.entries([row for row in rows if entry_id(row.seq) not in closed])
    ]


def to_seq(value: str | int | None) -> int | None:
    """A cursor, given as an id or a sequence number."""
    if isinstance(value, int):
        return max(-1, min(value, _GREATEST))
    if value is None:
        return None
    seq = parse_entry_id(value)
    if seq is None:
        raise InvalidInputError(
            f"The cursor {value!r} is not an entry id.", next_step="Ids look like LED-0000002a."
        )
    return min(seq, _GREATEST)


def _instant(value: str | datetime | None) -> str | None:
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError as error:
        raise InvalidInputError(
            f"{value!r} is not a time.", next_step="Use ISO 8601: 2026-01-31T12:00:00Z."
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        moment = moment.astimezone(UTC)
    except OverflowError as error:
        raise InvalidInputError(f"{value!r} is out of range.") from error
    return moment.isoformat(timespec="microseconds")[:-6] + "Z"
