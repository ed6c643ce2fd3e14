"""The comparison of tables whose rows follow from entries with the ledger, and their repair.

:func:`audit_tables` applies the folds of :class:`~remit.ledger.Projection` to the entries, into a
database in memory, copies the rows of the ledger's tables beside them, and compares both by SQL.
The ledger is only read, so a standby or a read-only medium can be checked too.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from remit.ledger.archived_ranges import archived_to
from remit.ledger.entry import parse_entry_id
from remit.ledger.entry_reader import chunks
from remit.ledger.projection import (
    ENTRY_SEQ,
    NO_END,
    Projection,
    Repairable,
    Row,
    State,
    entries_of,
    fold_entries,
)
from remit.ledger.table_checks import Uncheckable, imported_size, locked, readable, until_failure
from remit.ledger.verification.marks import keep_mark, read_mark

if TYPE_CHECKING:
    from remit.ledger.client import LedgerClient
    from remit.ledger.store import Transaction
    from remit.ledger.table_checks import Finding, Select
    from remit.ledger.verification.report import Progress

_NAMED = 500
_MAX_DIFFERENCES = 1000


class Difference(NamedTuple):
    """A value or row of a table that differs from the ledger; see :func:`audit_tables`.

    Attributes:
        table: the table.
        name: the row's name.
        column: the column; ``row`` if a whole row is missing or superfluous.
        live: the stored value; ``there`` or ``missing`` for a row.
        ledger: the value by the ledger; None if the ledger only contradicts the stored one.
        seq: sequence number of the latest entry that changed the row; None if there is none.
    """

    table: str
    name: str
    column: str
    live: Any
    ledger: Any
    seq: int | None = None


class _Mismatch(NamedTuple):
    key: tuple[Any, ...]
    live: Row | None
    folded: Row | None
    wrong: list[str]


@dataclass(slots=True)
class Audit:
    """The result of a comparison of tables with the ledger by :func:`audit_tables`.

    Attributes:
        differences: at most a thousand differences of values and rows.
        findings: entries that could not be applied or contradict the rows before them, tables that
            could not be compared, and :class:`~remit.ledger.Uncheckable` notes.
        imported: the number of imported entries.
    """

    differences: list[Difference] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    imported: int = 0


class Folded(State):
    """A state in a database of its own, which is compared with the ledger's tables.

    The database is in memory until it is large, and then in a temporary file; :meth:`close` deletes
    it. The caller folds entries into the state, then calls :meth:`compare`. Tables whose rows name
    an entry themselves (``source``) are not folded.

    Args:
        projections: the tables.
        select: runs a query on the ledger.
        ledger: the ledger, for folds that read it; ``None`` if no fold does.
    """

    def __init__(
        self, projections: Sequence[Projection], select: Select, ledger: LedgerClient | None = None
    ) -> None:
        self._scratch = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._scratch.execute("PRAGMA journal_mode = MEMORY")
        self._scratch.execute("BEGIN")
        self._projections = [one for one in projections if not one.source]
        columns = {
            one.table: ((*one.key, *one.columns, *one.memory, ENTRY_SEQ), len(one.key))
            for one in self._projections
        }
        super().__init__(self._scratch.execute, self._scratch.executemany, columns, select, ledger)
        self._filled.clear()
        for table, (names, width) in columns.items():
            self._scratch.execute(
                f"CREATE TABLE {table} ({', '.join(names)}, PRIMARY KEY "
                f"({', '.join(names[:width])})) WITHOUT ROWID"
            )

    def close(self) -> None:
        """Delete the rows and their database; the state cannot be used further."""
        self._scratch.close()

    def rows(self, one: Projection) -> list[Row]:
        """Write pending changes, and return the folded rows of a table as dicts by column name.

        Args:
            one: a projection of the constructor that is not of ``source`` kind, else KeyError.
        """
        self.write()
        names = self._columns[one.table][0]
        found = self._scratch.execute(f"SELECT {', '.join(names)} FROM {one.table}")
        return [dict(zip(names, row, strict=True)) for row in found]

    def notes(self, one: Projection, note: Callable[[Row], str]) -> Iterator[Finding]:
        """Yield a finding for each folded row that cannot be checked completely.

        A finding has the number of the row's latest entry, and an Uncheckable text of ``note``.

        Args:
            one: a projection, as for :meth:`rows`.
            note: returns the reason for a row; empty if the row can be checked.
        """
        for row in self.rows(one):
            if said := note(row):
                yield row[ENTRY_SEQ], Uncheckable(said)

    def to_mark(self) -> dict[str, Any]:
        """Write changes and return each folded table's rows: key, columns, memory, entry number."""
        self.write()
        return {
            one.table: self._scratch.execute(f"SELECT * FROM {one.table}").fetchall()
            for one in self._projections
        }

    def load(self, mark: Mapping[str, Any]) -> None:
        """Insert the rows of :meth:`to_mark` into empty tables, so that an audit continues.

        Args:
            mark: rows by table, all of them.
        """
        self._filled.update(self._columns)
        for table, (names, _) in self._columns.items():
            marks = ", ".join("?" * len(names))
            self._scratch.executemany(f"INSERT INTO {table} VALUES ({marks})", mark[table])

    def compare(
        self, select: Select, one: Projection, keys: Sequence[tuple[Any, ...]] | None = None
    ) -> list[_Mismatch]:
        """Return the rows of a table that differ from the folded rows, are missing or superfluous.

        The folded rows are as before afterwards. Values that no entry states are not compared. A
        folded row with ``optional`` set may be missing, and a ``partial`` table may have more rows.
        ``check`` may add columns, ``adjust`` may change the folded rows for this call. Rows of a
        ``source`` projection are compared with the entry that they name, unless it was archived.

        Args:
            select: runs a query on the ledger, and is the state's from now on; errors are raised.
            one: the table.
            keys: compares only the rows with one of these keys; ``None`` compares all.

        Returns:
            Key, stored and folded row (``None`` for none), and the columns that differ, if any.
        """
        self.select = select
        if one.source:
            return [*self._named(one, keys)]
        self.write()
        self._scratch.execute("SAVEPOINT compared")
        try:
            if one.adjust is not None:
                one.adjust(select, self)
                self.write()
            return [*self._mismatches(select, one, keys)]
        finally:
            self._scratch.execute("ROLLBACK TO compared")
            self._scratch.execute("RELEASE compared")

    def _mismatches(
        self, select: Select, one: Projection, keys: Sequence[tuple[Any, ...]] | None
    ) -> Iterator[_Mismatch]:
        table, names, width = one.table, (*one.key, *one.columns), len(one.key)
        self._scratch.execute(f"CREATE TABLE live_{table} ({', '.join(names)})")
        insert = f"INSERT INTO live_{table} VALUES ({', '.join('?' * len(names))})"
        for rows in _live(select, one, keys):
            self._scratch.executemany(insert, [[*map(_storable, row)] for row in rows])
        self._scratch.execute(
            f"CREATE INDEX live_{table}_key ON live_{table} ({', '.join(one.key)})"
        )
        same = " AND ".join(f"l.{name} = f.{name}" for name in one.key)
        wrong = [
            f"(f.{name} IS NOT l.{name} AND {'1' if name in one.nullable else f'f.{name} NOTNULL'})"
            for name in one.columns
        ]
        wanted = ""
        if keys is not None:
            self._scratch.execute(f"CREATE TABLE wanted_{table} ({', '.join(one.key)})")
            self._scratch.executemany(
                f"INSERT INTO wanted_{table} VALUES ({', '.join('?' * width)})", keys
            )
            wanted = (f"({', '.join(f'f.{name}' for name in one.key)}) IN "
                      f"(SELECT * FROM wanted_{table}) AND ")  # fmt: skip
        of_folded = self._columns[table][0]
        shown = ", ".join([f"f.{name}" for name in of_folded] + [f"l.{name}" for name in names])
        differs = " OR ".join(["l.rowid IS NULL", *wrong])
        for row in self._scratch.execute(
            f"SELECT {shown}, l.rowid FROM {table} AS f LEFT JOIN live_{table} AS l ON {same} "
            f"WHERE {wanted}({differs if one.check is None else '1'})"
        ).fetchall():
            folded = dict(zip(of_folded, row, strict=False))
            if row[-1] is None:
                if not folded.get("optional"):
                    yield _Mismatch(row[:width], None, folded, [])
                continue
            live = dict(zip(names, row[len(of_folded) :], strict=False))
            found = [name for name in one.columns if folded[name] != live[name]
                     and (folded[name] is not None or name in one.nullable)]  # fmt: skip
            if one.check is not None:
                found += [name for name in one.check(self, live, folded) if name not in found]
            if found:
                yield _Mismatch(row[:width], live, folded, found)
        for row in (
            ()
            if one.partial
            else self._scratch.execute(
                f"SELECT {', '.join(f'l.{name}' for name in names)} FROM live_{table} AS l "
                f"WHERE NOT EXISTS (SELECT 1 FROM {table} AS f WHERE {same})"
            ).fetchall()
        ):
            yield _Mismatch(row[:width], dict(zip(names, row, strict=True)), None, [])

    def _named(
        self, one: Projection, keys: Sequence[tuple[Any, ...]] | None
    ) -> Iterator[_Mismatch]:
        """Yield the rows that contradict their named entry; archived entries are skipped."""
        names, width = (*one.key, *one.columns), len(one.key)
        archived = archived_to(self.select)
        check = one.check
        assert check is not None
        for rows in _live(self.select, one, keys):
            for part in chunks(rows, _NAMED):
                lives = [dict(zip(names, row, strict=True)) for row in part]
                entries = entries_of(self.select, (live[one.source] for live in lives))
                for row, live in zip(part, lives, strict=True):
                    named = live[one.source]
                    seq = parse_entry_id(named) if isinstance(named, str) else None
                    entry = entries.get(named)
                    if entry is None and seq is not None and seq < archived:
                        continue
                    folded = {"entry": entry, ENTRY_SEQ: None if entry is None else seq}
                    wrong = [one.source] if entry is None else [*check(self, live, folded)]
                    if wrong:
                        yield _Mismatch(row[:width], live, folded, wrong)


