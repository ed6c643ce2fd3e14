"""Files staged for an operation, which go to their places once it is on record (ADR 32).

They wait in ``HOT/installed/.journal/OPERATION_ID/``, each under the SHA-256 of its path in the
root. The folder does not say what to do: that follows from the ledger alone. An operation that
is not on record is undone by deleting its folder; what anyone else puts there is never believed.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from remit.kernel.canonical import sha256_hex
from remit.packages.errors import PackageError
from remit.packages.files import (
    JOURNAL_FOLDER,
    SCRATCH,
    Step,
    check_folders,
    holds,
    make_folder,
    sync_folder,
    write_new,
)

__all__ = ["Operation"]

_NAME = re.compile("OP-[0-9a-f]{16}")
_EARLIER_PLAN = "plan.json"  # earlier versions wrote down what to do


class Operation:
    """The staged files of one operation.

    Args:
        root: the root's directory.
        operation_id: ``OP-`` and 16 hex digits.
    """

    def __init__(self, root: Path, operation_id: str) -> None:
        self.operation_id = operation_id
        self._root = root
        self._folder = root / JOURNAL_FOLDER / operation_id

    @staticmethod
    def is_pending(root: Path) -> bool:
        """Whether a killed process left something."""
        journal = root / JOURNAL_FOLDER
        return journal.is_dir() and any(journal.iterdir())

    @classmethod
    def pending(cls, root: Path) -> list[Self]:
        """The operations that a killed process left; scratch folders are deleted.

        Raises:
            PackageError: ``journal_damaged``: no operation of this version leaves that.
        """
        journal = root / JOURNAL_FOLDER
        try:
            check_folders(root, f"{JOURNAL_FOLDER}/folder")
        except PackageError as error:
            raise _damaged(journal, f"is not in a folder of the root: {error.message}") from error
        found, scratch = [], []
        for folder in sorted(journal.iterdir()) if journal.is_dir() else ():
            if folder.is_symlink() or not folder.is_dir():
                raise _damaged(folder, "is not a folder.")
            if folder.name.endswith(SCRATCH):
                scratch.append(folder)
            elif not _NAME.fullmatch(folder.name):
                raise _damaged(folder, "is not the folder of an operation.")
            elif os.path.lexists(folder / _EARLIER_PLAN):
                raise _damaged(folder, "is of an operation that an earlier version began.")
            else:
                found.append(cls(root, folder.name))
        for folder in scratch:
            shutil.rmtree(folder, ignore_errors=True)
        return found

    def stage(self, files: Mapping[str, bytes], step: Step) -> None:
        """Write files, by path, and read them again; nothing else of the root changes.

        Raises:
            OSError: the disk does not accept one, or a place cannot be written.
        """
        make_folder(self._folder, self._root)
        for path, data in files.items():
            step(f"stage {path}")
            self._check_writable(path)
            write_new(self._staged(path), data)
        sync_folder(self._folder)
        for path, data in files.items():
            step(f"check {path}")
            if self._staged(path).read_bytes() != data:
                raise OSError(errno.EIO, "it does not hold what was written", path)

    def place(self, files: Mapping[str, str], step: Step) -> None:
        """Move staged files to their places; may be repeated.

        Args:
            files: ``sha256:`` and 64 hex digits by path; what is not staged is passed over.
            step: called before each.

        Raises:
            PackageError: ``linked_folder``.
            OSError: the disk does not accept it.
        """
        folders = set()
        for path, digest in files.items():
            if holds(self._staged(path), digest):
                step(f"place {path}")
                check_folders(self._root, path)
                target = self._root / path
                make_folder(target.parent, self._root)
                os.replace(self._staged(path), target)
                folders.add(target.parent)
        for folder in sorted(folders):
            sync_folder(folder)

    def close(self) -> None:
        """Delete the folder: nothing is left to do."""
        shutil.rmtree(self._folder)
        sync_folder(self._folder.parent)

    def _staged(self, path: str) -> Path:
        return self._folder / sha256_hex(path.encode())

    def _check_writable(self, path: str) -> None:
        folder = (self._root / path).parent
        while not folder.exists():
            folder = folder.parent
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))


def _damaged(folder: Path, what: str) -> PackageError:
    return PackageError(
        "journal_damaged",
        f"{folder} {what} Nothing was done.",
        next_step="If an earlier version of Remit was interrupted here, run `remit package list` "
        "with that version, which finishes or undoes it. Otherwise find out who left the folder, "
        "and move it out of the root.",
    )
