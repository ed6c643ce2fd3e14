"""Comparison of PostgreSQL's catalog with the declared layout."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from remit.ledger.postgres.connection import ENGINE_ERRORS, Writer
from remit.ledger.postgres.schema import MIGRATIONS, SEARCH_COLUMNS, UNSAMPLED, VIEWS
from remit.ledger.schema import SQLITE, STATE_TABLES, TABLES, Column, declare

_Select = Callable[[str], list[tuple[Any, ...]]]

_HERE = "current_schema()::regnamespace"
_NOT_OF_AN_EXTENSION = """NOT EXISTS (
    SELECT 1 FROM pg_depend AS d WHERE d.objid = o.oid AND d.classid = o.tableoid
    AND d.deptype = 'e')"""

_RELATIONS = f"""
    SELECT CASE o.relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' WHEN 'i' THEN 'index'
               WHEN 'm' THEN 'materialized view' WHEN 'S' THEN 'sequence'
               WHEN 'f' THEN 'foreign table' ELSE 'relation of kind ' || o.relkind::text END,
           o.relname::text, o.relpersistence <> 'p', pg_get_indexdef(i.indexrelid),
           coalesce(i.indisvalid AND i.indisready, true)
    FROM pg_class AS o LEFT JOIN pg_index AS i ON i.indexrelid = o.oid
    WHERE o.relnamespace = {_HERE} AND {_NOT_OF_AN_EXTENSION}"""
_COLUMNS = f"""
    SELECT o.relname::text, a.attname::text, format_type(a.atttypid, a.atttypmod), a.attnotnull,
           coalesce(pg_get_expr(d.adbin, d.adrelid), ''),
           a.attgenerated <> '' OR a.attidentity <> '' OR a.attcollation <> t.typcollation
    FROM pg_class AS o JOIN pg_attribute AS a ON a.attrelid = o.oid
    JOIN pg_type AS t ON t.oid = a.atttypid
    LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE o.relnamespace = {_HERE} AND o.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped"""
_UNSAMPLED = ", ".join(f"('{table}', '{column}')" for table, column in UNSAMPLED)
# Objects that can change, hide, add or refuse rows unnoticed, or keep erased data.
_FOREIGN = f"""
    SELECT 'trigger ' || t.tgname FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
    WHERE NOT t.tgisinternal AND c.relnamespace = {_HERE}
    UNION ALL
    SELECT 'rule ' || r.rulename FROM pg_rewrite AS r JOIN pg_class AS c ON c.oid = r.ev_class
    WHERE c.relkind = 'r' AND c.relnamespace = {_HERE}
    UNION ALL
    SELECT 'policy ' || p.polname FROM pg_policy AS p JOIN pg_class AS c ON c.oid = p.polrelid
    WHERE c.relnamespace = {_HERE}
    UNION ALL
    SELECT 'row security on ' || relname FROM pg_class
    WHERE (relrowsecurity OR relforcerowsecurity) AND relnamespace = {_HERE}
    UNION ALL
    SELECT 'replica identity of ' || relname FROM pg_class
    WHERE relkind = 'r' AND relreplident <> 'd' AND relnamespace = {_HERE}
    UNION ALL
    SELECT 'inheritance of ' || c.relname || ' from ' || p.relname FROM pg_inherits AS i
    JOIN pg_class AS c ON c.oid = i.inhrelid JOIN pg_class AS p ON p.oid = i.inhparent
    WHERE {_HERE} IN (c.relnamespace, p.relnamespace)
    UNION ALL
    SELECT 'constraint ' || conname FROM pg_constraint
    WHERE (contype NOT IN ('p', 'u', 'n') OR condeferrable) AND connamespace = {_HERE}
    UNION ALL
    SELECT 'foreign key ' || o.conname FROM pg_constraint AS o
    JOIN pg_class AS c ON c.oid = o.confrelid
    WHERE c.relnamespace = {_HERE} AND o.connamespace <> {_HERE}
    UNION ALL
    SELECT 'statistics object ' || s.stxname FROM pg_statistic_ext AS s
    JOIN pg_class AS c ON c.oid = s.stxrelid WHERE c.relnamespace = {_HERE}
    UNION ALL
    SELECT 'sample of ' || c.relname || '.' || a.attname || ' in the statistics'
    FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
    WHERE c.relnamespace = {_HERE} AND coalesce(a.attstattarget, -1) <> 0
    AND (c.relname, a.attname) IN ({_UNSAMPLED})
    UNION ALL
    SELECT 'operator ' || o.oprname FROM pg_operator AS o
    WHERE o.oprnamespace = {_HERE} AND {_NOT_OF_AN_EXTENSION}
    UNION ALL
    SELECT 'function ' || o.proname FROM pg_proc AS o
    WHERE o.pronamespace = {_HERE} AND {_NOT_OF_AN_EXTENSION}"""

_VIEW = re.compile(r"CREATE VIEW (\w+) AS")
_INDEX = re.compile(r"CREATE (?:UNIQUE )?INDEX (?:IF NOT EXISTS )?(\w+) ON [^;]+")
_MEANINGLESS = re.compile(
    r"::text|::bigint|USING btree|IF NOT EXISTS|(?<= ON )\S+\.(?=\S)|[\s()'\"]", re.IGNORECASE
)


def layout_problems(select: _Select, url: str) -> list[str]:
    """Return a text for each object of the database that is not as a ledger's should be.

    An object may be missing, be foreign to a ledger, or have another form; the text names it and
    says which. The list is empty if the layout is right. Views are not compared if temporary ones
    cannot be made, as on a standby.

    Args:
        select: runs a query; its errors are raised.
        url: URL of the database; the documented views are made in it for a moment, in a transaction
            that is rolled back.
    """
    return [*_relations(select), *_columns(select), *_foreign(select), *_views(select, url)]


def _squeezed(sql: str) -> str:
    """Return an index's statement without parts that the engine spells differently."""
    return _MEANINGLESS.sub("", sql)


