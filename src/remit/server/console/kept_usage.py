"""Usage of hours and days that are over, read once: a page then adds up some hundred rows.

The table ``usage`` has a row for each session and quarter of an hour, so a month can be millions.
What it says of a time that is over does not change: entries are written with the time of their
writing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import NamedTuple

from remit.ledger import LedgerClient
from remit.ledger.usage import QUARTER_S
from remit.views.periods import Period, periods_of
from remit.views.usage import UsageRow, quarters_between, read_usage

__all__ = ["KeptUsage", "Window", "added_up"]

_MOST_ROWS = 50_000  # kept in memory, of half a kilobyte each
_GRACE = 2  # quarters: until then clocks of several machines may differ, and a commit may wait
_SUMS = (
    "calls", "failed", "fallbacks", "input_tokens", "output_tokens", "cached_input_tokens",
    "reasoning_tokens", "unpriced_calls", "measured_nano", "estimated_nano", "upper_bound_nano",
)  # fmt: skip
_sums = attrgetter(*_SUMS)


class Window(NamedTuple):
    """An hour or a day, or a part of one, and what it used.

    Attributes:
        first: its first quarter of an hour, since 1970.
    """

    first: int
    rows: Sequence[UsageRow]


class KeptUsage:
    """Reads usage in windows, and keeps those that are over.

    Args:
        ledger: whose usage it is.
    """

    def __init__(self, ledger: LedgerClient) -> None:
        self._ledger = ledger
        self._kept: dict[tuple[int, int, str], list[UsageRow]] = {}
        self._rows = 0

    def read(self, by: str, first: int, end: int, time_zone: str, *, hourly: bool) -> list[Window]:
        """Usage from quarter ``first`` to before ``end``, window by window.

        Args:
            by: a name that usage is kept by; empty for one row of all.
            first: quarter of an hour since 1970, inclusive.
            end: the same, exclusive.
            time_zone: whose days these are.
            hourly: no window is longer than an hour, so that single hours can be shown.

        Raises:
            InvalidInputError: the zone is unknown, or the time is too long.
        """
        earliest, latest = quarters_between(self._ledger, None, None)
        now = latest - 1
        span = _windows(max(first, earliest), min(end, latest), time_zone, hourly)
        return [Window(one.first, self._window(by, one, now)) for one in span]

    def _window(self, by: str, window: Period, now: int) -> list[UsageRow]:
        place = (window.first, window.end, by)
        found = self._kept.get(place)
        if found is None:
            since, until = (datetime.fromtimestamp(one * QUARTER_S, UTC) for one in window[:2])
            names = [by] if by else []
            found = read_usage(self._ledger, since=since, until=until, by=names).rows
            if window.end <= now - _GRACE:
                self._keep(place, found)
        return found

    def _keep(self, place: tuple[int, int, str], rows: list[UsageRow]) -> None:
        if self._rows + len(rows) > _MOST_ROWS:
            self._kept, self._rows = {}, 0
        self._kept[place] = rows
        self._rows += len(rows)


def _windows(first: int, end: int, time_zone: str, hourly: bool) -> Iterator[Period]:
    """Whole days where there are some, else hours: an end that moves on makes few new ones."""
    if hourly:
        yield from periods_of("hour", time_zone, first, end)
        return
    for day in periods_of("day", time_zone, first, end):
        if first < day.first and day.end < end:
            yield day
        else:
            yield from periods_of("hour", time_zone, day.first, day.end)


def added_up(rows: Sequence[UsageRow], names: Mapping[str, str] | None = None) -> UsageRow:
    """The sum of rows, under other names."""
    columns = zip(*map(_sums, rows), strict=True)
    key_name = next((one.key_name for one in rows if one.key_name), "")
    return UsageRow(names or {}, key_name, *map(sum, columns))
