"""Files that survive a loss of power: one is replaced whole, or stays as it was."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

__all__ = ["fsync", "replacing"]


@contextlib.contextmanager
def replacing(path: Path, mode: int | None = None) -> Iterator[BinaryIO]:
    """Yield a new file, which takes the place of ``path`` once the block has ended and the file is
    on disk. After an error in the block, ``path`` stays as it was.

    Args:
        path: of a file in a directory that exists.
        mode: of the new file, whatever the umask; as the umask says if left out.
    """
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)  # A process that was killed may have left one.
    try:
        with open(
            new, "xb", opener=lambda name, flags: os.open(name, flags, mode or 0o666)
        ) as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    fsync(path.parent)


def fsync(path: Path) -> None:
    """Have a file, or the names in a directory, on disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
