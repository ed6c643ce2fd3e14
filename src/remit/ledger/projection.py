"""Tables whose rows follow from entries: one fold for the writer and for every check.

A :class:`Projection` declares a table, the events that its rows follow from, and a fold: the
function that applies one entry to the rows. A writer applies the fold to the entry that it appends
(:func:`apply`). Checks and repairs apply the same fold to all entries of the ledger, and compare
the result with the table (:mod:`remit.ledger.comparison`).

A value that no entry states is None in a folded row, and is not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from remit.ledger.entry import LedgerEntry, parse_entry_id
from remit.ledger.state import readable

if TYPE_CHECKING:
    from remit.ledger.client import LedgerClient
    from remit.ledger.state import Finding, Select
    from remit.ledger.store import Transaction

__all__ = ["ENTRY_SEQ", "Projection", "Row", "State", "apply"]

Row = dict[str, Any]
"""The values of a row, keyed by column."""

_MAX_CACHED = 20_000
"""Rows of one table that a :class:`State` keeps as objects."""

ENTRY_SEQ = "entry_seq"
"""The column of a folded row with the number of the latest entry that changed it."""


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
        begin: sets the rows that archived entries came to, and returns findings. The fold then
            starts after the archived ranges. None if no entry of these events is ever archived.
        adjust: adds amounts that another table states, before rows are compared. None for none.
        check: returns the columns of a stored row that contradict its folded row; called for each
            pair of rows. None for no further check.
        note: returns the reason why a folded row cannot be checked completely; empty if it can.
    """

    table: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    events: tuple[str, ...]
    fold: Callable[[State, LedgerEntry, int], None]
    memory: tuple[str, ...] = ()
    nullable: tuple[str, ...] = ()
    stored: bool = True
    where: str = ""
    secret: tuple[str, ...] = ()
    imported: bool = False
    repair: str = ""
    describe: Callable[[tuple[Any, ...]], str] | None = None
    begin: Callable[[LedgerClient, State], Iterable[Finding]] | None = None
    adjust: Callable[[Select, State], None] | None = None
    check: Callable[[Select, Row, Row], Iterable[str]] | None = None
    note: Callable[[Row], str] | None = None

    def name(self, key: tuple[Any, ...]) -> str:
        """Return the name of a row for messages."""
        if self.describe is not None:
            return self.describe(key)
        return "/".join(one if isinstance(one, str) and one.isprintable() else readable(one)
                        for one in key)  # fmt: skip


class State:
    """Rows of tables, as a fold reads and changes them: in memory first, then by SQL.

    Args:
        execute: runs a statement and returns its rows.
        execute_many: runs a statement for several rows.
        columns: the columns of each table, those of its key first, and the number of the latter.
        select: reads the ledger.

    Attributes:
        select: reads the ledger, for a fold that looks at earlier entries.
        findings: findings about entries.
    """

    def __init__(
        self,
        execute: Callable[[str, Sequence[Any]], Iterable[tuple[Any, ...]]],
        execute_many: Callable[[str, Sequence[Sequence[Any]]], object],
        columns: Mapping[str, tuple[Sequence[str], int]],
        select: Select,
    ) -> None:
        self.select = select
        self._execute, self._execute_many, self._columns = execute, execute_many, columns
        self._rows: dict[str, dict[tuple[Any, ...], Row | None]] = {name: {} for name in columns}
        self._changed: dict[str, set[tuple[Any, ...]]] = {name: set() for name in columns}
        self.findings: list[Finding] = []

    def get(self, table: str, *key: Any) -> Row | None:
        """Return a row, which :meth:`put` stores again after a change; None if there is none."""
        rows = self._rows[table]
        if key not in rows:
            names, width = self._columns[table]
            same = " AND ".join(f"{name} = ?" for name in names[:width])
            found = [*self._execute(f"SELECT {', '.join(names)} FROM {table} WHERE {same}", key)]
            rows[key] = dict(zip(names, found[0], strict=True)) if found else None
        return rows[key]

    def put(self, table: str, row: Row) -> None:
        """Insert a row or replace the one with its key; columns that it lacks become None."""
        names, width = self._columns[table]
        key = tuple([row[name] for name in names[:width]])
        self._rows[table][key] = row
        self._changed[table].add(key)
        if len(self._rows[table]) > _MAX_CACHED:
            self.write()

    def delete(self, table: str, *key: Any) -> None:
        """Delete a row if there is one."""
        self._rows[table][key] = None
        self._changed[table].add(key)

    def report(self, seq: int, said: str) -> None:
        """Add a finding about an entry that contradicts the rows before it."""
        self.findings.append((seq, said))

    def write(self) -> None:
        """Write the changed rows to their tables."""
        for table, changed in self._changed.items():
            names, width = self._columns[table]
            rows = self._rows[table]
            put = [[row.get(name) for name in names] for key in changed
                   if (row := rows[key]) is not None]  # fmt: skip
            gone = [key for key in changed if rows[key] is None]
            if put:
                sets = ", ".join(f"{name} = excluded.{name}" for name in names[width:])
                self._execute_many(
                    f"INSERT INTO {table} ({', '.join(names)}) "
                    f"VALUES ({', '.join('?' * len(names))}) ON CONFLICT "
                    f"({', '.join(names[:width])}) DO "
                    + (f"UPDATE SET {sets}" if sets else "NOTHING"),
                    put,
                )
            if gone:
                same = " AND ".join(f"{name} = ?" for name in names[:width])
                self._execute_many(f"DELETE FROM {table} WHERE {same}", gone)
            changed.clear()
            rows.clear()


def apply(tx: Transaction, entry: LedgerEntry, *projections: Projection) -> str:
    """Append an entry and apply it to the tables of ``projections``, in one transaction.

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
