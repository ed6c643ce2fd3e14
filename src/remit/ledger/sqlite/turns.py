"""Turns between processes that write one file.

SQLite separates their transactions. A process that finds the file locked sleeps longer each time,
up to 100 ms, so under load one process starves while another writes repeatedly. Polling a lock more
often is fair enough. The lock is a courtesy: correctness does not depend on it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from remit.kernel.files import take_lock

_POLL_S = 0.0005
_MAX_WAIT_S = 1.0  # after that SQLite's own lock decides: the other may be suspended


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
        """Wait for the lock, at most one second, polling every 0.5 ms; then return without it.

        Returns at once if the directory could not be opened, or its file system has no such locks.
        The caller is not told whether it holds the lock.
        """
        if self._directory is None:
            return
        try:  # noqa: SIM105 - every commit comes by here
            take_lock(self._directory, fcntl.LOCK_EX, _MAX_WAIT_S, _POLL_S)
        except OSError:  # a file system without such locks
            pass

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
