"""Cached usage of past hours and days, so that a page adds up only some hundred rows.

The table ``usage`` contains a row for each session and quarter hour, so a month can have millions
of rows. Usage of a past hour does not change, because entries are written with the current time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter

from remit.ledger import LedgerClient
from remit.ledger.usage import QUARTER_S
from remit.views.periods import Period, periods_of
from remit.views.usage import UsageRow, quarters_between, read_usage

_MAX_ROWS = 50_000  # A cached row takes half a kilobyte.
_GRACE = 2  # Quarter hours: clocks of several machines may differ, and a commit may be late.
_SUMS = (
    "calls", "failed", "fallbacks", "input_tokens", "output_tokens", "cached_input_tokens",
    "reasoning_tokens", "unpriced_calls", "measured_nano", "estimated_nano", "upper_bound_nano",
)  # fmt: skip
_sums = attrgetter(*_SUMS)


Window = tuple[int, Sequence[UsageRow]]
"""The first quarter hour (since 1970) of an hour, a day or a part of one, and its usage."""


class KeptUsage:
    """A cache of usage by hour and day, emptied above 50,000 rows.

    Threads may share the object: two of them may read the same rows twice, and nothing else.

    Args:
        ledger: the ledger to read.
    """

    def __init__(self, ledger: LedgerClient) -> None:
        self._ledger = ledger
        self._kept: dict[tuple[int, int, tuple[str, ...]], list[UsageRow]] = {}
        self._rows = 0

    def read(
        self, by: tuple[str, ...], first: int, end: int, time_zone: str, *, hourly: bool
    ) -> list[Window]:
        """Return the usage of a time range in windows, in order of time.

        The range is cut to the time from the first usage in the ledger to now, and may then be
        empty. Windows are whole days, with hours at both ends of the range. Windows that ended a
        while ago are cached in memory; others are read from the ledger each time.

        Args:
            by: the names to group by, such as ``model``; none for one row per window.
            first: first quarter hour since 1970, inclusive.
            end: last quarter hour, exclusive.
            time_zone: time zone of the days.
            hourly: True limits windows to an hour, so that single hours can be shown.

        Returns:
            Pairs of the window's first quarter hour and its rows; no rows if nothing was used.

        Raises:
            InvalidInputError: a name or the time zone is unknown, or the range has more than 20,000
                periods.
            LedgerError: the ledger cannot be read.
        """
        earliest, latest = quarters_between(self._ledger, None, None)
        now = latest - 1
        span = _windows(max(first, earliest), min(end, latest), time_zone, hourly)
        return [(one.first, self._window(by, one, now)) for one in span]

    def _window(self, by: tuple[str, ...], window: Period, now: int) -> list[UsageRow]:
        place = (window.first, window.end, by)
        found = self._kept.get(place)
        if found is None:
            since, until = (datetime.fromtimestamp(one * QUARTER_S, UTC) for one in window[:2])
            found = read_usage(self._ledger, since=since, until=until, by=by).rows
            if window.end <= now - _GRACE:
                self._keep(place, found)
        return found

    def _keep(self, place: tuple[int, int, tuple[str, ...]], rows: list[UsageRow]) -> None:
        if self._rows + len(rows) > _MAX_ROWS:
            self._kept, self._rows = {}, 0
        self._kept[place] = rows
        self._rows += len(rows)


def _windows(first: int, end: int, time_zone: str, hourly: bool) -> Iterator[Period]:
    """Yield whole days, and hours at both ends, so that a moving end adds few new windows."""
    if hourly:
        yield from periods_of("hour", time_zone, first, end)
        return
    for day in periods_of("day", time_zone, first, end):
        if first < day.first and day.end < end:
            yield day
        else:
            yield from periods_of("hour", time_zone, day.first, day.end)


def added_up(rows: Sequence[UsageRow], names: Mapping[str, str] | None = None) -> UsageRow:
    """Return a row with the sums of other rows; its ``key_name`` is the first that is not empty.

    Args:
        rows: the rows; none gives a row of zeros.
        names: values of the new row's groups, such as ``{"model": "gpt-5"}``; empty if left out.
    """
    columns = zip(*map(_sums, rows), strict=True)
    key_name = next((one.key_name for one in rows if one.key_name), "")
    return UsageRow(names or {}, key_name, *map(sum, columns))
