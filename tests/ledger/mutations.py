"""Mutations of every table of a ledger's database, and what verification makes of them.

A root in which every table has rows is made by a real server before a real upstream, killed with a
call out. Then one cell, row or declaration at a time is edited past Remit, and the ledger verified:
every verification has to end within a bound of CPU time and to give its report.
"""

from __future__ import annotations

import contextlib
import functools
import random
import re
import shutil
import signal
import sqlite3
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence, Set
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from remit.ledger import (
    STATE_TABLES,
    TABLES,
    LedgerClient,
    LedgerError,
    Problem,
    VerificationReport,
    entry_id,
)
from remit.runtime.state_tables import check_state
from tests.ledger.rich_root import Rich
from tests.support.postgres import PostgresServer, run_sql

__all__ = ["EndlessError", "Found", "Mutation", "bounded", "found_in", "is_listed", "is_wrong",
           "mutations", "no_weight", "report_on", "shown"]  # fmt: skip

FORMAT = Path(__file__).parents[2] / "docs" / "ledger-format.md"

# -- mutations ---------------------------------------------------------------------------------


class Mutation(NamedTuple):
    """One edit past Remit.

    Attributes:
        column: of a cell; else ``row deleted``, ``row inserted``, ``rows swapped`` or ``declared``.
        kind: what it becomes.
        row: the values of the row before and after; empty if no single row is edited.
    """

    table: str
    column: str
    kind: str
    sql: str
    row: tuple[Any, ...] = ()


class Found(NamedTuple):
    """What came of one mutation.

    Attributes:
        outcome: ``found`` (a problem names the row), ``unnamed`` (no problem names it),
            ``undetected``, ``unchanged`` (the table reads back as it was: the engine rounded the
            value to the one that was there), ``refused`` (by the engine), ``failed`` (no report was
            made) or ``endless``.
        problems: of the report.
    """

    mutation: Mutation
    outcome: str
    problems: tuple[str, ...] = ()


class Sql(str):
    """An expression in place of a literal."""

    __slots__ = ()


_LONG = 300_000
_HELD = re.compile(r"budgets: (?:reserved_\w+|turns) of (\S+) is")
_NAME = 100  # characters of a value in a message
_SQLITE_TEXTS = {
    "invalid UTF-8": "CAST(x'ff' AS TEXT)",
    "lone surrogate": "CAST(x'eda0bd' AS TEXT)",
    "NUL": "'a' || char(0) || 'b'",
    "infinity": "9e999",
    "NaN": "9e999 - 9e999",
    "very long": f"replace(hex(zeroblob({_LONG // 2})), '0', 'x')",
}
_POSTGRES_TEXTS = {
    "NaN": "'NaN'::float8", "infinity": "'Infinity'::float8", "very long": f"repeat('x', {_LONG})",
}  # fmt: skip


def _any_type(value: Any, sqlite: bool) -> Iterator[tuple[str, Any]]:
    """Values of every type and shape, for a cell of any column."""
    yield from (
        ("null", None), ("text", "x"), ("empty", ""), ("number", 12345), ("0", 0),
        ("negative", -1), ("2^62", 1 << 62), ("2^63-1", (1 << 63) - 1),
        ("real", 0.5),
        ("bytes", value.encode() if isinstance(value, str) else b"\x00\xff"), ("no bytes", b""),
        ("JSON array", "[7]"), ("JSON object", '{"a": {"b": 1}}'), ("JSON text", '"x"'),
    )  # fmt: skip
    texts = _SQLITE_TEXTS if sqlite else _POSTGRES_TEXTS
    # Of SQLite, a NaN is a null.
    yield from ((kind, Sql(sql)) for kind, sql in texts.items() if (kind, value) != ("NaN", None))


def _literal(value: Any, sqlite: bool) -> str:
    match value:
        case None:
            return "NULL"
        case Sql():
            return value
        case bytes():
            return f"x'{value.hex()}'" if sqlite else f"'\\x{value.hex()}'::bytea"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case _:
            return repr(value)


def _where(names: list[str], key: list[str], sqlite: bool, row: Sequence[Any]) -> str:
    same = "IS" if sqlite else "IS NOT DISTINCT FROM"
    return " AND ".join(f"{name} {same} {_literal(row[names.index(name)], sqlite)}" for name in key)


