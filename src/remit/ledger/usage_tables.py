"""The tables ``usage`` and ``usage_keys`` as folds over entries.

The entries of archived hours are not in the database: the record carries a digest of such an hour's
rows.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING

from remit.ledger.entry_reader import as_bytes, pages
from remit.ledger.projection import Projection
from remit.ledger.table_checks import locked
from remit.ledger.usage import (
    DIMENSIONS,
    KEY_COLUMNS,
    MAX_SUM,
    QUARTER_S,
    SUMS,
    USAGE_EVENTS,
    Row,
    added,
    key_of,
    quarter_of,
    rows_of,
    usage_of,
)

if TYPE_CHECKING:
    from remit.ledger.archived_ranges import ArchivedRange
    from remit.ledger.client import LedgerClient
    from remit.ledger.entry import LedgerEntry
    from remit.ledger.projection import State
    from remit.ledger.table_checks import Finding, Select

_IN_HOUR = 4
_KEY = len(DIMENSIONS) + 1
_PAGE = 4096
_EVENTS = f"event_type || '' IN ({', '.join(map(repr, USAGE_EVENTS))})"
_LIVE = (
    f"SELECT quarter, {', '.join((*DIMENSIONS, *SUMS))} FROM usage "
    "WHERE quarter >= ? AND quarter < ?"
)
# Found by the index of times, as that of event types would read every hour. A page starts after
# the last entry's number: a stored time never leaves the database, so none can be misread.
_ENTRIES = (
    "SELECT seq, timestamp, event_type, record FROM entries WHERE timestamp < ? "
    f"AND {_EVENTS} AND seq >= ? "
    "AND (timestamp, seq) > (coalesce((SELECT timestamp FROM entries WHERE seq = ?), ?), ?) "
    f"ORDER BY timestamp, seq LIMIT {_PAGE}"
)
_BEFORE_END = (
    "SELECT seq, timestamp, event_type, record FROM entries WHERE seq BETWEEN ? AND ? "
    f"AND {_EVENTS} ORDER BY seq"
)
_HOURS = "SELECT DISTINCT substr(timestamp, 1, 13) FROM entries"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _END = (int((day - _EPOCH).total_seconds()) // 3600 for day in (
    datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC),
))  # fmt: skip
"""Hours since 1970 that have a date."""


_COLUMNS = {"usage": ("quarter", *DIMENSIONS, *SUMS), "usage_keys": KEY_COLUMNS}


def _text(hour: int) -> str:
    """Return the first 13 characters of the times in an hour."""
    return (_EPOCH + timedelta(hours=hour)).isoformat()[:13]


def _live(select: Select, hour: int) -> dict[Row, Row]:
    rows = select(_LIVE, (hour * _IN_HOUR, (hour + 1) * _IN_HOUR))
    return {row[:_KEY]: row[_KEY:] for row in map(tuple, rows)}


def _expected(select: Select, hour: int, first: int) -> dict[Row, Row]:
    """Return the rows that the entries of an hour from ``first`` on add up to."""
    sums: list[Row] = []
    low, high = _text(hour), _text(hour + 1)
    last = -1
    while True:
        rows = select(_ENTRIES, (high, first, last, low, last))
        entries = ((time, event, as_bytes(data)) for _, time, event, data in rows)
        sums = added(chain(sums, (row for _, row in rows_of(entries))))
        if len(rows) < _PAGE:
            return {row[:_KEY]: row[_KEY:] for row in sums}
        last = rows[-1][0]


def carried_usage(ledger: LedgerClient, first: int, end: int) -> dict[str, str]:
    """Return a digest of the rows of each hour with an entry from ``first`` to before ``end``.

    Amounts of entries at or after ``end`` are subtracted. The ledger is only read, each hour in a
    transaction.

    Args:
        ledger: the ledger.
        first: the first sequence number.
        end: the first sequence number after the range.

    Returns:
        A SHA-256 in hex by hour, such as ``2026-01-31T12``, ascending.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    hours = ledger.select(f"{_HOURS} WHERE seq >= ? AND seq < ?", (first, end))
    found = {}
    for (text,) in sorted(hours):
        hour = quarter_of(f"{text}:00") // _IN_HOUR
        found[text] = locked(ledger, functools.partial(_before, hour, end))
    return found


def _hours_of(ranges: Sequence[ArchivedRange]) -> dict[str, str]:
    hours: dict[str, str] = {}
    for one in ranges:
        hours |= one.carried.get("usage", {})
    return hours


