"""The page of spending on a time axis, by two of owner, model, agent, contract and certainty."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from remit.gateway.auth import Owner
from remit.kernel.budget_windows import zone_of
from remit.ledger import LedgerClient
from remit.ledger.usage import QUARTER_S
from remit.server.console.caches import Window, added_up
from remit.server.console.pages import Asked, Page, Sources, View
from remit.views import wording
from remit.views.periods import Period, instant_of, periods_of, time_of
from remit.views.usage import UsageRow, latest_quarters, quarters_between, read_usage

_SHOWN = 50
_STACKED = 5  # Names with a colour of their own; the others share one.
_LATEST_ROWS = 10_000  # Sessions are too many to add up all rows of usage.
_WORDS = {"measured": "measured", "estimated": "estimated", "upper_bound": "upper bound"}
_BY = ("user", "team", "organisation", "key", "agent", "contract", "provider", "model", "session")
_STACKS = ("certainty", *_BY[:-1])
_OWNERS = ("user", "team", "organisation")
_RANGES = ("today", "yesterday", "24h", "7d", "30d", "365d")
_WIDTH, _HEIGHT, _MARKS = 960, 200, 4
_MARKED = 0.85  # Share of the width; a date that began later would be cut.
_OUTLIER = 4  # A bar this many times as high as most others is cut.
_FEW = 2  # Without more bars than these, none is an outlier.
_LONGEST = ((timedelta(days=3), "hour"), (timedelta(days=100), "day"))
_MAX_EMPTY = 366 * 86_400 // QUARTER_S  # quarter hours of the axis before the first call


@dataclass(frozen=True, slots=True)
class _Question:
    """The checked query of a page.

    Attributes:
        since: start of the range, as the person wrote it.
        until: end of the range, as the person wrote it; empty for now.
        zone: name of the time zone.
        by: name that the table groups by.
        stack: name that the bars are stacked by.
        first: first quarter hour of the range, since 1970.
        end: last quarter hour, exclusive.
        period: ``hour``, ``day`` or ``month``.
    """

    since: str
    until: str
    zone: str
    by: str
    stack: str
    first: int
    end: int
    period: str

    @classmethod
    def of(cls, ledger: LedgerClient, query: Mapping[str, str]) -> _Question:
        given = {name: text.strip() for name, text in query.items()}
        zone, since = given.get("zone") or "UTC", given.get("since") or "7d"
        until, by, stack = (given.get(name, "") for name in ("until", "by", "stack"))
        begin = instant_of(since, zone)
        last = instant_of(until, zone) if until else None
        least, greatest = quarters_between(ledger, None, None)
        first, end = quarters_between(ledger, begin, last)
        end = max(first, min(end, greatest))
        first = max(first, min(least, end - _MAX_EMPTY))
        over = timedelta(seconds=(end - first) * QUARTER_S)
        period = next((name for longest, name in _LONGEST if over <= longest), "month")
        return cls(since, until, zone, by if by in _BY else "model",
                   stack if stack in _STACKS else "certainty", first, end, period)  # fmt: skip


def show(sources: Sources, asked: Asked) -> Page:
    """Return the page of spending, with the period before as comparison.

    The sums are read from the usage table; those of past hours are cached. An unknown ``by`` counts
    as ``model``, an unknown ``stack`` as ``certainty``. The 50 groups with the highest cost are
    listed; for sessions, those of the latest 10,000 rows of usage. A range of up to three days has
    a bar for each hour, of up to 100 days for each day, and a longer one for each month.

    Args:
        sources: the data sources.
        asked: the request; its query may have ``since`` (the default is ``7d``), ``until`` (the
            default is now), ``zone``, ``by`` and ``stack``.

    Raises:
        InvalidInputError: a time or the time zone is not valid, or the range is too long.
        LedgerError: the ledger cannot be read.
    """
    question = _Question.of(sources.ledger, asked.query)
    by, first, end = question.by, question.first, question.end
    cached = tuple(dict.fromkeys(name for name in (by, question.stack) if name != "session"))

    def windows(begin: int, until: int) -> list[Window]:
        is_hourly = question.period == "hour"
        return sources.usage.read(cached, begin, until, question.zone, hourly=is_hourly)

    now, before = windows(first, end), windows(2 * first - end, first)
    start, earlier = first, _by_name(by, before)
    if by == "session":
        start = latest_quarters(sources.ledger, first, end, _LATEST_ROWS)
        since, until = time_of(start), time_of(end)
        rows = sources.unchanged.read(
            (start, end),
            lambda: read_usage(sources.ledger, since=since, until=until, by=[by], limit=_SHOWN),
        ).rows
    else:
        rows = sorted(_by_name(by, now).values(), key=_dearest_first)[:_SHOWN]
    owners = sources.reads.directory.declared() if {by, question.stack} & {*_OWNERS} else {}
    total, past = (added_up([row for _, found in one for row in found]) for one in (now, before))
    return Page(
        "spend.html.j2",
        {
            "asked": question,
            "names": _BY,
            "stacks": _STACKS,
            "ranges": _RANGES,
            "total": _line(total, "", {}),
            "past": past.nano,
            "change": _change(total.nano, past.nano),
            "rows": [
                {
                    **_line(row, by, owners),
                    "change": _change(row.nano, earlier[row.names[by]].nano)
                    if row.names[by] in earlier
                    else "",
                }
                for row in rows
            ],
            "most": _SHOWN if len(rows) == _SHOWN else 0,
            "later": _moment(start, question.zone) if start > first else "",
            "span": urlencode({"since": _utc(start), "until": _utc(end)}),
            "first": _moment(first, question.zone),
            "end": _moment(end, question.zone),
            "chart": _chart(question, now, before, owners),
        },
    )


def _utc(quarter: int) -> str:
    """Return the start of a quarter hour in UTC, in ISO 8601."""
    return time_of(quarter).isoformat()


def _line(row: UsageRow, by: str, owners: Mapping[str, Owner]) -> dict[str, Any]:
    return {
        "name": row.names.get(by, ""),
        "label": _label(row, by, owners),
        "calls": row.calls,
        "failed": row.failed,
        "fallbacks": row.fallbacks,
        "tokens": wording.tokens({"input_tokens": row.input_tokens,
                                  "output_tokens": row.output_tokens}),
        "unpriced": row.unpriced_calls,
        "nano": row.nano,
        "unsure": row.nano - row.measured_nano,
        **{name: getattr(row, f"{name}_nano") for name in _WORDS},
    }  # fmt: skip


def _label(row: UsageRow, by: str, owners: Mapping[str, Owner]) -> str:
    """Return the declared name of an owner or a key; empty if there is none."""
    owner = owners.get(f"{by}:{row.names.get(by)}")
    return owner.name if owner is not None else row.key_name if by == "key" else ""


def _dearest_first(row: UsageRow) -> tuple[Any, ...]:
    return -row.nano, -row.input_tokens, *row.names.values()


def _by_name(by: str, windows: Sequence[Window]) -> dict[str, UsageRow]:
    """Return usage by name; nothing for sessions, which are not cached."""
    found: dict[str, list[UsageRow]] = {}
    for _, rows in windows if by != "session" else ():
        for row in rows:
            found.setdefault(row.names[by], []).append(row)
    return {name: added_up(rows, {by: name}) for name, rows in found.items()}


def _change(nano: int, past: int) -> str:
    """Return the change in whole percent, such as ``+12%``; empty if nothing was spent before."""
    return f"{int(100 * (nano - past) / past):+,}%" if past else ""


def _moment(quarter: int, zone: str) -> str:
    return f"{time_of(quarter).astimezone(zone_of(zone)):%Y-%m-%d %H:%M}"


def _over_time(periods: Sequence[Period], windows: Sequence[Window]) -> list[list[UsageRow]]:
    """Return the rows of each period; empty for a period without usage."""
    found: list[list[UsageRow]] = [[] for _ in periods]
    begins = [one.first for one in periods]
    for first, rows in windows:
        found[bisect_right(begins, first) - 1] += rows
    return found


def _chart(
    question: _Question,
    now: Sequence[Window],
    before: Sequence[Window],
    owners: Mapping[str, Owner],
) -> dict[str, Any] | None:
    """Return stacked bars over time, and the period before as a line.

    The value is ``None`` if nothing was spent. A bar far above most others is cut, so that it does
    not flatten them. The line leaves the chart above the top.
    """
    first, end, kind, stack = question.first, question.end, question.period, question.stack
    periods = list(periods_of(kind, question.zone, first, end))
    earlier = list(periods_of(kind, question.zone, 2 * first - end, first))
    rows = _over_time(periods, now)
    past = list(map(_nano, _over_time(earlier, before)))[-len(periods) :]
    most = _top(list(map(_nano, rows)), past)
    if not most:
        return None
    totals = _by_name(stack, now)
    names = sorted((name for name in totals if totals[name].nano), key=lambda name:
                   list(_WORDS).index(name) if name in _WORDS else -totals[name].nano)  # fmt: skip
    styles = {name: name if name in _WORDS else f"s{number}"
              for number, name in enumerate(names[:_STACKED])}  # fmt: skip
    labels = {name: _WORDS.get(name) or _label(totals[name], stack, owners) or name
              or "(none)" for name in names}  # fmt: skip
    wide, columns = _WIDTH / len(periods), []
    for number, (period, found) in enumerate(zip(periods, rows, strict=True)):
        words = f"{period.name}: {wording.nano_dollars(_nano(found))}"
        if any(past) and number < len(past):
            words += f", previous period {wording.nano_dollars(past[number])}"
        parts = [
            (styles.get(name, "s5") + mark, f"{period.name}, {labels[name]}", amount)
            for name in names
            for mark, amount in _parts([row for row in found if row.names[stack] == name], stack)
        ]
        column = {"x": f"{number * wide:.2f}", "bar_x": f"{(number + 0.1) * wide:.2f}",
                  "words": words, "bars": _bars(parts, most), "is_cut": _nano(found) > most,
                  "name": period.name, "nano": _nano(found)}  # fmt: skip
        columns.append(column)
    line = [f"{(place + 0.5) * wide:.2f},{_HEIGHT - _HEIGHT * nano / most:.2f}"
            for place, nano in enumerate(past)]  # fmt: skip
    step = math.ceil(len(periods) / _MARKS)
    marks = range(0, math.ceil(_MARKED * len(periods)), step)
    return {
        "columns": columns,
        "column_width": f"{wide:.2f}",
        "bar_width": f"{wide * 0.8:.2f}",
        "line": " ".join(line) if any(past) else "",
        "is_line_cut": max(past, default=0) > most,
        "legend": [(styles[name], labels[name]) for name in styles]
        + ([("s5", "others")] if len(names) > _STACKED else []),
        "most": most,
        "marks": [(place * wide, periods[place].name.replace("T", " ")[:16]) for place in marks],
        "width": _WIDTH,
        "height": _HEIGHT,
    }


def _nano(rows: Sequence[UsageRow]) -> int:
    return sum(row.nano for row in rows)


def _top(now: Sequence[int], past: Sequence[int]) -> int:
    """Return the highest amount that is no outlier, the top of the chart; 0 without amounts.

    An outlier is more than four times as high as the highest bar below the highest tenth. The
    period before counts for that only if this one has no amounts.
    """
    bars = sorted(filter(None, now), reverse=True) or sorted(filter(None, past), reverse=True)
    if not bars:
        return 0
    tenth = -(-len(bars) // 10) if len(bars) > _FEW else 0
    return max(nano for nano in (*now, *past) if nano <= _OUTLIER * bars[tenth])


def _parts(rows: Sequence[UsageRow], stack: str) -> Iterator[tuple[str, int]]:
    """Yield style and amount of the measured part, then of the rest; of certainties, one part."""
    nano = _nano(rows)
    unsure = nano - sum(row.measured_nano for row in rows) if stack != "certainty" else 0
    yield "", nano - unsure
    yield " unsure", unsure


def _bars(parts: Sequence[tuple[str, str, int]], most: int) -> list[dict[str, str]]:
    """Return the rectangles of a bar, from the bottom; if the bar is cut, in its proportions."""
    whole = max(most, sum(nano for _, _, nano in parts))
    top, bars = float(_HEIGHT), []
    for style, words, nano in parts:
        high = _HEIGHT * nano / whole
        top -= high
        if nano:
            words = f"{words}: {wording.nano_dollars(nano)}"
            bars.append({"style": style, "y": f"{top:.2f}", "height": f"{max(high, 1):.2f}",
                         "words": f"{words}, not measured" if " " in style else words})  # fmt: skip
    return bars


VIEWS = (View("/console/spend", show),)
