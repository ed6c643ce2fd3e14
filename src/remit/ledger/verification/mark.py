"""What a verification that found nothing wrong keeps for the next one."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, field

from remit.ledger.marks import Marks
from remit.ledger.store import Store
from remit.ledger.verification.digests import RowDigest

_NAME = "verification"


@dataclass(slots=True)
class VerifiedMark:
    """A sound ledger, by digests of all that was read.

    What is wrong with a range of rows follows from the rows that are read for it (those of other
    tables that they name included), from the erasures, and from the ranges of content and
    message steps. So a range that has the digest it had when all was sound is sound.

    Attributes:
        size: entries that there were.
        entry_hash: of the last of them.
        verified: when all of it was checked the last time, ISO 8601.
        erasures: digest of what was erased under these entries.
        contents: digests of the ranges of content, by their first id.
        steps: those of the message steps.
        entries: those of the entries.
        partials: by tree size, hexadecimal, the root over the leaves after its last complete
            subtree of 256: see :class:`~remit.ledger.verification.entries.EntryRange`.
    """

    size: int = 0
    entry_hash: str = ""
    verified: str = ""
    erasures: str = ""
    contents: dict[str, str] = field(default_factory=dict)
    steps: dict[str, str] = field(default_factory=dict)
    entries: dict[str, str] = field(default_factory=dict)
    partials: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, marks: Marks | None) -> VerifiedMark:
        """The last one of a root; without one, that of no entries."""
        return cls(**marks.read(_NAME)) if marks is not None else cls()

    def write(self, marks: Marks, store: Store) -> None:
        """Keep it in place of the one before, with what was erased until now."""
        self.erasures = erasures_digest(store, self.size)
        marks.write(_NAME, asdict(self))

    def entries_known(self, first: int, sizes: Collection[int]) -> str:
        """The digest of a range of entries; empty where a root is wanted that is not known."""
        if any(str(size) not in self.partials for size in sizes):
            return ""
        return self.entries.get(str(first), "")

    def contradiction(self, store: Store, size: int) -> str:
        """What a ledger of ``size`` entries lacks of those that were verified; empty if nothing."""
        told = f"{self.size} entries were verified here"
        if self.size > size:
            return f"{told}, and there are {size}: the ledger was cut off, or is an older copy"
        row = store.get(self.size - 1) if self.size else None
        if self.size and (row is None or row.entry_hash != self.entry_hash):
            return f"{told}, and they were others: history was rewritten, or this is another copy"
        return ""


def erasures_digest(store: Store, size: int) -> str:
    """What is noted as erased under the first ``size`` entries."""
    digest = RowDigest()
    for (seq,) in store.select(
        "SELECT DISTINCT seq FROM erasures WHERE seq <= ? ORDER BY seq", (size - 1,)
    ):
        digest.add([(seq, *sorted(store.erased_under(seq)))])
    return str(digest)
