"""PostgreSQL's form of a ledger: views, text index, statistics and migrations."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from remit.ledger.errors import LedgerError, LedgerFormatError
from remit.ledger.log_identity import OWNER_SQL
from remit.ledger.postgres.connection import Writer, reason
from remit.ledger.projection import fill_tables
from remit.ledger.schema import (
    DROPPED,
    LAYOUT_VERSION,
    POSTGRES,
    STATE_TABLES,
    Column,
    declare,
    refuse_views,
)
from remit.ledger.table_checks import readable
from remit.ledger.usage_tables import USAGE_TABLES

VIEWS = """
CREATE VIEW entry_commitments AS
    SELECT e.seq, e.id, e.event_type, e.session_id, w.path, w.node ->> '$content' AS content,
           w.node ->> '$messages' AS messages
    FROM entries AS e CROSS JOIN LATERAL (
        WITH RECURSIVE walk(path, node) AS (
            SELECT '$'::text, e.record::json
            UNION ALL
            SELECT inner_walk.path, inner_walk.node FROM walk CROSS JOIN LATERAL (
                SELECT walk.path || '.' || key AS path, value AS node
                FROM json_each(CASE json_typeof(walk.node) WHEN 'object' THEN walk.node END)
                UNION ALL
                SELECT walk.path || '[' || (number - 1) || ']', value
                FROM json_array_elements(
                    CASE json_typeof(walk.node) WHEN 'array' THEN walk.node END
                ) WITH ORDINALITY AS item(value, number)
            ) AS inner_walk
        )
        SELECT path, node FROM walk WHERE json_typeof(node) = 'object'
    ) AS w
    WHERE w.node ->> '$content' IS NOT NULL OR w.node ->> '$messages' IS NOT NULL;
CREATE VIEW entry_contents AS
    SELECT e.seq, e.id, e.event_type, e.session_id, e.path, c.codec, c.value
    FROM entry_commitments AS e
    LEFT JOIN (shown_contents AS s JOIN contents AS c ON c.content_id = s.content_id)
        ON s.seq = e.seq AND c.commitment = substr(e.content, 13)
    WHERE e.content IS NOT NULL;
CREATE VIEW entry_messages AS
    WITH RECURSIVE walk(seq, path, step_id) AS (
        SELECT e.seq, e.path, s.step_id FROM entry_commitments AS e
        JOIN shown_lists AS l ON l.seq = e.seq
        JOIN message_steps AS s ON s.step_id = l.step_id AND s.step = e.messages
        UNION ALL
        SELECT walk.seq, walk.path, s.parent_id FROM walk
        JOIN message_steps AS s ON s.step_id = walk.step_id WHERE s.position > 1
    )
    SELECT walk.seq, e.id, e.event_type, e.session_id, walk.path, s.position, c.codec, c.value
    FROM walk JOIN message_steps AS s ON s.step_id = walk.step_id
    JOIN entries AS e ON e.seq = walk.seq
    LEFT JOIN contents AS c ON c.content_id = s.content_id;
"""
"""Views for any SQL tool: the commitments of entries, and the content they show."""

SEARCH_COLUMNS = (
    Column("content_id", "bigint", nullable=False, default=""),
    Column("words", "tsvector", nullable=False, default=""),
)
"""The columns of ``content_search``, the text index."""

UNSAMPLED = (
    ("contents", "value"),
    ("contents", "nonce"),
    ("contents", "digest"),
    ("content_subjects", "subject_id"),
    ("content_search", "words"),
)
"""Columns of content: no samples of them in the planner's statistics, where no erasure is."""

_STATISTICS = "".join(
    f"ALTER TABLE {table} ALTER COLUMN {column} SET STATISTICS 0;" for table, column in UNSAMPLED
)
_NATIVE = f"""
CREATE INDEX entries_session_id ON entries (session_id, seq) WHERE session_id IS NOT NULL;
CREATE TABLE content_search (
    content_id bigint PRIMARY KEY,
    words tsvector NOT NULL
);
CREATE INDEX content_search_words ON content_search USING gin (words) WITH (fastupdate = off);
{_STATISTICS}
{VIEWS}
"""

# Tables of state that an older version made may lack the columns that came later.
_LATER_COLUMNS = "".join(
    f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {column.name} {column.postgres_type}"
    + (f" NOT NULL DEFAULT {column.default}" if column.default else "")
    + ";\n"
    for table, columns in STATE_TABLES.items()
    for column in columns
    if column.default or column.nullable
)

_DROPPED_COLUMNS = "".join(
    f"ALTER TABLE {table} DROP COLUMN IF EXISTS {column};\n"
    for table, columns in DROPPED.items()
    for column in columns
)

MIGRATIONS: dict[int, str] = {
    2: declare(POSTGRES, 1, 2) + _NATIVE,
    3: declare(POSTGRES, 3) + _LATER_COLUMNS,
    4: declare(POSTGRES, 3, 4) + _LATER_COLUMNS + _DROPPED_COLUMNS,
    5: declare(POSTGRES, 5),
    6: declare(POSTGRES, 6),
    7: declare(POSTGRES, 7),
    8: declare(POSTGRES, 8),
    9: declare(POSTGRES, 9),
}
"""The statements of each migration, keyed by the layout version that it leads to. The first layout
on PostgreSQL is 2."""