def _cells(value: Any, rng: random.Random, sqlite: bool) -> Iterator[tuple[str, Any]]:
    """What a cell becomes."""
    yield from _any_type(value, sqlite)
    if isinstance(value, str):
        yield from (("longer", value + " "), ("shorter", value[:-1]))
        yield "case", value.upper() if value.upper() != value else value.lower()
        if value:
            at = rng.randrange(len(value))
            other = "x" if value[at] != "x" else "y"
            yield "one character", value[:at] + other + value[at + 1 :]
        if value.startswith("{") and len(value) > 2:
            yield "another key", '{"a":1,' + value[1:]
            yield "white space", value.replace(":", ": ", 1)
    elif isinstance(value, bytes):
        yield from (("longer", value + b"\0"), ("shorter", value[:-1]), ("hex", value.hex()))
        if value:
            at = rng.randrange(len(value))
            yield "one bit", value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]
    elif isinstance(value, int):
        yield from (("+1", value + 1), ("-1", value - 1), ("half", value + 0.5))
        yield from (("digits", f"{value}x"), ("great", 2**40))


def mutations(
    store: str, *, rows: int, seed: int = 1, tables: Sequence[str] = ()
) -> list[Mutation]:
    """Mutations of every table and column.

    Args:
        rows: of each table, so many are edited.
        tables: the only tables; empty for all.
    """
    rng, found = random.Random(seed), []
    sqlite = "://" not in store
    for table in tables or _tables():
        names, key = _columns(table)
        there = _query(store, f"SELECT {', '.join(names)} FROM {table}")
        assert there, f"{table} has no row"
        picked = [there[0], there[-1], *(rng.choice(there) for _ in range(rows))][-max(1, rows) :]
        picked = list({repr(row): row for row in picked}.values())
        where = functools.partial(_where, names, key, sqlite)
        for at, name in enumerate(names):
            for row in picked:
                for kind, value in _cells(row[at], rng, sqlite):
                    if (type(value), value) != (type(row[at]), row[at]):
                        put = f"{name} = {_literal(value, sqlite)}"
                        sql = f"UPDATE {table} SET {put} WHERE {where(row)}"
                        found.append(Mutation(table, name, kind, sql, (*row, value)))
                others = [other for other in there if other[at] != row[at]]
                if others:
                    other = rng.choice(others)
                    put = f"{name} = {_literal(other[at], sqlite)}"
                    sql = f"UPDATE {table} SET {put} WHERE {where(row)}"
                    found.append(Mutation(table, name, "another row's", sql, (*row, other[at])))
        for row in picked:
            found.append(
                Mutation(
                    table,
                    "row deleted",
                    "one",
                    f"DELETE FROM {table} WHERE {where(row)}",
                    tuple(row),
                )
            )
            made = list(row)
            for name in key:
                value = made[names.index(name)]
                made[names.index(name)] = (
                    value + 100_000 if isinstance(value, int)
                    else value + ("2" if isinstance(value, str) else b"2")
                )  # fmt: skip
            values = ", ".join(_literal(value, sqlite) for value in made)
            found.append(
                Mutation(table, "row inserted", "a copy",
                         f"INSERT INTO {table} ({', '.join(names)}) VALUES ({values})",
                         tuple(made))
            )  # fmt: skip
        rest = [name for name in names if name not in key]
        if len(there) > 1 and rest:
            one = rng.choice(there)
            others = [row for row in there if [row[names.index(n)] for n in rest] !=
                      [one[names.index(n)] for n in rest]]  # fmt: skip
            two = rng.choice(others or there)
            sets = [
                f"UPDATE {table} SET "
                + ", ".join(f"{n} = {_literal(b[names.index(n)], sqlite)}" for n in rest)
                + f" WHERE {where(a)}"
                for a, b in ((one, two), (two, one))
            ]
            if two is not one:
                found.append(Mutation(table, "rows swapped", "two", ";".join(sets)))
        found.append(Mutation(table, "row deleted", "all", f"DELETE FROM {table}"))
        found += _declared(table, names, sqlite)
    return found


