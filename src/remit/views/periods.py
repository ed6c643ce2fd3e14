"""Grouping periods of usage, in whole quarter hours like the stored sums."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple

from remit.kernel.budget_windows import window_at, zone_of
from remit.kernel.errors import InvalidInputError
from remit.ledger.usage import QUARTER_S

PERIODS = ("hour", "day", "week", "month")
"""The kinds of periods by which usage can be grouped."""

_HOUR_S = 3600
_LAST = int(datetime(9999, 12, 31, 23, 45, tzinfo=UTC).timestamp()) // QUARTER_S
_MAX_PERIODS = 20_000  # Two years of hours.
_AGO = re.compile(r"([0-9]{1,5})([mhdw])", re.ASCII)
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


class Period(NamedTuple):
    """A period of time, or the requested part of a period.

    Attributes:
        first: its first quarter hour, counted from 1970.
        end: its last quarter hour, exclusive.
        name: start of the whole period in local time of its zone: ``2026-03``, ``2026-03-29``,
            ``2026-03-29T03:00+02:00``.
    """

    first: int
    end: int
    name: str


def periods_of(kind: str, time_zone: str, first: int, end: int) -> Iterator[Period]:
    """Yield the periods that cover a range of quarter hours, in order; none for an empty range.

    The first and last period may be cut by the range. Errors are raised while iterating.

    Args:
        kind: ``hour``, ``day``, ``week`` or ``month``.
        time_zone: zone whose local time bounds the periods.
        first: first quarter hour since 1970.
        end: last quarter hour, exclusive.

    Raises:
        InvalidInputError: the zone is unknown, or there are more than 20,000 periods.
    """
    zone = zone_of(time_zone)
    count = 0
    while first < end:
        begins, ends = _around(kind, time_zone, zone, first * QUARTER_S)
        after = min(max(ends // QUARTER_S, first + 1), end)
        yield Period(first, after, _name(kind, datetime.fromtimestamp(begins, zone)))
        first, count = after, count + 1
        if count > _MAX_PERIODS:
            raise InvalidInputError(
                f"The time range contains more than {_MAX_PERIODS:,} periods.",
                next_step="Choose a shorter range, or group by day, week or month.",
            )


def _around(kind: str, time_zone: str, zone: tzinfo, at: int) -> tuple[int, int]:
    if kind != "hour":
        return window_at(kind, time_zone, at)
    offset = datetime.fromtimestamp(at, zone).utcoffset() or timedelta()
    begins = at - (at + int(offset.total_seconds())) % _HOUR_S
    return begins, begins + _HOUR_S


def _name(kind: str, begins: datetime) -> str:
    if kind == "hour":
        return begins.isoformat(timespec="minutes")
    return begins.strftime("%Y-%m" if kind == "month" else "%Y-%m-%d")


def instant_of(text: str, time_zone: str = "UTC", now: datetime | None = None) -> datetime:
    """Return the time that a person wrote, in UTC.

    Args:
        text: ``now``, ``today``, ``yesterday`` or a weekday (its latest midnight); ``90m``,
            ``24h``, ``7d`` or ``2w`` ago; a date (its midnight) or time, ISO 8601. The case of
            words and units, and surrounding blanks, do not matter.
        time_zone: zone of a ``text`` without an offset.
        now: aware time to use as the present; the clock's if ``None``.

    Raises:
        InvalidInputError: the text is none of these, or the zone is unknown.
    """
    zone = zone_of(time_zone)
    here = (now or datetime.now(UTC)).astimezone(zone)
    midnight = here.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    word = text.strip().lower()
    if word == "now":
        return here.astimezone(UTC)
    days = {"today": 0, "yesterday": 1}.get(word)
    if word in _WEEKDAYS:
        days = (here.weekday() - _WEEKDAYS.index(word)) % 7
    try:
        if days is not None:
            return (midnight - timedelta(days=days)).replace(tzinfo=zone).astimezone(UTC)
        if (ago := _AGO.fullmatch(word)) is not None:
            return here.astimezone(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        found = datetime.fromisoformat(text.strip())
        return (found if found.tzinfo else found.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"{text!r} is not a time.",
            next_step="Write today, yesterday, a weekday, 24h, 7d, or a date or time as in "
            "2026-03-29 or 2026-03-29T18:00.",
        ) from error


def quarters_of(since: datetime | None, until: datetime | None) -> tuple[int | None, int | None]:
    """Return the range of quarter hours since 1970 that covers a time range, end exclusive.

    ``since`` is rounded down and ``until`` up, at most to the end of 9999; an open end is ``None``.
    The range may be empty or reversed.

    Args:
        since: start, with a time zone; ``None`` for an open start.
        until: end, with a time zone; ``None`` for an open end.
    """
    first = None if since is None else int(since.timestamp() // QUARTER_S)
    end = None if until is None else min(-int(-until.timestamp() // QUARTER_S), _LAST)
    return first, end


def time_of(quarter: int) -> datetime:
    """Return the start of a quarter hour, counted from 1970, in UTC.

    Args:
        quarter: number of the quarter hour.
    """
    return datetime.fromtimestamp(quarter * QUARTER_S, UTC)
