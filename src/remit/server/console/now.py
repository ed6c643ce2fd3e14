"""The start page: today's figures, open approvals, refusals, alarms and the latest calls."""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from remit.ledger import LedgerClient, LedgerEntry
from remit.ledger.usage import QUARTER_S
from remit.server.console.caches import added_up
from remit.server.console.pages import Asked, Page, Sources, View
from remit.server.console.rows import (
    ALARMS,
    alarm_row,
    amounts_of,
    call_row,
    key_names,
    with_problems,
)
from remit.views import wording
from remit.views.entries import place_of

_CALLS = 10
_ALARMS = 12
_UNDER_WAY = 50
_REFUSALS = 500  # refused requests of the last day that are grouped
_GROUPS = 10
_TIMED = 200  # latest calls of a day of which the durations are compared
_APPROVALS = 10
_CALL_CHARS = 100
_GRACE = timedelta(minutes=30)  # A commit may be late, and clocks differ.


def show(sources: Sources, asked: Asked) -> Page:
    """Return the start page.

    The page shows today's figures against yesterday's, open approval requests, refused requests of
    the last 24 hours in groups, calls in flight, open circuits, alarms and the latest calls. Each
    list has a limit. Days are days of UTC; the figures of yesterday are cached.

    Args:
        sources: the data sources.
        asked: not used.
    """
    return Page("now.html.j2", {"read": functools.partial(_read, sources)})


