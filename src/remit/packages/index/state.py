"""What a root knows of one index: whom it trusts there, and the last good state.

::

    indexes/NAME/
      index.json          name and location
      trusted-root.json   the root metadata that a person trusted
      current -> state-…  one consistent state, changed by one rename
      state-…/            as tuf keeps it: root, timestamp, snapshot, targets, root_history/
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, Root, Signed, Snapshot, TargetFile, Targets, Timestamp

from remit.packages.errors import PackageIndexError
from remit.packages.index.files import clear_drafts, locked, sync_directory, write_whole

__all__ = ["CONFIG", "IndexState", "KnownState", "drafted"]

CONFIG = "index.json"
_TRUSTED = "trusted-root.json"
_CURRENT = "current"
_STATE = "state-"
_LOCK = ".lock"
_DRAFT = re.compile(r"\..+\.[0-9a-f]{8}")
_HISTORY = "root_history"
_ROLES = ("timestamp.json", "snapshot.json", "targets.json")
_S = TypeVar("_S", bound=Signed)
_READS = 5  # a reader that loses this often to refreshes has another problem


@dataclass(frozen=True, slots=True)
class KnownState:
    """The last good state of an index.

    Attributes:
        expires: when the first of its parts ceases to count (UTC).
        root_version: of the root metadata that it is verified by.
    """

    targets: dict[str, TargetFile]
    expires: datetime
    root_version: int


class IndexState:
    """The files of one index in a root."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @classmethod
    def make(cls, directory: Path, config: dict[str, Any], root_json: bytes) -> IndexState:
        """The first files of a new one, in a directory that is not there yet."""
        directory.mkdir(parents=True)
        write_whole(directory / _TRUSTED, root_json)
        write_whole(directory / CONFIG, json.dumps(config, indent=2).encode() + b"\n")
        return cls(directory)

    @contextlib.contextmanager
    def lock(self, wait_s: float) -> Iterator[None]:
        """One refresh at a time."""
        with locked(self.directory / _LOCK, wait_s):
            yield

    def remove(self, wait_s: float) -> None:
        """Takes it away in one step, so that no half of it is ever used.

        Raises:
            PackageIndexError: ``index_not_added``, ``index_damaged``, ``busy``.
        """
        place = self.directory
        try:
            with drafted(place, wait_s) as draft, self.lock(wait_s):
                place.rename(draft)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self.not_added() from error
        except OSError as error:
            raise PackageIndexError(
                "index_damaged",
                f"The index {place.name} cannot be removed: {error.strerror or error}.",
                next_step=f"Check the permissions of {place}.",
            ) from error

    def config(self) -> dict[str, Any]:
        """What ``index.json`` says.

        Raises:
            PackageIndexError: ``index_not_added``, ``index_damaged``.
        """
        try:
            found = json.loads((self.directory / CONFIG).read_bytes())
        except FileNotFoundError as error:
            raise self.not_added() from error
        except (OSError, ValueError) as error:
            raise self.damaged(f"{CONFIG} cannot be read") from error
        if not (
            isinstance(found, dict)
            and isinstance(found.get("name"), str)
            and isinstance(found.get("location"), str)
        ):
            raise self.damaged(f"{CONFIG} does not say which index this is")
        return found

    def not_added(self) -> PackageIndexError:
        """What to raise when there is no such index."""
        return PackageIndexError(
            "index_not_added",
            f"There is no index {self.directory.name}.",
            next_step="`remit package index list` shows those there are, "
            "`remit package index add` adds one.",
        )

    def trusted_root(self) -> bytes:
        """The root metadata that was given when the index was added."""
        try:
            return (self.directory / _TRUSTED).read_bytes()
        except OSError as error:
            raise self.damaged(f"{_TRUSTED} cannot be read") from error

    def begin(self) -> Path:
        """A copy of the current state for a refresh to work on. Only while locked."""
        current = self._current()
        clear_drafts(self.directory)
        for left in self.directory.glob(f"{_STATE}*"):
            if current is None or left.name != current.name:
                shutil.rmtree(left, ignore_errors=True)
        new = self.directory / f"{_STATE}{secrets.token_hex(6)}"
        (new / _HISTORY).mkdir(parents=True)
        if current is not None:
            for name in _ROLES:
                with contextlib.suppress(FileNotFoundError):
                    shutil.copyfile(current / name, new / name)
            _copy_roots(current, new)
        return new

    def commit(self, new: Path) -> None:
        """Makes it the current one: readers see the state before or this one."""
        for file in (*new.glob("*.json"), *(new / _HISTORY).iterdir()):
            handle = os.open(file, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        sync_directory(new / _HISTORY)
        sync_directory(new)
        before = self._current()
        link = self.directory / f".{_CURRENT}.{secrets.token_hex(4)}.new"
        link.symlink_to(new.name)
        link.replace(self.directory / _CURRENT)
        sync_directory(self.directory)
        if before is not None:
            shutil.rmtree(before, ignore_errors=True)

    def discard(self, new: Path) -> None:
        """Drops a refresh that failed, but for new root metadata that it verified.

        That may revoke a key, so it is remembered: the next refresh begins with it. What is
        shown stays the last good state, by the root metadata of its own.
        """
        current = self._current()
        if current is not None:
            with contextlib.suppress(OSError):
                _copy_roots(new, current)
        shutil.rmtree(new, ignore_errors=True)

    def read(self) -> KnownState:
        """The last good state, verified again.

        Raises:
            PackageIndexError: ``index_damaged``.
        """
        for left in reversed(range(_READS)):
            current = self._current()
            if current is None:
                raise self.damaged("no state of it is there")
            try:
                return _read(current)
            except FileNotFoundError as error:
                if not left or self._current() == current:  # else a refresh came between
                    raise self.damaged(f"{error.filename} is missing") from error
            except (OSError, RepositoryError, ValueError) as error:
                raise self.damaged(str(error)) from error
        raise AssertionError

    def _current(self) -> Path | None:
        try:
            return self.directory / os.readlink(self.directory / _CURRENT)
        except OSError:
            return None

    def damaged(self, problem: str) -> PackageIndexError:
        """What to raise when a file of it is not what was written."""
        return PackageIndexError(
            "index_damaged",
            f"What is kept of the index {self.directory.name} is damaged: {problem}.",
            next_step=f"`remit package index refresh {self.directory.name}`; if that does not "
            "help, remove the index and add it again with its root metadata.",
        )


@contextlib.contextmanager
def drafted(place: Path, wait_s: float) -> Iterator[Path]:
    """A name beside an index's directory for one that comes or goes; what is there at the end goes.

    Only one process at a time, so what another one left there when it was killed goes as well.

    Raises:
        PackageIndexError: ``busy``.
        OSError: the directory above cannot be written.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    with locked(place.parent / _LOCK, wait_s):
        for left in place.parent.iterdir():
            if _DRAFT.fullmatch(left.name):
                shutil.rmtree(left, ignore_errors=True)
        draft = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
        try:
            yield draft
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def _copy_roots(source: Path, target: Path) -> None:
    for file in sorted((source / _HISTORY).glob("*.root.json")):
        place = target / _HISTORY / file.name
        if not place.exists():
            write_whole(place, file.read_bytes())


def _read(directory: Path) -> KnownState:
    root = Metadata[Root].from_bytes((directory / "root.json").read_bytes()).signed
    timestamp = _signed(Timestamp, (directory / "timestamp.json").read_bytes(), root)
    data = (directory / "snapshot.json").read_bytes()
    timestamp.snapshot_meta.verify_length_and_hashes(data)
    snapshot = _signed(Snapshot, data, root)
    data = (directory / "targets.json").read_bytes()
    snapshot.meta["targets.json"].verify_length_and_hashes(data)
    targets = _signed(Targets, data, root)
    expires = min(one.expires for one in (root, timestamp, snapshot, targets))
    return KnownState(targets.targets, expires, root.version)


def _signed(kind: type[_S], data: bytes, root: Root) -> _S:
    found: Metadata[Any] = Metadata.from_bytes(data)
    if not isinstance(found.signed, kind):
        raise RepositoryError(f"{kind.type}.json holds {found.signed.type}")
    root.verify_delegate(kind.type, found.signed_bytes, found.signatures)
    return found.signed