def _live(
    select: Select, one: Projection, keys: Sequence[tuple[Any, ...]] | None
) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the rows of a table; with ``keys``, only rows with the given keys."""
    names = ", ".join((*one.key, *one.columns))
    sql = f"SELECT {names} FROM {one.table} WHERE {one.where or '1 = 1'}"
    same = "".join(f" AND {name} = ?" for name in one.key)
    if keys is None:
        yield select(sql, ())
    for key in keys or ():
        yield select(sql + same, key)


def _storable(value: Any) -> Any:
    """Return a stored value in a form for SQLite; damaged text is escaped after a NUL."""
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            data = value.encode("utf-8", "surrogateescape")
            return "\0" + data.decode("utf-8", "backslashreplace")
    return value


def audit_tables(
    ledger: LedgerClient,
    projections: Sequence[Projection],
    *,
    mark: str = "",
    since_mark: bool = False,
    repair: bool = False,
    progress: Progress | None = None,
) -> Audit:
    """Compare tables with the rows that the ledger's entries give. Blocks.

    Rows that differ are compared again in a transaction, so entries written meanwhile are no
    difference. A failed check is a finding. Tables that no import fills ignore imported entries.

    Args:
        ledger: the ledger with the tables.
        projections: the tables; a fold may read the rows of the tables before its own.
        mark: name of the mark of the folded rows; empty for none. A mark is written, even if rows
            differ, if there is no finding while entries are applied.
        since_mark: True to continue from a usable mark instead of applying all entries.
        repair: True to correct the tables that have a command for it, in one transaction. The
            result states the differences before.
        progress: called with the number of entries that were passed, and their total.

    Returns:
        At most 1,000 differences in the order of ``projections``, the findings, and the number of
        imported entries.

    Raises:
        LedgerWriteError: the ledger cannot be written, and ``repair`` is True or a difference is to
            be confirmed.
        LedgerError: the ledger cannot be read.
    """
    with closing(Folded(projections, ledger.select, ledger)) as folded:
        size = ledger.count()
        starts = _starts(ledger, projections)
        known = read_mark(ledger, mark) if since_mark and mark else {}
        if known.get("size", 0) >= max(starts.values(), default=0) and "tables" in known:
            first = known["size"]
            folded.load(known["tables"])
        else:
            first = min(starts.values(), default=0)
            for one in projections:
                if one.begin is not None:
                    folded.findings += one.begin(ledger, folded, one.table)
        if progress is not None:
            progress(0, size - first)
        fold_entries(
            ledger.select, folded, projections, first, size, starts=starts, progress=progress
        )
        if progress is not None:
            progress(size - first, size - first)
        if mark and not folded.findings:
            keep_mark(ledger, mark, size, {"tables": folded.to_mark()})
        found, failed = _compare_all(ledger, folded, projections, size, starts, repair)
        audit = Audit(findings=folded.findings + failed, imported=imported_size(ledger.select))
        for one in projections:
            audit.differences += _differences(one, found[one.label])
            if one.note is not None:
                audit.findings += folded.notes(one, one.note)
    del audit.differences[_MAX_DIFFERENCES:]
    return audit


def _starts(ledger: LedgerClient, projections: Sequence[Projection]) -> dict[str, int]:
    """Return the first sequence number that each table's fold reads."""
    imported = imported_size(ledger.select)
    ranges = ledger.archived_ranges()
    archived = ranges[-1].end if ranges else 0
    return {
        one.table: max(0 if one.imported else imported, 0 if one.begin is None else archived)
        for one in projections
        if not one.source
    }


