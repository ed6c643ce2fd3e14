"""Processes that write one file take turns.

SQLite keeps their transactions apart, but who finds the file locked sleeps longer each time, up to
100 ms: under load one process starves while another writes again and again. Asking more often is
fair enough. It is a courtesy only: nothing relies on it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

_POLL_S = 0.0005
_MAX_WAIT_S = 1.0  # after that SQLite's own lock decides: the other may be suspended


class Turns:
    """A lock on a directory, which makes no file in it and ends with its process."""

    def __init__(self, directory: Path) -> None:
        self._directory: int | None = None
        with contextlib.suppress(OSError):  # one that may not be read
            self._directory = os.open(directory, os.O_RDONLY)

    def take(self) -> None:
        """Wait for one's turn, for a moment."""
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
        """Let another process write; harmless when it was not one's turn."""
        if self._directory is not None:
            try:  # noqa: SIM105 - every commit comes by here
                fcntl.flock(self._directory, fcntl.LOCK_UN)
            except OSError:
                pass

    def close(self) -> None:
        """Close the directory; closing twice is harmless."""
        if self._directory is not None:
            os.close(self._directory)
            self._directory = None
