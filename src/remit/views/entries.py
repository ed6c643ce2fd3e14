"""Entries as journeys read them: their place, their work order, their values as plain data."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from remit.ledger import Erased, LedgerEntry

__all__ = ["between_ms", "order_of", "place_of", "plain", "session_of"]


def place_of(entry_id: str) -> int:
    """The sequence number behind an entry id; -1 where it is none."""
    try:
        return int(entry_id.removeprefix("LED-"), 16) if entry_id else -1
    except ValueError:
        return -1


def order_of(entry: LedgerEntry) -> str:
    """The work order that an entry belongs to; empty without one."""
    return _named(entry, "work_order_id")


def session_of(entry: LedgerEntry) -> str:
    """The session that an entry belongs to; empty without one."""
    return _named(entry, "session_id")


def plain(value: Any, *, commitments: bool = False) -> Any:
    """``value`` as JSON data; what was erased is ``{"$erased": entry id or None}``.

    A key of the record's own that looks like a marker's gets one more ``$`` in front: what a
    model wrote is never taken for content that is gone.

    Args:
        value: from an entry's metadata.
        commitments: whether it was read without content, so that commitments stand in it.
    """
    if isinstance(value, Erased):
        return {"$erased": value.erasure_id}
    if isinstance(value, dict):
        if commitments and value.keys() in _COMMITMENTS:
            return dict(value)
        return {
            f"${key}" if isinstance(key, str) and _LIKE_A_MARKER.fullmatch(key) else key: plain(
                item, commitments=commitments
            )
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [plain(item, commitments=commitments) for item in value]
    return value


_LIKE_A_MARKER = re.compile(r"\$+(?:erased|content|messages)")
_COMMITMENTS = ({"$content", "bytes"}, {"$messages", "count"})


def between_ms(start: str | None, end: str | None) -> float | None:
    """Milliseconds from one timestamp to another, never below 0; ``None`` where one is missing."""
    if not start or not end:
        return None
    passed = datetime.fromisoformat(end) - datetime.fromisoformat(start)
    return max(0.0, round(passed.total_seconds() * 1000, 3))


def _named(entry: LedgerEntry, name: str) -> str:
    """A name as the ledger's columns have it: on top, else in the provenance."""
    provenance = entry.metadata.get("provenance")
    value = entry.metadata.get(name)
    if not value and isinstance(provenance, dict):
        value = provenance.get(name)
    return value if isinstance(value, str) else ""
