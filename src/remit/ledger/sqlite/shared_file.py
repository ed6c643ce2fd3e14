"""The turns of processes that share a ledger file, and the detection of a replaced file.

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
import os
import sqlite3
import time
from pathlib import Path

from remit.ledger.errors import LedgerRollbackError, lost

_POLL_S = 0.0005
_MAX_WAIT_S = 1.0  # after that SQLite's own lock decides: the other may be suspended
_ATTEMPTS = 20
_RETRY_S = 0.01
_LAST = "SELECT seq, entry_hash FROM entries ORDER BY seq DESC LIMIT 1"
_HASH = "SELECT entry_hash FROM entries WHERE seq = ?"


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
