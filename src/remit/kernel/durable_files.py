"""Files that survive a loss of power, reading of regular files, and locks between processes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def replacing(path: Path, mode: int | None = None) -> Iterator[BinaryIO]:
    """Yield a new file that is flushed to disk after the block, and then replaces ``path``.

    After an error in the block, which is raised, ``path`` stays unchanged and the new file,
    ``.NAME.new`` in the same directory, is deleted. Two writers of one path at the same time
    disturb each other. A link is replaced itself, except one to a pipe or device: a pipe or device
    at ``path`` is written to, without the flush, and not replaced.

    Args:
        path: a file in an existing directory; it need not exist.
        mode: mode of the new file, whatever the umask; ``None`` follows the umask. The mode of the
            old file is not kept.

    Raises:
        OSError: the file cannot be written; or it was replaced, but the directory not flushed.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)  # A process that was killed may have left one.
    try:
        with new_file(new, mode) as file:
            yield file
        os.replace(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    fsync(path.parent)


@contextlib.contextmanager
def new_file(path: Path, mode: int | None = None) -> Iterator[BinaryIO]:
    """Yield a new file that is flushed to disk after the block; its directory is not flushed.

    Args:
        path: a file in an existing directory; it must not exist.
        mode: mode of the file, whatever the umask; ``None`` follows the umask.

    Raises:
        OSError: the file exists (FileExistsError), or cannot be written; a part may remain.
    """
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode or 0o666)) as file:
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        yield file
        file.flush()
        os.fsync(file.fileno())


def fsync(path: Path) -> None:
    """Flush a file, or the names in a directory, to disk; raise OSError if it cannot be opened or
    flushed.

    Args:
        path: the file or directory.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def fsync_tree(path: Path) -> None:
    """Flush a directory and everything below it to disk; raise OSError if a file cannot be flushed.

    A link is followed for its file, but not into a directory. A directory that is missing or cannot
    be listed is skipped.

    Args:
        path: the directory.
    """
    for place, _, names in os.walk(path):
        for name in names:
            fsync(Path(place, name))
        fsync(Path(place))


def write_over(path: Path, data: bytes, mode: int) -> None:
    """Replace or make a file, complete and durable, or not at all. A link is replaced itself.

    Args:
        path: a file in an existing directory.
        data: the new content.
        mode: mode of the new file, less the umask.

    Raises:
        OSError: the file cannot be written, and an old file stays; or the new file is in place and
            its folder cannot be flushed.
    """
    with _beside(path, data, mode) as temporary:
        temporary.replace(path)
        fsync(path.parent)


def write_new(path: Path, data: bytes, mode: int) -> None:
    """Make a file, complete and durable, or not at all.

    Args:
        path: a file in an existing directory.
        data: the content.
        mode: mode of the file, less the umask.

    Raises:
        OSError: the file cannot be written, or exists (FileExistsError); or the new file is in
            place and its folder cannot be flushed.
    """
    with _beside(path, data, mode) as temporary:
        publish(temporary, path)


@contextlib.contextmanager
def _beside(path: Path, data: bytes, mode: int) -> Iterator[Path]:
    """Yield a finished file with ``data`` next to ``path``, deleted afterwards unless renamed."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def publish(temporary: Path, path: Path) -> None:
    """Give a finished file its name, durably, by a hard link; the temporary name stays too.

    Args:
        temporary: the finished file, whose content the caller has flushed to disk.
        path: the new name, on the same file system.

    Raises:
        OSError: ``path`` exists (FileExistsError), or the link cannot be made; or the link is made
            and its folder cannot be flushed.
    """
    os.link(temporary, path)  # Unlike a rename, a link never replaces a file.
    fsync(path.parent)


def read_regular(path: Path, *, follow: bool = False) -> bytes:
    """Return the bytes of a regular file; a pipe is refused and does not block.

    Args:
        path: the file.
        follow: True to read the file that a link leads to.

    Raises:
        OSError: the file is a link that is not followed, is no regular file, or cannot be read.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
    with open(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a file")
        return stream.read()


def take_lock(descriptor: int, how: int, wait_s: float, poll_s: float = 0.05) -> bool:
    """Take a lock, which the system releases when the descriptor is closed or the process ends.

    Args:
        descriptor: an open file or directory.
        how: ``fcntl.LOCK_EX`` or ``fcntl.LOCK_SH``.
        wait_s: longest wait for other holders, in seconds; 0 for a single attempt.
        poll_s: seconds between two attempts; the thread sleeps meanwhile.

    Returns:
        True if the lock was taken; False if another descriptor held it all the time.

    Raises:
        OSError: the file system has no such locks.
    """
    end = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(poll_s)
        else:
            return True
