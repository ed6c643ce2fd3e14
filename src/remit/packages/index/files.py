"""Files that are written completely or not at all, and one process at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from remit.kernel.errors import InvalidInputError
from remit.packages.errors import PackageIndexError

__all__ = ["DRAFT", "LOCK", "drafted", "index_directory", "locked", "write_file"]

DRAFT = ".new"
"""How the name of a file or directory ends that is being written; it begins with a dot."""

LOCK = ".lock"

_FOLDER = "indexes"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_POLL_S = 0.05


def write_file(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Replaces a file in one durable step.

    Raises:
        OSError: it cannot be written; the earlier content is still there.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}{DRAFT}")
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
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@contextlib.contextmanager
def locked(file: Path, wait_s: float) -> Iterator[None]:
    """Holds a lock, which the kernel releases when the process ends.

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


def index_directory(root_dir: Path, name: str) -> Path:
    """Where a root keeps the state of the index ``name``.

    Raises:
        InvalidInputError: no index can have that name.
    """
    if not _NAME.fullmatch(name):
        raise InvalidInputError(
            f"{name!r} cannot be an index's name.",
            next_step="Use up to 64 of a-z, 0-9, '.', '_' and '-', a letter or digit first.",
        )
    return root_dir / _FOLDER / name


@contextlib.contextmanager
def drafted(directory: Path, wait_s: float) -> Iterator[Path]:
    """A name beside an index's directory, deleted at the end; one process at a time.

    Raises:
        PackageIndexError: ``busy``; ``index_damaged``: the directory above cannot be written.
    """
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with locked(directory.parent / LOCK, wait_s):
            for left in directory.parent.glob(f".*{DRAFT}"):  # of a process that was killed
                shutil.rmtree(left, ignore_errors=True)
            draft = directory.with_name(f".{directory.name}{DRAFT}")
            try:
                yield draft
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        raise PackageIndexError(
            "index_damaged",
            f"The directory {directory} cannot be changed: {error.strerror or error}.",
            next_step="Check the free space and the permissions of that directory.",
        ) from error
