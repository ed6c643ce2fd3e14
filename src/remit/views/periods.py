"""Periods of time that usage is read by, cut at the quarters of an hour that it is kept by."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple

from remit.kernel.errors import InvalidInputError
from remit.kernel.windows import window_at, zone_of
from remit.ledger.usage import QUARTER_S

__all__ = ["PERIODS", "Period", "instant_of", "periods_of", "quarters_of", "time_of"]

PERIODS = ("hour", "day", "week", "month")
"""What of time usage can be by."""

_HOUR_S = 3600
_LAST = int(datetime(9999, 12, 31, 23, 45, tzinfo=UTC).timestamp()) // QUARTER_S
_MAX_PERIODS = 20_000  # Two years of hours.
_AGO = re.compile(r"([0-9]{1,5})([mhdw])", re.ASCII)
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


class Period(NamedTuple):
    """A period, or the part of it that is read.

    Attributes:
        first: its first quarter of an hour, since 1970.
        end: the one after its last.
        name: when the whole of it begins, by the clocks of its zone: ``2026-03``, ``2026-03-29``,
            ``2026-03-29T03:00+02:00``.
    """

    first: int
    end: int
    name: str


def periods_of(kind: str, time_zone: str, first: int, end: int) -> Iterator[Period]:
    """The periods of a kind that the quarters from ``first`` to before ``end`` are in.

    Raises:
        InvalidInputError: the zone is unknown, or they are too many.
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
    """The instant that people mean.

    Args:
        text: ``now``, ``today``, ``yesterday`` or a weekday (its latest midnight); ``90m``,
            ``24h``, ``7d`` or ``2w`` ago; a date (its midnight) or time, ISO 8601.
        time_zone: whose clocks are meant, where ``text`` names no offset.
        now: instead of the clock.

    Raises:
        InvalidInputError: it is none of these, or the zone is unknown.
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

    ``since`` is rounded down and ``until`` up; an open end is ``None``.
    """
    first = None if since is None else int(since.timestamp() // QUARTER_S)
    end = None if until is None else min(-int(-until.timestamp() // QUARTER_S), _LAST)
    return first, end


def time_of(quarter: int) -> datetime:
    """When a quarter of an hour since 1970 begins."""
    return datetime.fromtimestamp(quarter * QUARTER_S, UTC)
