"""One folder of files that are parsed once and again when they change."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from remit.contracts.errors import ContractError
from remit.contracts.file import UnusableFileError, read_inside
from remit.kernel.installed import ChangedFileError, InstalledFiles, NotInstalledError

__all__ = ["MAX_BYTES", "Folder"]

MAX_BYTES = 1024 * 1024
"""Most bytes that a contract or pack may have."""

_CHANGED = "contract_changed"
_SETTLED_NS = 2_000_000_000
"""Two changes within the granularity of a file system's clock (2 s on FAT) bear one time."""

_T = TypeVar("_T")
_Identity = tuple[int, int, int, int]


class _Listing(NamedTuple):
    identity: _Identity
    settled: bool
    files: list[str]
    names: dict[str, tuple[Path, ...]]


class Folder(Generic[_T]):
    """Files of one directory, by the part of their name before ``@`` and the suffix.

    A file is parsed again when its inode, size or times change; while its time of change is so
    young that a second change could bear the same one, its bytes are compared instead. The
    directory is listed again by the same rule.

    Args:
        path: the directory; it need not exist.
        suffixes: of the files that count.
        parse: makes the value of a file's path and bytes.
        installed: where given, only installed files that are as they were installed count.
    """

    def __init__(
        self,
        path: Path,
        suffixes: tuple[str, ...],
        parse: Callable[[Path, bytes], _T],
        installed: InstalledFiles | None = None,
    ) -> None:
        self.path = path
        self._suffixes = suffixes
        self._parse = parse
        self._installed = installed
        self._lock = threading.Lock()
        self._listed: _Listing | None = None
        self._known: dict[Path, tuple[_Identity, bool, bytes, _T | ContractError]] = {}

    def names(self) -> Mapping[str, tuple[Path, ...]]:
        """The files of each name, sorted.

        Raises:
            ContractError: the directory cannot be listed.
        """
        try:
            identity = _identity(os.stat(self.path))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as error:
            raise _unreadable(self.path, error) from error
        with self._lock:
            listed = self._listed
        if listed is not None and listed[:2] == (identity, True):
            return listed.names
        settled = _is_settled(identity)
        try:
            files = sorted(os.listdir(self.path))
        except OSError as error:
            raise _unreadable(self.path, error) from error
        names = listed.names if listed and listed.files == files else self._named(files)
        with self._lock:
            self._listed = _Listing(identity, settled, files, names)
            if listed is None or listed.names is not names:
                there = {path for paths in names.values() for path in paths}
                self._known = {path: known for path, known in self._known.items() if path in there}
        return names

    def _named(self, files: list[str]) -> dict[str, tuple[Path, ...]]:
        names: dict[str, tuple[Path, ...]] = {}
        for file in files:
            stem, suffix = os.path.splitext(file)
            if suffix in self._suffixes and not file.startswith("."):
                name = stem.partition("@")[0]
                names[name] = (*names.get(name, ()), self.path / file)
        return names

    def read(self, path: Path) -> _T | ContractError | None:
        """The value of a file, or what is wrong with it; ``None`` when it is no longer there."""
        try:
            status = os.stat(path)
            if not stat.S_ISREG(status.st_mode):
                return _unusable(f"{path} is not a regular file.")
            identity = _identity(status)
            with self._lock:
                known = self._known.get(path)
            fresh = known is not None and known[:2] == (identity, True)
            if known is not None and fresh and self._is_installed(path, known[2]):
                return known[3]
            settled = _is_settled(identity)
            data = read_inside(self.path, path, MAX_BYTES)
            if not self._is_installed(path, data) and self._installed is not None:
                data = self._installed.read(self._installed.path_of(path))
        except FileNotFoundError:
            # A link that leads nowhere is there all the same.
            return _unusable(f"{path} leads nowhere.") if path.is_symlink() else None
        except OSError as error:
            return _unreadable(path, error)
        except UnusableFileError as error:
            return _unusable(error.message)
        except (NotInstalledError, ChangedFileError) as error:
            return ContractError(_CHANGED, error.message, next_step=error.next_step)
        if known is not None and known[2] == data:
            value = known[3]
        else:
            try:
                value = self._parse(path, data)
            except UnusableFileError as error:
                value = _unusable(error.message, error.next_step)
            except ContractError as error:
                value = error
        with self._lock:
            self._known[path] = (identity, settled, data, value)
        return value

    def _is_installed(self, path: Path, data: bytes) -> bool:
        installed = self._installed
        return installed is None or installed.matches(installed.path_of(path), data)


def _identity(status: os.stat_result) -> _Identity:
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _is_settled(identity: _Identity) -> bool:
    """Whether a change from now on cannot bear the times that were seen."""
    return time.time_ns() - max(identity[2:]) > _SETTLED_NS


def _unreadable(path: Path, error: OSError) -> ContractError:
    return _unusable(f"{path} cannot be read: {error.strerror or error}.")


def _unusable(message: str, next_step: str = "") -> ContractError:
    return ContractError("contract_schema_invalid", message, next_step=next_step)
