"""A package index as a root uses it, through ``tuf`` (TUF 1.0.34, "Detailed client workflow")."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from tuf.ngclient.config import UpdaterConfig
from tuf.ngclient.updater import Updater

from remit.kernel.errors import InvalidInputError
from remit.packages.errors import PackageIndexError
from remit.packages.index.failures import told
from remit.packages.index.fetcher import fetcher_for
from remit.packages.index.files import sync_directory
from remit.packages.index.limits import IndexLimits
from remit.packages.index.location import Location
from remit.packages.index.root_metadata import RootMetadata
from remit.packages.index.state import IndexState, KnownState, drafted
from remit.packages.index.targets import ARCHIVE, ENVELOPE, Listed, listed_in, target_path

__all__ = ["Fetched", "PackageIndex", "index_name"]

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Fetched:
    """A package that came from an index, and is the one that the index signed.

    Whether the package itself is one, and whose signature counts, is still to be checked.

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
        name: what people call it; the state's directory has the same name.
        location: a directory, or a URL.
        state_dir: ``ROOT/indexes/NAME``.
        insecure_http: whether unencrypted http may lead beyond this machine.

    Raises:
        InvalidInputError: the name or the location cannot be used.
    """

    def __init__(
        self,
        name: str,
        location: str,
        state_dir: Path,
        limits: IndexLimits,
        *,
        insecure_http: bool = False,
    ) -> None:
        self.name = index_name(name)
        self.location = Location.parse(location, insecure_http=insecure_http)
        self._limits = limits
        self._state = IndexState(state_dir)
        self._updater: Updater | None = None

    @classmethod
    def open(cls, state_dir: Path, limits: IndexLimits) -> PackageIndex:
        """An index that was added.

        Raises:
            PackageIndexError: ``index_not_added``, ``index_damaged``.
        """
        state = IndexState(state_dir)
        config = state.config()
        if config["name"] != state_dir.name:
            raise state.damaged(f"its files are those of {config['name']!r}")
        return cls(
            config["name"],
            config["location"],
            state_dir,
            limits,
            insecure_http=config.get("insecure_http") is True,
        )

    def add(self, root_json: bytes) -> RootMetadata:
        """Trusts the index from now on, by the given root metadata, and fetches its state.

        All or nothing: an index that cannot be fetched, or that others signed, is not added.

        Raises:
            PackageIndexError: ``index_exists``, ``index_bad_signature``, or as
                :meth:`refresh`.
        """
        given = RootMetadata.parse(root_json)
        config = {"name": self.name, "location": self.location.text}
        more = {"insecure_http": True} if self.location.insecure_http else {}
        place = self._state.directory
        try:
            with drafted(place, self._limits.lock_timeout_s) as draft:
                if place.exists():
                    raise PackageIndexError(
                        "index_exists",
                        f"There is an index {self.name} already.",
                        next_step="Choose another name, or remove that one first.",
                    )
                self._state = IndexState.make(draft, {**config, **more}, root_json)
                self.refresh()
                draft.rename(place)
                sync_directory(place.parent)
        except OSError as error:
            raise PackageIndexError(
                "index_damaged",
                f"The index {self.name} cannot be written to {place}: {error.strerror or error}.",
                next_step="Check the free space and the permissions of that directory.",
            ) from error
        finally:
            self._state = IndexState(place)
        return given

    def refresh(self) -> KnownState:
        """Fetches the index's present state: verified whole, or nothing changes.

        Raises:
            PackageIndexError: ``index_unreachable``, ``index_expired``, ``index_rolled_back``,
                ``index_mixed``, ``index_bad_signature``, ``index_not_added``,
                ``index_damaged``, ``busy``.
        """
        self._state.config()
        trusted = self._state.trusted_root()
        try:
            RootMetadata.parse(trusted)
        except PackageIndexError as error:
            raise self._state.damaged("the root metadata that was trusted has changed") from error
        fetcher = fetcher_for(self.location, self._limits)
        size = self._limits.metadata_bytes
        with told(self.name, fetcher), self._state.lock(self._limits.lock_timeout_s):
            new = self._state.begin()
            try:
                updater = Updater(
                    metadata_dir=str(new),
                    metadata_base_url=self.location.metadata,
                    target_base_url=self.location.targets,
                    fetcher=fetcher,
                    config=UpdaterConfig(
                        max_root_rotations=self._limits.root_rotations,
                        max_delegations=0,
                        root_max_length=size,
                        timestamp_max_length=size,
                        snapshot_max_length=size,
                        targets_max_length=size,
                    ),
                    bootstrap=trusted,
                )
                updater.refresh()
            except BaseException:
                self._state.discard(new)
                raise
            self._state.commit(new)
        self._updater = updater
        return self._state.read()

    def known(self) -> KnownState:
        """The last good state; nothing is fetched, and it may have expired.

        Raises:
            PackageIndexError: ``index_not_added``, ``index_damaged``.
        """
        self._state.config()
        return self._state.read()

    def search(self, text: str = "") -> list[Listed]:
        """The newest version of each package whose id or title holds ``text``, by id.

        Upper and lower case are one. Nothing is fetched.

        Raises:
            PackageIndexError: as :meth:`known`.
        """
        wanted = text.casefold()
        newest = (_newest(versions) for versions in listed_in(self.known().targets).values())
        return [
            one
            for one in newest
            if wanted in one.package_id.casefold() or wanted in one.title.casefold()
        ]

    def versions(self, package_id: str) -> list[Listed]:
        """All versions of a package, the newest first; none when the index does not have it.

        Raises:
            PackageIndexError: as :meth:`known`.
        """
        return listed_in(self.known().targets).get(package_id, [])

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
        return next((one for one in found if one.version == version), None)

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
            raise PackageIndexError(
                "package_not_in_index",
                f"The index {self.name} does not have {wanted}.",
                next_step="`remit package index search` shows what the indexes have.",
            )
        archive = self._download(listed, ARCHIVE, into)
        envelope = self._download(listed, ENVELOPE, into) if listed.signed else None
        return Fetched(archive, envelope, listed, self.name)

    def _download(self, listed: Listed, ending: str, into: Path) -> Path:
        assert self._updater is not None, "find() has refreshed"
        target = self._updater.get_targetinfo(
            target_path(listed.package_id, listed.version, ending)
        )
        assert target is not None, "it is listed"
        place = into / f"{listed.package_id}-{listed.version}.{ending}"
        if target.length > self._limits.archive_bytes:
            raise PackageIndexError(
                "index_too_large",
                f"{place.name} in the index {self.name} has {target.length} bytes, more than the "
                f"{self._limits.archive_bytes} allowed.",
                next_step="Raise the limit if you trust the index.",
            )
        fetcher = fetcher_for(self.location, self._limits)
        draft = into / f".{place.name}.{secrets.token_hex(4)}.new"
        try:
            with told(self.name, fetcher):
                into.mkdir(parents=True, exist_ok=True)
                self._updater.download_target(target, filepath=str(draft))
                os.replace(draft, place)
        finally:
            with contextlib.suppress(OSError):
                draft.unlink()
        return place


def index_name(name: str) -> str:
    """The name, which becomes that of a directory.

    Raises:
        InvalidInputError: no index can have it.
    """
    if not _NAME.fullmatch(name):
        raise InvalidInputError(
            f"{name!r} cannot be an index's name.",
            next_step="Use up to 64 of a-z, 0-9, '.', '_' and '-', a letter or digit first.",
        )
    return name


def _newest(versions: list[Listed]) -> Listed:
    return next((one for one in versions if "-" not in one.version.partition("+")[0]), versions[0])