def _compare_all(
    ledger: LedgerClient, folded: Folded, projections: Sequence[Projection], size: int,
    starts: Mapping[str, int], repair: bool,
) -> tuple[dict[str, list[_Mismatch]], list[Finding]]:  # fmt: skip
    """Return the rows of each table that differ, and findings about checks that failed."""
    found: dict[str, list[_Mismatch]] = {one.label: [] for one in projections}
    failed: list[Finding] = []
    after = size

    def catch_up(select: Select) -> None:
        nonlocal after
        after = fold_entries(select, folded, projections, after, NO_END, starts=starts)

    def compare(select: Select, one: Projection, *keys: list[tuple[Any, ...]]) -> Iterator[Finding]:
        found[one.label] = folded.compare(select, one, *keys)
        yield from ()

    def confirm(select: Select) -> None:
        catch_up(select)
        for one in projections:
            rows = found[one.label]
            keys = [row.key for row in rows]
            if keys and all(isinstance(part, (str, int)) for key in keys for part in key):
                found[one.label] = folded.compare(select, one, keys)

    def repaired(tx: Transaction) -> None:
        confirm(tx.execute)
        for one in projections:
            if one.repair:
                _repair(tx, one, found[one.label])

    catch_up(ledger.select)
    for one in filter(lambda one: one.stored, projections):
        failed += until_failure(one.label, functools.partial(compare, ledger.select, one))
    if repair:
        ledger.transact(repaired)
    elif any(found.values()):
        locked(ledger, confirm)
    return found, failed


