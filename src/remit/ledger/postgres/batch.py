"""One transaction of the server store."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import asyncpg
from typing_extensions import override

from remit.ledger.batch import Batch, Head, Key
from remit.ledger.postgres.connection import ENGINE_ERRORS as _ENGINE_ERRORS
from remit.ledger.postgres.connection import Writer
from remit.ledger.schema import TABLES

_FOUND = """
    SELECT c.scope, c.digest, c.content_id, c.commitment, c.nonce
    FROM unnest($1::text[], $2::bytea[]) AS k(scope, digest)
    JOIN contents AS c ON c.scope = k.scope AND c.digest = k.digest"""

HEAD = f"""
    SELECT e.seq, e.entry_hash, e.timestamp, (SELECT max(content_id) FROM contents),
           (SELECT max(step_id) FROM message_steps), f.*
    FROM (SELECT 1) AS one LEFT JOIN (SELECT seq, entry_hash, timestamp FROM entries
                                      ORDER BY seq DESC LIMIT 1) AS e ON true
    LEFT JOIN ({_FOUND}) AS f ON true"""
"""The ledger's head, once for each value sought that is stored, and once if none is."""


@functools.lru_cache(maxsize=64)
def _into(tables: tuple[str, ...]) -> str:
    """One statement that inserts into all ``tables``: a round trip costs more than a row."""
    parts = []
    number = 0
    for table in tables:
        columns = TABLES[table]
        arrays = ", ".join(
            f"${number + place}::{column.postgres_type}[]"
            for place, column in enumerate(columns, start=1)
        )
        number += len(columns)
        parts.append(
            f"INSERT INTO {table} ({', '.join(column.name for column in columns)}) "
            f"SELECT * FROM unnest({arrays})"
            f"{_CONFLICT.get(table, '')}"
        )
    first = ", ".join(f"t{place} AS ({part})" for place, part in enumerate(parts[:-1]))
    return f"WITH {first} {parts[-1]}" if first else parts[-1]


# A person may be named twice; a hash put in beforehand must not stop the tree from growing.
_CONFLICT = {
    "content_subjects": " ON CONFLICT DO NOTHING",
    "tree_hashes": " ON CONFLICT (level, idx) DO UPDATE SET hash = excluded.hash",
}


class PostgresBatch(Batch):
    """A :class:`~remit.ledger.batch.Batch` on PostgreSQL."""

    ENGINE_ERRORS = _ENGINE_ERRORS

    def __init__(
        self,
        writer: Writer,
        rows: list[tuple[Any, ...]],
        keys: list[Key],
        content_keys: frozenset[str],
    ) -> None:
        # The engine compresses by itself (TOAST).
        super().__init__(Head.of(rows[0][:5]), content_keys, _NEVER)
        self._writer = writer
        self._learn(keys, (row[5:] for row in rows if row[5] is not None))

    def _read(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        return self._writer.fetch(sql, parameters)

    @override
    def execute_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        self._writer.many(sql, rows)

    def _insert_all(self, collected: list[tuple[str, list[tuple[Any, ...]]]]) -> None:
        self._writer.fetch(
            _into(tuple(table for table, _ in collected)),
            [list(column) for _, rows in collected for column in zip(*rows, strict=True)],
        )

    def _find_contents(self, keys: list[Key]) -> Iterable[tuple[str, bytes, int, str, bytes]]:
        rows: list[Any] = self._writer.fetch(_FOUND, columns_of_keys(keys))
        return rows

    def _savepoint(self, verb: str) -> None:
        self._writer.script(f"{verb} SAVEPOINT unit" if verb != "SAVEPOINT" else "SAVEPOINT unit")

    def _is_lost(self, error: Exception) -> bool:
        if isinstance(error, asyncpg.PostgresError):
            # Of one statement: data, integrity, syntax, limits. All else is the server's.
            return str(error.sqlstate)[:2] not in ("22", "23", "42", "54", "P0")
        return isinstance(error, _ENGINE_ERRORS)


def columns_of_keys(keys: list[Key]) -> tuple[list[str], list[bytes]]:
    """Scopes and digests, as :data:`HEAD` takes them."""
    return [scope for scope, _ in keys], [digest for _, digest in keys]


_NEVER = 1 << 62
