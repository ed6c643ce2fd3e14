"""Folders for the time of one process: a killed one's is removed by who comes next."""

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
    """A new folder, removed at the end, like those of this prefix whose processes have died."""
    for place in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        _remove_unused(place)
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        with open(folder / _LOCK, "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # ends with this process, however it ends
            yield str(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_unused(folder: Path) -> None:
    with contextlib.suppress(OSError):  # in use, another user's, or gone
        lock = os.open(folder / _LOCK, os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)
