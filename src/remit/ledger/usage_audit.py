"""Audit of ``usage`` against the entries, hour by hour: memory does not grow with them."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from remit.ledger.marks import keep_mark, read_mark
from remit.ledger.state import locked
from remit.ledger.usage import (
    DIMENSIONS,
    INSERT,
    INSERT_KEY,
    QUARTER_S,
    SUMS,
    USAGE_EVENTS,
    Row,
    added,
    quarter_of,
    rows_of,
)

if TYPE_CHECKING:
    from remit.ledger.client import LedgerClient
    from remit.ledger.ranges import ArchivedRange
    from remit.ledger.state import Select
    from remit.ledger.store import Transaction

__all__ = [
    "UsageDifference", "archived_usage", "archived_usage_problem", "audit_usage", "carried_usage",
]  # fmt: skip

_MARK = "usage"
_MAX_DIFFERENCES = 1000
_IN_HOUR = 4
_KEY = len(DIMENSIONS) + 1
_NO_END = 1 << 62
_PAGE = 4096
_LIVE = (
    f"SELECT quarter, {', '.join((*DIMENSIONS, *SUMS))} FROM usage "
    "WHERE quarter >= ? AND quarter < ?"
)
# Found by the index of times, as that of event types would read every hour. A page goes on behind
# the last entry's number: a stored time never leaves the database, so none can be misread.
_ENTRIES = (
    "SELECT seq, timestamp, event_type, record FROM entries WHERE timestamp < ? "
    f"AND event_type || '' IN ({', '.join(map(repr, USAGE_EVENTS))}) AND seq >= ? AND seq < ? "
    "AND (timestamp, seq) > (coalesce((SELECT timestamp FROM entries WHERE seq = ?), ?), ?) "
    f"ORDER BY timestamp, seq LIMIT {_PAGE}"
)
_DELETE = f"DELETE FROM usage WHERE quarter = ? AND {' AND '.join(f'{n} = ?' for n in DIMENSIONS)}"
_KEYS = "SELECT key_id, name, user_id, team_id, organisation_id FROM usage_keys"
_DELETE_KEY = "DELETE FROM usage_keys WHERE key_id = ?"
_MADE = (
    "SELECT timestamp, event_type, record FROM entries WHERE event_type = 'KEY_CREATED' "
    "ORDER BY seq"
)
_HOURS = "SELECT DISTINCT substr(timestamp, 1, 13) FROM entries"
_QUARTERS = "SELECT DISTINCT quarter FROM usage WHERE quarter >= ? AND quarter < ?"
_HOUR = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _END = (int((day - _EPOCH).total_seconds()) // 3600 for day in (
    datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC),
))  # fmt: skip
"""Hours since 1970 that have a date."""
_OUTER = (_FIRST * _IN_HOUR, _END * _IN_HOUR)
_OUTSIDE_OF = "FROM usage WHERE quarter < ? OR quarter >= ?"
_OUTSIDE = f"SELECT DISTINCT quarter {_OUTSIDE_OF}"


class UsageDifference(NamedTuple):
    """A value of a row that differs from the sum of the entries.

    Attributes:
        row: the row's quarter hour and dimensions.
        field: the column; ``row`` if a whole row is missing or superfluous.
        live: the value in the table, or whether the row exists.
        ledger: the value by the entries.
    """

    row: str
    field: str
    live: int | str | None
    ledger: int | str | None


def audit_usage(
    ledger: LedgerClient, *, repair: bool = False, since_mark: bool = False
) -> list[UsageDifference]:
    """Return the first thousand figures that differ between the table and the entries.

    The tables are ``usage`` and ``usage_keys``. Entries written during the audit are no difference.
    A mark is written for later audits.

    Args:
        ledger: the ledger with both.
        repair: True to correct the rows, each hour in a transaction of its own; hours with archived
            entries are not corrected. The differences are returned as they were before.
        since_mark: True to read only the entries of hours that changed since this root's last
            audit; the rows of other hours are compared with that audit.

    Returns:
        The differences, by hour, the keys last; empty if there are none.

    Raises:
        LedgerWriteError: ``repair`` is True, and the ledger cannot be written.
    """
    end, archived = _archived(ledger)
    mark = read_mark(ledger, _MARK) if since_mark else {}
    known: dict[str, str] = mark.get("hours", {})
    size = ledger.count()
    where, given = (" WHERE seq >= ?", (mark["size"],)) if mark else ("", ())
    new = {hour for (hour,) in ledger.select(_HOURS + where, given)}
    found = [
        UsageDifference(f"usage of quarter {quarter}", "row", "there", "missing")
        for (quarter,) in ledger.select(f"{_OUTSIDE} LIMIT {_MAX_DIFFERENCES}", _OUTER)
    ]
    if repair and found:
        ledger.transact(lambda tx: tx.execute(f"DELETE {_OUTSIDE_OF}", _OUTER))
    digests: dict[str, str] = {}
    for hour in _hours(ledger.select, new | known.keys()):
        name = _text(hour)
        live = _live(ledger.select, hour)
        if name not in new and known.get(name) == _digest(live):
            digests[name] = known[name]
            continue
        differing: list[UsageDifference] = []
        if name in archived:
            differing, live = _check_archived(ledger, hour, end, archived[name])
            found += differing[: _MAX_DIFFERENCES - len(found)]
        elif live != _expected(ledger.select, hour, end, _NO_END):
            differing, live = _settle(ledger, hour, end, repair=repair)
            found += differing[: _MAX_DIFFERENCES - len(found)]
        if not differing or (repair and name not in archived):
            digests[name] = _digest(live)
    found += _audit_keys(ledger, repair=repair)[: _MAX_DIFFERENCES - len(found)]
    keep_mark(ledger, _MARK, size, {"hours": digests})
    return found


def _audit_keys(ledger: LedgerClient, *, repair: bool) -> list[UsageDifference]:
    """Compare ``usage_keys`` with the entries that made keys."""

    def compare(select: Select) -> list[tuple[Row, Row | None, Row | None]]:
        made: dict[Any, Row] = {}
        entries = ((time, event, _as_read(data)) for time, event, data in select(_MADE, ()))
        for _, row in rows_of(entries):
            made.setdefault(row[0], row)
        live = {row[0]: tuple(row) for row in select(_KEYS, ())}
        return [
            (key, live.get(key), made.get(key))
            for key in {**live, **made}
            if live.get(key) != made.get(key)
        ]

    def repaired(tx: Transaction) -> list[tuple[Row, Row | None, Row | None]]:
        found = compare(tx.execute)
        tx.execute_many(_DELETE_KEY, [(key,) for key, *_ in found])
        tx.execute_many(INSERT_KEY, [made for _, _, made in found if made is not None])
        return found

    wrong = compare(ledger.select)
    if wrong:
        wrong = ledger.transact(repaired) if repair else locked(ledger, compare)
    return [
        UsageDifference(f"usage_keys {key}", "row", *(_said(one) for one in both))
        for key, *both in wrong
    ]


def _said(row: Row | None) -> str:
    return "missing" if row is None else " ".join(map(str, row[1:])) or "there"


def _hours(select: Select, texts: Set[Any]) -> list[int]:
    """Return the hours since 1970 that have entries or rows.

    Args:
        select: runs a query.
        texts: the first 13 characters of entries' times. Damaged ones name no hour; the check of
            the records reports them.
    """
    hours = {quarter // _IN_HOUR for (quarter,) in select(_QUARTERS, _OUTER)
             if type(quarter) is int}  # fmt: skip
    for text in texts:
        if isinstance(text, str) and _HOUR.fullmatch(text):
            with contextlib.suppress(ValueError):
                hours.add(quarter_of(f"{text}:00") // _IN_HOUR)
    return sorted(hours)


def _text(hour: int) -> str:
    """Return the first 13 characters of the times in an hour."""
    return (_EPOCH + timedelta(hours=hour)).isoformat()[:13]


def _live(select: Select, hour: int) -> dict[Row, Row]:
    rows = select(_LIVE, (hour * _IN_HOUR, (hour + 1) * _IN_HOUR))
    return {row[:_KEY]: row[_KEY:] for row in map(tuple, rows)}


def _expected(select: Select, hour: int, first: int, end: int) -> dict[Row, Row]:
    """Return the rows that the entries of an hour add up to, from ``first`` to before ``end``."""
    sums: list[Row] = []
    low, high = _text(hour), _text(hour + 1)
    last = -1
    while True:
        rows = select(_ENTRIES, (high, first, end, last, low, last))
        entries = ((time, event, _as_read(data)) for _, time, event, data in rows)
        sums = added(chain(sums, (row for _, row in rows_of(entries))))
        if len(rows) < _PAGE:
            return {row[:_KEY]: row[_KEY:] for row in sums}
        last = rows[-1][0]


def _as_read(record: Any) -> bytes | str:
    return record if isinstance(record, (str, bytes)) else bytes(record)


def _settle(
    ledger: LedgerClient, hour: int, first: int, *, repair: bool
) -> tuple[list[UsageDifference], dict[Row, Row]]:
    """Return the differences of an hour while nobody else writes, and its rows afterwards.

    Args:
        ledger: the ledger.
        hour: the hour since 1970.
        first: first sequence number that is not archived.
        repair: True to correct the rows.
    """
    size = ledger.count()
    before = _expected(ledger.select, hour, first, size)  # most of it, not under the lock

    def compare(select: Select) -> tuple[dict[Row, Row], dict[Row, Row]]:
        since = _expected(select, hour, size, _NO_END)
        both = added((*key, *sums) for part in (before, since) for key, sums in part.items())
        return _live(select, hour), {row[:_KEY]: row[_KEY:] for row in both}

    def repaired(tx: Transaction) -> tuple[dict[Row, Row], dict[Row, Row]]:
        live, expected = compare(tx.execute)
        wrong = [key for key in {**live, **expected} if live.get(key) != expected.get(key)]
        tx.execute_many(_DELETE, [key for key in wrong if key in live])
        tx.execute_many(INSERT, [(*key, *expected[key]) for key in wrong if key in expected])
        return live, expected

    live, expected = ledger.transact(repaired) if repair else locked(ledger, compare)
    return _compare(live, expected), expected if repair else live


def carried_usage(ledger: LedgerClient, first: int, end: int) -> dict[str, str]:
    """Return a digest of the rows of each hour with an entry from ``first`` to before ``end``.

    Amounts of entries at or after ``end`` are subtracted. The ledger is only read.

    Args:
        ledger: the ledger.
        first: the first sequence number.
        end: the first sequence number after the range.

    Returns:
        A SHA-256 in hex by hour, such as ``2026-01-31T12``.
    """
    hours = ledger.select(f"{_HOURS} WHERE seq >= ? AND seq < ?", (first, end))
    found = {}
    for (text,) in sorted(hours):
        hour = quarter_of(f"{text}:00") // _IN_HOUR
        found[text] = locked(ledger, functools.partial(_before, hour, end))
    return found


def _archived(ledger: LedgerClient) -> tuple[int, dict[str, str]]:
    """Return the end of the archived entries, and the digest of each of their hours."""
    ranges = ledger.archived_ranges()
    return ranges[-1].end if ranges else 0, _hours_of(ranges)


def _hours_of(ranges: Sequence[ArchivedRange]) -> dict[str, str]:
    hours: dict[str, str] = {}
    for one in ranges:
        hours |= one.carried.get("usage", {})
    return hours


def archived_usage(select: Select, ranges: Sequence[ArchivedRange]) -> Iterator[Row]:
    """Yield the rows of ``usage`` of archived hours, which do not follow from the present entries.

    Args:
        select: runs a query.
        ranges: the archived ranges.
    """
    for text in _hours_of(ranges):
        for key, sums in _live(select, quarter_of(f"{text}:00") // _IN_HOUR).items():
            yield *key, *sums


def archived_usage_problem(select: Select, end: int, hours: Mapping[str, str]) -> str:
    """Return a difference between the table and the recorded digests of archived hours.

    The text is empty if there is none. Hours without archived entries must have no rows.

    Args:
        select: reads the ledger.
        end: first sequence number after the archived entries.
        hours: the recorded digest of each hour.
    """
    for (quarter,) in select("SELECT DISTINCT quarter FROM usage", ()):
        if not _OUTER[0] <= quarter < _OUTER[1] or _text(quarter // _IN_HOUR) not in hours:
            return "usage has a row of an hour without archived entries"
    for text, digest in hours.items():
        if _before(quarter_of(f"{text}:00") // _IN_HOUR, end, select) != digest:
            return f"usage of the hour {text} is not as when its entries were archived"
    return ""


def _before(hour: int, end: int, select: Select) -> str:
    """Return the digest of an hour's rows without the amounts of entries from ``end``."""
    live = _live(select, hour)
    for key, later in _expected(select, hour, end, _NO_END).items():
        there = live.get(key, (0,) * len(later))
        live[key] = tuple(one - two for one, two in zip(there, later, strict=True))
    return _digest({key: sums for key, sums in live.items() if any(sums)})


