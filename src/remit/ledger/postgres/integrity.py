"""Is the layout the documented one? What PostgreSQL itself guarantees is not checked again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remit.ledger.postgres.schema import INDEXES, TRIGGERS
from remit.ledger.schema import STATE_TABLES, TABLES


def layout_problem(select: Callable[[str], list[tuple[Any, ...]]]) -> str:
    """What is wrong with tables, columns, indexes, triggers and rules; empty when nothing."""
    there: dict[str, list[tuple[str, str, str]]] = {}
    for table, *column in select(
        "SELECT c.table_name, c.column_name, c.data_type, c.is_nullable "
        "FROM information_schema.columns AS c JOIN information_schema.tables AS t "
        "ON t.table_schema = c.table_schema AND t.table_name = c.table_name "
        "WHERE c.table_schema = current_schema() AND t.table_type = 'BASE TABLE' "
        "ORDER BY c.table_name, c.ordinal_position"
    ):
        there.setdefault(table, []).append(tuple(column))
    for table, columns in (TABLES | STATE_TABLES).items():
        expected = {
            (column.name, column.postgres_type, "YES" if column.nullable else "NO")
            for column in columns
        }
        if set(there.get(table, ())) != expected:
            return f"the table {table} is not the documented one"
    for (name,) in select(TRIGGERS):
        return f"there is a trigger or rule {name}, which a ledger does not have"
    indexes: dict[str, bool] = dict(
        select(
            "SELECT c.relname, i.indisvalid FROM pg_index AS i JOIN pg_class AS c "
            "ON c.oid = i.indexrelid WHERE c.relnamespace = current_schema()::regnamespace"
        )
    )
    for name in (*INDEXES, "entries_pkey", "contents_pkey", "contents_scope_digest_key"):
        if not indexes.get(name):
            return f"the index {name} is missing or not valid"
    return ""
