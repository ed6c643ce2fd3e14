"""The mark that a sound verification writes for the next verification."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field

from remit.ledger.clock import utc_now
from remit.ledger.store import Store, may_have_left
from remit.ledger.verification.marks import Marks

_NAME = "verification"
_TABLES = {
    "entries": "seq", "shown_lists": "seq", "message_steps": "step_id", "erasures": "seq",
    "contents": "content_id", "shown_contents": "seq",
    "content_subjects": "content_id",
}  # fmt: skip
_ERASED = (
    "contents",
    "shown_contents",
    "content_subjects",
)  # Erasures delete rows of these tables.


@dataclass(slots=True)
class VerifiedMark:
    """The extent of a sound ledger, with values that show cheaply that nothing has changed.

    ``VerifiedMark()`` is an empty mark, which fits no ledger.

    Attributes:
        verified: time of the last full verification, ISO 8601.
        size: number of entries.
        entry_hash: hash of the last entry.
        ends: by column of ids (``seq``, ``content_id``, ``step_id``), the first id that did not
            exist.
        rows: by table, number of rows below that id.
        tree: hash over the stored roots of the complete subtrees of 256 leaves.
        partials: by tree size, in hex, the root over the leaves after its last complete subtree, if
            a checkpoint needs it.
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
        """Return the last mark of a root; a mark of no entries if there is no valid one.

        Args:
            marks: marks of the root; ``None`` for a ledger without a root.
        """
        return cls(**(marks.read(_NAME) if marks is not None else {}))

    def write(self, marks: Marks, store: Store) -> None:
        """Replace the root's mark by this object, after setting ``rows``.

        ``rows`` becomes the present number of rows of each table below its end in ``ends``. Without
        the ledger's private key nothing is written, and a failure to write is ignored; see
        :meth:`Marks.write`.

        Args:
            marks: the marks of the root.
            store: the store of the ledger, whose rows are counted.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        self.rows, _ = self._counted(store)
        marks.write(_NAME, asdict(self))

    def is_of(self, store: Store) -> bool:
        """Return True if the ledger has as many marked rows as then, except for values erased
        since.

        An empty mark fits no ledger. Only numbers of rows are compared.

        Args:
            store: the store of the ledger.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        if not self.size:
            return False
        rows, erased = self._counted(store)
        if erased and self.rows["contents"] - erased <= rows["contents"]:
            rows |= {table: self.rows[table] for table in _ERASED}
        return rows == self.rows

    def contradiction(self, store: Store, size: int) -> str:
        """Return how a ledger of ``size`` entries contradicts the mark, as a clause; empty if it
        does not.

        The ledger contradicts the mark if verified entries are missing or differ. Only the last
        verified entry is compared; an archived one is not compared. An empty mark contradicts
        nothing.

        Args:
            store: the store of the ledger.
            size: number of entries in the ledger.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        before = f"{self.size} entries were verified here"
        if self.size > size:
            return f"{before}, and there are {size}: the ledger was cut off, or is an older copy"
        row = store.get(self.size - 1) if self.size else None
        left = row is None and may_have_left(store.select, self.size - 1)
        if self.size and not left and (row is None or row.entry_hash != self.entry_hash):
            return f"{before}, and they were others: history was rewritten, or this is another copy"
        return ""

    def _counted(self, store: Store) -> tuple[dict[str, int], int]:
        """Return each table's rows below its end, and the number of values erased since."""
        counts = [f"(SELECT count(*) FROM {table})" for table in _TABLES]
        later = [f"(SELECT count(*) FROM {table} WHERE {_TABLES[table]} >= ?)" for table in _TABLES]
        ends = [self.ends.get(_TABLES[table], 0) for table in _TABLES]
        ((*found,),) = store.select(f"SELECT {', '.join(counts + later)}", ends)
        numbers = zip(_TABLES, found, found[len(_TABLES) :], strict=False)
        rows = {table: every - new for table, every, new in numbers}
        return rows, found[len(_TABLES) + list(_TABLES).index("erasures")]


def tree_digest(roots: list[bytes]) -> str:
    """Return the SHA-256, in hex, over the roots of complete subtrees, joined.

    Args:
        roots: roots of the subtrees, left to right.
    """
    return hashlib.sha256(b"".join(roots)).hexdigest()
