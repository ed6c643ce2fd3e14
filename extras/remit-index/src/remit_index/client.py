"""A package index as a root uses it: a client of TUF 1.0, with Remit's bounds and messages.

::

    indexes/NAME/
      index.json          name and location; the index is added once this file is there
      trusted-root.json   the root metadata that a person trusted
      current/            as tuf keeps it: timestamp, snapshot, targets, root_history/
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, Root
from tuf.ngclient import Updater, UpdaterConfig

from remit.kernel.errors import InvalidInputError
from remit.kernel.settings import PackageSettings
from remit.packages import IncomingArchive, file_lock, read_archive, replace_file
from remit_index.errors import PackageIndexError, index_error, translate_errors
from remit_index.fetcher import IndexFetcher, parse_location
from remit_index.listing import ARCHIVE, ENVELOPE, Listed, list_packages, target_path

_FOLDER = "indexes"
_CONFIG = "index.json"
_TRUSTED = "trusted-root.json"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class IndexState:
    """What was last fetched of an index.

    Attributes:
        packages: by id, sorted, the newest version of each first.
        expires: when the first of its parts expires, in UTC.
        root_version: of the newest root metadata.
    """

    packages: dict[str, list[Listed]]
    expires: datetime
    root_version: int


class _Config(BaseModel):
    name: str
    location: str
    insecure_http: bool = False


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
        PackageIndexError: by methods, with the codes of ``docs/package-index.md``.
        PackageError: by methods: ``busy``.
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
        self._directory = _directory(root_dir, name)
        self._state = self._directory / "current"
        self._settings = settings
        self._fetcher = IndexFetcher(self.location, settings.index, insecure_http)
        self._updater: Updater | None = None

    @classmethod
    def open(cls, root_dir: Path, name: str, settings: PackageSettings) -> PackageIndex:
        """An index that was added."""
        try:
            data = (_directory(root_dir, name) / _CONFIG).read_bytes()
            config = _Config.model_validate_json(data)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise _not_added(name) from error
        except (OSError, ValidationError) as error:
            raise _damaged(name, f"{_CONFIG} cannot be read") from error
        if config.name != name:
            raise _damaged(name, f"{_CONFIG} describes {config.name!r}")
        return cls(root_dir, name, config.location, settings, insecure_http=config.insecure_http)

    def add(self, root_json: bytes) -> Root:
        """Trusts the index from now on, by the given root metadata, and fetches its state.

        All or nothing: an index that cannot be fetched, or that others signed, is not added.
        Returns the given root metadata.
        """
        config = _Config(name=self.name, location=self.location, insecure_http=self._insecure_http)
        with _locked(self._directory, self._settings.lock_timeout_s, self._fetcher):
            if self._is_added:
                raise index_error("index_exists", f"There is an index {self.name} already.")
            shutil.rmtree(self._directory, ignore_errors=True)  # left by a killed process
            try:
                self._directory.mkdir()
                replace_file(self._directory / _TRUSTED, root_json)
                self._update(root_json)
                text = config.model_dump_json(indent=2, exclude_defaults=True)
                replace_file(self._directory / _CONFIG, f"{text}\n".encode())
            except BaseException:
                shutil.rmtree(self._directory, ignore_errors=True)
                raise
        return Metadata[Root].from_bytes(root_json).signed

    def refresh(self) -> IndexState:
        """Fetches the index's present state, each part verified before it replaces the last."""
        with _locked(self._directory, self._settings.lock_timeout_s, self._fetcher):
            self._update((self._directory / _TRUSTED).read_bytes())
        return self.known()

    def known(self) -> IndexState:
        """What was last fetched; it may have expired, and is not verified again."""
        try:
            # Not root.json, a link that tuf deletes and makes again.
            roots = (self._state / "root_history").iterdir()
            version = max(int(file.name.partition(".")[0]) for file in roots)
            parts = [
                Metadata[Any].from_bytes((self._state / f"{name}.json").read_bytes()).signed
                for name in (f"root_history/{version}.root", "timestamp", "snapshot", "targets")
            ]
            packages = list_packages(parts[-1].targets)
        except (OSError, RepositoryError, ValueError, AttributeError) as error:
            raise _damaged(self.name, str(error)) from error
        return IndexState(packages, min(part.expires for part in parts), version)

    def search(self, text: str = "") -> list[Listed]:
        """The newest version of each package whose id or title contains ``text``, by id.

        Case does not count. Nothing is fetched.
        """
        wanted = text.casefold()
        newest = map(_newest, self.known().packages.values())
        return [one for one in newest if wanted in f"{one.package_id}\n{one.title}".casefold()]

    def find(self, package_id: str, version: str | None = None) -> Listed | None:
        """The version, or else the newest that is no pre-release, in the index's present state.

        The index is refreshed, once for each object.
        """
        if self._updater is None:
            self.refresh()
        found = self.known().packages.get(package_id, [])
        if version is None:
            return _newest(found) if found else None
        return next((item for item in found if item.version == version), None)

    def fetch(self, package_id: str, version: str | None = None) -> IncomingArchive:
        """Downloads a package and its signature, if the index has one.

        Its content is what the index signed, under the id and version that the index lists. Whose
        signature counts is still to be checked, by the root's trust.

        Args:
            version: ``None`` for the newest one that is no pre-release.

        Raises:
            PackageError: the index signed what is no package, or another one.
        """
        listed = self.find(package_id, version)
        if listed is None:
            raise _not_in_index(package_id, version, f"not in the index {self.name}")
        data = self._download(target_path(package_id, listed.version, ARCHIVE))
        envelope = b""
        if listed.signed:
            envelope = self._download(target_path(package_id, listed.version, ENVELOPE))
        manifest = read_archive(io.BytesIO(data), self._settings, expected_id=package_id).manifest
        if manifest.version != listed.version:
            raise index_error(
                "index_mixed",
                f"The index {self.name} lists {package_id} {manifest.version} as {listed.version}.",
            )
        return IncomingArchive(data, envelope, f"index {self.name}", package_id)

    @property
    def _is_added(self) -> bool:
        return (self._directory / _CONFIG).exists()

    def _update(self, trusted: bytes) -> None:
        self._state.mkdir(exist_ok=True)
        for left in self._state.glob("tmp*"):  # by a killed process
            left.unlink()
        rotations = self._settings.index.root_rotations
        try:
            updater = Updater(
                metadata_dir=str(self._state),
                metadata_base_url=f"{self.location}/metadata/",
                target_base_url=f"{self.location}/targets/",
                fetcher=self._fetcher,
                config=UpdaterConfig(max_root_rotations=rotations, max_delegations=0),
                bootstrap=trusted,
            )
        except RepositoryError as error:
            if self._is_added:
                raise _damaged(self.name, f"{_TRUSTED} has changed") from error
            raise index_error(
                "index_bad_signature",
                f"The file is no root metadata that its own keys signed ({error}).",
            ) from error
        updater.refresh()
        self._updater = updater

    def _download(self, path: str) -> bytes:
        assert self._updater is not None, "find() has refreshed"
        target = self._updater.get_targetinfo(path)
        if target is None:  # another process refreshed in between
            problem = f"{path} is not in the index {self.name} any more."
            raise index_error("package_not_in_index", problem)
        if target.length > self._settings.compressed_bytes:
            raise index_error(
                "index_too_large",
                f"{path} in the index {self.name} has {target.length} bytes, more than the "
                f"{self._settings.compressed_bytes} allowed.",
            )
        with (
            translate_errors(self.name, self._fetcher),
            tempfile.TemporaryDirectory(prefix="remit-") as folder,
        ):
            file = self._updater.download_target(target, filepath=str(Path(folder, "target")))
            return Path(file).read_bytes()


