"""Tables whose rows follow from entries: the same fold for the writer and for every check.

A :class:`Projection` declares a table, the events that its rows follow from, and a fold: the
function that applies one entry to the rows. A writer applies the fold to the entry that it appends
(:func:`apply`). Checks and repairs apply the same fold to all entries of the ledger, and compare
the result with the table (:mod:`remit.ledger.projection_audit`).

A value that no entry states is None in a folded row, and is not compared.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import orjson

from remit.ledger.entry import LedgerEntry, entry_id, parse_entry_id
from remit.ledger.entry_reader import GREATEST, as_bytes, chunks, marks, pages
from remit.ledger.events import is_authentic
from remit.ledger.table_checks import readable

if TYPE_CHECKING:
    from remit.ledger.client import LedgerClient
    from remit.ledger.store import Transaction
    from remit.ledger.table_checks import Finding, Select
    from remit.ledger.verification.report import Progress

Row = dict[str, Any]
"""The values of a row, keyed by column."""

NO_END = 1 << 62
"""A sequence number that no entry reaches."""

_PAGE = 4096
_MAX_CACHED = 20_000
"""Rows of one table that a :class:`State` keeps as objects."""

ENTRY_SEQ = "entry_seq"
"""The column of a folded row with the number of the latest entry that changed it."""


class Repairable(str):
    """A sentence about a derived row, which a command can correct if the entries are sound.

    Args:
        said: the sentence.
        repair: the command.

    Attributes:
        repair: the command.
    """

    repair: str

    def __new__(cls, said: str, repair: str) -> Self:
        """Return the sentence with its command."""
        made = super().__new__(cls, said)
        made.repair = repair
        return made


def _no_fold(rows: State, entry: LedgerEntry, seq: int) -> None:
    """Do nothing: the fold of a table whose rows name their entries."""


class Projection(NamedTuple):
    """A table whose rows follow from entries.

    Attributes:
        table: name of the table.
        key: columns that identify a row.
        columns: other columns that entries state. The table's remaining columns are not compared.
        events: the event types that the fold reads.
        fold: applies an entry, given with its sequence number, to the rows of a :class:`State`.
        memory: further columns of folded rows, which the table does not have. A row whose
            ``optional`` is true may be missing.
        nullable: columns whose None is a value, and is compared.
        stored: False if the table exists for other folds only, and not in the ledger's database.
        where: an SQL condition for the rows that follow from entries; empty for all rows.
        secret: columns whose values no message may show.
        imported: True if imported entries count. Otherwise an import brings no rows.
        repair: the command that replaces wrong rows; empty if there is none.
        describe: returns the name of a row, given its key, for messages.
        begin: sets the rows of the table that archived entries came to, and returns findings. The
            fold then starts after the archived ranges. None if no entry of these events is ever
            archived.
        adjust: adds amounts that another table states, before rows are compared. None for none.
        check: returns the columns of a stored row that contradict its folded row; called for each
            pair of rows. None for no further check.
        source: the column that names the entry from which a row follows. Such rows are not folded:
            ``check`` gets the row with an empty folded row whose ``entry`` is the named one.
        any_writer: True if entries count that their recorded writer may not write. An order, key or
            amount that a worker records does not.
        partial: True if rows that no entry gives may exist.
        note: returns the reason why a folded row cannot be checked completely; empty if it can.
    """

    table: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    events: tuple[str, ...] = ()
    fold: Callable[[State, LedgerEntry, int], None] = _no_fold
    memory: tuple[str, ...] = ()
    nullable: tuple[str, ...] = ()
    stored: bool = True
    where: str = ""
    secret: tuple[str, ...] = ()
    imported: bool = False
    repair: str = ""
    describe: Callable[[tuple[Any, ...]], str] | None = None
    begin: Callable[[LedgerClient, State, str], Iterable[Finding]] | None = None
    adjust: Callable[[Select, State], None] | None = None
    check: Callable[[State, Row, Row], Iterable[str]] | None = None
    source: str = ""
    any_writer: bool = False
    partial: bool = False
    note: Callable[[Row], str] | None = None

    @property
    def label(self) -> str:
        """The table, and the column that names entries if there is one."""
        return f"{self.table}.{self.source}" if self.source else self.table

    def name(self, key: tuple[Any, ...]) -> str:
        """Return the name of a row for messages.

        Without ``describe`` the name is the values of the key, joined by slashes; a value that is
        no printable text is shown by ``repr``.

        Args:
            key: values of the key's columns.
        """
        if self.describe is not None:
            return self.describe(key)
        return "/".join(one if isinstance(one, str) and one.isprintable() else readable(one)
                        for one in key)  # fmt: skip


class State:
    """Rows of tables for a fold to read and change, in memory first and then by SQL.

    A state lives for one transaction or one check. :meth:`write` writes the changed rows and
    forgets all; :meth:`put` does so if over 20,000 rows of a table are in memory. Nothing is
    committed here.

    Args:
        execute: runs a statement and returns its rows.
        execute_many: runs a statement for several rows.
        columns: the columns of each table, those of its key first, and the number of the latter.
        select: reads the ledger.
        ledger: the ledger, whose content a check may read; None for a writer.

    Attributes:
        select: reads the ledger, for a fold that looks at earlier entries.
        ledger: the ledger.
        findings: findings about entries.
    """

    def __init__(
        self,
        execute: Callable[[str, Sequence[Any]], Iterable[tuple[Any, ...]]],
        execute_many: Callable[[str, Sequence[Sequence[Any]]], object],
        columns: Mapping[str, tuple[Sequence[str], int]],
        select: Select,
        ledger: LedgerClient | None = None,
    ) -> None:
        self.select = select
        self.ledger = ledger
        self._execute, self._execute_many, self._columns = execute, execute_many, columns
        self._rows: dict[str, dict[tuple[Any, ...], Row | None]] = {name: {} for name in columns}
        self._changed: dict[str, set[tuple[Any, ...]]] = {name: set() for name in columns}
        self._filled = {*columns}  # Tables that may have rows besides those in memory.
        self.findings: list[Finding] = []

    def get(self, table: str, *key: Any) -> Row | None:
        """Return a row as a dict by column; None if there is none.

        A change of the dict is stored by :meth:`put` alone. The row is read from the table if it is
        not in memory; the database's error is raised then.

        Args:
            table: a table of this state; another raises KeyError.
            key: values of the key's columns.
        """
        rows = self._rows[table]
        if key not in rows:
            if table not in self._filled:
                return None
            names, width = self._columns[table]
            same = " AND ".join(f"{name} = ?" for name in names[:width])
            found = [*self._execute(f"SELECT {', '.join(names)} FROM {table} WHERE {same}", key)]
            rows[key] = dict(zip(names, found[0], strict=True)) if found else None
        return rows[key]

    def put(self, table: str, row: Row) -> None:
        """Insert a row, or replace the row with its key, in memory.

        If over 20,000 rows of the table are in memory, all changes are written.

        Args:
            table: a table of this state.
            row: values by column, with all columns of the key; a missing other column is written as
                NULL. The dict itself is held.
        """
        names, width = self._columns[table]
        key = tuple([row[name] for name in names[:width]])
        self._rows[table][key] = row
        self._changed[table].add(key)
        if len(self._rows[table]) > _MAX_CACHED:
            self.write()

    def delete(self, table: str, *key: Any) -> None:
        """Delete a row if there is one, in memory; :meth:`write` deletes it from the table."""
        self._rows[table][key] = None
        self._changed[table].add(key)

    def report(self, seq: int, said: str) -> None:
        """Add a finding about an entry that contradicts the earlier rows."""
        self.findings.append((seq, said))

    def write(self) -> None:
        """Write the changed rows to their tables, delete the deleted ones, and forget all rows in
        memory.

        The database's error is raised if a statement fails.
        """
        for table, changed in self._changed.items():
            names, width = self._columns[table]
            rows = self._rows[table]
            put = [[row.get(name) for name in names] for key in changed
                   if (row := rows[key]) is not None]  # fmt: skip
            gone = [key for key in changed if rows[key] is None]
            if put:
                self._execute_many(_upsert(table, tuple(names), width), put)
            if gone:
                same = " AND ".join(f"{name} = ?" for name in names[:width])
                self._execute_many(f"DELETE FROM {table} WHERE {same}", gone)
            if rows:
                self._filled.add(table)
            changed.clear()
            rows.clear()


@functools.cache
def _upsert(table: str, names: tuple[str, ...], width: int) -> str:
    """Return the statement that inserts a row, or changes the one with the same key.

    Args:
        table: name of the table.
        names: its columns, those of the key first.
        width: number of columns of the key.
    """
    sets = ", ".join(f"{name} = excluded.{name}" for name in names[width:])
    return (
        f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) "
        f"ON CONFLICT ({', '.join(names[:width])}) DO "
        + (f"UPDATE SET {sets}" if sets else "NOTHING")
    )


def apply(tx: Transaction, entry: LedgerEntry, *projections: Projection) -> str:
    """Append an entry and apply the entry to the tables of ``projections``, in a transaction.

    Each fold is called, whatever its ``events`` are and whoever wrote the entry. Findings of the
    folds are dropped. The errors of :meth:`Transaction.append` and of the folds are raised.

    Args:
        tx: the transaction.
        entry: the entry.
        projections: tables whose rows the entry changes; folds are applied in this order.

    Returns:
        The id of the entry.
    """
    written = tx.append(entry)
    columns = {one.table: ((*one.key, *one.columns), len(one.key)) for one in projections}
    state = State(tx.execute, tx.execute_many, columns, tx.execute)
    for one in projections:
        one.fold(state, entry, parse_entry_id(written) or 0)
    state.write()
    return written


def fold_entries(
    select: Select,
    state: State,
    projections: Sequence[Projection],
    first: int,
    end: int,
    *,
    starts: Mapping[str, int] | None = None,
    progress: Progress | None = None,
    record: str = "record",
) -> int:
    """Apply the entries from ``first`` to before ``end`` to a state, in ledger order, without
    content.

    An entry that its recorded writer may not write is ignored, unless the projection takes any
    writer. An entry that cannot be applied is a finding of the state: it cannot be read, or a fold
    raised ValueError, TypeError, KeyError or AttributeError.

    Args:
        select: reads the ledger; becomes the state's. Its errors are raised, and LedgerFormatError
            if an index is damaged.
        state: the rows, which are changed in memory. :meth:`State.put` writes all changes to the
            tables if over 20,000 rows of one are in memory. The caller writes the rest by
            :meth:`State.write`.
        projections: the folds, which are applied in this order.
        first: the first sequence number.
        end: the first sequence number that is not applied.
        starts: the first sequence number that counts, by table; 0 for other tables.
        progress: called with the number of entries that were passed, and their total.
        record: SQL that reads the column ``record``, however damaged.

    Returns:
        The sequence number after the last entry of these events that was read; ``first`` if there
        was none.
    """
    by_event: dict[str, list[tuple[Projection, int]]] = {}
    for one in projections:
        for event in one.events:
            by_event.setdefault(event, []).append((one, (starts or {}).get(one.table, 0)))
    # As an expression, which no index has: the entries are read in their order.
    sql = (f"SELECT seq, timestamp, event_type, {record} FROM entries WHERE seq BETWEEN ? AND ? "
           f"AND event_type || '' IN ({', '.join(map(repr, by_event))}) ORDER BY seq")  # fmt: skip
    state.select = select
    after = first
    for rows in pages(select, sql, first, end - 1, _PAGE):
        for seq, timestamp, event_type, stored in rows:
            wanted = [one for one, start in by_event.get(event_type, ()) if seq >= start]
            if wanted:
                _apply_stored(state, wanted, seq, timestamp, event_type, stored)
        after = rows[-1][0] + 1
        if progress is not None:
            progress(after - first, end - first)
    return after


def _apply_stored(
    state: State, projections: Sequence[Projection], seq: int, timestamp: str, event_type: str,
    stored: Any,
) -> None:  # fmt: skip
    entry = None
    for one in projections:
        try:
            entry = entry or read_entry(seq, timestamp, event_type, stored)
            if one.any_writer or is_authentic(entry):
                one.fold(state, entry, seq)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            said = f"{one.table}: the entry cannot be added up: {type(error).__name__}: {error}"
            state.report(seq, said)
            if entry is None:
                return  # No other table can read it either.


def read_entry(seq: int, timestamp: str, event_type: str, stored: Any) -> LedgerEntry:
    """Return a stored entry without content, prompts and hashes; commitments stay in their place.

    Raise ValueError if the record is not JSON, KeyError if a member is missing, and TypeError if it
    is no object.

    Args:
        seq: sequence number, which gives the id.
        timestamp: the column of the row.
        event_type: the column of the row, not that of the record.
        stored: the column ``record``, bytes or text.
    """
    record = orjson.loads(as_bytes(stored))
    return LedgerEntry(
        event_type, record["submission_id"], record["decision"], record["reason"], [],
        record["metadata"], entry_id(seq), timestamp,
    )  # fmt: skip


def entries_of(select: Select, ids: Iterable[Any]) -> dict[Any, LedgerEntry]:
    """Return the existing entries with the given ids, without content, keyed by id.

    A damaged entry has no metadata. Values that are not ids of entries, and archived entries, are
    left out. Prompts and hashes are not filled.

    Args:
        select: runs a query; its errors are raised.
        ids: the ids, of any type.
    """
    numbers = (parse_entry_id(one) for one in ids if isinstance(one, str))
    wanted = sorted({seq for seq in numbers if seq is not None and seq <= GREATEST})
    found: dict[Any, LedgerEntry] = {}
    for part in chunks(wanted):
        rows = select(
            f"SELECT seq, timestamp, event_type, record FROM entries WHERE seq IN ({marks(part)})",
            part,
        )
        for seq, timestamp, event_type, stored in rows:
            try:
                entry = read_entry(seq, timestamp, event_type, stored)
            except (ValueError, TypeError, KeyError):  # verification reports the damage
                entry = LedgerEntry(event_type, "", "", "", id=entry_id(seq))
            found[entry.id] = entry
    return found


def fill_tables(
    select: Select,
    execute_many: Callable[[str, Sequence[Sequence[Any]]], object],
    projections: Sequence[Projection],
    record: str = "record",
) -> None:
    """Write the rows that all entries give to empty tables, as a migration does; commit nothing.

    Entries that cannot be applied, or that their recorded writer may not write, give nothing;
    verification reports the former.

    Args:
        select: runs a query; its errors are raised.
        execute_many: runs a statement for several rows.
        projections: the tables.
        record: SQL that reads the column ``record``, however damaged.
    """
    columns = {one.table: ((*one.key, *one.columns), len(one.key)) for one in projections}
    state = State(select, execute_many, columns, select)
    fold_entries(select, state, projections, 0, NO_END, record=record)
    state.write()
