"""A transaction of the embedded store: its turn among processes, its file and its statements.

SQLite separates the transactions of processes. A process that finds the file locked sleeps longer
each time, up to 100 ms, so under load one process starves while another writes repeatedly. Polling
a lock more often is fair enough. The lock is a courtesy: correctness does not depend on it.

SQLite cannot detect that a file was replaced while it was open. A replaced file is no longer
written. A file that was copied over becomes a mixture of both, because the log next to it belongs
to the other one.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import re
import sqlite3
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from typing_extensions import override

from remit.ledger.clock import BootClock
from remit.ledger.errors import LedgerLayoutError, LedgerRollbackError, lost
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

_POLL_S = 0.0005

_MAX_WAIT_S = 1.0  # after that SQLite's own lock decides: the other may be suspended

_ATTEMPTS = 20

_RETRY_S = 0.01

_LAST = "SELECT seq, entry_hash FROM entries ORDER BY seq DESC LIMIT 1"

_HASH = "SELECT entry_hash FROM entries WHERE seq = ?"


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


class Turns:
    """A lock on a directory, which makes no file and ends with its process or with :meth:`close`.

    Args:
        directory: the directory; if it cannot be read, there is no lock.
    """

    def __init__(self, directory: Path) -> None:
        self._directory: int | None = None
        with contextlib.suppress(OSError):  # The directory may not be readable.
            self._directory = os.open(directory, os.O_RDONLY)

    def take(self) -> None:
        """Take the lock, or return without the lock after a second of polling every 0.5 ms.

        Returns at once if the directory could not be opened, or its file system has no such locks.
        The caller does not learn whether it holds the lock.
        """
        if self._directory is None:
            return
        end = time.monotonic() + _MAX_WAIT_S
        while True:
            try:
                fcntl.flock(self._directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > end:
                    return
                time.sleep(_POLL_S)
            except OSError:  # a file system without such locks
                return
            else:
                return

    def give_back(self) -> None:
        """Release the lock; harmless if it is not held. Errors of the system are ignored."""
        if self._directory is not None:
            try:  # noqa: SIM105 - every commit comes by here
                fcntl.flock(self._directory, fcntl.LOCK_UN)
            except OSError:
                pass

    def close(self) -> None:
        """Close the directory. Closing twice is harmless."""
        if self._directory is not None:
            os.close(self._directory)
            self._directory = None


class SameFile:
    """The files of one open ledger, as they were when the store was opened.

    The constructor raises OSError if they cannot be examined.

    Args:
        path: the database, which is open and was read.
        connection: the writing connection.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path, self._log = str(path), f"{path}-wal"
        self._connection = connection
        self._has_log = os.path.exists(self._log)  # A read-only file has none.
        file = os.stat(path)
        self._ids = (file.st_dev, file.st_ino, os.stat(self._log).st_ino if self._has_log else 0)
        # Of the file without its log: its time and size, and its last entry then.
        self._state: tuple[int, int] | None = None
        self._copied: tuple[int, str] = (-1, "")

    def require(self, *, deep: bool = False) -> None:
        """Raise LedgerRollbackError if the files were replaced, removed or copied over.

        Args:
            deep: True, in a transaction of the writer, to read a changed file too, which finds a
                file that was copied over. Reading may take 20 attempts, 10 ms apart; a file that
                none can read is accepted. False compares only the files' identities.

        Raises:
            OSError: the file exists but cannot be examined.
            sqlite3.Error: the writing connection cannot read.
        """
        # Every commit comes by here.
        try:
            file = os.stat(self._path)
            log = os.stat(self._log).st_ino if self._has_log else 0
        except FileNotFoundError as error:
            raise LedgerRollbackError(
                f"The file {error.filename} was removed while this process has it open."
            ) from error
        if (file.st_dev, file.st_ino, log) != self._ids:
            raise LedgerRollbackError(
                f"The ledger {self._path} was replaced while this process has it open: it would "
                "write to the former file."
            )
        state = (file.st_mtime_ns, file.st_size)
        if deep and state != self._state:
            self._copied = self._require_copied()
            self._state = state

    def _require_copied(self) -> tuple[int, str]:
        """Return the last entry in the file without its log.

        The engine copies entries from the log to the file, so the entry is never lower than before
        and never another. A process that was killed while it copied leaves a file that cannot be
        read without its log: the last known entry is then returned, until the file changes.

        Raises:
            LedgerRollbackError: the file has lost or replaced entries.
        """
        known, problem = self._copied[0], None
        for attempt in range(_ATTEMPTS):  # A file cannot be read while it is copied.
            if attempt:
                time.sleep(_RETRY_S)
            try:
                url = f"{Path(self._path).absolute().as_uri()}?immutable=1"
                with contextlib.closing(sqlite3.connect(url, uri=True)) as file:
                    seq, entry_hash = file.execute(_LAST).fetchone() or (-1, "")
            except sqlite3.Error:
                continue
            found = self._connection.execute(_HASH, (seq,)).fetchone()
            if seq >= known and (seq < 0 or found == (entry_hash,)):
                return seq, entry_hash
            problem = lost(self._path, seq + 1, max(seq, known) + 1)
        if problem is not None:
            raise problem
        return self._copied