def _declared(table: str, names: Sequence[str], sqlite: bool) -> Iterator[Mutation]:
    """Changes of what is declared."""
    last = names[-1]
    sqls = [
        f"DROP TABLE {table}", f"ALTER TABLE {table} RENAME COLUMN {last} TO {last}_old",
        f"ALTER TABLE {table} ADD COLUMN extra TEXT", f"CREATE INDEX extra_ix ON {table} ({last})",
        f"CREATE VIEW extra_view AS SELECT * FROM {table}",
        f"ALTER TABLE {table} DROP COLUMN {last}",
        f"ALTER TABLE {table} RENAME TO {table}_old", f"CREATE TABLE extra_{table} (x TEXT)",
    ]  # fmt: skip
    if sqlite:
        sqls += [f"CREATE TRIGGER extra AFTER INSERT ON {table} BEGIN SELECT 1; END"]
    else:
        first = {column.name: column for column in {**TABLES, **STATE_TABLES}[table]}[names[0]]
        # The engine drops a default that is plainly NULL, which would change nothing.
        default = f"CASE WHEN true THEN NULL::{first.postgres_type} END"
        sqls += [
            f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
            f"CREATE POLICY extra ON {table} USING (true)",
            f"CREATE RULE extra AS ON DELETE TO {table} DO INSTEAD NOTHING",
            f"ALTER TABLE {table} SET UNLOGGED", f"CREATE TABLE extra_child () INHERITS ({table})",
            f"ALTER TABLE {table} ALTER COLUMN {names[0]} SET DEFAULT {default}",
            f"ALTER TABLE {table} REPLICA IDENTITY FULL",
            "CREATE FUNCTION extra() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
            f"CREATE TRIGGER extra BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION extra()",
        ]  # fmt: skip
    for sql in sqls:
        kind = re.sub(rf"\b(extra_)?{table}(_old)?\b", "…", sql.partition(";")[0])
        yield Mutation(table, "declared", kind[:60], sql)


@functools.cache
def _layout() -> dict[str, list[tuple[Any, ...]]]:
    """Return what SQLite says of the columns of each table of a new ledger."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "ledger.db"
        LedgerClient(path).close()
        tables = _query(str(path), "SELECT name FROM sqlite_schema WHERE type = 'table'")
        return {name: _query(str(path), f"PRAGMA table_info({name})") for (name,) in sorted(tables)}


def _tables() -> list[str]:
    return list(_layout())


def _columns(table: str) -> tuple[list[str], list[str]]:
    """All columns of a table, and those that tell its rows apart."""
    info = _layout()[table]
    names = [row[1] for row in info]
    return names, [row[1] for row in info if row[5]] or names


def _query(store: str, sql: str) -> list[tuple[Any, ...]]:
    if "://" in store:
        return run_sql(store, sql)
    with contextlib.closing(sqlite3.connect(store)) as connection:
        connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
        return connection.execute(sql).fetchall()


# -- what verification says --------------------------------------------------------------------


_CPU_S = 20.0
"""CPU time within which a verification has to end; a sound one takes 0.05 s."""


_Rows = Set[tuple[Any, ...]]


class EndlessError(BaseException):
    """A verification used up its CPU time. No guard of a check catches it."""


@contextlib.contextmanager
def bounded(seconds: float = _CPU_S) -> Iterator[None]:
    """Bound the CPU time of a block; in the main thread."""

    def end(number: int, frame: Any) -> None:
        raise EndlessError

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def found_in(rich: Rich, wanted: Sequence[Mutation], scratch: Path, server: PostgresServer | None,
             told: Callable[[Found], None] = lambda found: None) -> list[Found]:  # fmt: skip
    """Make each mutation in a sound database, and verify."""
    found: list[Found] = []
    if server is None:
        engine: contextlib.AbstractContextManager[Callable[[Mutation], Found]] = _sqlite(
            rich, scratch
        )
    else:
        engine = _postgres(rich, server)
    with engine as tried:
        for mutation in wanted:
            found.append(tried(mutation))
            told(found[-1])
    return found


def report_on(rich: Rich, store: str) -> VerificationReport:
    """Return the report on a copy of a rich root's ledger."""
    try:
        with LedgerClient(
            store, create=False, verifier_key=rich.key, checks=(check_state,)
        ) as client:
            return client.verify(deep=False)
    except LedgerError as error:  # as `remit ledger verify` does
        return VerificationReport.of_failure(error)


