"""Temporary directories that are removed even if their process is killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_LOCK = ".in-use"


@contextlib.contextmanager
def scratch_folder(prefix: str) -> Iterator[str]:
    """Make a temporary directory, yield its path, and remove the directory after the block.

    The directory holds a lock file while in use. Directories with the same prefix whose processes
    have died are removed first.

    Args:
        prefix: beginning of the directory's name, in the system's temporary directory.

    Raises:
        OSError: the directory or its lock cannot be made.
    """
    for place in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        _remove_unused(place)
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        with open(folder / _LOCK, "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # The system releases the lock of a dead process.
            yield str(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_unused(folder: Path) -> None:
    with contextlib.suppress(OSError):  # The directory may be in use, deleted, or another user's.
        lock = os.open(folder / _LOCK, os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)