def _repair(tx: Transaction, one: Projection, rows: Sequence[_Mismatch]) -> None:
    """Replace the rows of a table by the folded ones."""
    same = " AND ".join(f"{name} = ?" for name in one.key)
    for key, live, folded, wrong in rows:
        if folded is None:
            tx.execute(f"DELETE FROM {one.table} WHERE {same}", key)
        elif live is None:
            values = {name: folded[name] for name in (*one.key, *one.columns)
                      if folded[name] is not None}  # fmt: skip
            marks = ", ".join("?" * len(values))
            tx.execute(
                f"INSERT INTO {one.table} ({', '.join(values)}) VALUES ({marks})",
                [*values.values()],
            )
        elif values := {name: folded[name] for name in wrong
                        if folded.get(name) is not None or name in one.nullable}:  # fmt: skip
            sets = ", ".join(f"{name} = ?" for name in values)
            tx.execute(f"UPDATE {one.table} SET {sets} WHERE {same}", [*values.values(), *key])


def _differences(one: Projection, rows: Sequence[_Mismatch]) -> Iterator[Difference]:
    for key, live, folded, wrong in rows:
        name, seq = one.name(key), None if folded is None else folded[ENTRY_SEQ]
        if live is None:
            yield Difference(one.table, name, "row", "missing", "there", seq)
        elif folded is None:
            yield Difference(one.table, name, "row", "there", "missing", seq)
        else:
            for column in wrong:
                yield Difference(one.table, name, column, live[column], folded.get(column), seq)


def check_tables(
    ledger: LedgerClient,
    projections: Sequence[Projection],
    *,
    mark: str = "",
    since_mark: bool = False,
) -> Iterator[Finding]:
    """Yield the differences of tables from the ledger as sentences, and other findings. Blocks.

    Each item is a sequence number, or None, and a text or an :class:`~remit.ledger.Uncheckable`.
    The tables are compared as by :func:`audit_tables` when the first item is requested, and never
    repaired; its errors are raised. At most 1,000 differences come first, then the other findings.

    Args:
        ledger: the ledger with the tables.
        projections: the tables.
        mark: name of the mark; empty for none.
        since_mark: True to continue from the mark.
    """
    audit = audit_tables(ledger, projections, mark=mark, since_mark=since_mark)
    of = {one.table: one for one in projections}
    for table, name, column, live, recorded, seq in audit.differences:
        one = of[table]
        if column == "row" and live == "missing":
            said = f"{table}: {name} has no row"
        elif column == "row":
            said = f"{table}: by the ledger there is no row {name}"
            if audit.imported and not one.imported:
                said += f"; by ledger_info an import brought the first {audit.imported} entries, "
                said += "and an import brings no such rows"
        elif column in one.secret:
            said = f"{table}: {column} of {name} is not that of its entry"
        elif recorded is None and column not in one.nullable:
            said = f"{table}: {column} of {name} is {readable(live)}, which the ledger contradicts"
        else:
            said = f"{table}: {column} of {name} is {readable(live)}, by the ledger "
            said += readable(recorded)
        yield seq, Repairable(said, one.repair) if one.repair else said
    yield from audit.findings


def folded_rows(select: Select, one: Projection) -> list[Row]:
    """Return the rows that all entries of the database give, imported ones too, as dicts by column.

    Damaged entries are skipped. Nothing is compared or written.

    Args:
        select: runs a query; its errors are raised.
        one: the table, which is not of ``source`` kind.
    """
    with closing(Folded((one,), select)) as folded:
        fold_entries(select, folded, (one,), 0, NO_END)
        return folded.rows(one)