def _verified(rich: Rich, store: str, mutation: Mutation, rows: _Rows = frozenset()) -> Found:
    """Verify a store after a mutation; ``rows`` are those that its table had or has alone."""
    try:
        with bounded():
            report = report_on(rich, store)
    except EndlessError:
        return Found(mutation, "endless")
    except Exception as error:
        return Found(mutation, "failed", (f"{type(error).__name__}: {error}",))
    problems = tuple(str(one) for one in report.problems)
    is_same = mutation.column != "declared" and not rows
    if report.verified:
        return Found(mutation, "unchanged" if is_same else "undetected")
    if is_same:
        return Found(mutation, "failed", ("nothing changed", *problems))
    named = not mutation.row or any(_names(mutation, rows, one) for one in report.problems)
    return Found(mutation, "found" if named else "unnamed", problems)


def _names(mutation: Mutation, rows: _Rows, problem: Problem) -> bool:
    """True if a problem names the edited row: by its entry, or by table and a value in it."""
    if mutation.table == "entries" and problem.seq == mutation.row[0]:
        return True
    if mutation.table in ("holds", "in_flight") and (held := _HELD.match(problem.message)):
        return held[1] in str(mutation.row)  # no record names a hold, but each account has a sum
    if not re.search(rf"\b{mutation.table}\b|^usage", problem.message):
        return False
    if problem.seq is not None and {problem.seq, entry_id(problem.seq)} & {*mutation.row}:
        return True
    values = {value for row in rows for value in row}
    shown = {str(one) for one in values if one not in ("", None) and len(str(one)) < _NAME}
    if mutation.table == "usage" and isinstance(mutation.row[0], int):
        shown.add(datetime.fromtimestamp(mutation.row[0] * 900, UTC).isoformat()[:16])
    return any(
        re.search(rf"(?<![\w]){re.escape(value)}(?![\w])", problem.message) for value in shown
    ) or any(repr(one)[:_NAME] in problem.message for one in values if isinstance(one, str))


