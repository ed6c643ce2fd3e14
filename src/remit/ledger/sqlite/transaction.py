"""A transaction of the embedded store."""

from __future__ import annotations

import itertools
import re
import sqlite3
import time
from collections.abc import Iterable, Sequence
from typing import Any

from typing_extensions import override

from remit.ledger.clock import BootClock
from remit.ledger.errors import LedgerLayoutError, LedgerRollbackError
from remit.ledger.record_builder import Key
from remit.ledger.schema import TABLES
from remit.ledger.transaction import Batch, Rows
from remit.ledger.usage import ON_CONFLICT

RECORD_SQL = "CAST(record AS BLOB)"
"""Reads a record as bytes, also where they are no text."""

# Sizes of multi-row statements, so few that they stay cached.
_ROWS = (32, 16, 8, 7, 6, 5, 4, 3, 2, 1)
# A person may be named twice; a hash inserted earlier must not stop the tree from growing.
# All else fails, to be undone by the owner of the transaction or savepoint: to undo the statement
# alone, SQLite would write down every page before it changes.
_OR = {"content_subjects": "IGNORE", "tree_hashes": "REPLACE", "usage_keys": "IGNORE"}
_INTO = {
    name: {
        size: f"INSERT OR {_OR.get(name, 'FAIL')} INTO {name} "
        f"({', '.join(column.name for column in columns)}) VALUES "
        + ", ".join([f"({', '.join('?' * len(columns))})"] * size)
        + (ON_CONFLICT if name == "usage" else "")
        for size in _ROWS
    }
    for name, columns in TABLES.items()
}
_FIND = {
    size: "SELECT c.scope, c.digest, c.content_id, c.commitment, c.nonce FROM (VALUES "
    + ", ".join(["(?, ?)"] * size)
    + ") AS k JOIN contents AS c ON c.scope = k.column1 AND c.digest = k.column2"
    for size in _ROWS
}
_HEAD = """
    SELECT e.seq, e.entry_hash, e.timestamp, (SELECT max(content_id) FROM contents),
           (SELECT max(step_id) FROM message_steps),
           (SELECT entry_hash FROM entries WHERE seq = ?),
           (SELECT user_version FROM pragma_user_version)
    FROM (SELECT 1) LEFT JOIN (SELECT seq, entry_hash, timestamp FROM entries
                               ORDER BY seq DESC LIMIT 1) AS e"""
_ENGINE_FAILURES = frozenset(
    {
        sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOTADB,
    }
)  # fmt: skip


def is_refusal(error: BaseException) -> bool:
    """Return True if a statement, a value or Python code of a unit is at fault, not the engine or
    the file.

    Errors of a replaced file or a newer layout give False, as do SQLite errors without a code. Any
    other Python exception, OSError included, gives True.

    Args:
        error: the error of a transaction.
    """
    if isinstance(error, (sqlite3.ProgrammingError, sqlite3.InterfaceError)):
        return True  # parameters that do not fit the statement: they never reach the engine
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", None)
        return code is not None and code & 0xFF not in _ENGINE_FAILURES
    return isinstance(error, Exception) and not isinstance(
        error, (LedgerRollbackError, LedgerLayoutError)
    )


def read_again(
    connection: sqlite3.Connection,
    sql: str,
    parameters: Sequence[Any],
    error: sqlite3.OperationalError,
) -> list[tuple[Any, ...]]:
    """Return all rows of a query whose texts SQLite could not read.

    Bytes of a stored text that are not UTF-8 become surrogates, which no text of a record contains.

    Args:
        connection: an open connection; its ``text_factory`` is changed and set back.
        sql: the query.
        parameters: values of its placeholders.
        error: the error of the first attempt; raised again if it has another cause.

    Raises:
        sqlite3.Error: the query failed.
    """
    if "decode to UTF-8" not in str(error) or not _QUERY.match(sql):
        raise error
    connection.text_factory = _decode
    try:
        return connection.execute(sql, parameters).fetchall()
    finally:
        connection.text_factory = str


_QUERY = re.compile(r"\s*(SELECT|WITH|VALUES)\b", re.IGNORECASE)


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


class SqliteBatch(Batch):
    """A :class:`~remit.ledger.transaction.Batch` on SQLite, in a transaction that the store began
    and ends.

    The constructor reads the head of the ledger, and raises sqlite3.Error if that fails. The object
    serves further transactions for as long as :meth:`renew` returns True.

    Args:
        connection: the writing connection.
        content_keys: metadata keys whose values are content.
        compress_above: stored values longer than this many bytes are compressed.
        clock: the clock that all writers share.
        seen: sequence number of the last entry that the store saw.
        version: SQLite's ``data_version`` in this transaction.

    Attributes:
        layout: the layout version of the file.
        now_ms: the clock of all writers on this machine at the start of the transaction, in
            milliseconds; see ``BootClock``.
    """

    ENGINE_ERRORS = (sqlite3.Error,)
    RECORD_SQL = RECORD_SQL
    now_ms = 0

    def __init__(
        self,
        connection: sqlite3.Connection,
        content_keys: frozenset[str],
        compress_above: int,
        clock: BootClock,
        seen: int,
        version: int,
    ) -> None:
        super().__init__(content_keys, compress_above)
        *row, self.layout = connection.execute(_HEAD, (seen,)).fetchone()
        self.set_head(row)
        self.cache["version"] = version
        self._connection, self._clock = connection, clock
        self.now_ms = clock.now_ms()

    def renew(self, version: int) -> bool:
        """Begin a transaction after a committed one; return False if the head must be read again.

        The head is then unknown, because another connection has changed the file, or a function ran
        in a transaction.

        Args:
            version: SQLite's ``data_version`` in the new transaction.
        """
        if self.cache.get("version") != version:
            return False
        self.seen_hash, self._asked = self.entry_hash, None
        self._known.clear()
        self._steps.clear()
        self._stages.clear()
        self.now_ms = self._clock.now_ms()
        return True

    @property
    @override
    def wall_ms(self) -> int:
        """The machine's wall clock, in milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    ask = Batch.execute

    def _read(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(sql, parameters).fetchall()
        except sqlite3.OperationalError as error:
            return read_again(self._connection, sql, parameters, error)

    @override
    def execute_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a portable statement once for each of ``rows``, at once."""
        self._connection.executemany(sql, rows)

    def _insert_all(self, collected: Rows) -> None:
        execute = self._connection.execute
        for table, rows in collected.items():
            statements = _INTO[table]
            if len(rows) == 1:
                execute(statements[1], rows[0])
                continue
            start, count = 0, len(rows)
            while start < count:
                size = next(filter((count - start).__ge__, _ROWS))
                part = rows[start : start + size]
                execute(statements[size], [*itertools.chain.from_iterable(part)])
                start += size

    def _find_contents(self, keys: list[Key]) -> Iterable[tuple[str, bytes, int, str, bytes]]:
        found: list[tuple[str, bytes, int, str, bytes]] = []
        most = _ROWS[0]
        for start in range(0, len(keys), most):
            part = keys[start : start + most]
            size = min(filter(len(part).__le__, _ROWS))
            part += part[-1:] * (size - len(part))  # The last key fills the rest.
            found += self._connection.execute(_FIND[size], [*itertools.chain.from_iterable(part)])
        return found

    def _savepoint(self, verb: str) -> None:
        if not self._is_alone:
            self._connection.execute(f"{verb} unit")
        elif verb == "ROLLBACK TO":
            self._connection.execute("ROLLBACK")
            self._connection.execute("BEGIN")

    def _is_lost(self, error: Exception) -> bool:
        return not self._connection.in_transaction or not is_refusal(error)
