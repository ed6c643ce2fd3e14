"""Conversations in few transactions: the least that can be archived is 256 entries."""

from __future__ import annotations

from typing import Any

from remit.ledger import LedgerClient, LedgerEntry

__all__ = ["conversation_of", "sessions", "unguarded"]


def unguarded(tx: Any) -> None:
    """Be the guard of a run without a lease, where no other process can run."""


def conversation_of(name: str, turns: int, size: int = 0) -> list[LedgerEntry]:
    """Exchanges that each send again what was said before."""
    entries: list[LedgerEntry] = []
    messages: list[dict[str, str]] = []
    for turn in range(turns):
        messages.append({"role": "user", "content": f"question {turn} of {name}{' x' * size}"})
        metadata: dict[str, Any] = {
            "session_id": name, "prompt": list(messages), "response": f"answer {turn} of {name}",
        }  # fmt: skip
        entries.append(LedgerEntry("EXCHANGE", "P", "SUCCESS", "done", metadata=metadata))
        messages.append({"role": "assistant", "content": f"answer {turn} of {name}"})
    return entries


def sessions(
    client: LedgerClient, number: int, turns: int = 6, size: int = 0, leading: int = 3
) -> None:
    """Entries that stay, and sessions of so many turns, each of one of four people."""
    client.write_many([LedgerEntry("NOTE", "S", "D", "r") for _ in range(leading)])
    for count in range(number):
        entries = conversation_of(f"SES-{count}", turns, size)
        client.write_many(entries, subject_id=f"person{count % 4}")
