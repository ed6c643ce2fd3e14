"""The ledger entry: layer 0, its fields never change."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any


@dataclass(slots=True)
class LedgerEntry:
    """One record of the ledger.

    The first six fields are the writer's; ``id``, ``timestamp``, ``previous_hash`` and
    ``entry_hash`` are overwritten by the ledger on write.

    Attributes:
        event_type: what happened, a name of :data:`remit.ledger.EVENTS` or the caller's own.
        submission_id: what it belongs to: a contract, a session, a work order.
        decision: the outcome in a word.
        reason: why, a sentence. Wrap it in :func:`remit.ledger.contents` where it quotes a
            user or a provider.
        prompts_used: ids of the prompt packs behind the event.
        metadata: everything specific to the event, JSON values only.
        id: ``LED-`` and the sequence number, at least 8 lower-case hex digits.
        timestamp: ISO 8601, UTC, microseconds, ``Z``.
        previous_hash: the entry before's ``entry_hash``; empty for the first.
        entry_hash: SHA-256 of the canonical record, 64 lower-case hex digits.
    """

    event_type: str
    submission_id: str
    decision: str
    reason: str
    prompts_used: list[str] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    id: str = ""
    timestamp: str = ""
    previous_hash: str = ""
    entry_hash: str = ""

    def to_dict(self) -> dict[str, Any]:
        """All ten fields, as plain data (nested values are shared, not copied)."""
        return {name: getattr(self, name) for name in self.__slots__}


_second = [(0, "")]  # the last second that was written out


def utc_now() -> str:
    """The current time as entries state it: ISO 8601, UTC, microseconds, ``Z``."""
    second, micros = divmod(time.time_ns() // 1000, 1_000_000)
    known = _second[0]
    if known[0] != second:
        moment = datetime.fromtimestamp(second, UTC).isoformat(timespec="seconds")
        known = _second[0] = (second, moment[:19])
    return f"{known[1]}.{micros:06d}Z"


def entry_id(seq: int) -> str:
    """The id of the entry at ``seq``: 42 → ``LED-0000002a``."""
    return f"LED-{seq:08x}"


def parse_entry_id(value: str) -> int | None:
    """The sequence number behind an entry id, or ``None`` where it is not one."""
    digits = value[4:]
    if not value.startswith("LED-") or len(digits) < 8:
        return None
    try:
        seq = int(digits, 16)
    except ValueError:
        return None
    return seq if entry_id(seq) == value else None
