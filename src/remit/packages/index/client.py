"""A package index as a root uses it, through ``tuf`` (TUF 1.0.34, "Detailed client workflow").

::

    indexes/NAME/
      index.json          name and location
      trusted-root.json   the root metadata that a person trusted
      current/            as tuf keeps it: timestamp, snapshot, targets, root_history/
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, Root, Signed, Snapshot, TargetFile, Targets, Timestamp
from tuf.ngclient import Updater, UpdaterConfig

from remit.kernel.settings import PackageSettings
from remit.packages.errors import PackageIndexError
from remit.packages.index.failures import translate_errors
from remit.packages.index.fetcher import IndexFetcher, parse_location
from remit.packages.index.files import DRAFT, LOCK, drafted, index_directory, locked, write_file
from remit.packages.index.listing import ARCHIVE, ENVELOPE, Listed, list_packages, target_path

__all__ = [
    "CONFIG",
    "Fetched",
    "KnownState",
    "PackageIndex",
    "RootMetadata",
    "not_added",
    "not_in_index",
]

CONFIG = "index.json"
_TRUSTED = "trusted-root.json"
_CURRENT = "current"
_HISTORY = "root_history"


@dataclass(frozen=True, slots=True)
class RootMetadata:
    """What a root metadata file says, for a person to compare before trusting it (TUF 4.3).

    Attributes:
        sha256: ``sha256:…`` of the file.
        threshold: how many of ``keyids`` have to sign the next root metadata.
    """

    version: int
    sha256: str
    keyids: tuple[str, ...]
    threshold: int
    expires: datetime

    @classmethod
    def parse(cls, data: bytes) -> RootMetadata:
        """Reads it and checks that its own keys signed it.

        Raises:
            PackageIndexError: ``index_bad_signature``.
        """
        try:
            found = Metadata[Root].from_bytes(data)
            if not isinstance(found.signed, Root):
                raise RepositoryError(f"it is metadata of the kind {found.signed.type}")
            found.signed.verify_delegate(Root.type, found.signed_bytes, found.signatures)
        except RepositoryError as error:
            raise PackageIndexError(
                "index_bad_signature",
                f"The file is no root metadata that its own keys signed ({error}).",
                next_step="Get N.root.json from who publishes the index, on a way that you trust.",
            ) from error
        role = found.signed.roles[Root.type]
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        keyids = tuple(sorted(role.keyids))
        return cls(found.signed.version, digest, keyids, role.threshold, found.signed.expires)


@dataclass(frozen=True, slots=True)
class KnownState:
    """What was last fetched of an index.

    Attributes:
        expires: when the first of its parts expires, in UTC.
        root_version: of the newest root metadata.
    """

    targets: dict[str, TargetFile]
    expires: datetime
    root_version: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """A package from an index; its content is what the index signed.

    Whether it is a package, and whose signature counts, is still to be checked.

    Attributes:
        archive: the file.
        envelope: its signature's file; ``None`` when the index has none.
        listed: what the index says of it; the archive's manifest has to agree.
        index: name of the index.
    """

    archive: Path
    envelope: Path | None
    listed: Listed
    index: str


class PackageIndex:
    """One index that a root takes packages from.

    Args:
        root_dir: the root's directory.
        name: of the index, and of its directory in the root.
        location: a directory, or a URL.
        insecure_http: whether unencrypted http may lead beyond this machine.

    Attributes:
        location: an absolute path, or an address without a slash at its end.

    Raises:
        InvalidInputError: the name or the location cannot be used.
    """

    def __init__(
        self,
        root_dir: Path,
        name: str,
        location: str,
        settings: PackageSettings,
        *,
        insecure_http: bool = False,
    ) -> None:
        self.name = name
        self.location = parse_location(location, insecure_http=insecure_http)
        self._insecure_http = insecure_http
        self._directory = index_directory(root_dir, name)
        self._settings = settings
        self._updater: Updater | None = None

    @classmethod
    def open(cls, root_dir: Path, name: str, settings: PackageSettings) -> PackageIndex:
        """An index that was added.

        Raises:
            PackageIndexError: ``index_not_added``, ``index_damaged``.
        """
        config = index_directory(root_dir, name) / CONFIG
        try:
            found = json.loads(config.read_bytes())
            location, insecure = found["location"], found.get("insecure_http") is True
            if found["name"] != name or not isinstance(location, str):
                raise _damaged(name, f"{CONFIG} describes {found['name']!r}")
        except (FileNotFoundError, NotADirectoryError) as error:
            raise not_added(name) from error
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise _damaged(name, f"{CONFIG} cannot be read") from error
        return cls(root_dir, name, location, settings, insecure_http=insecure)

    def add(self, root_json: bytes) -> RootMetadata:
        """Trusts the index from now on, by the given root metadata, and fetches its state.

        All or nothing: an index that cannot be fetched, or that others signed, is not added.

        Raises:
            PackageIndexError: ``index_exists``, ``index_bad_signature``, or as
                :meth:`refresh`.
        """
        given = RootMetadata.parse(root_json)
        config: dict[str, Any] = {"name": self.name, "location": self.location}
        if self._insecure_http:
            config["insecure_http"] = True
        with drafted(self._directory, self._settings.lock_timeout_s) as draft:
            if self._directory.exists():
                raise PackageIndexError(
                    "index_exists",
                    f"There is an index {self.name} already.",
                    next_step="Choose another name, or remove that one first.",
                )
            draft.mkdir()
            write_file(draft / _TRUSTED, root_json)
            write_file(draft / CONFIG, json.dumps(config, indent=2).encode() + b"\n")
            self._refresh(draft)
            draft.rename(self._directory)
        return given

    def refresh(self) -> KnownState:
        """Fetches the index's present state, each part verified before it replaces the last.

        Raises:
            PackageIndexError: ``index_unreachable``, ``index_expired``, ``index_rolled_back``,
                ``index_mixed``, ``index_bad_signature``, ``index_not_added``,
                ``index_damaged``, ``busy``.
        """
        self._refresh(self._directory)
        return self.known()

    def _refresh(self, directory: Path) -> None:
        state = directory / _CURRENT
        most = self._settings.index.metadata_bytes
        fetcher = self._fetcher()
        with translate_errors(self.name, fetcher):
            try:
                trusted = (directory / _TRUSTED).read_bytes()
                RootMetadata.parse(trusted)
            except (FileNotFoundError, NotADirectoryError) as error:
                raise not_added(self.name) from error
            except PackageIndexError as error:
                raise _damaged(self.name, f"{_TRUSTED} has changed") from error
            with locked(directory / LOCK, self._settings.lock_timeout_s):
                state.mkdir(exist_ok=True)
                for draft in state.glob("tmp*"):  # of a process that was killed
                    draft.unlink()
                updater = Updater(
                    metadata_dir=str(state),
                    metadata_base_url=f"{self.location}/metadata/",
                    target_base_url=f"{self.location}/targets/",
                    fetcher=fetcher,
                    config=UpdaterConfig(
                        max_root_rotations=self._settings.index.root_rotations,
                        max_delegations=0,
                        root_max_length=most,
                        timestamp_max_length=most,
                        snapshot_max_length=most,
                        targets_max_length=most,
                    ),
                    bootstrap=trusted,
                )
                updater.refresh()
        self._updater = updater

    def known(self) -> KnownState:
        """What was last fetched; it may have expired, and is not verified again.

        Raises:
            PackageIndexError: ``index_not_added``, ``index_damaged``.
        """
        state = self._directory / _CURRENT
        if not self._directory.exists():
            raise not_added(self.name)
        try:
            roots = [int(file.name.split(".")[0]) for file in (state / _HISTORY).iterdir()]
            parts: list[Signed] = []
            for kind, file in (
                (Root, f"{_HISTORY}/{max(roots)}.root.json"),
                (Timestamp, "timestamp.json"),
                (Snapshot, "snapshot.json"),
                (Targets, "targets.json"),
            ):
                signed = Metadata.from_bytes((state / file).read_bytes()).signed
                if not isinstance(signed, kind):
                    raise RepositoryError(f"{file} holds {signed.type}")
                parts.append(signed)
        except (OSError, RepositoryError, ValueError) as error:
            raise _damaged(self.name, str(error)) from error
        targets = parts[-1]
        assert isinstance(targets, Targets)
        return KnownState(targets.targets, min(part.expires for part in parts), max(roots))

    def search(self, text: str = "") -> list[Listed]:
        """The newest version of each package whose id or title contains ``text``, by id.

        Case does not count. Nothing is fetched.

        Raises:
            PackageIndexError: as :meth:`known`.
        """
        wanted = text.casefold()
        newest = [_newest(versions) for versions in list_packages(self.known().targets).values()]
        return [
            listed
            for listed in newest
            if wanted in listed.package_id.casefold() or wanted in listed.title.casefold()
        ]

    def versions(self, package_id: str) -> list[Listed]:
        """All versions of a package, the newest first; empty when the index does not have it.

        Raises:
            PackageIndexError: as :meth:`known`.
        """
        return list_packages(self.known().targets).get(package_id, [])

    def find(self, package_id: str, version: str | None = None) -> Listed | None:
        """The version, or else the newest that is no pre-release, in the index's present state.

        The index is refreshed, once for each object.

        Raises:
            PackageIndexError: as :meth:`refresh`.
        """
        if self._updater is None:
            self.refresh()
        found = self.versions(package_id)
        if version is None:
            return _newest(found) if found else None
        return next((listed for listed in found if listed.version == version), None)

    def fetch(self, package_id: str, version: str | None, into: Path) -> Fetched:
        """Downloads a package and its signature, if the index has one, to a directory.

        Args:
            version: ``None`` for the newest one that is no pre-release.
            into: the directory; files are ``PKG-X-001-1.0.0.tar.gz`` and ``….intoto.json``.

        Raises:
            PackageIndexError: ``package_not_in_index``, ``index_too_large``, or as
                :meth:`refresh`.
        """
        listed = self.find(package_id, version)
        if listed is None:
            wanted = package_id if version is None else f"{package_id} {version}"
            raise not_in_index(f"The index {self.name} does not have {wanted}.")
        archive = self._download(listed, ARCHIVE, into)
        envelope = self._download(listed, ENVELOPE, into) if listed.signed else None
        return Fetched(archive, envelope, listed, self.name)

    def _download(self, listed: Listed, ending: str, into: Path) -> Path:
        assert self._updater is not None, "find() has refreshed"
        path = target_path(listed.package_id, listed.version, ending)
        target = self._updater.get_targetinfo(path)
        if target is None:  # another process refreshed in between
            raise not_in_index(f"The index {self.name} does not have {path} any more.")
        place = into / f"{listed.package_id}-{listed.version}.{ending}"
        if target.length > self._settings.compressed_bytes:
            raise PackageIndexError(
                "index_too_large",
                f"{place.name} in the index {self.name} has {target.length} bytes, more than the "
                f"{self._settings.compressed_bytes} allowed.",
                next_step="Raise packages.compressed_bytes if you trust the index.",
            )
        fetcher = self._fetcher()
        self._updater._fetcher = fetcher
        draft = into / f".{place.name}.{secrets.token_hex(4)}{DRAFT}"
        try:
            with translate_errors(self.name, fetcher):
                into.mkdir(parents=True, exist_ok=True)
                self._updater.download_target(target, filepath=str(draft))
                os.replace(draft, place)
        finally:
            with contextlib.suppress(OSError):
                draft.unlink()
        return place

    def _fetcher(self) -> IndexFetcher:
        return IndexFetcher(self.location, self._settings.index, self._insecure_http)


def _newest(versions: list[Listed]) -> Listed:
    released = (item for item in versions if "-" not in item.version.partition("+")[0])
    return next(released, versions[0])


def not_in_index(message: str) -> PackageIndexError:
    """What to raise when an index does not have a package."""
    return PackageIndexError(
        "package_not_in_index",
        message,
        next_step="`remit package index search` shows what the indexes have.",
    )


def not_added(name: str) -> PackageIndexError:
    """What to raise when a root has no index of that name."""
    return PackageIndexError(
        "index_not_added",
        f"There is no index {name}.",
        next_step="`remit package index list` shows those there are, `remit package index add` "
        "adds one.",
    )


def _damaged(name: str, problem: str) -> PackageIndexError:
    return PackageIndexError(
        "index_damaged",
        f"What is kept of the index {name} is damaged: {problem}.",
        next_step=f"`remit package index refresh {name}`; if that does not help, remove the index "
        "and add it again with its root metadata.",
    )
