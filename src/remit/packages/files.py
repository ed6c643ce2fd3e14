"""Files of a root, written durably: all of a file or none, however the process ends."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Self

from remit.kernel.canonical import sha256_hex
from remit.kernel.files import fsync, replacing
from remit.packages.errors import PackageError
from remit.packages.paths import TIERS

INSTALLED_FOLDER = "HOT/installed"
JOURNAL_FOLDER = f"{INSTALLED_FOLDER}/.journal"
_SCRATCH = ".tmp"  # how the name of a folder in the journal ends that can always be deleted

_OPERATION = re.compile("OP-[0-9a-f]{16}")
_EARLIER_PLAN = "plan.json"  # earlier versions wrote down what to do

Step = Callable[[str], None]
"""Called before each step of an operation with its name and the path that it changes."""


def holds(path: Path, digest: str) -> bool:
    """Whether there is a file, no link, with that hash (``sha256:`` and 64 hex digits)."""
    try:
        regular = stat.S_ISREG(os.lstat(path).st_mode)  # opening a pipe would wait for ever
        return regular and f"sha256:{sha256_hex(path.read_bytes())}" == digest
    except OSError:
        return False


def check_folders(root: Path, path: str) -> None:
    """Make sure that nothing above ``path``, where it exists, is a link or a file.

    Raises:
        PackageError: ``linked_folder``.
    """
    for folder in reversed(Path(path).parents[:-1]):
        try:
            mode = os.lstat(root / folder).st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISDIR(mode):
            raise PackageError(
                "linked_folder",
                f"{root / folder} is not a folder of its own but a link or file.",
                next_step="Move it away; files are never written through links.",
            )


@contextlib.contextmanager
def disk_errors() -> Iterator[None]:
    """Raises :class:`PackageError` (``unwritable``) for an ``OSError``."""
    try:
        yield
    except OSError as error:
        raise PackageError(
            "unwritable",
            f"The disk does not accept a change: {error.strerror or error}"
            + (f" ({error.filename})." if error.filename else "."),
            next_step="Free space or make the root writable; nothing was changed.",
        ) from error


def replace_file(path: Path, data: bytes, mode: int | None = None) -> None:
    """Give a file this content; and that mode, whatever the umask, where one is given."""
    with replacing(path, mode) as file:
        file.write(data)


def remove_file(root: Path, path: str) -> None:
    """Delete a file of a root, durably, and the folders that are empty then.

    Raises:
        PackageError: ``linked_folder``.
        OSError: the disk does not accept it.
    """
    check_folders(root, path)
    (root / path).unlink(missing_ok=True)
    folder = (root / path).parent
    tiers = {root / tier for tier in TIERS}
    while folder not in tiers and folder != root:
        try:
            folder.rmdir()
        except FileNotFoundError:
            pass
        except OSError:
            break
        folder = folder.parent
    fsync(folder)


def make_folder(folder: Path, root: Path) -> None:
    """Make a folder of the root and those above it, durably."""
    missing = []
    while folder != root and not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        fsync(each.parent)


def write_new(path: Path, data: bytes, mode: int | None = None) -> None:
    """Write a new file, durably but for its name."""
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode or 0o666)) as stream:
        if mode is not None:
            os.fchmod(stream.fileno(), mode)
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


class Operation:
    """The staged files of one operation, which go to their places once it is on record (ADR 32).

    They wait in ``HOT/installed/.journal/OPERATION_ID/``, each under the SHA-256 of its path in
    the root. The folder does not say what to do: that follows from the ledger alone. An operation
    that is not on record is undone by deleting its folder; what anyone else puts there is never
    believed.

    Args:
        root: the root's directory.
        operation_id: ``OP-`` and 16 hex digits.
    """

    def __init__(self, root: Path, operation_id: str) -> None:
        self.operation_id = operation_id
        self._root = root
        self._folder = root / JOURNAL_FOLDER / operation_id

    @classmethod
    def scratch(cls, root: Path) -> Self:
        """For files that are written singly: what a killed process leaves of it is deleted.

        In a tier folder every file has an owner, so that files begin in the journal.
        """
        return cls(root, f"{secrets.token_hex(8)}{_SCRATCH}")

    @staticmethod
    def is_pending(root: Path) -> bool:
        """Whether a killed process left something."""
        journal = root / JOURNAL_FOLDER
        return journal.is_dir() and any(journal.iterdir())

    @classmethod
    def pending(cls, root: Path) -> list[Self]:
        """The operations that a killed process left; scratch folders are deleted."""
        journal = root / JOURNAL_FOLDER
        try:
            check_folders(root, f"{JOURNAL_FOLDER}/folder")
        except PackageError as error:
            raise _damaged(journal, f"is not in a folder of the root: {error.message}") from error
        found, scratch = [], []
        for folder in sorted(journal.iterdir()) if journal.is_dir() else ():
            if folder.is_symlink() or not folder.is_dir():
                raise _damaged(folder, "is not a folder.")
            if folder.name.endswith(_SCRATCH):
                scratch.append(folder)
            elif not _OPERATION.fullmatch(folder.name):
                raise _damaged(folder, "is not the folder of an operation.")
            elif os.path.lexists(folder / _EARLIER_PLAN):
                raise _damaged(folder, "is of an operation that an earlier version began.")
            else:
                found.append(cls(root, folder.name))
        for folder in scratch:
            shutil.rmtree(folder, ignore_errors=True)
        return found

    def stage(self, files: Mapping[str, bytes], step: Step) -> None:
        """Write files, by path, and read them again; nothing else of the root changes."""
        make_folder(self._folder, self._root)
        for path, data in files.items():
            step(f"stage {path}")
            self._check_writable(path)
            write_new(self._staged(path), data)
        fsync(self._folder)
        for path, data in files.items():
            step(f"check {path}")
            if self._staged(path).read_bytes() != data:
                raise OSError(errno.EIO, "it does not hold what was written", path)

    def place(self, files: Mapping[str, str], step: Step) -> None:
        """Move staged files to their places; may be repeated.

        Args:
            files: ``sha256:`` and 64 hex digits by path; what is not staged is passed over.
            step: called before each.
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
            fsync(folder)

    def close(self) -> None:
        """Delete the folder: nothing is left to do."""
        shutil.rmtree(self._folder)
        fsync(self._folder.parent)

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