_USAGE = 6  # the layout whose migration adds up the entries, beyond its statements
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"  # read-only where the database is
_PATIENT = "SET LOCAL idle_in_transaction_session_timeout = '60s'"  # a migration computes, too
_LOCK = "SELECT pg_advisory_xact_lock(1380799537, hashtext(current_schema()))"


def begin(writer: Writer) -> None:
    """Queue the beginning of a transaction that takes a schema's only lock; nothing is sent.

    Appends, creation and migrations of a ledger wait for each other by this lock, which ends with
    the transaction.

    Args:
        writer: a connected writer, outside a transaction.
    """
    writer.put(_BEGIN, ())
    writer.put(_LOCK, ())  # Later reads see the last holder's commit.


def prepare(
    writer: Writer,
    location: str,
    *,
    create: bool,
    require: Callable[[str, str], None] | None = None,
) -> None:
    """Make or migrate the tables in a transaction, and check the server's durability.

    Processes that do so at the same time wait for each other. Tables of the present layout are not
    changed. The owner is checked before a migration, and not for a new ledger.

    Args:
        writer: connected to the schema; dropped if a migration fails.
        location: the place of the ledger, for messages.
        create: True to make the tables if there are none.
        require: as for :func:`~remit.ledger.store_factory.open_store`.

    Raises:
        LedgerKeyError: ``require`` refused the ledger's owner.
        LedgerFormatError: the tables belong to another program or a newer version, a view has a
            table's name, or the tables cannot be migrated; nothing was changed.
        LedgerError: there are no tables and ``create`` is False, or the server runs with fsync=off,
            which is found only after the tables were made.
        psycopg.Error: another statement failed, or the connection was lost.
    """
    there = {
        row[0]
        for row in writer.fetch(
            "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        )
    }
    views = writer.fetch(
        "SELECT relname FROM pg_class WHERE relkind IN ('v', 'm', 'f') "
        "AND relnamespace = to_regnamespace(quote_ident(current_schema()))"
    )
    refuse_views((str(name) for (name,) in views), location)
    versions = _versions(writer) if "migrations" in there else [0]
    version = versions[-1]
    if not version and "entries" in there:
        raise LedgerFormatError(
            f"{location} has a table 'entries' that is not a ledger's.",
            next_step="Use an empty database, or a separate schema: ?search_path=name.",
        )
    if not version and not create:
        raise LedgerError(
            f"There is no ledger at {location}.",
            next_step="If there was a ledger, find it or restore a copy: a new ledger does not "
            "continue the old one. `remit init` creates a new one.",
        )
    if version > LAYOUT_VERSION:
        raise LedgerFormatError(
            f"{location} was written by a newer Remit: its table migrations has version {version}, "
            f"and this Remit knows versions up to {LAYOUT_VERSION}.",
            next_step="Give another database, or upgrade Remit.",
        )
    if version and require is not None:
        rows = writer.fetch(OWNER_SQL)
        require(str(rows[0][0]) if rows else "", location)
    if version < LAYOUT_VERSION:
        try:
            if version and versions != list(MIGRATIONS)[: len(versions)]:
                raise psycopg.ProgrammingError("its earlier migrations are not all recorded")
            _migrate(writer)
        except (psycopg.ProgrammingError, psycopg.IntegrityError) as error:
            raise LedgerFormatError(
                f"{location} cannot be brought to layout {LAYOUT_VERSION}: {reason(error)}. Its "
                f"table migrations has the versions {readable(versions)}. It is as it was.",
                next_step="Restore an undamaged copy, or correct the fault that the message names.",
            ) from error
    if writer.fetch("SHOW fsync")[0][0] != "on":
        raise LedgerError(
            f"The server of {location} runs with fsync=off: committed transactions may be lost.",
            next_step="Set fsync=on.",
        )


def _put_all(writer: Writer, sql: str, rows: Sequence[Sequence[Any]]) -> None:
    writer.put(sql, *rows)
    writer.flush()


def _versions(writer: Writer) -> list[int]:
    """Return the versions in the table of migrations, ascending; 0 alone without a row."""
    rows = writer.fetch("SELECT version FROM migrations ORDER BY version")
    return [int(version) for (version,) in rows] or [0]


def _migrate(writer: Writer) -> None:
    begin(writer)
    writer.put(_PATIENT, ())
    try:
        writer.script(
            "CREATE TABLE IF NOT EXISTS migrations "
            "(version bigint PRIMARY KEY, applied text NOT NULL)"
        )
        version = _versions(writer)[-1]
        for number, statements in MIGRATIONS.items():
            if number > version:
                writer.script(statements)
                if number == _USAGE:
                    fill_tables(writer.fetch, functools.partial(_put_all, writer), USAGE_TABLES)
                writer.fetch(
                    "INSERT INTO migrations VALUES ($1, to_char(clock_timestamp(), "
                    '\'YYYY-MM-DD"T"HH24:MI:SS.US"Z"\'))',
                    (number,),
                )
        writer.script("COMMIT")
    except BaseException:
        writer.drop()
        raise
