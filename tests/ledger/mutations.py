"""Mutations of every table of a ledger's database, and which of them verification finds.

``python -m tests.ledger.mutations --store sqlite|postgresql [--all]`` makes a root in which every
table has rows, by a real server before a real upstream, killed with a call out; then edits one
cell, row or declaration at a time past Remit, verifies, and prints what was found of each.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import random
import re
import shutil
import sqlite3
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import asyncpg

from remit.ledger import LedgerClient, LedgerError
from remit.ledger.schema import STATE_TABLES, TABLES
from remit.ledger.sqlite.schema import CREATE
from remit.runtime.state import check_state
from tests.ledger.rich_root import Rich, make
from tests.support.postgres import PostgresServer, run_sql

__all__ = ["Found", "Mutation", "found_in", "mutations", "no_weight", "shown", "verified"]

FORMAT = Path(__file__).parents[2] / "docs" / "ledger-format.md"

# -- mutations ---------------------------------------------------------------------------------


class Mutation(NamedTuple):
    """One edit past Remit.

    Attributes:
        column: of a cell; else ``row deleted``, ``row inserted``, ``rows swapped`` or ``declared``.
        kind: what it becomes.
    """

    table: str
    column: str
    kind: str
    sql: str


class Found(NamedTuple):
    """What came of one: ``found``, ``undetected`` or ``refused`` by the engine."""

    mutation: Mutation
    outcome: str


def _literal(value: Any, sqlite: bool) -> str:
    match value:
        case None:
            return "NULL"
        case bytes():
            return f"x'{value.hex()}'" if sqlite else f"'\\x{value.hex()}'::bytea"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case _:
            return repr(value)


def _where(names: list[str], key: list[str], sqlite: bool, row: Sequence[Any]) -> str:
    same = "IS" if sqlite else "IS NOT DISTINCT FROM"
    return " AND ".join(f"{name} {same} {_literal(row[names.index(name)], sqlite)}" for name in key)


def _cells(value: Any, rng: random.Random) -> Iterator[tuple[str, Any]]:
    """What a cell becomes."""
    yield "null", None
    if isinstance(value, str):
        yield from (
            ("longer", value + " "),
            ("empty", ""),
            ("number", 12345),
            ("bytes", value.encode()),
        )
        yield "case", value.upper() if value.upper() != value else value.lower()
        if value:
            at = rng.randrange(len(value))
            other = "x" if value[at] != "x" else "y"
            yield "one character", value[:at] + other + value[at + 1 :]
        if value.startswith("{") and len(value) > 2:
            yield "another key", '{"a":1,' + value[1:]
            yield "white space", value.replace(":", ": ", 1)
    elif isinstance(value, bytes):
        yield from (("longer", value + b"\0"), ("empty", b""), ("text", value.hex()))
        if value:
            at = rng.randrange(len(value))
            yield "one bit", value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]
    elif isinstance(value, int):
        yield from (("+1", value + 1), ("-1", value - 1), ("0", 0), ("half", value + 0.5))
        yield from (("text", f"{value}x"), ("great", 2**40))
    else:
        yield from (("text", "x"), ("0", 0))


def mutations(store: str, *, rows: int, seed: int = 1) -> list[Mutation]:
    """Mutations of every table and column.

    Args:
        rows: of each table, so many are edited.
    """
    rng, found = random.Random(seed), []
    sqlite = "://" not in store
    for table in _tables():
        names, key = _columns(table)
        there = _query(store, f"SELECT {', '.join(names)} FROM {table}")
        assert there, f"{table} has no row"
        picked = [there[0], there[-1], *(rng.choice(there) for _ in range(rows))][-max(1, rows) :]
        picked = list({repr(row): row for row in picked}.values())
        where = functools.partial(_where, names, key, sqlite)
        for at, name in enumerate(names):
            for row in picked:
                for kind, value in _cells(row[at], rng):
                    if (type(value), value) != (type(row[at]), row[at]):
                        put = f"{name} = {_literal(value, sqlite)}"
                        sql = f"UPDATE {table} SET {put} WHERE {where(row)}"
                        found.append(Mutation(table, name, kind, sql))
                others = [other for other in there if other[at] != row[at]]
                if others:
                    other = rng.choice(others)
                    put = f"{name} = {_literal(other[at], sqlite)}"
                    sql = f"UPDATE {table} SET {put} WHERE {where(row)}"
                    found.append(Mutation(table, name, "another row's", sql))
        for row in picked:
            found.append(
                Mutation(table, "row deleted", "one", f"DELETE FROM {table} WHERE {where(row)}")
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
                         f"INSERT INTO {table} ({', '.join(names)}) VALUES ({values})")
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


def _tables() -> list[str]:
    with contextlib.closing(sqlite3.connect(":memory:")) as scratch:
        scratch.executescript(CREATE)
        rows = scratch.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
        return [name for (name,) in rows]


def _columns(table: str) -> tuple[list[str], list[str]]:
    """All columns of a table, and those that tell its rows apart."""
    with contextlib.closing(sqlite3.connect(":memory:")) as scratch:
        scratch.executescript(CREATE)
        info = scratch.execute(f"PRAGMA table_info({table})").fetchall()
    names = [row[1] for row in info]
    return names, [row[1] for row in info if row[5]] or names


def _query(store: str, sql: str) -> list[tuple[Any, ...]]:
    if "://" in store:
        return run_sql(store, sql)
    with contextlib.closing(sqlite3.connect(store)) as connection:
        return connection.execute(sql).fetchall()


# -- what verification says --------------------------------------------------------------------


def found_in(rich: Rich, wanted: Sequence[Mutation], scratch: Path, server: PostgresServer | None,
             told: Callable[[int], None] = lambda done: None) -> list[Found]:  # fmt: skip
    """Make each mutation in a copy of its own, and verify."""
    found = []
    if rich.is_sqlite:
        with contextlib.closing(sqlite3.connect(rich.store)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for number, mutation in enumerate(wanted):
        outcome = (
            _on_sqlite(rich, mutation, scratch) if rich.is_sqlite
            else _on_postgres(rich, mutation, server)
        )  # fmt: skip
        found.append(Found(mutation, outcome))
        told(number + 1)
    return found


def verified(rich: Rich, store: str) -> bool:
    """Whether a copy of a rich root's ledger verifies."""
    try:
        with LedgerClient(
            store, create=False, verifier_key=rich.key, checks=(check_state,)
        ) as client:
            return client.verify(deep=False).verified
    except LedgerError:
        return False


