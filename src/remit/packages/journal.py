"""The files of a root: durable writes, the lock of the packages, and the journal of operations."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Self

from remit.kernel.canonical import sha256_hex
from remit.kernel.durable_files import fsync, new_file, read_regular, replacing, take_lock
from remit.kernel.installed_files import LOCK_FILE, digest_of
from remit.packages.errors import PackageError
from remit.packages.paths import TIERS

INSTALLED_FOLDER = "HOT/installed"
JOURNAL_FOLDER = f"{INSTALLED_FOLDER}/.journal"
_SCRATCH = ".tmp"  # The end of names of journal folders that may always be deleted.

_OPERATION = re.compile("OP-[0-9a-f]{16}")
_EARLIER_PLAN = "plan.json"  # Earlier versions stored the steps of an operation in this file.

Step = Callable[[str], None]
"""Called before each step of an operation with the step's name and the path that it changes."""


@contextlib.contextmanager
def file_lock(file: Path, wait_s: float) -> Iterator[int]:
    """Hold a lock that the kernel releases when the process ends, even if the process is killed.

    The block gets the descriptor of the open file. The end of the block closes it, which releases
    the lock. The file stays. The lock is not reentrant.

    Args:
        file: the lock's file in an existing folder, created if missing; a link is refused. If its
            holder wrote a process id into it, the error names that process.
        wait_s: seconds to wait for another process, polling every 50 ms.

    Raises:
        PackageError: ``busy``: another process holds the lock.
        OSError: the file cannot be opened.
    """
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        if not take_lock(descriptor, fcntl.LOCK_EX, wait_s):
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            raise PackageError(
                "busy",
                f"Another process{holder and f' ({holder})'} has held the lock {file} for "
                f"{wait_s:g} s.",
                next_step="Wait for that process to end, or raise packages.lock_timeout_s.",
            )
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def package_lock(root: Path, wait_s: float) -> Iterator[None]:
    """Hold the lock of a root's packages, so that one operation runs at a time.

    The file ``LOCK_FILE`` below the root is created if missing, with its folders, and receives the
    process id. The lock is released at the end of the block; the file stays. The lock is not
    reentrant: a second one in this process fails as ``busy``.

    Args:
        root: the root's directory.
        wait_s: seconds to wait for another process.

    Raises:
        PackageError: ``busy``: another process holds the lock; ``unwritable``: the lock's file or
            its folders cannot be made or opened.
    """
    file = root / LOCK_FILE
    with contextlib.ExitStack() as stack:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            descriptor = stack.enter_context(file_lock(file, wait_s))
        except OSError as error:
            raise PackageError(
                "unwritable",
                f"The packages of {root} cannot be changed: {error.strerror or error}.",
                next_step="Make the root writable for this user.",
            ) from error
        # The process id only serves the message of file_lock, and a full disk must not stop a
        # removal.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield


def has_digest(path: Path, digest: str) -> bool:
    """Return True if ``path`` is a readable regular file with the hash ``digest``, not a link.

    A missing file, and any other ``OSError``, gives False.

    Args:
        path: the file, which is read whole.
        digest: ``sha256:`` and 64 hex digits.
    """
    try:
        return digest_of(read_regular(path)) == digest
    except OSError:
        return False


def check_folders(root: Path, path: str) -> None:
    """Check that the existing parts above a path are folders, and not links or files.

    Only folders between the root and ``path`` are checked, from the top; a missing one ends the
    check.

    Args:
        root: the root's directory.
        path: relative to the root.

    Raises:
        PackageError: ``linked_folder``: an existing part above ``path`` is not a folder.
        OSError: a part cannot be examined.
    """
    for folder in reversed(Path(path).parents[:-1]):
        try:
            mode = os.lstat(root / folder).st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISDIR(mode):
            raise PackageError(
                "linked_folder",
                f"{root / folder} is a link or a file instead of a folder.",
                next_step="Move it away; files are never written through links.",
            )


@contextlib.contextmanager
def disk_errors() -> Iterator[None]:
    """Raise a PackageError instead of any ``OSError`` of the block.

    The next step is to repeat the command, so the block may leave only changes that a repetition
    completes or undoes. Other errors pass unchanged. Use it in a ``with`` statement.

    Raises:
        PackageError: ``unwritable``: the block raised an ``OSError``.
    """
    try:
        yield
    except OSError as error:
        raise PackageError(
            "unwritable",
            f"The disk refused a change: {error.strerror or error}"
            + (f" ({error.filename})." if error.filename else "."),
            next_step="Free space or make the root writable, and repeat the command.",
        ) from error


def replace_file(path: Path, data: bytes, mode: int | None = None) -> None:
    """Write a new or existing file durably: a crash leaves the old content or the new.

    A pipe or device is written in place, and a symbolic link is replaced. Only one process may
    write a path at a time.

    Args:
        path: the file, in an existing folder.
        data: the new content.
        mode: the file's mode, whatever the umask; ``None`` for the umask's. The old file's mode is
            not kept.

    Raises:
        OSError: the file cannot be written, and the old one stays; or it was replaced, but its
            folder cannot be flushed.
    """
    with replacing(path, mode) as file:
        file.write(data)


