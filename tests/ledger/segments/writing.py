"""Conversations in few transactions: the smallest segment is a range of 256 entries."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from remit.ledger import LedgerClient, LedgerEntry
from remit.ledger.segments import SegmentReport, move_to_segment

__all__ = ["attached", "conversation_of", "cut_off", "problems", "sessions", "unguarded"]


def unguarded(tx: Any) -> None:
    """Be the guard of a run without a lease, where no other process can run."""


def cut_off(
    client: LedgerClient, directory: Path, end: int = 256, carry: Any = lambda *_: {}
) -> SegmentReport:
    """Move the entries before ``end`` to a segment."""
    return move_to_segment(client, end, directory, by="ann", carry=carry, guard=unguarded)


@contextlib.contextmanager
def attached(client: LedgerClient, *directories: Path) -> Iterator[LedgerClient]:
    """The ledger with the segments in some directories, for the block."""
    client.attach(directories)
    try:
        yield client
    finally:
        client.detach()


def problems(client: LedgerClient, *directories: Path) -> list[str]:
    """What a verification of the ledger and its segments reports."""
    with attached(client, *directories):
        return [str(problem) for problem in client.verify().problems]


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
