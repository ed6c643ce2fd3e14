"""A transaction of the server store."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import psycopg
from typing_extensions import override

from remit.ledger.errors import LedgerLayoutError, LedgerRollbackError
from remit.ledger.postgres.connection import (
    ENGINE_ERRORS as _ENGINE_ERRORS,
    Rows as Found,
    Writer,
    is_connection_error,
)
from remit.ledger.postgres.schema import begin
from remit.ledger.record_builder import Key
from remit.ledger.schema import LAYOUT_VERSION, TABLES
from remit.ledger.store import Unit
from remit.ledger.transaction import Batch, Rows
from remit.ledger.usage import ON_CONFLICT, added

_FOUND = """
    SELECT c.scope, c.digest, c.content_id, c.commitment, c.nonce
    FROM unnest($1::text[], $2::bytea[]) AS k(scope, digest)
    JOIN contents AS c ON c.scope = k.scope AND c.digest = k.digest"""

_STEPS = """
    SELECT s.step, s.step_id
    FROM unnest($1::text[], $2::bytea[]) AS k(scope, digest)
    JOIN contents AS c ON c.scope = k.scope AND c.digest = k.digest
    CROSS JOIN LATERAL (SELECT step, step_id FROM message_steps
                        WHERE content_id = c.content_id ORDER BY step_id DESC LIMIT 4) AS s"""
_SILENT_NS = 1_000_000_000  # a part of FROZEN_S
_TAIL = 8  # The stored part of a list probably ends within its last messages.

_HEAD = """
    SELECT e.seq, e.entry_hash, e.timestamp, (SELECT max(content_id) FROM contents),
           (SELECT max(step_id) FROM message_steps),
           (SELECT entry_hash FROM entries WHERE seq = $1),
           (SELECT max(version) FROM migrations),
           CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)
    FROM (SELECT 1) AS one LEFT JOIN (SELECT seq, entry_hash, timestamp FROM entries
                                      ORDER BY seq DESC LIMIT 1) AS e ON true"""

# A person may be named twice; a hash inserted earlier must not stop the tree from growing.
_CONFLICT = {
    "content_subjects": " ON CONFLICT DO NOTHING",
    "tree_hashes": " ON CONFLICT (level, idx) DO UPDATE SET hash = excluded.hash",
    "usage": ON_CONFLICT,
    "usage_keys": " ON CONFLICT DO NOTHING",
}


_INTO = {
    table: f"INSERT INTO {table} ({', '.join(column.name for column in columns)}) "
    "SELECT * FROM unnest("
    + ", ".join(f"${place}::{column.postgres_type}[]" for place, column in enumerate(columns, 1))
    + f"){_CONFLICT.get(table, '')}"
    for table, columns in TABLES.items()
}


class PostgresBatch(Batch):
    """A :class:`~remit.ledger.transaction.Batch` on PostgreSQL, which begins its transaction.

    The constructor waits for the lock of the schema, reads the head, looks up content and opens
    stages, in one round trip. The store sends ``COMMIT``; after an error the writer must be
    dropped.

    Args:
        writer: a connected writer.
        location: the place of the database, for messages.
        units: the units of the transaction; their content is looked up in the first round trip.
        content_keys: metadata keys whose values are content.
        seen: sequence number of the last entry that the store saw.

    Raises:
        LedgerLayoutError: the database has another layout.
        psycopg.Error, OSError: the server refused the transaction, or the connection was lost.
    """

    ENGINE_ERRORS = _ENGINE_ERRORS
    _now_ms: int | None = None

    def __init__(
        self, writer: Writer, location: str, units: Sequence[Unit], content_keys: frozenset[str],
        seen: int,
    ) -> None:  # fmt: skip
        # The engine compresses by itself (TOAST).
        super().__init__(content_keys, _NO_COMPRESSION)
        self.set_head((None,) * 6)  # a stage may look as it opens
        self._writer = writer
        # All that is read before the first unit takes one round trip.
        begin(writer)
        head = writer.ask(_HEAD, (seen,))
        tails = list(dict.fromkeys(_tails_of(units)))
        steps = writer.ask(_STEPS, _arrays(tails)) if tails else ()
        self._asked_head = head
        self.open(units)
        ((*row, layout, self._now_ms),) = head
        if layout != LAYOUT_VERSION:
            raise LedgerLayoutError(location, layout, LAYOUT_VERSION)
        self.set_head(row)
        self.begun_at = self.seq
        self._began = self._heard = time.monotonic_ns()
        self._steps |= dict(steps)

    @property
    @override
    def now_ms(self) -> int:
        """The server's clock, in milliseconds since 1970.

        The clock is read at the start and advanced by this machine's monotonic clock, so it stands
        for the server's only as long as the transaction is short.
        """
        if self._now_ms is None:  # a stage asks as it opens
            ((*_, now),) = self._asked_head
            return int(now)
        return self._now_ms + (time.monotonic_ns() - self._began) // 1_000_000

    def _read(self, sql: str, parameters: Sequence[Any]) -> Found:
        self._heard = time.monotonic_ns()
        return self._writer.fetch(sql, parameters)

    @override
    def execute_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Queue a portable statement, to be run once for each of ``rows``.

        The queue is sent with the next read, or with the commit. If nothing was sent for a second,
        a trivial query sends the queue, so that the server does not end the transaction.

        Args:
            sql: the statement, with ``?`` placeholders.
            rows: parameters of each execution.

        Raises:
            psycopg.Error, UnicodeEncodeError: a value cannot be sent; or, if the queue is sent, a
                statement failed.
        """
        self._writer.put(sql, *rows)
        self._show_life()

    @override
    def restore(self, table: str, row: tuple[Any, ...]) -> None:
        """Collect a row of an export or segment unchanged. Also keeps the transaction alive."""
        super().restore(table, row)
        self._show_life()

    def _show_life(self) -> None:
        """Send queued statements if none was sent for a second.

        The server ends the transaction of a writer that is silent for ``FROZEN_S``.
        """
        if time.monotonic_ns() - self._heard > _SILENT_NS:
            self._read("SELECT 1", ())

    @override
    def ask(self, sql: str, parameters: Sequence[Any] = ()) -> Iterable[tuple[Any, ...]]:
        """Queue the collected rows and a statement; return its rows, which are read on first use.

        Open stages write before.

        Args:
            sql: the statement, with ``?`` placeholders.
            parameters: values of the placeholders.

        Raises:
            psycopg.Error, UnicodeEncodeError: a value cannot be sent. Iterating the rows raises
                psycopg.Error if a statement failed.
        """
        self.flush()
        return self._writer.ask(sql, parameters)

    def _insert_all(self, collected: Rows) -> None:
        for table, rows in collected.items():
            if table == "usage":  # A statement can change a row only once.
                rows = added(rows)
            self._writer.put(_INTO[table], [list(column) for column in zip(*rows, strict=True)])

    def _find_contents(self, keys: list[Key]) -> Iterable[tuple[str, bytes, int, str, bytes]]:
        return self._writer.ask(_FOUND, _arrays(keys))

    def _savepoint(self, verb: str) -> None:
        if verb == "ROLLBACK TO":
            self._writer.discard()
        if not self._is_alone:
            name = "unit" if verb == "SAVEPOINT" else "SAVEPOINT unit"
            self._writer.fetch(f"{verb} {name}")
        elif verb == "ROLLBACK TO":
            self._writer.fetch("ROLLBACK")
            begin(self._writer)
        elif verb == "RELEASE":
            self._writer.fetch("SELECT 1")

    def _is_lost(self, error: Exception) -> bool:
        return not is_refusal(error)


