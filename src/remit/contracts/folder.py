"""Files of other authors, read from a folder: bounded, regular, parsed again if they change."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from remit.kernel.errors import RemitError
from remit.kernel.installed_files import (
    ChangedFileError,
    FileIdentity,
    InstalledFiles,
    NotInstalledError,
    digest_of,
    file_identity,
)

_MAX_BYTES = 1024 * 1024
"""Largest size of a contract or pack."""

_T = TypeVar("_T")


class ContractError(RemitError):
    """A contract or pack cannot be used.

    Args:
        code: one of the codes below.
        message: the fault, with the file's name.
        next_step: advice; empty for none.

    Attributes:
        code: ``contract_not_found``, ``contract_schema_invalid``, ``prompt_pack_not_found``,
            ``required_context_missing`` or ``contract_changed`` (not installed, or not as it was
            installed).
    """

    def __init__(self, code: str, message: str, *, next_step: str = "") -> None:
        super().__init__(message, next_step=next_step)
        self.code = code


@dataclass(eq=False, repr=False)
class Folder(Generic[_T]):
    """Files of a directory, keyed by the part of their name before ``@`` and the suffix.

    A file is read again if it may have changed, and parsed again if its bytes have changed; values
    stay in memory. Nothing is read by the constructor.

    Args:
        path: the directory; it need not exist.
        suffixes: suffixes of the files that are read.
        parse: returns the value of a file, given its path and bytes. Raises ContractError for a
            fault; :meth:`read` returns this error, and lets others pass.
        installed: installed files; if given, any other or changed file has the error
            ``contract_changed`` in :meth:`read`. :meth:`names` lists such files too.
    """

    path: Path
    _suffixes: tuple[str, ...]
    _parse: Callable[[Path, bytes], _T]
    _installed: InstalledFiles | None = None
    _parsed: dict[str, tuple[bytes, _T]] = field(default_factory=dict, init=False)
    _read: dict[str, tuple[FileIdentity, str, str]] = field(default_factory=dict, init=False)
    _listed: tuple[FileIdentity, dict[str, list[str]]] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._directory = str(self.path)

    def names(self) -> dict[str, list[str]]:
        """Return the sorted file names, suffix included, keyed by the part before ``@`` or the
        suffix.

        Hidden files and files with other suffixes are left out. A missing directory has no files.
        The result is cached until the directory changes, but not within a second of a change; do
        not change it.

        Raises:
            ContractError: ``contract_schema_invalid``: the directory cannot be listed.
        """
        seen = file_identity(self._directory)
        if seen is not None and self._listed is not None and self._listed[0] == seen:
            return self._listed[1]
        try:
            files = sorted(os.listdir(self.path))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as error:
            raise _unusable(f"{self.path} cannot be read: {error.strerror or error}.") from error
        names: dict[str, list[str]] = {}
        for file in files:
            if file.endswith(self._suffixes) and not file.startswith("."):
                stem = file.rpartition(".")[0]
                names.setdefault(stem.partition("@")[0], []).append(file)
        self._listed = None if seen is None else (seen, names)
        return names

    def read(self, file: str) -> _T | ContractError | None:
        """Return the value of a file, or its error; ``None`` if the file no longer exists.

        A file that is not installed, or not as it was installed, has the error
        ``contract_changed``; one that is unusable, or a symbolic link that leads nowhere,
        ``contract_schema_invalid``. These errors, and ContractErrors of ``parse``, are returned and
        not raised, and the file is read again at the next call. A usable file that has not changed
        since the last call is not read again.

        Args:
            file: a file name from :meth:`names`.

        Raises:
            ChangedFileError: the table of installed files cannot be read when a known file is
                looked at again.
        """
        seen = file_identity(f"{self._directory}{os.sep}{file}")
        known = self._read.get(file)
        if seen is not None and known is not None and known[0] == seen:
            _, name, digest = known
            if self._installed is None or self._installed.stated(name) == digest:
                return self._parsed[file][1]
        path = self.path / file
        try:
            data = read_inside(self.path, path, _MAX_BYTES)
            name = ""
            if self._installed is not None:
                name = self._installed.path_of(path)
                if not self._installed.matches(name, data):
                    data = self._installed.read(name)
            parsed = self._parsed.get(file)
            if parsed is None or parsed[0] != data:
                parsed = self._parsed[file] = (data, self._parse(path, data))
            if seen is not None and seen == file_identity(path):
                self._read[file] = seen, name, digest_of(data)
        except FileNotFoundError:
            # A dangling link is an error, not a missing file.
            return _unusable(f"{path} leads nowhere.") if path.is_symlink() else None
        except (NotInstalledError, ChangedFileError) as error:
            return ContractError("contract_changed", error.message, next_step=error.next_step)
        except ContractError as error:
            return error
        return parsed[1]


def read_inside(directory: Path, path: Path, max_bytes: int) -> bytes:
    """Return the bytes of a regular file in a directory.

    Symbolic links are followed within the directory. A pipe or device is refused without a wait.

    Args:
        directory: the directory that the file must not leave.
        path: the file, below ``directory``.
        max_bytes: largest number of bytes.

    Raises:
        FileNotFoundError: there is no such file, or a symbolic link leads nowhere.
        ContractError: ``contract_schema_invalid``: the file is outside the directory, is not
            regular, is too large, or cannot be read.
    """
    try:
        resolved = os.path.realpath(path, strict=True)
        if not resolved.startswith(os.path.join(os.path.realpath(directory), "")):
            raise _unusable(f"{path} leads out of {directory}.")
        # A link or pipe that replaced the file since is refused without a wait.
        handle = os.open(resolved, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise _unusable(f"{path} is not a regular file.")
            data = file.read(max_bytes + 1)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(errno.ENOENT, "the file does not exist", str(path)) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise _unusable(f"{path} cannot be read: {reason}.") from error
    if len(data) > max_bytes:
        raise _unusable(f"{path} is larger than {max_bytes:,} bytes.")
    return data


def text_of(data: bytes, name: str) -> str:
    """Return bytes as text. The bytes must be UTF-8.

    Args:
        data: the bytes.
        name: the file's name in errors.

    Raises:
        ContractError: ``contract_schema_invalid``: the bytes are not UTF-8, or begin with a byte
            order mark.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _unusable(f"{name} is not UTF-8, at byte {error.start}.") from error
    if text.startswith("\ufeff"):
        raise _unusable(
            f"{name} begins with a byte order mark.",
            "Save the file as UTF-8 without a byte order mark.",
        )
    return text


def _unusable(message: str, next_step: str = "") -> ContractError:
    return ContractError("contract_schema_invalid", message, next_step=next_step)