def _read(sources: Sources) -> dict[str, Any]:
    """Return the values of the page.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    ledger = sources.ledger
    exchanges = ledger.query(
        event_type="EXCHANGE", order="desc", limit=_CALLS, with_content=False, known=sources.known
    )
    breakers = [
        (f"{provider}/{model}", breaker.state)
        for (provider, model), breaker in sorted(sources.runtime.gateway.breakers.items())
        if str(breaker.state).upper() != "CLOSED"
    ]
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    timed = _latest(sources, "EXCHANGE", today, _TIMED)
    waiting = sources.waiting.read()
    refused, is_cut = _refused(sources)
    return {
        "entries": ledger.count(),
        "days": [
            ("Today", _figures(sources, today, _durations(timed))),
            ("Yesterday", _yesterday(sources, today - timedelta(days=1))),
        ],
        "timed": _TIMED,
        "approvals": [
            (
                one,
                wording.call_text(one.tool_id, one.arguments, _CALL_CHARS),
                amounts_of(one.arguments),
            )
            for one in waiting[:_APPROVALS]
        ],
        "more_approvals": len(waiting) - _APPROVALS,
        "refused": refused,
        "refused_most": _REFUSALS if is_cut else 0,
        "under_way": _under_way(ledger),
        "calls": [call_row(entry) for entry in exchanges],
        "alarms": [alarm_row(with_problems(ledger, entry)) for entry in _alarms(sources)],
        "breakers": breakers,
        "outage": sources.runtime.ledger.outage.reason,
        "most_calls": _CALLS,
        "most_alarms": _ALARMS,
    }


def _figures(sources: Sources, begin: datetime, durations: list[float]) -> dict[str, Any]:
    """Return spend (nano-dollars), calls and failed calls of a day; percentiles of durations."""
    end = begin + timedelta(days=1)
    first, last = (int(one.timestamp()) // QUARTER_S for one in (begin, end))
    windows = sources.usage.read((), first, last, "UTC", hourly=False)
    used = added_up([row for _, rows in windows for row in rows])
    rate = f" ({100 * used.failed / used.calls:.1f}%)" if used.calls else ""
    return {
        "spend": used.nano,
        "calls": f"{used.calls:,}",
        "failed": f"{used.failed:,}{rate}",
        "p50": wording.duration(_percentile(durations, 0.5)),
        "p95": wording.duration(_percentile(durations, 0.95)),
    }


def _yesterday(sources: Sources, begin: datetime) -> dict[str, Any]:
    """Return the figures of a past day, computed once, as a past day does not change."""
    if (known := sources.past_days.get(begin)) is not None:
        return known
    timed = _latest(sources, "EXCHANGE", begin, _TIMED, begin + timedelta(days=1))
    figures = _figures(sources, begin, _durations(timed))
    sources.past_days.clear()
    if datetime.now(UTC) > begin + timedelta(days=1) + _GRACE:
        sources.past_days[begin] = figures
    return figures


def _latest(
    sources: Sources, event: str, since: datetime, most: int, until: datetime | None = None
) -> list[LedgerEntry]:
    """Return at most ``most`` of the latest entries of an event type in a period, newest first."""
    least = since.isoformat(timespec="microseconds")[:19]
    after = None
    if until is not None:
        # The query's own bounds would read every older entry.
        sql = "SELECT seq FROM entries WHERE timestamp < ? ORDER BY timestamp DESC LIMIT 1"
        rows = sources.ledger.select(sql, (until.isoformat(timespec="microseconds")[:19],))
        after = rows[0][0] + 1 if rows else 0
    found = sources.ledger.query(
        event_type=event, order="desc", limit=most, after=after, with_content=False,
        known=sources.known,
    )  # fmt: skip
    return list(itertools.takewhile(lambda entry: entry.timestamp >= least, found))


def _durations(entries: Iterable[LedgerEntry]) -> list[float]:
    """Return the durations of successful calls in milliseconds, ascending."""
    return sorted(
        entry.metadata["latency_ms"]
        for entry in entries
        if entry.metadata.get("outcome") == "success"
        and wording.is_number(entry.metadata.get("latency_ms"))
    )


def _percentile(ascending: list[float], share: float) -> float | None:
    """Return the smallest value that at least this share of the values does not exceed."""
    if not ascending:
        return None
    return ascending[max(0, math.ceil(share * len(ascending)) - 1)]


def _refused(sources: Sources) -> tuple[list[dict[str, Any]], bool]:
    """Return the refused requests of the last 24 hours by key, model and reason, most first.

    The second value is True if there were more requests than are read.
    """
    since = datetime.now(UTC) - timedelta(days=1)
    found = _latest(sources, "PROMPT_REJECTED", since, _REFUSALS)
    names = ("key_id", "requested_model_id", "error_code", "agent_id")
    groups: Counter[tuple[str, ...]] = Counter()
    latest: dict[tuple[str, ...], LedgerEntry] = {}
    for entry in found:
        group = tuple(
            value if isinstance(value := entry.metadata.get(name), str) else "" for name in names
        )
        groups[group] += 1
        latest.setdefault(group, entry)
    most = groups.most_common(_GROUPS)
    keys = key_names(sources.ledger, {group[0] for group, _ in most})
    shown = []
    for group, count in most:
        key_id, model, code, agent = group
        filters = {"outcome": "refused", "since": "24h", "error": code, "key": key_id,
                   "agent": agent, "model": model}  # fmt: skip
        address = urlencode({name: value for name, value in filters.items() if value})
        shown.append(
            {
                "count": count,
                "key": keys.get(key_id, key_id) or agent,
                "model": model,
                "reason": wording.words_of(code),
                "at": latest[group].timestamp,
                "calls": f"/console/calls?{address}",
            }
        )
    return shown, len(found) == _REFUSALS


def _under_way(ledger: LedgerClient) -> list[dict[str, Any]]:
    rows = ledger.select(
        "SELECT dispatch_entry_id, session_id, agent_id, contract_id, attempt FROM in_flight "
        "ORDER BY dispatch_entry_id LIMIT ?",
        (_UNDER_WAY,),
    )
    began = {entry.id: entry for entry in ledger.read_many(str(row[0]) for row in rows)}
    names = ("id", "session_id", "agent_id", "contract_id", "attempt")
    return [
        dict(zip(names, row, strict=True), since=began[row[0]].timestamp if row[0] in began else "")
        for row in rows
    ]


def _alarms(sources: Sources) -> list[LedgerEntry]:
    """Return the latest events that need attention, newest first; of a gate the latest failure."""
    found = (
        sources.ledger.query(
            event_type=event, order="desc", limit=_ALARMS, with_content=False, known=sources.known
        )
        for event in ALARMS
    )
    merged = heapq.merge(*found, key=lambda entry: -place_of(entry.id))
    latest: dict[str, LedgerEntry] = {}
    for entry in merged:
        latest.setdefault(
            entry.submission_id if entry.event_type == "GATE_FAILED" else entry.id, entry
        )
    return list(latest.values())[:_ALARMS]


VIEWS = (View("/", show),)