def is_refusal(error: BaseException) -> bool:
    """Return True if a statement, a value or Python code of a unit is at fault, not the server.

    Errors of the operating system, and of a replaced, foreign or newer database, give False. An
    error of psycopg without an SQLSTATE gives True only for a value that cannot be sent. Any other
    Python exception gives True.

    Args:
        error: the error of a transaction.
    """
    if isinstance(error, psycopg.Error):
        state = error.sqlstate
        if state is None:  # a value that cannot be sent
            return isinstance(error, (psycopg.DataError, psycopg.ProgrammingError))
        # Data, integrity, syntax, limits; too few parameters, unless it is PgBouncer's code for
        # every error of its own; a statement after an error that its unit passed over.
        return state[:2] in ("22", "23", "42", "54", "P0") or (
            state in ("08P01", "25P02") and not is_connection_error(error)
        )
    return isinstance(error, Exception) and not isinstance(
        error, (OSError, LedgerRollbackError, LedgerLayoutError)
    )


def _tails_of(units: Sequence[Unit]) -> Iterable[Key]:
    """Yield the keys of the last messages of lists that belong to a session."""
    return (
        (prepared.keys[0][0], message.digest)
        for unit in units
        for prepared in unit.prepared or getattr(unit.step, "prepared", ())
        if prepared.keys
        for item in prepared.contents
        if isinstance(item, list)
        for message in item[-_TAIL:]
    )


def _arrays(keys: Sequence[Key]) -> tuple[list[str], list[bytes]]:
    return [scope for scope, _ in keys], [digest for _, digest in keys]


_NO_COMPRESSION = 1 << 62
