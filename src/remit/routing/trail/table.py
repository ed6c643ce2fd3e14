"""The table ``thoughts``: each record's place in its chain (``docs/trail.md``).

It is beside the ledger's own tables and written with the entry, in one transaction. Appending and
looking up so never scan, and a chain can still be followed where content was erased.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from remit.ledger import LedgerClient, is_plain_text

__all__ = [
    "EVENT",
    "INSERT",
    "Row",
    "last_seq",
    "row_of",
    "rows_of",
    "stray_rows",
]

EVENT = "THOUGHT_RECORD"
"""The event type of thought records."""

INSERT = (
    "INSERT INTO thoughts (seq, task_id, position, thought_id, prev_hash, hash) "
    "VALUES (?, ?, ?, ?, ?, ?)"
)
_COLUMNS = "t.seq, t.task_id, t.position, t.thought_id, t.prev_hash, t.hash"
_PAGE = 500
_LARGEST = 2**63 - 1  # in SQLite texts and blobs are greater than any number


class Row(NamedTuple):
    """A row of the table, with what the row before it in the chain says.

    Attributes:
        seq: of the ledger entry.
        position: in the task's chain, from 0.
        before_seq: ``seq`` of the task's row at ``position - 1``; ``None`` where there is none.
        before_hash: its ``hash``.
    """

    seq: int
    task_id: str
    position: int
    thought_id: str
    prev_hash: str
    hash: str
    before_seq: int | None = None
    before_hash: str | None = None

    @property
    def is_sound(self) -> bool:
        """Whether all is of its type: SQLite keeps any, whatever the column's."""
        numbers = (self.seq, self.position, self.before_seq or 0)
        texts = (self.task_id, self.thought_id, self.prev_hash, self.hash)
        return all(type(number) is int for number in numbers) and all(
            isinstance(text, str) for text in texts
        )

    @property
    def columns(self) -> tuple[Any, ...]:
        """The values of :data:`INSERT`."""
        return self[:6]

    @property
    def place(self) -> str:
        """The ledger entry, or where no entry can have that number, the row."""
        if type(self.seq) is int and self.seq >= 0:
            return f"LED-{self.seq:08x}"
        return f"the row of seq {self.seq!r}"


def last_seq(ledger: LedgerClient) -> int:
    """The last sequence number of any entry or row; what comes later is left to the next look."""
    rows = ledger.select("SELECT max(seq) FROM thoughts WHERE seq <= ?", (_LARGEST,))
    head = ledger.head()
    of_rows = rows[0][0] if rows else None
    return max(-1 if of_rows is None else int(of_rows), head[0] if head else -1)


def stray_rows(ledger: LedgerClient, task_id: str | None) -> list[Row]:
    """Rows whose ``seq`` is that of no entry there could be; few, and none where all is well."""
    sql = f"SELECT {_COLUMNS} FROM thoughts AS t WHERE (t.seq < 0 OR t.seq > ?) "
    given: tuple[Any, ...] = (_LARGEST,)
    if task_id is not None:
        sql += "AND t.task_id = ? "
        given = (*given, task_id)
    return [Row(*row) for row in ledger.select(f"{sql}LIMIT {_PAGE}", given)]


def rows_of(ledger: LedgerClient, task_id: str | None, last: int) -> Iterator[Row]:
    """Rows up to the entry ``last``, page by page: by ``seq``, or a task's by ``position``."""
    key = "t.seq" if task_id is None else "t.position"
    of_task = "" if task_id is None else "t.task_id = ? AND "
    sql = (
        f"SELECT {_COLUMNS}, p.seq, p.hash FROM thoughts AS t LEFT JOIN thoughts AS p "
        f"ON p.task_id = t.task_id AND p.position = t.position - 1 WHERE {of_task}{key} > ? "
        f"AND t.seq <= ? ORDER BY {key} LIMIT ?"
    )
    behind = -1
    while True:
        given = (behind, last, _PAGE)
        found = ledger.select(sql, given if task_id is None else (task_id, *given))
        for row in found:
            yield Row(*row)
        if len(found) < _PAGE:
            return
        behind = found[-1][0 if task_id is None else 2]


def row_of(ledger: LedgerClient, thought_id: str) -> Row | None:
    """The row of a thought; ``None`` where there is none."""
    sql = f"SELECT {_COLUMNS} FROM thoughts AS t WHERE t.thought_id = ?"
    rows = ledger.select(sql, (thought_id,)) if is_plain_text(thought_id) else []
    return Row(*rows[0]) if rows else None
