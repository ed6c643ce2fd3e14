"""The view that checks have of a root's files, and the findings of checks."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Generator, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Self

from remit.kernel.errors import RemitError
from remit.kernel.installed_files import digest_of
from remit.packages.errors import PackageError
from remit.packages.paths import TIERS, is_reserved

# SQLite writes files with these endings next to a database.
_ENGINE_FILES = ("", "-wal", "-shm", "-journal")
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC


class Finding(NamedTuple):
    """A fault that a check found; immutable.

    Attributes:
        message: one sentence with the fault and its cause.
        next_step: the reader's next action; empty if there is none.
    """

    message: str
    next_step: str = ""

    @classmethod
    def of(cls, error: RemitError, next_step: str = "") -> Self:
        """Return an error as a finding, with its message and next step.

        Args:
            error: the error.
            next_step: the next step if the error has none.
        """
        return cls(error.message, error.next_step or next_step)


Check = Generator[Finding, None, str]
"""A running check: yields findings, and returns one line about the checked things."""


class RootDisk:
    """The files of a root as a check reads them. No link inside the root is followed.

    Nothing is cached or written. :meth:`read` returns a file as an operation would leave it, if
    ``added`` and ``removed`` say so; :meth:`walk` and :meth:`names` list the present disk. Only
    :meth:`walk` leaves out reserved folders.

    Args:
        root: the root's directory.
        ledger_path: the ledger's file, relative to the root or absolute, or its URL. A ledger below
            a tier folder, and the files that SQLite keeps next to it, need no owner.
        added: content by path of files that are read as if they existed.
        removed: paths of files that are read as if they did not exist.
    """

    def __init__(
        self,
        root: Path,
        *,
        ledger_path: str = "",
        added: Mapping[str, bytes] = MappingProxyType({}),
        removed: Collection[str] = (),
    ) -> None:
        self._root = root
        self._added = added
        self._removed = frozenset(removed)
        self._ungoverned: set[str] = set()
        if ledger_path and "://" not in ledger_path:
            path = os.path.relpath(root / ledger_path, root)
            self._ungoverned = {f"{path}{suffix}" for suffix in _ENGINE_FILES}

    def read(self, path: str) -> bytes:
        """Return the bytes of a file; ``added`` comes before ``removed``, and that before the disk.

        Args:
            path: relative to the root, with ``/``.

        Raises:
            FileNotFoundError: the file does not exist, or a part above it is a file.
            PackageError: ``unsafe_file``: the path leads to a link, a device or out of the root;
                ``unreadable_file``: the file is a folder or cannot be read.
            OSError: the root itself cannot be opened.
        """
        if path in self._added:
            return self._added[path]
        if path in self._removed:
            raise FileNotFoundError(errno.ENOENT, "the file does not exist", path)
        *folders, name = path.split("/")
        if not all(folders) or not name or ".." in (*folders, name):
            raise _unsafe(path, "leads out of the root")
        folder = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # Each folder is opened alone, so that a link anywhere in the path is refused.
            for part in folders:
                inner = os.open(part, _FOLDER, dir_fd=folder)
                os.close(folder)
                folder = inner
            with open(name, "rb", opener=lambda at, _: os.open(at, _FILE, dir_fd=folder)) as stream:
                if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                    raise _unsafe(path, "is not a regular file")
                return stream.read()
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise _unreadable(path, error) from error
            if not os.path.lexists(self._root / path):
                raise FileNotFoundError(errno.ENOENT, "the file does not exist", path) from error
            raise _unsafe(path, "is a link, or is below a link") from error
        finally:
            os.close(folder)

    def walk(self) -> Iterator[tuple[str, str]]:
        """Yield every file of the tier folders on the disk, folder by folder, sorted by name.

        Reserved folders and the ledger are left out. Files in ``added`` are not yielded, and files
        in ``removed`` are.

        Yields:
            The path and an empty text; or the path and a fault: a link, no regular file, a folder
            that cannot be listed, or a tier folder that is a file.

        Raises:
            OSError: a file cannot be examined.
        """
        for tier in sorted(TIERS):
            yield from self._walk(tier)

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder of the root, sorted; empty if the folder does not exist or
        is a file.

        Files in ``added`` and ``removed`` have no effect. Links are listed too.

        Args:
            folder: relative to the root.

        Raises:
            PackageError: ``unreadable_file``: the folder cannot be listed.
        """
        try:
            return sorted(os.listdir(self._root / folder))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise _unreadable(folder, error) from error

    def _walk(self, path: str) -> Iterator[tuple[str, str]]:
        try:
            mode = os.lstat(self._root / path).st_mode
        except FileNotFoundError:
            return
        if stat.S_ISDIR(mode):
            if not is_reserved(path):
                try:
                    names = sorted(os.listdir(self._root / path))
                except OSError as error:
                    yield path, f"cannot be listed: {error.strerror or error}"
                    return
                for name in names:
                    yield from self._walk(f"{path}/{name}")
        elif stat.S_ISLNK(mode):
            yield path, "is a link"
        elif not stat.S_ISREG(mode):
            yield path, "is neither a file nor a folder"
        elif path in TIERS:
            yield path, "is a file but must be a folder"
        elif path not in self._ungoverned:
            yield path, ""


def compare_file(
    files: RootDisk, path: str, digest: str, what: str, next_step: str
) -> Iterator[Finding]:
    """Yield one finding if a file is missing, unreadable, unsafe or has another hash; nothing
    otherwise.

    Args:
        files: the root's files.
        path: relative to the root.
        digest: ``sha256:`` and 64 hex digits.
        what: the file's role for the message, such as ``the receipt of PKG-KERNEL-001``.
        next_step: the finding's next step; an unreadable or unsafe file has its own.

    Raises:
        OSError: the root cannot be opened.
    """
    try:
        found = digest_of(files.read(path))
    except FileNotFoundError:
        yield Finding(f"{path}, {what}, is missing.", next_step)
    except PackageError as error:
        yield Finding.of(error)
    else:
        if found != digest:
            yield Finding(f"{path} is not {what}: its hash is {found}, not {digest}.", next_step)


def _unsafe(path: str, problem: str) -> PackageError:
    fix = "Replace it with the file itself, or move it out of the root."
    return PackageError("unsafe_file", f"{path} {problem}.", next_step=fix)


def _unreadable(path: str, error: OSError) -> PackageError:
    problem = f"{path} cannot be read: {error.strerror or error}."
    fix = "Correct the permissions of the root."
    return PackageError("unreadable_file", problem, next_step=fix)
