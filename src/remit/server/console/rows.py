"""Table rows of entries, the same in pages and live events."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from typing import Any

from remit.ledger import LedgerClient, LedgerEntry, LedgerError
from remit.views import wording
from remit.views.entries import named

ALARMS = (
    "BUDGET_WARNING", "DEGRADATION", "ESCALATION", "EXCHANGE_ORPHANED", "GATE_FAILED",
    "SIGNAL_OBSERVED",
)  # fmt: skip
"""Event types that may need attention, except for refused requests, which are shown in groups."""

WAITING = ("APPROVAL_REQUESTED",)

_AMOUNTS = frozenset({"amount", "usd", "eur", "gbp", "chf", "price", "total", "sum", "cost"})
_MOST_CENTS = 1e13  # Above it a float cannot hold every cent.
_LONGEST = 300  # Every viewer receives each cell, so long texts are cut.

SHOWN_LIVE = frozenset({"EXCHANGE", *ALARMS, *WAITING})


def live_row(entry: LedgerEntry) -> dict[str, Any]:
    """Return a live event's row. Each cell is cut to 300 characters.

    Args:
        entry: an ``EXCHANGE``, or an event of :data:`SHOWN_LIVE`.

    Returns:
        The keys of :func:`call_row` for an ``EXCHANGE``, else of :func:`alarm_row`. In ``cells``,
        control characters are written out, as ``\\x1b``, before the cut.
    """
    row = call_row(entry) if entry.event_type == "EXCHANGE" else alarm_row(entry)
    return {**row, "cells": [wording.visible(cell)[:_LONGEST] for cell in row["cells"]]}


def call_row(entry: LedgerEntry) -> dict[str, Any]:
    """Return the row of a model call: time, agent, model, outcome, tokens, cost and duration.

    Keys are ``id``, ``at``, ``kind`` (``call``), ``tone`` and ``cells``, which are texts. The
    outcome of a failed call is its error; the model has ``(fallback)`` after it if others failed.

    Args:
        entry: an ``EXCHANGE``; its content is not needed.
    """
    data = entry.metadata
    outcome = str(data.get("outcome", ""))
    model = str(data.get("model_id", ""))
    if data.get("fallback_from"):
        model += " (fallback)"
    return {
        "id": entry.id,
        "at": entry.timestamp,
        "kind": "call",
        "tone": wording.tone(outcome),
        "cells": [
            wording.moment(entry.timestamp),
            str(data.get("agent_id", "")),
            model,
            str(wording.words_of(data.get("error_code") or outcome)),
            wording.tokens(data).removesuffix(" tokens"),
            wording.one_cost(data),
            wording.duration(data.get("latency_ms")),
        ],
    }


def alarm_row(entry: LedgerEntry) -> dict[str, Any]:
    """Return the row of an event: time, event, agent, and a reason.

    Keys are ``id``, ``at``, ``kind`` (``alarm``), ``tone`` (``wait`` for approval requests, else
    ``bad``) and ``cells``, which are texts. The agent is the entry's subject if none is named. The
    reason is the error code in words, else the tool, else a gate's problems, else the recorded
    reason.

    Args:
        entry: an event that needs attention; content is needed only of :func:`with_problems`.
    """
    event = entry.event_type
    return {
        "id": entry.id,
        "at": entry.timestamp,
        "kind": "alarm",
        "tone": "wait" if event in WAITING else "bad",
        "cells": [
            wording.moment(entry.timestamp),
            wording.words_of(event),
            named(entry.metadata, "agent_id") or entry.submission_id,
            str(wording.words_of(entry.metadata.get("error_code") or ""))
            or named(entry.metadata, "tool_id")
            or problems_of(entry)
            or _plain(entry.reason),
        ],
    }


def key_names(ledger: LedgerClient, key_ids: Collection[str]) -> dict[str, str]:
    """Return the names of some virtual keys, keyed by id; unknown ids are left out.

    Args:
        ledger: the ledger that records the keys.
        key_ids: ids of at most a page's keys; empty and unprintable ones are ignored.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    # PostgreSQL refuses an empty list and a text with a NUL.
    ids = [one for one in key_ids if one and one.isprintable()]
    if not ids:
        return {}
    marks = ", ".join("?" * len(ids))
    rows = ledger.select(f"SELECT key_id, name FROM usage_keys WHERE key_id IN ({marks})", ids)
    return {str(key_id): str(name) for key_id, name in rows}


def amounts_of(arguments: Any) -> list[tuple[str, str]]:
    """Return name and value of a tool's arguments that are amounts of money by their name.

    Nothing is returned for erased arguments and for arguments without numbers.
    """
    if not isinstance(arguments, Mapping):
        return []
    return [
        (name, _amount_text(value))
        for name, value in arguments.items()
        if wording.is_number(value) and _AMOUNTS & {*name.lower().split("_")}
    ]


def _amount_text(value: float) -> str:
    """Return an amount with two decimals if these are exact and it has any; else unchanged."""
    has_cents = isinstance(value, float) and value == round(value, 2) and abs(value) < _MOST_CENTS
    return f"{value:,.2f}" if has_cents else f"{value:,}"


def with_problems(ledger: LedgerClient, entry: LedgerEntry) -> LedgerEntry:
    """Return a failed gate with its problems, which are content; any other entry unchanged.

    A gate whose problems cannot be read is returned unchanged too.
    """
    if entry.event_type == "GATE_FAILED":
        with contextlib.suppress(LedgerError):
            return ledger.read(entry.id)
    return entry


def problems_of(entry: LedgerEntry) -> str:
    """Return the number of problems of a failed gate and the first one, cut; empty if there is none
    or it was erased.

    Args:
        entry: an entry with its content.
    """
    found = entry.metadata.get("problems")
    if not isinstance(found, list) or not found or not isinstance(first := found[0], str):
        return ""
    return f"{f'{entry.reason}; first: ' if len(found) > 1 else ''}{first}"[:_LONGEST]


def _plain(reason: Any) -> str:
    return reason if isinstance(reason, str) else ""
