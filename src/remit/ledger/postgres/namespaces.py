"""Schemas of a PostgreSQL database, each of which can hold a ledger of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from remit.kernel.tenant import with_schema
from remit.ledger.errors import LedgerError
from remit.ledger.postgres.connection import ENGINE_ERRORS, Writer, masked, reason
from remit.ledger.postgres.schema import begin

_ERRORS: tuple[type[Exception], ...] = (*ENGINE_ERRORS, ValueError, OverflowError)
_PLAIN = re.compile(r"[a-z_][a-z0-9_]{0,62}", re.ASCII)


def _plain(schema: str) -> str:
    if not _PLAIN.fullmatch(schema):
        raise LedgerError(f"The schema name {schema[:70]!r} is not valid.")
    return schema


@contextmanager
def _writer(url: str, schema: str) -> Iterator[Writer]:
    _plain(schema)
    writer = Writer(url, statement_s=60.0)
    try:
        writer.connect()
        yield writer
    except _ERRORS as error:
        raise LedgerError(
            f"The schema {schema} of {masked(url)} cannot be used: {reason(error)}.",
            next_step="Check the URL, that the server runs, and that its user may create schemas.",
        ) from error
    finally:
        writer.drop()


def make_schema(url: str, schema: str, mark: str) -> None:
    """Make a schema with a comment in the database, unless such a schema exists.

    Args:
        url: URL of the database.
        schema: name of lower-case letters, digits and underscores, at most 63, not beginning with a
            digit.
        mark: comment of the schema, by which it is recognised.

    Raises:
        LedgerError: the name is invalid, another schema has this name, the database cannot be used,
            or the schema cannot be made.
    """
    with _writer(url, schema) as writer:
        comment = _comment(writer, schema)
        if comment is None:
            text = mark.replace("'", "''")
            writer.script(f"CREATE SCHEMA {schema}; COMMENT ON SCHEMA {schema} IS '{text}'")
        elif comment != mark:
            raise LedgerError(
                f"The schema {schema} already exists in {masked(url)}.",
                next_step="Choose another database. Remit never replaces a schema.",
            )


def has_schema(url: str, schema: str) -> bool:
    """Return True if the database contains the schema, with whatever comment.

    Args:
        url: URL of the database.
        schema: name of the schema.

    Raises:
        LedgerError: the name is invalid, or the database cannot be used.
    """
    with _writer(url, schema) as writer:
        return _comment(writer, schema) is not None


def rename_schema(url: str, schema: str, to: str) -> None:
    """Rename a schema between two transactions of its ledger; open clients fail afterwards.

    The call waits for the lock of the ledger's writers, at most a minute.

    Args:
        url: URL of the database.
        schema: the present name.
        to: the new name.

    Raises:
        LedgerError: a name is invalid, there is no such schema, the new name is taken, or the
            database cannot be used.
    """
    with _writer(with_schema(url, schema), schema) as writer:
        begin(writer)
        writer.put(f"ALTER SCHEMA {schema} RENAME TO {_plain(to)}", ())
        writer.fetch("COMMIT")


def drop_schema(url: str, schema: str, mark: str | None) -> None:
    """Drop a schema with all its contents; do nothing if it is missing or has another mark.

    Args:
        url: URL of the database.
        schema: name of the schema.
        mark: required comment of the schema; ``None`` for any.

    Raises:
        LedgerError: the name is invalid, the database cannot be used, or the schema cannot be
            dropped.
    """
    with _writer(url, schema) as writer:
        comment = _comment(writer, schema)
        if comment is not None and mark in (None, comment):
            writer.script(f"DROP SCHEMA {schema} CASCADE")


def _comment(writer: Writer, schema: str) -> str | None:
    """Return the comment of a schema; ``None`` if there is no such schema."""
    rows = writer.fetch(
        "SELECT coalesce(obj_description(oid, 'pg_namespace'), '') FROM pg_namespace "
        "WHERE nspname = ?",
        (schema,),
    )
    return str(rows[0][0]) if rows else None
