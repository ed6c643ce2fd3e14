"""Entries in a line each, the same in a page and in a live event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.ledger import LedgerEntry
from remit.views import wording

ALARMS = (
    "BUDGET_WARNING", "DEGRADATION", "ESCALATION", "EXCHANGE_ORPHANED", "GATE_FAILED",
    "PROMPT_REJECTED", "SIGNAL_OBSERVED",
)  # fmt: skip
"""Events that somebody may have to look at."""

WAITING = ("APPROVAL_REQUESTED",)

_LONGEST = 300  # characters of a live event's cell: all who watch are sent it

SHOWN_LIVE = frozenset({"EXCHANGE", *ALARMS, *WAITING})


def live_row(entry: LedgerEntry) -> dict[str, Any]:
    """A line: ``id``, ``kind`` (``call`` or ``alarm``), ``tone``, ``cells`` (visible texts)."""
    row = call_row(entry) if entry.event_type == "EXCHANGE" else alarm_row(entry)
    return {**row, "cells": [wording.visible(cell)[:_LONGEST] for cell in row["cells"]]}


def call_row(entry: LedgerEntry) -> dict[str, Any]:
    """A model call: time, who asked, model, outcome, tokens, cost, duration."""
    data = entry.metadata
    outcome = str(data.get("outcome", ""))
    model = str(data.get("model_id", ""))
    if data.get("fallback_from"):
        model += " (fallback)"
    return {
        "id": entry.id,
        "kind": "call",
        "tone": wording.tone(outcome),
        "cells": [
            time_of(entry.timestamp),
            str(data.get("agent_id", "")),
            model,
            str(wording.words_of(data.get("error_code") or outcome)),
            wording.tokens(data).removesuffix(" tokens"),
            wording.one_cost(data),
            wording.duration(data.get("latency_ms")),
        ],
    }


def alarm_row(entry: LedgerEntry) -> dict[str, Any]:
    """Something to look at: time, what it is, who, why as far as that is no content."""
    event = entry.event_type
    return {
        "id": entry.id,
        "kind": "alarm",
        "tone": "wait" if event in WAITING else "bad",
        "cells": [
            time_of(entry.timestamp),
            wording.words_of(event),
            named(entry.metadata, "agent_id") or entry.submission_id,
            str(wording.words_of(entry.metadata.get("error_code") or ""))
            or named(entry.metadata, "tool_id")
            or _plain(entry.reason),
        ],
    }


def time_of(timestamp: str) -> str:
    """``08:20:11`` of today's entries' form; the day stands in the entry's page."""
    return timestamp[11:19]


def named(metadata: Mapping[str, Any], key: str) -> str:
    """A name from the metadata, or from its provenance."""
    provenance = metadata.get("provenance")
    value = metadata.get(key) or (provenance.get(key) if isinstance(provenance, dict) else "")
    return value if isinstance(value, str) else ""


def _plain(reason: Any) -> str:
    return reason if isinstance(reason, str) else ""
