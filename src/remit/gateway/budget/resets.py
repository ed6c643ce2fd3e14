"""What is on record when a window of a budget begins."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from remit.kernel.budget import BudgetStatus, usd_of
from remit.ledger import LedgerEntry

__all__ = ["reset_entry", "reset_metadata"]


def reset_metadata(period: str, time_zone: str, end: int) -> dict[str, str]:
    """What entries say of a window: where it is, and when it ends."""
    return {"window": period, "time_zone": time_zone, "window_end": _utc(end)}


def reset_entry(passed: BudgetStatus, begun: BudgetStatus) -> LedgerEntry:
    """The entry that begins a window: with the limits, and what the one before came to."""
    metadata: dict[str, Any] = {
        "scope": begun.scope,
        "session_id": "",
        "token_limit": begun.token_limit,
        "turn_limit": begun.turn_limit,
        **reset_metadata(begun.period, begun.time_zone, begun.window_end),
        "passed": {
            "window_end": _utc(passed.window_end),
            "spent_tokens": passed.spent_tokens,
            "spent_usd": usd_of(passed.spent_nano),
            "turns": passed.turns,
        },
    }
    if begun.nano_limit is not None:
        metadata["usd_limit"] = usd_of(begun.nano_limit)
    for name in ("requests_per_minute", "tokens_per_minute"):
        if (value := getattr(begun, name)) is not None:
            metadata[name] = value
    if begun.on_short:
        metadata["on_short"] = begun.on_short
    return LedgerEntry(
        event_type="BUDGET_ALLOCATED",
        submission_id=begun.scope,
        decision="RESET",
        reason="A new window of the budget began",
        metadata=metadata,
    )


def _utc(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
