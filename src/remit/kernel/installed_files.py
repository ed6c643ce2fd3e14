"""The installed files of a root, read only if they are as they were installed.

All files that shape an agent are in the tier folders and have an owner, which
``HOT/registries/ownership.json`` names with the file's hash. A file without an owner was not
installed, and a file with another hash was changed since; neither is read.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from remit.kernel.canonical import sha256_hex
from remit.kernel.durable_files import read_regular, take_lock
from remit.kernel.errors import RemitError

OWNERSHIP_FILE = "HOT/registries/ownership.json"
LOCK_FILE = "HOT/installed/.lock"

_PATIENCE_S = 10.0  # an operation states the owners of the files it places within moments

_SETTLED_S = 1.0  # a file changed since could be changed again within one tick of its clock

FileIdentity = tuple[int, int, int, int, int]
"""Device, inode, size, and the times of the last change of content and of anything."""


def file_identity(path: str | Path) -> FileIdentity | None:
    """Return values that change whenever the file changes; ``None`` if it changed in the last
    second.

    ``None`` also means that the file cannot be found, or changed in the future. File systems store
    times coarsely, so a change in the last second cannot be told from the next one. Links are
    followed.

    Args:
        path: path of the file.
    """
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    if not 0 <= found.st_ctime < time.time() - _SETTLED_S:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def shipped_file(package_id: str, path: str) -> bytes:
    """Return a file of a package shipped with Remit, for use without a root.

    Args:
        package_id: id of the package.
        path: path of the file in the package, with ``/``.

    Raises:
        FileNotFoundError: there is no such file.
    """
    return resources.files("remit").joinpath("assets", "packages", package_id, path).read_bytes()


class NotInstalledError(RemitError):
    """No installed package owns the file."""


class ChangedFileError(RemitError):
    """A file of a package is missing, or differs from the installed one; or the table of owners
    cannot be read.
    """


class InstalledFiles:
    """The installed files of a root, as stated in its table of owners.

    The table is read when it is first needed, held, and read again after the file changed. A root
    without a table has no installed files. Files are found and compared with their hashes; nothing
    is written.

    Args:
        root: the root's directory.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._file = os.path.join(root, OWNERSHIP_FILE)
        self._seen: tuple[int, int, int] | None = None
        self._owners: Mapping[str, Any] = {}
        self._below: dict[str, list[str]] = {}

    def path_of(self, file: Path) -> str:
        """Return the path of a file of the root in the form that packages use: relative, with
        ``/``.

        Args:
            file: path of a file, which need not exist.

        Raises:
            ValueError: the path is not below the root.
        """
        return file.relative_to(self._root).as_posix()

    def paths(self, folder: str) -> list[str]:
        """Return the installed files whose path begins with ``folder``, sorted.

        The paths are relative to the root, with ``/``. The files themselves are not looked at.

        Args:
            folder: a folder such as ``HO2/agents/``, with the final slash.

        Raises:
            ChangedFileError: the table of owners cannot be read.
        """
        table = self._table()
        if folder not in self._below:
            self._below[folder] = sorted(path for path in table if path.startswith(folder))
        return list(self._below[folder])

    def changed(self) -> list[str]:
        """Return the installed files that are missing or differ from the installed content, sorted.

        Every file is read. A link, and a file that cannot be read, counts as missing. A running
        package operation is not waited for.

        Raises:
            ChangedFileError: the table of owners cannot be read.
        """
        found = []
        for path in sorted(self._table()):
            data = self._bytes(path)
            if data is None or not self.matches(path, data):
                found.append(path)
        return found

    def owner(self, path: str) -> str:
        """Return the id of the package that owns a file; empty if none does.

        Args:
            path: relative to the root, with ``/``.

        Raises:
            ChangedFileError: the table of owners cannot be read.
        """
        return str(self._table().get(path, {}).get("package_id", ""))

    def matches(self, path: str, data: bytes) -> bool:
        """Return True if ``data`` has the hash of the content installed as ``path``.

        False also means that no package owns ``path``. The file itself is not read.

        Args:
            path: relative to the root, with ``/``.
            data: the bytes to compare.

        Raises:
            ChangedFileError: the table of owners cannot be read.
        """
        return self.stated(path) == digest_of(data)

    def read(self, path: str) -> bytes:
        """Return the bytes of an installed file.

        If the file differs, is missing or has no owner, a running package operation is waited for,
        at most ten seconds, and the file is read once more, whether the operation has ended or not.
        Links are not accepted in place of a file.

        Args:
            path: relative to the root, with ``/``.

        Raises:
            NotInstalledError: no package owns the file.
            ChangedFileError: the file is missing, or differs from the installed content; or the
                table of owners cannot be read.
        """
        data, stated = self._bytes(path), self.stated(path)
        if data is None or digest_of(data) != stated:
            # Between placing its files and saying whose they are, an operation holds the lock.
            with self._no_operation():
                data, stated = self._bytes(path), self.stated(path)
        if not stated:
            raise NotInstalledError(
                f"No installed package owns {self._root / path}.",
                next_step="Remit uses only files of packages. `remit package new` creates a "
                "package; `remit init` installs the shipped ones.",
            )
        if data is None:
            problem = "is missing or cannot be read"
        elif digest_of(data) != stated:
            problem = f"has the hash {digest_of(data)}, not {stated}"
        else:
            return data
        raise ChangedFileError(
            f"{self._root / path} differs from the file that {self.owner(path)} installed: it "
            f"{problem}.",
            next_step="If you changed the file, keep a copy; `remit package restore` replaces "
            "it. To change it, install a new version of the package.",
        )

    def _bytes(self, path: str) -> bytes | None:
        try:
            return read_regular(self._root / path)
        except OSError:
            return None

    def stated(self, path: str) -> str:
        """Return the hash that an installed file must have; empty without an owner.

        The hash has the form of :func:`digest_of`.

        Args:
            path: relative to the root, with ``/``.

        Raises:
            ChangedFileError: the table of owners cannot be read.
        """
        return str(self._table().get(path, {}).get("sha256", ""))

    def _table(self) -> Mapping[str, Any]:
        try:
            found = os.stat(self._file)
            identity = (found.st_ino, found.st_size, found.st_mtime_ns)
            if identity != self._seen:
                table = json.loads(Path(self._file).read_bytes())
                if not isinstance(table, dict):
                    raise ValueError("it is not an object")
                self._owners, self._seen, self._below = table, identity, {}
        except FileNotFoundError:
            self._owners, self._seen, self._below = {}, None, {}
        except (OSError, ValueError) as error:
            raise ChangedFileError(
                f"The registry {self._file} cannot be read: {error}.",
                next_step="`remit package registry --rebuild` rebuilds it from the ledger.",
            ) from error
        return self._owners

    @contextlib.contextmanager
    def _no_operation(self) -> Iterator[None]:
        """Wait until no package operation runs, and block new ones inside the context."""
        try:
            descriptor = os.open(self._root / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            yield
            return
        try:
            take_lock(descriptor, fcntl.LOCK_SH, _PATIENCE_S)
            yield
        finally:
            os.close(descriptor)


def digest_of(data: bytes) -> str:
    """Return a file's hash in the form of ``ownership.json``: ``sha256:`` and 64 hex digits."""
    return f"sha256:{sha256_hex(data)}"