def _check_archived(
    ledger: LedgerClient, hour: int, end: int, digest: str
) -> tuple[list[UsageDifference], dict[Row, Row]]:
    """Return the differences of an hour with archived entries, and its rows."""

    def look(select: Select) -> tuple[str, dict[Row, Row]]:
        return _before(hour, end, select), _live(select, hour)

    found, live = look(ledger.select)
    if found != digest:
        found, live = locked(ledger, look)
    if found == digest:
        return [], live
    name = f"usage of the hour {_text(hour)}, whose entries were archived"
    return [UsageDifference(name, "row", "others", "as when they were archived")], live


def _compare(live: dict[Row, Row], expected: dict[Row, Row]) -> list[UsageDifference]:
    return [
        one
        for key in {**live, **expected}
        if live.get(key) != expected.get(key)
        for one in _differences(key, live.get(key), expected.get(key))
    ]


def _differences(key: Row, live: Row | None, expected: Row | None) -> Iterator[UsageDifference]:
    quarter, *names = key
    begins = (_EPOCH + timedelta(seconds=quarter * QUARTER_S)).isoformat()[:16]
    said = [f"{name}={one}" for name, one in zip(DIMENSIONS, names, strict=True) if one]
    row = " ".join(["usage", f"{begins}Z", *said])
    if live is None or expected is None:
        there = ["missing" if one is None else "there" for one in (live, expected)]
        yield UsageDifference(row, "row", *there)
        return
    for name, one, other in zip(SUMS, live, expected, strict=True):
        if one != other:
            yield UsageDifference(row, name, one, other)


def _digest(rows: dict[Row, Row]) -> str:
    """Return a hash over rows, whatever they contain."""
    text = repr(sorted(repr((*key, *sums)) for key, sums in rows.items()))
    return hashlib.sha256(text.encode()).hexdigest()
