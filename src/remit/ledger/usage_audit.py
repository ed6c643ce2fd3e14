"""``usage`` held against the entries, hour by hour: memory does not grow with them."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from remit.ledger.errors import LedgerWriteError
from remit.ledger.marks import keep_mark, read_mark
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
    from remit.ledger.archived import ArchivedRange
    from remit.ledger.client import LedgerClient
    from remit.ledger.state import Select
    from remit.ledger.store import Transaction

__all__ = [
    "UsageDifference", "archived_usage", "archived_usage_problem", "audit_usage", "carried_usage",
]  # fmt: skip

_MARK = "usage"
_MOST_NAMED = 1000
_IN_HOUR = 4
_KEY = len(DIMENSIONS) + 1
_ALWAYS = 1 << 62
_AT_ONCE = 4096
_LIVE = (
    f"SELECT quarter, {', '.join((*DIMENSIONS, *SUMS))} FROM usage "
    "WHERE quarter >= ? AND quarter < ?"
)
# The index of times finds them; that of event types would find all hours'.
_ENTRIES = (
    "SELECT seq, timestamp, event_type, record FROM entries WHERE timestamp >= ? AND timestamp < ? "
    f"AND event_type || '' IN ({', '.join(map(repr, USAGE_EVENTS))}) AND seq >= ? AND seq < ? "
    f"AND (timestamp, seq) > (?, ?) ORDER BY timestamp, seq LIMIT {_AT_ONCE}"
)
_DELETE = f"DELETE FROM usage WHERE quarter = ? AND {' AND '.join(f'{n} = ?' for n in DIMENSIONS)}"
_KEYS = "SELECT key_id, name, user_id, team_id, organisation_id FROM usage_keys"
_DELETE_KEY = "DELETE FROM usage_keys WHERE key_id = ?"
_MADE = (
    "SELECT timestamp, event_type, record FROM entries WHERE event_type = 'KEY_CREATED' "
    "ORDER BY seq"
)
_SINCE = "SELECT DISTINCT substr(timestamp, 1, 13) FROM entries WHERE seq >= ?"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _END = (int((day - _EPOCH).total_seconds()) // 3600 for day in (
    datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC),
))  # fmt: skip
"""Hours since 1970 that have a date."""
_OUTER = (_FIRST * _IN_HOUR, _END * _IN_HOUR)
_OUTSIDE_OF = "FROM usage WHERE quarter < ? OR quarter >= ?"
_OUTSIDE = f"SELECT DISTINCT quarter {_OUTSIDE_OF}"


class UsageDifference(NamedTuple):
    """One figure of one row that differs from what the entries add up to.

    Attributes:
        row: its quarter of an hour and what it is of.
        field: which sum; ``row`` where one is missing, or is there and should not be.
        live: the figure, or whether the row is there.
        ledger: what the entries say.
    """

    row: str
    field: str
    live: int | str | None
    ledger: int | str | None


def audit_usage(
    ledger: LedgerClient, *, repair: bool = False, since_mark: bool = False
) -> list[UsageDifference]:
    """Compare the table with what the entries add up to; the first thousand figures that differ.

    What is written meanwhile is no difference.

    Args:
        ledger: has both in its database.
        repair: make the rows equal to the entries, each hour in a transaction of its own.
        since_mark: of hours to which no entry was added since this root's last audit, compare the
            rows with those of then, in place of reading the entries again.
    """
    end, archived = _archived(ledger)
    mark = read_mark(ledger, _MARK) if since_mark else {}
    known: dict[str, str] = mark.get("hours", {})
    size = ledger.count()
    new = {hour for (hour,) in ledger.select(_SINCE, (mark["size"],))} if mark else set()
    found = [
        UsageDifference(f"usage of quarter {quarter}", "row", "there", "missing")
        for (quarter,) in ledger.select(f"{_OUTSIDE} LIMIT {_MOST_NAMED}", _OUTER)
    ]
    if repair and found:
        ledger.transact(lambda tx: tx.execute(f"DELETE {_OUTSIDE_OF}", _OUTER))
    digests: dict[str, str] = {}
    for hour in _hours(ledger.select):
        name = _text(hour)
        live = _live(ledger.select, hour)
        if name in known and name not in new and known[name] == _digest(live):
            digests[name] = known[name]
            continue
        differing: list[UsageDifference] = []
        if name in archived:
            differing, live = _check_archived(ledger, hour, end, archived[name])
            found += differing[: _MOST_NAMED - len(found)]
        elif live != _expected(ledger.select, hour, end, _ALWAYS):
            differing, live = _settle(ledger, hour, end, repair=repair)
            found += differing[: _MOST_NAMED - len(found)]
        if not differing or (repair and name not in archived):
            digests[name] = _digest(live)
    found += _audit_keys(ledger, repair=repair)[: _MOST_NAMED - len(found)]
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

    wrong = compare(ledger.select)
    if not wrong:
        return []

    def call(tx: Transaction) -> list[tuple[Row, Row | None, Row | None]]:
        found = compare(tx.execute)
        if repair:
            tx.execute_many(
                "DELETE FROM usage_keys WHERE key_id = ?", [(key,) for key, *_ in found]
            )
            tx.execute_many(INSERT_KEY, [made for _, _, made in found if made is not None])
        return found

    try:
        wrong = ledger.transact(call)
    except LedgerWriteError:  # a read-only medium has no writers
        if repair:
            raise
    return [
        UsageDifference(f"usage_keys {key}", "row", *(_said(one) for one in both))
        for key, *both in wrong
    ]


def _said(row: Row | None) -> str:
    return "missing" if row is None else " ".join(map(str, row[1:])) or "there"


def _hours(select: Select) -> Iterator[int]:
    """Hours since 1970 of which there are entries or rows."""
    hour = _FIRST
    while hour < _END:
        [(time,)] = select(
            "SELECT min(timestamp) FROM entries WHERE timestamp >= ?", (_text(hour),)
        )
        [(quarter,)] = select(
            "SELECT min(quarter) FROM usage WHERE quarter >= ? AND quarter < ?",
            (hour * _IN_HOUR, _END * _IN_HOUR),
        )
        hours = [] if quarter is None else [quarter // _IN_HOUR]
        with contextlib.suppress(ValueError):  # verification says that it is no time
            hours += [] if time is None else [quarter_of(time) // _IN_HOUR]
        if not hours:
            return
        yield min(hours)
        hour = min(hours) + 1


def _text(hour: int) -> str:
    """How the times of an hour begin."""
    return (_EPOCH + timedelta(hours=hour)).isoformat()[:13]


def _live(select: Select, hour: int) -> dict[Row, Row]:
    rows = select(_LIVE, (hour * _IN_HOUR, (hour + 1) * _IN_HOUR))
    return {row[:_KEY]: row[_KEY:] for row in map(tuple, rows)}


def _expected(select: Select, hour: int, first: int, end: int) -> dict[Row, Row]:
    """What the entries of an hour add up to, of those from ``first`` and before ``end``."""
    sums: list[Row] = []
    low, high = _text(hour), _text(hour + 1)
    place: tuple[str, int] = (low, -1)
    while True:
        rows = select(_ENTRIES, (low, high, first, end, *place))
        entries = ((time, event, _as_read(data)) for _, time, event, data in rows)
        sums = added(chain(sums, (row for _, row in rows_of(entries))))
        if len(rows) < _AT_ONCE:
            return {row[:_KEY]: row[_KEY:] for row in sums}
        place = (rows[-1][1], rows[-1][0])


def _as_read(record: Any) -> bytes | str:
    return record if isinstance(record, (str, bytes)) else bytes(record)


def _settle(
    ledger: LedgerClient, hour: int, first: int, *, repair: bool
) -> tuple[list[UsageDifference], dict[Row, Row]]:
    """What differs while writes are locked out, and the rows as they are after it; of the entries
    from ``first`` on."""
    size = ledger.count()
    before = _expected(ledger.select, hour, first, size)  # most of it, not under the lock

    def call(tx: Transaction) -> tuple[list[UsageDifference], dict[Row, Row]]:
        since = _expected(tx.execute, hour, size, _ALWAYS)
        both = added((*key, *sums) for part in (before, since) for key, sums in part.items())
        expected = {row[:_KEY]: row[_KEY:] for row in both}
        live = _live(tx.execute, hour)
        found = _compare(live, expected)
        if not (repair and found):
            return found, live
        wrong = [key for key in {**live, **expected} if live.get(key) != expected.get(key)]
        tx.execute_many(_DELETE, [key for key in wrong if key in live])
        tx.execute_many(INSERT, [(*key, *expected[key]) for key in wrong if key in expected])
        return found, expected

    try:
        return ledger.transact(call)
    except LedgerWriteError:
        if repair:
            raise
        live = _live(ledger.select, hour)  # a read-only medium has no writers
        return _compare(live, before), live


def carried_usage(ledger: LedgerClient, first: int, end: int) -> dict[str, str]:
    """What the entries before ``end`` add up to, as a digest for each hour in which there is one
    from ``first`` on: what of the table is later is taken off it."""
    hours = ledger.select(
        "SELECT DISTINCT substr(timestamp, 1, 13) FROM entries WHERE seq >= ? AND seq < ?",
        (first, end),
    )
    found = {}
    for (text,) in sorted(hours):
        hour = quarter_of(f"{text}:00") // _IN_HOUR
        found[text] = ledger.transact(functools.partial(_before_in, hour, end))
    return found


def _archived(ledger: LedgerClient) -> tuple[int, dict[str, str]]:
    """The end of what was archived, and the digest of each of its hours."""
    ranges = ledger.archived_ranges()
    return ranges[-1].end if ranges else 0, _hours_of(ranges)


def _hours_of(ranges: Sequence[ArchivedRange]) -> dict[str, str]:
    hours: dict[str, str] = {}
    for one in ranges:
        hours |= one.carried.get("usage", {})
    return hours


def archived_usage(select: Select, ranges: Sequence[ArchivedRange]) -> Iterator[Row]:
    """The rows of the hours whose entries were archived, which do not follow from what is here."""
    for text in _hours_of(ranges):
        for key, sums in _live(select, quarter_of(f"{text}:00") // _IN_HOUR).items():
            yield *key, *sums


def archived_usage_problem(select: Select, end: int, hours: Mapping[str, str]) -> str:
    """Return the difference of the table from what the record carries of archived entries; empty
    if there is none. No other hour may have rows.

    Args:
        select: reads the ledger.
        end: the end of what was archived.
        hours: by hour, the recorded digest.
    """
    for (quarter,) in select("SELECT DISTINCT quarter FROM usage", ()):
        if not _OUTER[0] <= quarter < _OUTER[1] or _text(quarter // _IN_HOUR) not in hours:
            return "usage has a row of an hour without archived entries"
    for text, digest in hours.items():
        if _before(select, quarter_of(f"{text}:00") // _IN_HOUR, end) != digest:
            return f"usage of the hour {text} is not as when its entries were archived"
    return ""


def _before_in(hour: int, end: int, tx: Transaction) -> str:
    return _before(tx.execute, hour, end)


def _before(select: Select, hour: int, end: int) -> str:
    """The digest of an hour's rows without what entries from ``end`` on added to them."""
    live = _live(select, hour)
    for key, later in _expected(select, hour, end, _ALWAYS).items():
        there = live.get(key, (0,) * len(later))
        live[key] = tuple(one - two for one, two in zip(there, later, strict=True))
    return _digest({key: sums for key, sums in live.items() if any(sums)})


def _check_archived(
    ledger: LedgerClient, hour: int, end: int, digest: str
) -> tuple[list[UsageDifference], dict[Row, Row]]:
    """What differs of an hour whose entries were archived, while writes are locked out."""

    def call(tx: Transaction) -> tuple[str, dict[Row, Row]]:
        return _before(tx.execute, hour, end), _live(tx.execute, hour)

    try:
        found, live = _before(ledger.select, hour, end), _live(ledger.select, hour)
        if found != digest:
            found, live = ledger.transact(call)
    except LedgerWriteError:  # a read-only medium has no writers
        pass
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
    """A hash over rows, whatever is in them."""
    text = repr(sorted(repr((*key, *sums)) for key, sums in rows.items()))
    return hashlib.sha256(text.encode()).hexdigest()
