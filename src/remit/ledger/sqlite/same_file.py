"""Whether an open ledger's files are those at its path still.

SQLite cannot know: a file that was put in the place of an open one is not written any more, and one
that was copied over it goes on as a mixture of both, as the log beside it is of the other.
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
    """The files of one open ledger.

    Args:
        path: of the database, which is open and was read.
        connection: the one that writes.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path, self._log = str(path), f"{path}-wal"
        self._connection = connection
        self._has_log = os.path.exists(self._log)  # one that is read as it is has none
        file = os.stat(path)
        self._ids = (file.st_dev, file.st_ino, os.stat(self._log).st_ino if self._has_log else 0)
        # Of the file without its log: its time and size, and its last entry then.
        self._state: tuple[int, int] | None = None
        self._copied: tuple[int, str] = (-1, "")

    def require(self, *, deep: bool = False) -> None:
        """Refuse files that were replaced, removed or copied over.

        Args:
            deep: in a transaction of the writer: look also at what is in a file that changed.

        Raises:
            LedgerRollbackError: they were.
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
                "write to the file that was there before."
            )
        state = (file.st_mtime_ns, file.st_size)
        if deep and state != self._state:
            self._copied = self._require_copied()
            self._state = state

    def _require_copied(self) -> tuple[int, str]:
        """The last entry in the file without its log: what the engine copied there from the log,
        which is never less than before, and never another.

        A process that was killed while it copied leaves a file that cannot be read without its log,
        for as long as nothing more is copied: of such a file nothing is said, until it changes.
        """
        known, problem = self._copied[0], None
        for attempt in range(_ATTEMPTS):  # what is being copied just now cannot be read
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
