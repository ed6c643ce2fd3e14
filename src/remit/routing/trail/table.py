"""The table ``thoughts``: the place of each record in its chain (``docs/trail.md``).

A row is written with its entry in one transaction, so appending and looking up never scan the
ledger, and a chain can be followed even if content was erased.
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
    require_plain_text,
)
from remit.routing.trail.thought_record import (
    ThoughtNotFoundError,
    ThoughtRecord,
    ThoughtType,
    TrailError,
)

EVENT = "THOUGHT_RECORD"
"""The event type of thought records."""

INSERT = (
    "INSERT INTO thoughts (seq, task_id, position, thought_id, prev_hash, hash) "
    "VALUES (?, ?, ?, ?, ?, ?)"
)
_COLUMNS = "t.seq, t.task_id, t.position, t.thought_id, t.prev_hash, t.hash"
_PAGE = 500
_LARGEST = 2**63 - 1  # SQLite sorts texts and blobs after all numbers.


class Row(NamedTuple):
    """A row of the table, with columns of the chain's row before it.

    Attributes:
        seq: sequence number of the ledger entry.
        position: position in the task's chain, from 0.
        before_seq: ``seq`` of the task's row at ``position - 1``; ``None`` if there is none.
        before_hash: ``hash`` of that row.
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
        """True if each value has its column's type; SQLite stores any type in any column."""
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
        """The id of the ledger entry, or a name of the row if no entry can have that number."""
        if type(self.seq) is int and self.seq >= 0:
            return f"LED-{self.seq:08x}"
        return f"the row of seq {self.seq!r}"


def last_seq(ledger: LedgerClient) -> int:
    """Return the greatest sequence number of the present entries and rows; -1 without any.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    rows = ledger.select("SELECT max(seq) FROM thoughts WHERE seq <= ?", (_LARGEST,))
    head = ledger.head()
    of_rows = rows[0][0] if rows else None
    return max(-1 if of_rows is None else int(of_rows), head[0] if head else -1)


def stray_rows(ledger: LedgerClient, task_id: str | None) -> list[Row]:
    """Return up to 500 rows whose ``seq`` no entry can have.

    Args:
        ledger: the ledger.
        task_id: the task; ``None`` for all.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    sql = f"SELECT {_COLUMNS} FROM thoughts AS t WHERE (t.seq < 0 OR t.seq > ?) "
    given: tuple[Any, ...] = (_LARGEST,)
    if task_id is not None:
        sql += "AND t.task_id = ? "
        given = (*given, task_id)
    return [Row(*row) for row in ledger.select(f"{sql}LIMIT {_PAGE}", given)]


def rows_of(
    ledger: LedgerClient, task_id: str | None, last: int, behind: int = -1
) -> Iterator[Row]:
    """Yield rows page by page, by ``seq``, or for one task by ``position``, ascending.

    Args:
        ledger: the ledger.
        task_id: the task; ``None`` for all.
        last: rows with a greater sequence number are left out.
        behind: rows start after this ``seq``, or for one task after this ``position``.

    Raises:
        LedgerError: the ledger cannot be read.
    """
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
    """Return an entry's content: a text or an erasure's marker.

    A damaged entry can have anything. A thought that was imported as erased has a marker that names
    the other ledger's entry.
    """
    content = entry.metadata.get("content")
    if content is None and isinstance(elsewhere := entry.metadata.get("erased"), str):
        return Erased(elsewhere)
    return content


def get_thought_record(ledger: LedgerReader, id: str) -> ThoughtRecord:  # noqa: A002
    """Return the record with an id. Blocks.

    An erased thought has the marker of its erasure as content. The hash is not checked.

    Raises:
        ThoughtNotFoundError: there is no such record.
        EntryArchivedError: its ledger entry is in a segment that is not attached.
        TrailError: its ledger entry is missing, or belongs to another record.
        LedgerError: the ledger cannot be read.
    """
    sql = f"SELECT {_COLUMNS} FROM thoughts AS t WHERE t.thought_id = ?"
    rows = ledger.select(sql, (id,)) if is_plain_text(id) else []
    if not rows:
        raise ThoughtNotFoundError(
            f"The thought record {id!r} does not exist.", next_step="`remit trail list` lists all."
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
    """Return records in the order in which they were recorded, earliest first.

    Args:
        ledger: the ledger.
        task_id: the task; ``None`` for all.
        limit: maximum number of records, of which the earliest are returned; ``None`` for all.

    Raises:
        InvalidInputError: ``limit`` is not a positive whole number, or ``task_id`` is not a text.
        TrailError: a row's ledger entry is missing, or belongs to another record.
        LedgerError: the ledger cannot be read.
    """
    return list(iter_thought_records(ledger, task_id, limit))


def iter_thought_records(
    ledger: LedgerClient, task_id: str | None = None, limit: int | None = None
) -> Iterator[ThoughtRecord]:
    """Return an iterator over :func:`list_thought_records`; memory does not grow with the trail.

    Records that are written after the iteration began are left out.

    Args:
        ledger: the ledger.
        task_id: the task; ``None`` for all.
        limit: maximum number of records, at least 1; ``None`` for all.

    Raises:
        InvalidInputError: ``limit`` is not a positive whole number, or ``task_id`` is not a text.
        TrailError: while iterating: a row's ledger entry is missing, or belongs to another record.
        LedgerError: while iterating: the ledger cannot be read.
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
        entry = next((found for found in entries if found.seq >= row.seq), None)
        if entry is None or entry.seq != row.seq:
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


def _damaged(row: Row) -> TrailError:
    return TrailError(
        f"The thought record {row.thought_id!r} cannot be read: its ledger entry "
        f"is not there, or is not its own ({row.place}).",
        next_step="`remit trail verify` names the damage.",
    )
