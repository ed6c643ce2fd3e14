"""Files that are there whole or not at all, and one process at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from remit.packages.errors import PackageIndexError

__all__ = ["clear_drafts", "locked", "sync_directory", "write_whole"]

_POLL_S = 0.05
_DRAFT = ".new"


def write_whole(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Writes a file so that a reader, or the next start, sees the old one or the new one.

    Raises:
        OSError: it cannot be written; what was there still is.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_DRAFT}")
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), mode)  # a web server reads it, whatever the umask
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Makes what was renamed in a directory durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def clear_drafts(directory: Path) -> None:
    """Removes what a killed process left half written; only while the lock is held."""
    for draft in directory.glob(f".*{_DRAFT}"):
        draft.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(file: Path, wait_s: float) -> Iterator[None]:
    """Holds a lock, which goes with the process, however that ends.

    Raises:
        PackageIndexError: ``busy``: another process has held it for ``wait_s`` seconds.
        OSError: the file cannot be opened.
    """
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        until = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise PackageIndexError(
                        "busy",
                        f"Another process has held {file} for {wait_s:g} s.",
                        next_step="Wait for it, and try again.",
                    ) from None
                time.sleep(_POLL_S)
        yield
    finally:
        os.close(handle)
