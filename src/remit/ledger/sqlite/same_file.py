"""Detection of a ledger's files that were replaced while they were open.

SQLite cannot detect this. A replaced file is no longer written. A file that was copied over becomes
a mixture of both, because the log next to it belongs to the other one.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from pathlib import Path

from remit.ledger.errors import LedgerRollbackError, lost

_ATTEMPTS = 20
_RETRY_S = 0.01
_LAST = "SELECT seq, entry_hash FROM entries ORDER BY seq DESC LIMIT 1"
_HASH = "SELECT entry_hash FROM entries WHERE seq = ?"


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
                file that was copied over. Reading may take 20 attempts of 10 ms.

        Raises:
            OSError: the file cannot be examined.
            sqlite3.Error: the ledger cannot be read.
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
