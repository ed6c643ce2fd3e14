"""What was let pass, on record: ``CONFIG_CHANGED`` entries that later ones withdraw."""

from __future__ import annotations

from typing import Any

from remit.ledger import LedgerClient, LedgerEntry, is_authentic

EDITABLE_INSTALL = "editable_install"
"""The running code has no hashes to be compared with."""


def record_waiver(
    ledger: LedgerClient, kind: str, reason: str, *, by: str, **more: Any
) -> LedgerEntry:
    """Write that ``kind`` is let pass, and why."""
    entry = LedgerEntry(
        event_type="CONFIG_CHANGED",
        submission_id=f"waiver:{kind}",
        decision="WAIVED",
        reason=reason,
        metadata={"waiver": kind, "by": by, **more},
    )
    ledger.write(entry)
    return entry


def waived(ledger: LedgerClient, kind: str) -> str:
    """The id of the entry that lets ``kind`` pass; empty when none does, or no longer."""
    found = ledger.query(event_type="CONFIG_CHANGED", submission_id=f"waiver:{kind}", order="desc")
    newest = next(filter(is_authentic, found), None)
    return newest.id if newest is not None and newest.decision == "WAIVED" else ""
