"""The start page: calls in flight, latest calls and events that need attention."""

from __future__ import annotations

import heapq
from typing import Any

from remit.ledger import LedgerClient, LedgerEntry
from remit.server.console.pages import Asked, Page, Sources, View
from remit.server.console.rows import ALARMS, WAITING, alarm_row, call_row
from remit.views.entries import place_of

_CALLS = 25
_ALARMS = 12
_UNDER_WAY = 50


def show(sources: Sources, asked: Asked) -> Page:
    """Return the start page: calls in flight, latest calls, open circuits and alarms.

    Alarms are entries that need attention.

    Args:
        sources: the data sources.
        asked: not used.
    """
    ledger = sources.ledger
    exchanges = ledger.query(event_type="EXCHANGE", order="desc", limit=_CALLS, with_content=False)
    breakers = [
        (f"{provider}/{model}", breaker.state)
        for (provider, model), breaker in sorted(sources.runtime.gateway.breakers.items())
        if str(breaker.state).upper() != "CLOSED"
    ]
    return Page(
        "now.html.j2",
        {
            "entries": ledger.count(),
            "under_way": _under_way(ledger),
            "calls": [call_row(entry) for entry in exchanges],
            "alarms": [alarm_row(entry) for entry in _alarms(ledger)],
            "breakers": breakers,
            "outage": sources.runtime.ledger.outage.reason,
            "most_calls": _CALLS,
            "most_alarms": _ALARMS,
        },
    )


def _under_way(ledger: LedgerClient) -> list[dict[str, Any]]:
    rows = ledger.select(
        "SELECT dispatch_entry_id, session_id, agent_id, contract_id, attempt FROM in_flight "
        "ORDER BY dispatch_entry_id LIMIT ?",
        (_UNDER_WAY,),
    )
    began = {entry.id: entry for entry in _entries(ledger, [str(row[0]) for row in rows])}
    names = ("id", "session_id", "agent_id", "contract_id", "attempt")
    return [
        dict(zip(names, row, strict=True), since=began[row[0]].timestamp if row[0] in began else "")
        for row in rows
    ]


def _entries(ledger: LedgerClient, ids: list[str]) -> list[LedgerEntry]:
    return list(ledger.read_many(ids))


def _alarms(ledger: LedgerClient) -> list[LedgerEntry]:
    """Return the latest events that need attention, newest first."""
    found = (
        ledger.query(event_type=event, order="desc", limit=_ALARMS, with_content=False)
        for event in (*ALARMS, *WAITING)
    )
    merged = heapq.merge(*found, key=lambda entry: -place_of(entry.id))
    return [entry for entry, _ in zip(merged, range(_ALARMS), strict=False)]


VIEWS = (View("/", show),)
