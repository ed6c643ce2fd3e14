"""Entries that record the windows of budgets."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from remit.kernel.budget_values import BudgetStatus, usd_of
from remit.ledger import LedgerEntry


def reset_metadata(period: str, time_zone: str, end: int) -> dict[str, str]:
    """Return the metadata that describes a window: period, time zone and end.

    Args:
        period: name of the window's length, such as ``month``.
        time_zone: name of the time zone.
        end: end of the window, in seconds since 1970.
    """
    return {"window": period, "time_zone": time_zone, "window_end": _utc(end)}


def window_entry(passed: BudgetStatus, now: BudgetStatus, *, begun: bool) -> LedgerEntry:
    """Return the entry that begins or shortens a window, with its limits and the earlier spending.

    Not yet written; a ``BUDGET_ALLOCATED`` with the decision ``RESET`` or ``WINDOW_SHORTENED``.

    Args:
        passed: the account before the change.
        now: the account after the change.
        begun: True for a new window, False for a shortened one.
    """
    metadata: dict[str, Any] = {
        "scope": now.scope,
        "session_id": "",
        "token_limit": now.token_limit,
        "turn_limit": now.turn_limit,
        **reset_metadata(now.period, now.time_zone, now.window_end),
        "passed": {
            "window_end": _utc(passed.window_end),
            "spent_tokens": passed.spent_tokens,
            "spent_usd": usd_of(passed.spent_nano),
            "turns": passed.turns,
        },
    }
    if now.nano_limit is not None:
        metadata["usd_limit"] = usd_of(now.nano_limit)
    for name in ("requests_per_minute", "tokens_per_minute"):
        if (value := getattr(now, name)) is not None:
            metadata[name] = value
    if now.on_short:
        metadata["on_short"] = now.on_short
    return LedgerEntry(
        event_type="BUDGET_ALLOCATED",
        submission_id=now.scope,
        decision="RESET" if begun else "WINDOW_SHORTENED",
        reason=(
            "A new window of the budget began"
            if begun
            else "The window had been begun by a clock that was far ahead"
        ),
        metadata=metadata,
    )


def _utc(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
