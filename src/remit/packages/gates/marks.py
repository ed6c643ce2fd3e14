"""How far an earlier run of a gate read, so that a great ledger need not be read anew."""

from __future__ import annotations

from dataclasses import dataclass

from remit.ledger import LedgerClient

__all__ = ["Mark", "last_mark"]


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a gate that passed had got to.

    Attributes:
        verified_entries: all entries before this sequence number were read.
        resume_at: sequence number from which on an entry may still matter; at most the other.
        entry_id: of the ``GATE_PASSED`` that says so.
        timestamp: its time, as the ledger has it.
    """

    verified_entries: int
    resume_at: int
    entry_id: str
    timestamp: str


def last_mark(ledger: LedgerClient, gate: str, entries: int, *, full_entries: int) -> Mark | None:
    """The mark to go on from; ``None`` when everything is to be read.

    Args:
        ledger: where it is.
        gate: whose.
        entries: how many there are in the ledger.
        full_entries: a ledger of at most so many is read whole.
    """
    if entries <= full_entries:
        return None
    for entry in ledger.query(
        event_type="GATE_PASSED", submission_id=gate, order="desc", limit=1, with_content=False
    ):
        read, resume = (entry.metadata.get(name) for name in ("verified_entries", "resume_at"))
        resume = read if resume is None else resume
        # Who speaks of entries that are not there is not believed.
        if type(read) is int and type(resume) is int and 0 <= resume <= read <= entries:
            return Mark(read, resume, entry.id, entry.timestamp)
    return None
