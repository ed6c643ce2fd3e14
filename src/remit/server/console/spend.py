"""The page of spending by owner, model, agent or session."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from remit.gateway.auth import Owner
from remit.ledger.usage import QUARTER_S
from remit.server.console.kept_usage import Window, added_up
from remit.server.console.pages import Asked, Page, Sources, View
from remit.views import wording
from remit.views.periods import instant_of, periods_of, time_of
from remit.views.usage import UsageRow, latest_quarters, quarters_between, read_usage

_SHOWN = 50
_LATEST_ROWS = 10_000  # Sessions are too many to add up all rows of usage.
_CERTAINTIES = ("measured", "estimated", "upper_bound")
_WORDS = {"measured": "measured", "estimated": "estimated", "upper_bound": "upper bound"}
_BY = ("user", "team", "organisation", "key", "agent", "contract", "provider", "model", "session")
_OWNERS = ("user", "team", "organisation")
_RANGES = ("today", "yesterday", "24h", "7d", "30d", "365d")
_WIDTH, _HEIGHT, _FOOT = 960, 200, 18
_LONGEST = ((timedelta(days=3), "hour"), (timedelta(days=100), "day"))


def show(sources: Sources, asked: Asked) -> Page:
    """Return the page of spending, grouped by owner, model, agent or session.

    The sums are read from the usage table; those of past hours are cached. An unknown ``by`` counts
    as ``model``. Only the largest groups are listed; for sessions, those of the latest calls.

    Args:
        sources: the data sources.
        asked: the request; its query may have ``since`` (the default is ``7d``), ``until``,
            ``zone`` and ``by``.

    Raises:
        InvalidInputError: a time or the time zone is not valid.
    """
    query = asked.query
    zone = query.get("zone", "").strip() or "UTC"
    since_text = query.get("since", "").strip() or "7d"
    until_text = query.get("until", "").strip()
    by = query.get("by", "")
    by = by if by in _BY else "model"
    since = instant_of(since_text, zone)
    # All of yesterday is meant, not yesterday and today.
    until_text = until_text or ("today" if since_text == "yesterday" else "")
    until = instant_of(until_text, zone) if until_text else None
    # There is no use in periods before the first call, or after the last.
    least, greatest = quarters_between(sources.ledger, None, None)
    first, end = quarters_between(sources.ledger, since, until)
    first = max(first, least)
    end = max(first, min(end, greatest))
    over = timedelta(seconds=(end - first) * QUARTER_S)
    period = next((name for longest, name in _LONGEST if over <= longest), "month")
    kept = "" if by == "session" else by  # Sessions are too many to cache.
    windows = sources.usage.read(kept, first, end, zone, hourly=period == "hour")
    begin = first
    if by == kept:
        rows = _dearest(by, windows)
    else:
        begin = latest_quarters(sources.ledger, first, end, _LATEST_ROWS)
        since, until = time_of(begin), time_of(end)
        rows = read_usage(sources.ledger, since=since, until=until, by=[by], limit=_SHOWN).rows
    over_time = _over_time(period, zone, windows)
    names = sources.reads.directory.declared() if by in _OWNERS else {}
    return Page(
        "spend.html.j2",
        {
            "by": by,
            "names": _BY,
            "ranges": _RANGES,
            "since": since_text,
            "until": query.get("until", ""),
            "zone": zone,
            "total": _line(added_up(over_time), ""),
            "rows": [_named(_line(row, by), by, names) for row in rows],
            "most": _SHOWN if len(rows) == _SHOWN else 0,
            "later": _moment(begin) if begin > first else "",
            "first": _moment(first),
            "end": _moment(end),
            "period": period,
            "chart": _chart(over_time, period),
            "sure": [(name, _WORDS[name]) for name in _CERTAINTIES],
            "sizes": {"width": _WIDTH, "height": _HEIGHT + _FOOT},
        },
    )


def _line(row: UsageRow, by: str) -> dict[str, Any]:
    return {
        "name": row.names.get(by, ""),
        "label": row.key_name,
        "calls": row.calls,
        "failed": row.failed,
        "fallbacks": row.fallbacks,
        "tokens": wording.tokens({"input_tokens": row.input_tokens,
                                  "output_tokens": row.output_tokens}),
        **{name: wording.dollars(getattr(row, f"{name}_nano") / 1e9) for name in _CERTAINTIES},
        "unpriced": row.unpriced_calls,
        "usd": wording.dollars(row.nano / 1e9),
        "exact": row.exact,
    }  # fmt: skip


def _named(line: dict[str, Any], by: str, owners: Mapping[str, Owner]) -> dict[str, Any]:
    """Return the line with the declared name of its owner as label."""
    owner = owners.get(f"{by}:{line['name']}")
    return line if owner is None else {**line, "label": owner.name}


def _dearest(by: str, windows: Sequence[Window]) -> list[UsageRow]:
    """Return usage by name, highest cost first."""
    found: dict[str, list[UsageRow]] = {}
    for _, rows_of in windows:
        for row in rows_of:
            found.setdefault(row.names[by], []).append(row)
    rows = [added_up(same, {by: name}) for name, same in found.items()]
    rows.sort(key=lambda row: (-row.nano, -row.input_tokens, row.names[by]))
    return rows[:_SHOWN]


def _over_time(period: str, zone: str, windows: Sequence[Window]) -> list[UsageRow]:
    """Return the usage of each period that has any, in order of time."""
    found: dict[str, list[UsageRow]] = {}
    if windows:
        periods = list(periods_of(period, zone, windows[0][0], windows[-1][0] + 1))
        begins = [one.first for one in periods]
        for first, rows in windows:
            name = periods[bisect_right(begins, first) - 1].name
            found.setdefault(name, []).extend(rows)
    return [added_up(rows, {period: name}) for name, rows in found.items() if rows]


def _moment(quarter: int) -> str:
    return time_of(quarter).isoformat()


def _chart(rows: Sequence[UsageRow], period: str) -> dict[str, Any] | None:
    """Return stacked bars by certainty over time; ``None`` if nothing was spent."""
    most = max((row.nano for row in rows), default=0)
    if not most:
        return None
    wide = _WIDTH / max(len(rows), 1)
    bars = []
    for number, row in enumerate(rows):
        top = float(_HEIGHT)
        for name in _CERTAINTIES:
            nano = getattr(row, f"{name}_nano")
            high = _HEIGHT * nano / most
            top -= high
            if nano:
                usd = wording.dollars(nano / 1e9)
                bars.append(
                    {
                        "name": name,
                        "x": f"{number * wide + wide * 0.1:.2f}",
                        "y": f"{top:.2f}",
                        "width": f"{min(wide * 0.8, 60):.2f}",
                        "height": f"{max(high, 1):.2f}",
                        "words": f"{row.names[period]}: {usd} {_WORDS[name]}",
                    }
                )
    return {
        "bars": bars,
        "most": wording.dollars(most / 1e9),
        "first": rows[0].names[period],
        "last": rows[-1].names[period],
    }


VIEWS = (View("/console/spend", show),)
