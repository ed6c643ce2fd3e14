"""The ledger entry, whose fields never change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class LedgerEntry:
    """An entry of the ledger.

    The writer sets the first six fields. :meth:`LedgerClient.write` overwrites ``id``,
    ``timestamp``, ``previous_hash`` and ``entry_hash``; an append in a transaction leaves them.

    Attributes:
        event_type: name of the event, from :data:`remit.ledger.EVENTS` or the caller's own.
        submission_id: id of the contract, session or work order that the entry belongs to.
        decision: the outcome in a word.
        reason: the reason in a sentence. Wrap it in :func:`remit.ledger.content` if it quotes a
            user or a provider.
        prompts_used: ids of the prompt packs behind the event.
        metadata: data specific to the event, JSON values only.
        id: ``LED-`` and the sequence number, at least 8 lower-case hex digits.
        timestamp: ISO 8601, UTC, microseconds, ``Z``.
        previous_hash: ``entry_hash`` of the preceding entry; empty for the first.
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

    @property
    def seq(self) -> int:
        """The sequence number in the id; -1 if the id is none of a ledger, as before the write."""
        seq = parse_entry_id(self.id)
        return -1 if seq is None else seq

    def to_dict(self) -> dict[str, Any]:
        """Return all ten fields as plain data; nested values are shared, not copied."""
        return {name: getattr(self, name) for name in self.__slots__}


def entry_id(seq: int) -> str:
    """Return the id of the entry at ``seq``: 42 becomes ``LED-0000002a``."""
    return f"LED-{seq:08x}"


def parse_entry_id(value: object) -> int | None:
    """Return the sequence number in an entry id; ``None`` if ``value`` is not an entry id.

    Only the form of :func:`entry_id` is accepted: lower case, at least 8 digits, no needless zeros.
    Whether the entry exists is not checked.
    """
    if not isinstance(value, str) or not value.startswith("LED-"):
        return None
    digits = value[4:]
    if len(digits) < 8:
        return None
    try:
        seq = int(digits, 16)
    except ValueError:
        return None
    return seq if entry_id(seq) == value else None