def open_indexes(root_dir: Path, settings: PackageSettings) -> list[PackageIndex]:
    """The indexes of a root by name; raises as :class:`PackageIndex`."""
    found = sorted((root_dir / _FOLDER).glob(f"*/{_CONFIG}"))
    return [PackageIndex.open(root_dir, config.parent.name, settings) for config in found]


def remove_index(root_dir: Path, name: str, lock_timeout_s: float) -> None:
    """Forgets an index, a damaged one too; packages that came from it stay.

    Args:
        lock_timeout_s: seconds to wait for a refresh of it.

    Raises as :class:`PackageIndex`.
    """
    directory = _directory(root_dir, name)
    if not directory.is_dir():
        raise _not_added(name)
    with _locked(directory, lock_timeout_s):
        (directory / _CONFIG).unlink(missing_ok=True)
        shutil.rmtree(directory)


def find_in_indexes(
    root_dir: Path,
    package_id: str,
    version: str | None,
    settings: PackageSettings,
    *,
    index: str | None = None,
) -> IncomingArchive:
    """Fetches a package from the one index that has it, after refreshing all of them.

    When two indexes have different archives of it, neither is preferred: the caller has to name
    one.

    Args:
        root_dir: the root's directory.
        version: ``None`` for the newest one that is no pre-release.
        index: only this one.

    Raises as :meth:`PackageIndex.fetch`, also when one index cannot be refreshed: it might have
    the package.
    """
    if index is not None:
        indexes = [PackageIndex.open(root_dir, index, settings)]
    else:
        indexes = open_indexes(root_dir, settings)
    if not indexes:
        raise index_error(
            "index_not_added",
            f"There is no file {package_id}, and this root has no package index to search for it.",
        )
    having = [(each, found) for each in indexes if (found := each.find(package_id, version))]
    if not having:
        names = ", ".join(each.name for each in indexes)
        raise _not_in_index(package_id, version, f"in none of the indexes ({names})")
    if len({found.digest for _, found in having}) > 1:
        which = ", ".join(f"{each.name} ({found.version})" for each, found in having)
        raise index_error(
            "package_in_several",
            f"Several indexes have a different {package_id}: {which}.",
        )
    chosen, found = having[0]
    return chosen.fetch(package_id, found.version)


def _directory(root_dir: Path, name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise InvalidInputError(
            f"{name!r} cannot be an index's name.",
            next_step="Use up to 64 of a-z, 0-9, '.', '_' and '-', a letter or digit first.",
        )
    return root_dir / _FOLDER / name


@contextlib.contextmanager
def _locked(directory: Path, wait_s: float, fetcher: IndexFetcher | None = None) -> Iterator[None]:
    """One process at a time changes an index; errors are raised as :class:`PackageIndexError`."""
    with translate_errors(directory.name, fetcher):
        directory.parent.mkdir(parents=True, exist_ok=True)
        with file_lock(directory.with_name(f".{directory.name}.lock"), wait_s):
            yield


def _newest(versions: list[Listed]) -> Listed:
    released = (item for item in versions if "-" not in item.version.partition("+")[0])
    return next(released, versions[0])


def _not_in_index(package_id: str, version: str | None, where: str) -> PackageIndexError:
    wanted = package_id if version is None else f"{package_id} {version}"
    return index_error("package_not_in_index", f"{wanted} is {where}.")


def _not_added(name: str) -> PackageIndexError:
    return index_error("index_not_added", f"There is no index {name}.")


def _damaged(name: str, problem: str) -> PackageIndexError:
    return index_error("index_damaged", f"What is kept of the index {name} is damaged: {problem}.")
