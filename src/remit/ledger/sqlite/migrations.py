"""Migrations of a file to the present layout; records and hashes stay unchanged."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime

import orjson

from remit.ledger.contents import NO_STEP, commitments_in
from remit.ledger.errors import LedgerFormatError
from remit.ledger.projection import fill_tables
from remit.ledger.schema import DROPPED, LAYOUT_VERSION, SQLITE, STATE_TABLES, declare
from remit.ledger.sqlite.schema import VIEWS, squeezed
from remit.ledger.tlog.merkle import leaf_hash
from remit.ledger.tlog.tiles import tile_levels
from remit.ledger.usage_tables import USAGE_TABLES

_TABLE_SQL = "SELECT name, sql FROM sqlite_schema WHERE type = 'table'"


def migrate(connection: sqlite3.Connection) -> None:
    """Apply the missing migrations in one transaction; none if another process was first.

    Each migration adds a row to ``migrations``, and the file's ``user_version`` is set to the
    present layout, even from a newer one: the caller checks that. ``legacy_alter_table`` stays on
    for the connection.

    Args:
        connection: a connection of the ledger, outside a transaction.

    Raises:
        sqlite3.Error: the file is locked or a statement failed; the file is unchanged.
        LedgerFormatError: a table that must be rebuilt has foreign columns or triggers; the file is
            unchanged.
    """
    # Otherwise renaming reads or rewrites foreign views, which may be broken.
    connection.execute("PRAGMA legacy_alter_table=ON")
    connection.execute("BEGIN IMMEDIATE")
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        for number, step in _STEPS.items():
            if number > version:
                step(connection)
                connection.execute(
                    "INSERT OR REPLACE INTO migrations VALUES (?, ?)",
                    (number, datetime.now(UTC).isoformat()[:26] + "Z"),
                )
        connection.execute(f"PRAGMA user_version={LAYOUT_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _number_contents(connection: sqlite3.Connection) -> None:
    """Number content rows, record the content that each entry shows, and store the tree."""
    run = connection.execute
    for view in ("entry_contents", "entry_messages"):
        run(f"DROP VIEW {view}")
    for table in ("contents", "message_steps", "content_subjects"):
        run(f"ALTER TABLE {table} RENAME TO old_{table}")
    _run(connection, declare(SQLITE, 2) + VIEWS)
    run(
        "INSERT INTO contents SELECT content_id, commitment, scope, digest, nonce, bytes, codec, "
        "value FROM old_contents"
    )
    run(
        "INSERT INTO content_subjects SELECT o.subject_id, c.content_id FROM old_content_subjects "
        "AS o JOIN contents AS c ON c.commitment = o.commitment"
    )
    run("CREATE INDEX migrating_contents ON contents(commitment)")
    _note_what_is_shown(connection)
    run("DROP INDEX migrating_contents")
    for table in ("content_subjects", "message_steps", "contents"):
        run(f"DROP TABLE old_{table}")
    _plant_tree(connection)


def _declare_state(connection: sqlite3.Connection) -> None:
    """Bring the tables of state to their declared form; rows are preserved.

    A foreign column or trigger is not dropped with a table, because verification has to find it.
    """
    found = dict(connection.execute(_TABLE_SQL))
    indexes: dict[str, str] = {}
    for table, sql in _declared_state().items():
        if table in found and squeezed(found[table]) != squeezed(sql):
            indexes |= _rebuild(connection, table, sql)
    _run(connection, declare(SQLITE, 3))
    there = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    for name, sql in indexes.items():
        if name not in there:
            connection.execute(sql)


def _declared_state() -> dict[str, str]:
    """Return the statement of each table of layout 3, by name."""
    with contextlib.closing(sqlite3.connect(":memory:")) as scratch:
        scratch.executescript(declare(SQLITE, 3))
        return dict(scratch.execute(_TABLE_SQL))


def _rebuild(connection: sqlite3.Connection, table: str, sql: str) -> dict[str, str]:
    """Bring a table to its declared form; return its former indexes by name."""
    columns = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]
    known = [column.name for column in STATE_TABLES[table] if column.name in columns]
    triggers, indexes = (
        dict(
            connection.execute(
                "SELECT name, sql FROM sqlite_schema "
                "WHERE tbl_name = ? AND type = ? AND sql IS NOT NULL",
                (table, kind),
            )
        )
        for kind in ("trigger", "index")
    )
    ours = {*known, *DROPPED.get(table, ())}
    foreign = [*sorted(set(columns).difference(ours)), *triggers]
    if foreign:
        raise LedgerFormatError(
            f"The table {table} contains objects that no version of Remit created: "
            f"{', '.join(foreign)}.",
            next_step="Find out who created them. Without them (DROP TRIGGER, or ALTER TABLE "
            f"{table} DROP COLUMN, in a copy of the file) the ledger can be opened.",
        )
    names = ", ".join(known)
    connection.execute(sql.replace(f"CREATE TABLE {table}", f"CREATE TABLE migrating_{table}", 1))
    connection.execute(f"INSERT INTO migrating_{table} ({names}) SELECT {names} FROM {table}")
    connection.execute(f"DROP TABLE {table}")
    connection.execute(f"ALTER TABLE migrating_{table} RENAME TO {table}")
    return indexes


def _run(connection: sqlite3.Connection, script: str) -> None:
    """Run statements singly, as ``executescript`` would commit first."""
    for statement in script.split(";"):
        connection.execute(statement)


def _note_what_is_shown(connection: sqlite3.Connection) -> None:
    """Record the content and the message steps that each entry shows."""
    steps: dict[str, int] = {NO_STEP: 0}
    for seq, record in connection.execute("SELECT seq, record FROM entries ORDER BY seq"):
        try:
            items = commitments_in(orjson.loads(record))
        except ValueError:
            continue  # unreadable before, unreadable after
        for item in items:
            if "$content" in item:
                connection.execute(
                    "INSERT OR IGNORE INTO shown_contents "
                    "SELECT ?, content_id FROM contents WHERE commitment = ?",
                    (seq, str(item["$content"])[12:]),
                )
            else:
                _copy_list(connection, seq, str(item["$messages"]), steps)


def _copy_list(connection: sqlite3.Connection, seq: int, last: str, steps: dict[str, int]) -> None:
    new = []
    step = last
    while step not in steps:
        row = connection.execute(
            "SELECT o.step, o.parent, c.content_id, o.commitment, o.position "
            "FROM old_message_steps AS o LEFT JOIN contents AS c ON c.commitment = o.commitment "
            "WHERE o.step = ?",
            (step,),
        ).fetchone()
        if row is None:
            break  # a damaged list stays damaged: verification says so as before
        new.append(row)
        step = row[1]
    parent_id = steps.get(step, -1)
    for step, _, content_id, commitment, position in reversed(new):
        steps[step] = step_id = len(steps)
        connection.execute(
            "INSERT INTO message_steps VALUES (?, ?, ?, ?, ?, ?)",
            (step_id, step, parent_id, content_id, commitment, position),
        )
        parent_id = step_id
        if content_id is not None:
            connection.execute(
                "INSERT OR IGNORE INTO shown_contents VALUES (?, ?)", (seq, content_id)
            )
    if last in steps:
        connection.execute("INSERT OR IGNORE INTO shown_lists VALUES (?, ?)", (seq, steps[last]))


def _plant_tree(connection: sqlite3.Connection) -> None:
    rows = connection.execute("SELECT CAST(record AS BLOB) FROM entries ORDER BY seq")
    leaves = [leaf_hash(row[0] or b"") for row in rows]
    for level, hashes in enumerate(tile_levels(leaves), start=1):
        connection.executemany(
            "INSERT INTO tree_hashes VALUES (?, ?, ?)",
            [(level, index, item) for index, item in enumerate(hashes)],
        )


def _declare_budgets_and_responses(connection: sqlite3.Connection) -> None:
    _declare_state(connection)
    _run(connection, declare(SQLITE, 4))


def _add_up_usage(connection: sqlite3.Connection) -> None:
    _run(connection, declare(SQLITE, 6))
    fill_tables(
        lambda sql, values: connection.execute(sql, values).fetchall(),
        connection.executemany,
        USAGE_TABLES,
        "CAST(record AS BLOB)",
    )


def _drop_indexes(connection: sqlite3.Connection) -> None:
    """Drop the indexes with more cost than use, and store two tables by their keys."""
    declared, found = _declared_state(), dict(connection.execute(_TABLE_SQL))
    for table in ("idempotency", "in_flight"):
        if squeezed(found[table]) != squeezed(declared[table]):
            _rebuild(connection, table, declared[table])
    _run(connection, declare(SQLITE, 9))


def _declare(layout: int) -> Callable[[sqlite3.Connection], None]:
    """Return a migration that only runs the declarations of a layout."""
    return lambda connection: _run(connection, declare(SQLITE, layout))


_STEPS = {
    2: _number_contents,
    3: _declare_state,
    4: _declare_budgets_and_responses,
    5: _declare(5),
    6: _add_up_usage,
    7: _declare(7),
    8: _declare(8),
    9: _drop_indexes,
}
"""The migrations, keyed by the layout version that each leads to."""