def archived_usage(select: Select, ranges: Sequence[ArchivedRange]) -> Iterator[Row]:
    """Yield the rows of ``usage`` of hours with archived entries, which do not follow from the
    present entries.

    Args:
        select: runs a query; its errors are raised.
        ranges: the archived ranges.
    """
    for text in _hours_of(ranges):
        for key, sums in _live(select, quarter_of(f"{text}:00") // _IN_HOUR).items():
            yield *key, *sums


def archived_usage_problem(select: Select, end: int, hours: Mapping[str, str]) -> str:
    """Return a difference between the table and the recorded digests of archived hours.

    The text is a clause about the first difference, empty if there is none. Hours without archived
    entries must have no rows.

    Args:
        select: reads the ledger; its errors are raised.
        end: first sequence number after the archived entries.
        hours: the recorded digest of each hour.
    """
    for (quarter,) in select("SELECT DISTINCT quarter FROM usage", ()):
        if (
            not _FIRST * _IN_HOUR <= quarter < _END * _IN_HOUR
            or _text(quarter // _IN_HOUR) not in hours
        ):
            return "usage has a row of an hour without archived entries"
    for text, digest in hours.items():
        if _before(quarter_of(f"{text}:00") // _IN_HOUR, end, select) != digest:
            return f"usage of the hour {text} is not as when its entries were archived"
    return ""


def _begin_usage(ledger: LedgerClient, state: State, table: str) -> Iterator[Finding]:
    """Set the rows of ``usage`` that the entries before the end of the archived ranges came to.

    Rows of an hour with archived entries are taken from the table if their digest is the recorded
    one; otherwise a finding is yielded, and they are taken all the same, so that none is repaired.

    Args:
        ledger: the ledger.
        state: the folded rows, which are changed.
        table: ``usage``.
    """
    ranges = ledger.archived_ranges()
    if not ranges:
        return
    end, hours = ranges[-1].end, _hours_of(ranges)
    for page in pages(ledger.select, _BEFORE_END, 0, end - 1, _PAGE):
        entries = [(time, event, as_bytes(data)) for _, time, event, data in page
                   if time[:13] not in hours]  # fmt: skip
        for _, row in rows_of(entries):
            _add(state, table, row)
    for text, digest in hours.items():
        look = functools.partial(_amounts_before, quarter_of(f"{text}:00") // _IN_HOUR, end)
        rows = look(ledger.select)
        if _digest(rows) != digest and _digest(rows := locked(ledger, look)) != digest:
            yield (
                None,
                (
                    f"usage of the hour {text}, whose entries were archived, is not as it was when "
                    "they were archived"
                ),
            )
        for key, sums in rows.items():
            _add(state, table, (*key, *sums))


def _amounts_before(hour: int, end: int, select: Select) -> dict[Row, Row]:
    """Return an hour's rows without the amounts of entries from ``end``."""
    live = _live(select, hour)
    for key, later in _expected(select, hour, end).items():
        there = live.get(key, (0,) * len(later))
        live[key] = tuple(one - two for one, two in zip(there, later, strict=True))
    return {key: sums for key, sums in live.items() if any(sums)}


def _before(hour: int, end: int, select: Select) -> str:
    """Return the digest of an hour's rows without the amounts of entries from ``end``."""
    return _digest(_amounts_before(hour, end, select))


def _digest(rows: dict[Row, Row]) -> str:
    """Return a SHA-256 in hex over rows with any values."""
    text = repr(sorted(repr((*key, *sums)) for key, sums in rows.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def _add(state: State, table: str, row: Row) -> None:
    """Add a row's amounts to the folded row with its key; the first row of a key of a user stays.

    Args:
        state: the folded rows, which are changed.
        table: ``usage`` or ``usage_keys``.
        row: the row, as :func:`rows_of` yields it.
    """
    width = _KEY if table == "usage" else 1
    known = state.get(table, *row[:width])
    if known is None:
        known = dict(zip(_COLUMNS[table], row, strict=True))
    elif table == "usage":
        for name, amount in zip(SUMS, row[width:], strict=True):
            known[name] = min(known[name] + amount, MAX_SUM)
    else:
        return
    state.put(table, known)


def _fold(state: State, entry: LedgerEntry, seq: int) -> None:
    metadata = entry.metadata
    if (row := usage_of(entry.event_type, metadata, metadata)) is not None:
        _add(state, "usage", (quarter_of(entry.timestamp[:16]), *row))


def _fold_key(state: State, entry: LedgerEntry, seq: int) -> None:
    if (row := key_of(entry.event_type, entry.metadata)) is not None:
        _add(state, "usage_keys", row)


def _describe(key: Row) -> str:
    quarter, *names = key
    try:
        begins = (_EPOCH + timedelta(seconds=quarter * QUARTER_S)).isoformat()[:16] + "Z"
    except (TypeError, OverflowError):
        begins = f"quarter {quarter}"
    return " ".join([begins, *(f"{name}={one}" for name, one in zip(DIMENSIONS, names, strict=True)
                               if one)])  # fmt: skip


_REPAIR = "remit budget check --repair"
USAGE_TABLES = (
    Projection(
        "usage", ("quarter", *DIMENSIONS), SUMS, USAGE_EVENTS, _fold,
        imported=True, repair=_REPAIR, describe=_describe, begin=_begin_usage,
    ),
    Projection(
        "usage_keys", KEY_COLUMNS[:1], KEY_COLUMNS[1:], ("KEY_CREATED",), _fold_key,
        imported=True, repair=_REPAIR,
    ),
)  # fmt: skip
"""The tables ``usage`` and ``usage_keys``."""
