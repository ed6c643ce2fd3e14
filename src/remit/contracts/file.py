"""Reading files that others wrote: bounded, regular, inside their folder."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from remit.kernel.errors import RemitError

__all__ = ["UnusableFileError", "read_inside", "text_of"]


class UnusableFileError(RemitError):
    """A file cannot be read, or may not be."""


def read_inside(directory: Path, path: Path, max_bytes: int) -> bytes:
    """The bytes of a regular file that lies in ``directory``, symbolic links resolved.

    Args:
        directory: what the file may not lead out of.
        path: the file, below ``directory``.
        max_bytes: most bytes it may have.

    Raises:
        FileNotFoundError: there is no such file.
        UnusableFileError: it leads out, is no regular file, is too large, or cannot be read.
    """
    try:
        resolved = path.resolve(strict=True)
        if not resolved.is_relative_to(directory.resolve()):
            raise UnusableFileError(f"{path} leads out of {directory}.")
        # Resolved just now: a link or a pipe put there since is refused, and none is waited for.
        handle = os.open(resolved, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise UnusableFileError(f"{path} is not a regular file.")
            data = file.read(max_bytes + 1)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(errno.ENOENT, "there is no such file", str(path)) from error
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UnusableFileError(f"{path} cannot be read: {reason}.") from error
    if len(data) > max_bytes:
        raise UnusableFileError(f"{path} has more than {max_bytes} bytes.")
    return data


def text_of(data: bytes, name: str) -> str:
    """The bytes as text.

    Raises:
        UnusableFileError: they are not UTF-8, or begin with a byte order mark.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnusableFileError(f"{name} is not UTF-8, at byte {error.start}.") from error
    if text.startswith("\ufeff"):
        raise UnusableFileError(
            f"{name} begins with a byte order mark.", next_step="Save it as UTF-8 without one."
        )
    return text