def remove_file(root: Path, path: str) -> None:
    """Delete a file of a root durably, with the folders that become empty.

    The tier folders stay. A missing file is no error, and empty folders above it are deleted too.
    A folder that cannot be deleted stays without an error.

    Args:
        root: the root's directory.
        path: the file, relative to the root.

    Raises:
        PackageError: ``linked_folder``: a part above the file is a link or file; nothing was
            deleted.
        OSError: the file cannot be deleted.
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
    """Create a folder of the root, with the missing folders above it, durably.

    Existing folders are no error.

    Args:
        folder: the folder, below ``root``.
        root: the root's directory, which must exist.

    Raises:
        OSError: a folder cannot be created.
    """
    missing = []
    while folder != root and not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        fsync(each.parent)


def write_new(path: Path, data: bytes, mode: int | None = None) -> None:
    """Write a new file and flush its content to the disk; the caller flushes the folder.

    After an error an incomplete file may stay.

    Args:
        path: the file, which must not exist.
        data: the content.
        mode: the file's mode, whatever the umask; ``None`` to apply the umask.

    Raises:
        OSError: the file exists (FileExistsError), or cannot be written.
    """
    with new_file(path, mode) as file:
        file.write(data)


class Operation:
    """The staged files of an operation, which move to their places after its recording (ADR 32).

    The files wait in ``HOT/installed/.journal/OPERATION_ID/``, each named by the SHA-256 of its
    path in the root. The folder does not say what to do with them: that follows from the ledger
    alone. An operation that is not recorded is undone by deletion of its folder, so files that
    somebody else puts there have no effect. Making the object writes nothing: :meth:`stage` writes
    the files, :meth:`place` moves them, and :meth:`close` deletes the folder.

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
        """Return an operation that is never recorded, for files to write one by one.

        Its journal folder has a random name that ends with ``.tmp``, which the next command deletes
        after a crash. Files begin in the journal because gate G0B rejects temporary files in the
        tier folders. No folder is created before :meth:`stage`.

        Args:
            root: the root's directory.
        """
        return cls(root, f"{secrets.token_hex(8)}{_SCRATCH}")

    @staticmethod
    def is_pending(root: Path) -> bool:
        """Return True if the journal contains anything, as during an operation or after a killed
        process.

        Args:
            root: directory of the root.

        Raises:
            OSError: the journal cannot be read.
        """
        journal = root / JOURNAL_FOLDER
        return journal.is_dir() and any(journal.iterdir())

    @classmethod
    def pending(cls, root: Path) -> list[Self]:
        """Return the operations that killed processes left, and delete scratch folders.

        Scratch folders that cannot be deleted stay.

        Args:
            root: the root's directory.

        Returns:
            The operations, sorted by id; empty if there is no journal.

        Raises:
            PackageError: ``journal_damaged``: the journal is not in a folder of the root, contains
                anything else, or an operation of an earlier version; nothing was deleted.
            OSError: the journal cannot be read.
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
        """Write files into the journal and compare their content; nothing else of the root changes.

        The folder of the operation is made if missing, and the files are flushed to disk. Files
        that were staged before an error stay until :meth:`close`.

        Args:
            files: content by path in the root.
            step: called before each write and each check.

        Raises:
            OSError: a file cannot be written, was staged before or has other content when read; or
                the folder for a file in the root is not writable.
        """
        make_folder(self._folder, self._root)
        for path, data in files.items():
            step(f"stage {path}")
            self._check_writable(path)
            write_new(self._staged(path), data)
        fsync(self._folder)
        for path, data in files.items():
            step(f"check {path}")
            if self._staged(path).read_bytes() != data:
                raise OSError(errno.EIO, "it does not contain the written data", path)

    def place(self, files: Mapping[str, str], step: Step) -> None:
        """Move staged files to their places; may be repeated.

        Existing files are replaced, and missing folders are created.

        Args:
            files: ``sha256:`` and 64 hex digits by path in the root. A file that is not staged with
                that hash is left out.
            step: called before each move.

        Raises:
            PackageError: ``linked_folder``: a part above a place is a link or file; earlier files
                were moved.
            OSError: a file cannot be moved.
        """
        folders = set()
        for path, digest in files.items():
            if has_digest(self._staged(path), digest):
                step(f"place {path}")
                check_folders(self._root, path)
                target = self._root / path
                make_folder(target.parent, self._root)
                os.replace(self._staged(path), target)
                folders.add(target.parent)
        for folder in sorted(folders):
            fsync(folder)

    def close(self) -> None:
        """Delete the journal folder of the operation, with the files that are still staged.

        Raises:
            OSError: the folder does not exist or cannot be deleted.
        """
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
        "with that version, which finishes or undoes the operation. Otherwise find out who "
        "created the folder, and move it out of the root.",
    )
