"""Schemas of a PostgreSQL database, each of which can hold a ledger of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from remit.ledger.errors import LedgerError
from remit.ledger.postgres.connection import ENGINE_ERRORS, Writer, masked

__all__ = ["make_schema"]

_ERRORS: tuple[type[Exception], ...] = (*ENGINE_ERRORS, ValueError, OverflowError)
_PLAIN = re.compile(r"[a-z_][a-z0-9_]{0,62}", re.ASCII)


@contextmanager
def _writer(url: str, schema: str) -> Iterator[Writer]:
    if not _PLAIN.fullmatch(schema):
        raise LedgerError(f"A schema cannot be called {schema[:70]!r}.")
    writer = Writer(url, statement_s=60.0)
    try:
        writer.connect()
        yield writer
    except _ERRORS as error:
        raise LedgerError(
            f"The schema {schema} of {masked(url)} cannot be used: "
            f"{str(error).rstrip('.') or type(error).__name__}.",
            next_step="Check the URL, that the server runs, and that its user may make schemas.",
        ) from error
    finally:
        writer.close()


def make_schema(url: str, schema: str, mark: str) -> None:
    """Make a schema, unless there is one with this mark.

    Args:
        url: of the database.
        schema: its name, of lower-case letters, digits and underscores.
        mark: its comment, by which it is known again.

    Raises:
        LedgerError: there is another of that name, or it cannot be made.
    """
    with _writer(url, schema) as writer:
        comment = _comment(writer, schema)
        if comment is None:
            said = mark.replace("'", "")
            writer.script(f"CREATE SCHEMA {schema}; COMMENT ON SCHEMA {schema} IS '{said}'")
        elif comment != mark:
            raise LedgerError(
                f"There is a schema {schema} in {masked(url)} already.",
                next_step="Name another database, or drop it, where nobody needs it.",
            )


def _comment(writer: Writer, schema: str) -> str | None:
    """That of a schema; ``None`` where there is no such schema."""
    rows = writer.fetch(
        "SELECT coalesce(obj_description(oid, 'pg_namespace'), '') FROM pg_namespace "
        "WHERE nspname = ?",
        (schema,),
    )
    return str(rows[0][0]) if rows else None
