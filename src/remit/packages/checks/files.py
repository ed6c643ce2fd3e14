"""The governed files of a root, as checks read them: the disk, or the disk as it would be."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Protocol

from remit.packages.errors import PackageError
from remit.packages.paths import TIERS
from remit.packages.placement import RESERVED

__all__ = ["Files", "Overlay", "RootDisk", "reserved"]

_ENGINE_FILES = ("", "-wal", "-shm", "-journal")  # what SQLite puts beside a database


class Files(Protocol):
    """The governed files of a root, by path relative to it, with ``/``."""

    def read(self, path: str) -> bytes:
        """The bytes of a file.

        Raises:
            FileNotFoundError: there is no such file.
            PackageError: ``unsafe_file``: it is a link, a device or the like;
                ``unreadable_file``: it cannot be read.
        """
        ...

    def paths(self) -> Iterator[str]:
        """Every governed file, in the order of names."""
        ...

    def irregular(self) -> Iterator[tuple[str, str]]:
        """What lies among them and is neither file nor folder: path, and what is wrong with it."""
        ...


def reserved(path: str) -> bool:
    """Whether ``path`` lies in a folder that no package owns."""
    return f"{path}/".startswith(RESERVED)


class RootDisk:
    """The files of a root as they lie on disk. No link is followed, wherever it leads.

    Args:
        root: the root's directory.
        ledger_path: the ledger's file, relative to the root or absolute, or its URL: where it
            lies below a tier folder, it and what its engine puts beside it are not governed.
    """

    def __init__(self, root: Path, *, ledger_path: str = "") -> None:
        self._root = root
        ledger = _below(root, ledger_path)
        self._ungoverned = {f"{ledger}{suffix}" for suffix in _ENGINE_FILES} if ledger else set()

    def read(self, path: str) -> bytes:
        """See :meth:`Files.read`; reads reserved places as well."""
        descriptor = self._open(path)
        try:
            with open(descriptor, "rb") as stream:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise _unsafe(path, "is not a regular file")
                return stream.read()
        except OSError as error:
            raise _unreadable(path, error) from error

    def paths(self) -> Iterator[str]:
        """See :meth:`Files.paths`."""
        return (path for path, problem in self._walk() if not problem)

    def irregular(self) -> Iterator[tuple[str, str]]:
        """See :meth:`Files.irregular`."""
        return ((path, problem) for path, problem in self._walk() if problem)

    def names(self, folder: str) -> list[str]:
        """Names of what lies in a folder, reserved places as well; none where there is none.

        Raises:
            PackageError: ``unreadable_file``: it cannot be listed.
        """
        try:
            return sorted(os.listdir(self._root / folder))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise _unreadable(folder, error) from error

    def _open(self, path: str) -> int:
        """Opens folder after folder, so that a link anywhere on the way is refused."""
        parts = PurePosixPath(path).parts
        if not parts or path.startswith("/") or ".." in parts:
            raise _unsafe(path, "leads out of the root")
        folder = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in parts[:-1]:
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                inner = os.open(part, flags, dir_fd=folder)
                os.close(folder)
                folder = inner
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            return os.open(parts[-1], flags, dir_fd=folder)
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, "there is no such file", path) from error
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                if not os.path.lexists(self._root / path):
                    raise FileNotFoundError(errno.ENOENT, "there is no such file", path) from error
                raise _unsafe(path, "is a link, or lies behind one") from error
            raise _unreadable(path, error) from error
        finally:
            os.close(folder)

    def _walk(self) -> Iterator[tuple[str, str]]:
        for tier in sorted(TIERS):
            try:
                mode = os.lstat(self._root / tier).st_mode
            except FileNotFoundError:
                continue
            if stat.S_ISDIR(mode):
                yield from self._below(tier)
            else:
                yield tier, _kind(mode)

    def _below(self, folder: str) -> Iterator[tuple[str, str]]:
        try:
            with os.scandir(self._root / folder) as found:
                items = sorted(found, key=lambda item: item.name)
        except OSError as error:
            yield folder, f"cannot be listed: {error.strerror or error}"
            return
        for item in items:
            path = f"{folder}/{item.name}"
            mode = item.stat(follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                if not reserved(path):
                    yield from self._below(path)
            elif path in self._ungoverned:
                continue
            elif stat.S_ISREG(mode):
                yield path, ""
            else:
                yield path, _kind(mode)


class Overlay:
    """Files as they would be with some added and some gone: what a package is checked against.

    Args:
        base: what is there.
        added: bytes by path; they stand in for what ``base`` has under the same path.
        removed: paths that are gone.
    """

    def __init__(
        self, base: Files, added: Mapping[str, bytes], removed: Collection[str] = ()
    ) -> None:
        self._base = base
        self._added = added
        self._removed = frozenset(removed) - added.keys()

    def read(self, path: str) -> bytes:
        """See :meth:`Files.read`."""
        if path in self._added:
            return self._added[path]
        if path in self._removed:
            raise FileNotFoundError(errno.ENOENT, "there is no such file", path)
        return self._base.read(path)

    def paths(self) -> Iterator[str]:
        """See :meth:`Files.paths`."""
        kept = {path for path in self._base.paths() if path not in self._removed}
        return iter(sorted(kept | self._added.keys()))

    def irregular(self) -> Iterator[tuple[str, str]]:
        """See :meth:`Files.irregular`."""
        return self._base.irregular()


def _below(root: Path, ledger_path: str) -> str:
    """The ledger's file as a path below a tier folder; empty when it lies elsewhere."""
    if not ledger_path or "://" in ledger_path:
        return ""
    place = Path(os.path.normpath(root / ledger_path))
    try:
        relative = place.relative_to(os.path.normpath(root)).as_posix()
    except ValueError:
        return ""
    return relative if relative.partition("/")[0] in TIERS and "/" in relative else ""


def _kind(mode: int) -> str:
    if stat.S_ISLNK(mode):
        return "is a link"
    if stat.S_ISREG(mode):
        return "is a file where a folder has to be"
    return "is neither a file nor a folder"


def _unsafe(path: str, problem: str) -> PackageError:
    return PackageError(
        "unsafe_file",
        f"{path} {problem}.",
        next_step="Put the file itself in its place, or remove it.",
    )


def _unreadable(path: str, error: OSError) -> PackageError:
    return PackageError(
        "unreadable_file",
        f"{path} cannot be read: {error.strerror or error}.",
        next_step="Correct the permissions of the root, or restore the file.",
    )