def _relations(select: _Select) -> Iterator[str]:
    there = {(row[0], row[1]): row[2:] for row in select(_RELATIONS)}
    indexes = _indexes()
    expected = {("table", name) for name in (*TABLES, *STATE_TABLES, "content_search")}
    expected |= {("view", name) for name in _VIEW.findall(VIEWS)}
    expected |= {("index", name) for name in indexes}
    for kind, name in sorted(expected - there.keys()):
        yield f"there is no {kind} {name}"
    for (kind, name), (is_passing, sql, is_valid) in sorted(there.items()):
        if (kind, name) not in expected:
            yield f"there is a {kind} {name}, which a ledger does not have"
        elif is_passing:
            yield f"the {kind} {name} is not kept for good: it is unlogged"
        elif not is_valid or (kind == "index" and _squeezed(sql) != _squeezed(indexes[name])):
            yield f"the {kind} {name} is not the documented one, or not valid"


def _indexes() -> dict[str, str]:
    """Return the statement of each declared index by name, indexes of keys included."""
    found = {match[1]: match[0] for text in MIGRATIONS.values() for match in _INDEX.finditer(text)}
    keys = {"content_search_pkey": ("content_search", ["content_id"])}
    with contextlib.closing(sqlite3.connect(":memory:")) as scratch:
        scratch.executescript(declare(SQLITE))
        for table in TABLES | STATE_TABLES:
            info = scratch.execute(f"PRAGMA table_info({table})").fetchall()
            if key := [row[1] for row in sorted(info, key=lambda row: row[5]) if row[5]]:
                keys[f"{table}_pkey"] = (table, key)
            for _, index, _, origin, _ in scratch.execute(f"PRAGMA index_list({table})").fetchall():
                if origin == "u":
                    key = [row[2] for row in scratch.execute(f"PRAGMA index_info({index})")]
                    keys[f"{table}_{'_'.join(key)}_key"] = (table, key)
    for name, (table, key) in keys.items():
        found[name] = f"CREATE UNIQUE INDEX {name} ON {table} ({','.join(key)})"
    return found


def _columns(select: _Select) -> Iterator[str]:
    there: dict[str, dict[str, tuple[Any, ...]]] = {}
    for table, name, *rest in select(_COLUMNS):
        there.setdefault(table, {})[name] = tuple(rest)
    declared: dict[str, Sequence[Column]] = {**TABLES, **STATE_TABLES}
    declared["content_search"] = SEARCH_COLUMNS
    for table, columns in declared.items():
        found = there.get(table, {})
        expected = {column.name: column for column in columns}
        for name in sorted(found.keys() | expected.keys()):
            column, real = expected.get(name), found.get(name)
            if real is None:
                yield f"the table {table} has no column {name}"
            elif column is None:
                yield f"the table {table} has a column {name}, which a ledger does not have"
            elif (real[0], real[1], _squeezed(real[2]), real[3]) != (
                column.postgres_type, not column.nullable, _squeezed(column.default), False,
            ):  # fmt: skip
                yield f"the column {table}.{name} is not the documented one"


def _foreign(select: _Select) -> Iterator[str]:
    for (what,) in select(_FOREIGN):
        yield f"there is a {what}, which a ledger does not have"


def _views(select: _Select, url: str) -> list[str]:
    """Return the views that differ from the documented ones.

    The engine does not store a view's text, so the documented views are made once more as temporary
    ones. The result is empty if that is not allowed.
    """
    definition = "SELECT relname::text, pg_get_viewdef(oid) FROM pg_class WHERE relkind = 'v'"
    there: dict[str, str] = dict(select(f"{definition} AND relnamespace = {_HERE}"))
    writer = Writer(url)
    try:
        writer.connect()
        writer.put("BEGIN", ())
        writer.script(VIEWS.replace("CREATE VIEW", "CREATE TEMP VIEW"))
        mine = writer.fetch(f"{definition} AND relnamespace = pg_my_temp_schema()")
        writer.script("ROLLBACK")
    except ENGINE_ERRORS:
        return []  # The role only reads, or the server is a standby.
    finally:
        writer.drop()
    sound: dict[str, str] = dict(mine)
    return [
        f"the view {name} is not the documented one"
        for name, sql in sorted(there.items())
        if sound.get(name, sql) != sql
    ]
