"""What a verification that found nothing wrong keeps for the next one."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field

from remit.ledger.entry import utc_now
from remit.ledger.marks import Marks
from remit.ledger.store import Store, may_have_left

_NAME = "verification"
_TABLES = {
    "entries": "seq", "shown_lists": "seq", "message_steps": "step_id", "erasures": "seq",
    "contents": "content_id", "shown_contents": "seq",
    "content_subjects": "content_id",
}  # fmt: skip
_ERASED = ("contents", "shown_contents", "content_subjects")  # what erasures take rows from


@dataclass(slots=True)
class VerifiedMark:
    """A sound ledger: how far it was verified, and what shows cheaply that it is that one still.

    Attributes:
        verified: when everything was checked, ISO 8601.
        size: how many entries there were.
        entry_hash: of the last one.
        ends: by table, the first id that was not there.
        rows: by table, how many rows there were before.
        tree: hash over the stored roots of its complete subtrees of 256 leaves.
        partials: by size of tree, in hex the root over the leaves after its last complete subtree,
            where a checkpoint needs it.
    """

    verified: str = field(default_factory=utc_now)
    size: int = 0
    entry_hash: str = ""
    ends: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    tree: str = ""
    partials: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, marks: Marks | None) -> VerifiedMark:
        """The last one of a root; without one, that of no entries."""
        return cls(**(marks.read(_NAME) if marks is not None else {}))

    def write(self, marks: Marks, store: Store) -> None:
        """Keep it in place of the one before."""
        self.rows, _ = self._counted(store)
        marks.write(_NAME, asdict(self))

    def is_of(self, store: Store) -> bool:
        """Whether a ledger has as many rows under it as it had, but for what was erased since."""
        if not self.size:
            return False
        rows, erased = self._counted(store)
        if erased and self.rows["contents"] - erased <= rows["contents"]:
            rows |= {table: self.rows[table] for table in _ERASED}
        return rows == self.rows

    def contradiction(self, store: Store, size: int) -> str:
        """What a ledger of ``size`` entries lacks of those that were verified; empty if nothing."""
        before = f"{self.size} entries were verified here"
        if self.size > size:
            return f"{before}, and there are {size}: the ledger was cut off, or is an older copy"
        row = store.get(self.size - 1) if self.size else None
        left = row is None and may_have_left(store.select, self.size - 1)
        if self.size and not left and (row is None or row.entry_hash != self.entry_hash):
            return f"{before}, and they were others: history was rewritten, or this is another copy"
        return ""

    def _counted(self, store: Store) -> tuple[dict[str, int], int]:
        """The rows of each table before its end, and how many values were erased since."""
        counts = [f"(SELECT count(*) FROM {table})" for table in _TABLES]
        later = [f"(SELECT count(*) FROM {table} WHERE {_TABLES[table]} >= ?)" for table in _TABLES]
        ends = [self.ends.get(_TABLES[table], 0) for table in _TABLES]
        ((*found,),) = store.select(f"SELECT {', '.join(counts + later)}", ends)
        numbers = zip(_TABLES, found, found[len(_TABLES) :], strict=False)
        rows = {table: every - new for table, every, new in numbers}
        return rows, found[len(_TABLES) + list(_TABLES).index("erasures")]


def tree_digest(roots: list[bytes]) -> str:
    """A hash over the roots of complete subtrees."""
    return hashlib.sha256(b"".join(roots)).hexdigest()