@contextlib.contextmanager
def _sqlite(rich: Rich, scratch: Path) -> Iterator[Callable[[Mutation], Found]]:
    """Yield a function that makes a mutation in a new copy of the file, and verifies that."""
    place = scratch / "copy.db"
    with contextlib.closing(sqlite3.connect(rich.store)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def tried(mutation: Mutation) -> Found:
        for file in scratch.glob("copy.db*"):
            file.unlink()
        shutil.copy(rich.store, place)
        with contextlib.closing(sqlite3.connect(place)) as connection:
            try:
                connection.executescript(f"BEGIN;{mutation.sql};COMMIT")
            except sqlite3.Error:
                return Found(mutation, "refused")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return _verified(rich, str(place), mutation, _changed(rich, str(place), mutation))

    yield tried


@contextlib.contextmanager
def _postgres(rich: Rich, server: PostgresServer) -> Iterator[Callable[[Mutation], Found]]:
    """Yield a function that makes a mutation, and verifies.

    Edits of rows share one database. Each is undone from a copy of the table in another schema, and
    before the next table is edited, all tables are compared with their copies. Where opening a
    ledger itself may write, after an edit of a declaration or of what says whose ledger it is, the
    edit has a database of its own.
    """
    shared = _Shared(server, rich)
    last = ""

    def tried(mutation: Mutation) -> Found:
        nonlocal last
        if mutation.column == "declared" or mutation.table in ("ledger_info", "migrations"):
            return _in_its_own(rich, mutation, server)
        if mutation.table != last:
            shared.require_restored()
            last = mutation.table
        try:
            shared.edit(*_statements(mutation.sql))
        except psycopg.Error:
            return Found(mutation, "refused")
        try:
            rows = shared.changed(mutation.table)
            return _verified(rich, shared.url, mutation, rows)
        finally:
            shared.restore(mutation.table)

    try:
        yield tried
        shared.require_restored()
    finally:
        shared.drop()


def _changed(rich: Rich, store: str, mutation: Mutation) -> _Rows:
    """Return the rows of the edited table that only the sound store has, or only the other."""
    if mutation.column == "declared":
        return frozenset()
    names = _columns(mutation.table)[0]
    kinds = [f"typeof({name})" for name in names] if rich.is_sqlite else []
    sql = f"SELECT {', '.join((*names, *kinds))} FROM {mutation.table}"
    rows = [Counter(_query(one, sql)) for one in (rich.store, store)]
    return {row[: len(names)] for row in rows[0] - rows[1] + (rows[1] - rows[0])}


def _in_its_own(rich: Rich, mutation: Mutation, server: PostgresServer) -> Found:
    url = server.database(rich.store)
    try:
        run_sql(url, *_statements(mutation.sql))
        return _verified(rich, url, mutation, _changed(rich, url, mutation))
    except psycopg.Error:
        return Found(mutation, "refused")
    finally:
        server.drop(url)


class _Shared:
    """A copy of a rich root's PostgreSQL database, whose tables can be restored."""

    def __init__(self, server: PostgresServer, rich: Rich) -> None:
        self._server = server
        self._rich = rich
        self.url = server.database(rich.store)
        self._connection = psycopg.connect(self.url, autocommit=True, connect_timeout=60)
        self.edit("CREATE SCHEMA sound")
        self.edit(*(f"CREATE TABLE sound.{table} AS TABLE {table}" for table in _tables()))

    def edit(self, *statements: str) -> None:
        """Run statements in one transaction."""
        with self._connection.transaction():
            for statement in statements:
                self._connection.execute(statement)

    def changed(self, table: str) -> _Rows:
        """Return the rows that only the table has, or only its copy."""
        sql = (f"(TABLE {table} EXCEPT ALL TABLE sound.{table}) UNION ALL "
               f"(TABLE sound.{table} EXCEPT ALL TABLE {table})")  # fmt: skip
        return set(self._connection.execute(sql).fetchall())

    def restore(self, table: str) -> None:
        """Fill a table from its copy."""
        self.edit(f"TRUNCATE {table}", f"INSERT INTO {table} TABLE sound.{table}")

    def require_restored(self) -> None:
        """Raise AssertionError unless every table is as it was, and the ledger verifies."""
        assert [table for table in _tables() if self.changed(table)] == []
        assert report_on(self._rich, self.url).verified

    def drop(self) -> None:
        """Remove the database."""
        self._connection.close()
        self._server.drop(self.url)


def _statements(sql: str) -> list[str]:
    if "FUNCTION" in sql:
        head, tail = sql.split("';", 1)
        return [head + "'", tail]
    return sql.split(";UPDATE ", 1)[:1] + ["UPDATE " + rest for rest in sql.split(";UPDATE ")[1:]]


def no_weight(text: str = "") -> dict[str, set[str]]:
    """By table, the columns and edits that ``docs/ledger-format.md`` lists as of no weight."""
    text = text or FORMAT.read_text(encoding="utf-8")
    part = text.partition("### What carries no weight\n")[2].partition("\n## ")[0]
    found: defaultdict[str, set[str]] = defaultdict(set)
    for line in part.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) >= 3 and cells[0].startswith("`"):
            found[cells[0].strip("`")] |= set(re.findall(r"`([^`]+)`", cells[1]))
    return found


def is_listed(mutation: Mutation, listed: dict[str, set[str]]) -> bool:
    """Whether nobody relies on what a mutation changes."""
    of = listed.get(mutation.table, set())
    column = mutation.column
    return bool({column, f"{column}={mutation.kind}"} & of) or ("*" in of and column != "declared")


def is_wrong(found: Found, listed: dict[str, set[str]]) -> bool:
    """True if an edit did not come out as it has to."""
    if found.outcome in ("undetected", "unnamed"):
        return not is_listed(found.mutation, listed)
    return found.outcome in ("failed", "endless")


def shown(found: Sequence[Found]) -> list[str]:
    """A table by table and column."""
    listed = no_weight()
    by: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for one in found:
        outcome = one.outcome
        if outcome in ("undetected", "unnamed") and is_listed(one.mutation, listed):
            outcome = "no weight"
        by[one.mutation.table, one.mutation.column][outcome] += 1
    names = ("found", "unnamed", "undetected", "failed", "endless", "no weight", "unchanged",
             "refused")  # fmt: skip
    lines = [f"{'table':18} {'column':22} " + " ".join(f"{name:>10}" for name in names)]
    for (table, column), counts in sorted(by.items()):
        lines.append(f"{table:18} {column:22} " + " ".join(f"{counts[name]:>10}" for name in names))
    total = sum(by.values(), Counter())
    lines.append(f"{'all':18} {'':22} " + " ".join(f"{total[name]:>10}" for name in names))
    return lines