def _on_sqlite(rich: Rich, mutation: Mutation, scratch: Path) -> str:
    place = scratch / "copy.db"
    for file in scratch.glob("copy.db*"):
        file.unlink()
    shutil.copy(rich.store, place)
    with contextlib.closing(sqlite3.connect(place)) as connection:
        try:
            connection.executescript(f"BEGIN;{mutation.sql};COMMIT")
        except sqlite3.Error:
            return "refused"
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return "undetected" if verified(rich, str(place)) else "found"


def _on_postgres(rich: Rich, mutation: Mutation, server: PostgresServer | None) -> str:
    assert server is not None
    url = server.database(rich.store)
    try:
        try:
            run_sql(url, *_statements(mutation.sql))
        except (asyncpg.PostgresError, asyncpg.DataError):
            return "refused"
        return "undetected" if verified(rich, url) else "found"
    finally:
        server.drop(url)


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


def shown(found: Sequence[Found]) -> list[str]:
    """A table by table and column."""
    listed = no_weight()
    by: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for one in found:
        outcome = one.outcome
        if outcome == "undetected" and is_listed(one.mutation, listed):
            outcome = "no weight"
        by[one.mutation.table, one.mutation.column][outcome] += 1
    names = ("found", "undetected", "no weight", "refused")
    lines = [f"{'table':18} {'column':22} " + " ".join(f"{name:>10}" for name in names)]
    for (table, column), counts in sorted(by.items()):
        lines.append(f"{table:18} {column:22} " + " ".join(f"{counts[name]:>10}" for name in names))
    total = sum(by.values(), Counter())
    lines.append(f"{'all':18} {'':22} " + " ".join(f"{total[name]:>10}" for name in names))
    return lines


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.ledger.mutations")
    parser.add_argument("--store", choices=("sqlite", "postgresql"), required=True)
    parser.add_argument("--all", action="store_true", help="several rows of each table, every edit")
    parser.add_argument("--table", help="this one alone")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="remit-mutations-"))
    server = PostgresServer(scratch / "postgres") if given.store == "postgresql" else None
    try:
        rich = make(scratch / "root", server.database() if server else "")
        assert verified(rich, rich.store), "what nobody edited does not verify"
        wanted = mutations(rich.store, rows=3 if given.all else 1, seed=given.seed)
        wanted = [one for one in wanted if given.table in (None, one.table)]
        print(f"{len(wanted)} mutations", flush=True)

        def told(done: int) -> None:
            if done % 100 == 0:
                print(f"{done}", file=sys.stderr, flush=True)

        found = found_in(rich, wanted, scratch, server, told)
    finally:
        if server is not None:
            server.stop()
        shutil.rmtree(scratch, ignore_errors=True)
    print("\n".join(shown(found)))
    listed = no_weight()
    for one in found:
        if one.outcome == "undetected" and not is_listed(one.mutation, listed):
            print(
                one.mutation.table, one.mutation.column, one.mutation.kind, one.mutation.sql[:300]
            )


if __name__ == "__main__":
    with mock.patch.dict("os.environ"):
        main()
