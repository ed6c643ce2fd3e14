"""The table ``thoughts``: each record's place in its chain (``docs/trail.md``), read back.

It is beside the ledger's own tables and written with the entry, in one transaction. Appending and
looking up so never scan, and a chain can still be followed where content was erased.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

from remit.kernel.errors import InvalidInputError
from remit.ledger import (
    EntryArchivedError,
    EntryNotFoundError,
    Erased,
    LedgerClient,
    LedgerEntry,
    LedgerReader,
    is_plain_text,
    parse_entry_id,
    require_plain_text,
)
from remit.routing.trail.record import (
    ThoughtNotFoundError,
    ThoughtRecord,
    ThoughtType,
    TrailDamagedError,
)

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


def rows_of(
    ledger: LedgerClient, task_id: str | None, last: int, behind: int = -1
) -> Iterator[Row]:
    """Rows up to the entry ``last``, page by page: by ``seq``, or a task's by ``position``; those
    greater than ``behind``."""
    key = "t.seq" if task_id is None else "t.position"
    of_task = "" if task_id is None else "t.task_id = ? AND "
    sql = (
        f"SELECT {_COLUMNS}, p.seq, p.hash FROM thoughts AS t LEFT JOIN thoughts AS p "
        f"ON p.task_id = t.task_id AND p.position = t.position - 1 WHERE {of_task}{key} > ? "
        f"AND t.seq <= ? ORDER BY {key} LIMIT ?"
    )
    while True:
        given = (behind, last, _PAGE)
        found = ledger.select(sql, given if task_id is None else (task_id, *given))
        for row in found:
            yield Row(*row)
        if len(found) < _PAGE:
            return
        behind = found[-1][0 if task_id is None else 2]


def content_of(entry: LedgerEntry) -> Any:
    """What an entry has for content: a text, a marker, or, damaged, anything.

    A thought that came erased from another ledger has a marker that names that one's entry.
    """
    content = entry.metadata.get("content")
    if content is None and isinstance(elsewhere := entry.metadata.get("erased"), str):
        return Erased(elsewhere)
    return content


def seq_of(entry: LedgerEntry) -> int:
    """The sequence number that an entry gives itself; -1 where it gives none."""
    seq = parse_entry_id(entry.id)
    return -1 if seq is None else seq


def get_thought_record(ledger: LedgerReader, id: str) -> ThoughtRecord:  # noqa: A002
    """The record with that id.

    Raises:
        ThoughtNotFoundError: there is none.
        TrailDamagedError: its ledger entry is not there, or is not its own.
    """
    sql = f"SELECT {_COLUMNS} FROM thoughts AS t WHERE t.thought_id = ?"
    rows = ledger.select(sql, (id,)) if is_plain_text(id) else []
    if not rows:
        raise ThoughtNotFoundError(
            f"The thought record {id!r} does not exist.", next_step="`remit trail list` lists them."
        )
    row = Row(*rows[0])
    if not row.is_sound or row.seq < 0:
        raise _damaged(row)
    try:
        entry = ledger.read(f"LED-{row.seq:08x}")
    except EntryArchivedError:
        raise
    except EntryNotFoundError as error:
        raise _damaged(row) from error
    return _record(row, entry)


def list_thought_records(
    ledger: LedgerClient, task_id: str | None = None, limit: int | None = None
) -> list[ThoughtRecord]:
    """Records in the order in which they were recorded.

    Args:
        task_id: only this task's.
        limit: only the first so many, at least 1.

    Raises:
        InvalidInputError: ``limit`` is not a positive whole number, or ``task_id`` is not a text.
        TrailDamagedError: a row's ledger entry is not there, or is not its own.
    """
    return list(iter_thought_records(ledger, task_id, limit))


def iter_thought_records(
    ledger: LedgerClient, task_id: str | None = None, limit: int | None = None
) -> Iterator[ThoughtRecord]:
    """:func:`list_thought_records`, streamed: memory does not grow with the trail.

    What is recorded after the iteration began is not in it.
    """
    if limit is not None and (type(limit) is not int or limit < 1):
        raise InvalidInputError(f"limit is {limit!r}; it must be an integer of at least 1.")
    if task_id is not None:
        require_plain_text("task_id", task_id)
    return itertools.islice(_records(ledger, task_id), limit)


def _records(ledger: LedgerClient, task_id: str | None) -> Iterator[ThoughtRecord]:
    entries: Iterator[LedgerEntry] | None = None
    for row in stray_rows(ledger, task_id):
        raise _damaged(row)
    for row in rows_of(ledger, task_id, last_seq(ledger)):
        if not row.is_sound:
            raise _damaged(row)
        if entries is None:  # the first row says where to begin
            entries = ledger.query(event_type=EVENT, submission_id=task_id, after=row.seq - 1)
        entry = next((found for found in entries if seq_of(found) >= row.seq), None)
        if entry is None or seq_of(entry) != row.seq:
            raise _damaged(row)
        yield _record(row, entry)


def _record(row: Row, entry: LedgerEntry) -> ThoughtRecord:
    meta = entry.metadata
    content = content_of(entry)
    if entry.event_type != EVENT or meta.get("thought_id") != row.thought_id:
        raise _damaged(row)
    kind: ThoughtType | None = meta.get("type")
    if kind is None or not isinstance(content, (str, Erased)):
        raise _damaged(row)
    return ThoughtRecord(
        id=row.thought_id,
        type=kind,
        task_id=row.task_id,
        agent_id=str(meta.get("agent_id", "")),
        content=content,
        timestamp=str(meta.get("thought_timestamp", "")),
        prev_hash=row.prev_hash,
        hash=row.hash,
        session_id=str(meta.get("session_id", "")),
        entry_id=entry.id,
    )


def _damaged(row: Row) -> TrailDamagedError:
    return TrailDamagedError(
        f"The thought record {row.thought_id!r} cannot be read: its ledger entry "
        f"is not there, or is not its own ({row.place}).",
        next_step="`remit trail verify` says what is damaged.",
    )
