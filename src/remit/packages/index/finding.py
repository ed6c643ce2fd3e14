"""All indexes of a root together."""

from __future__ import annotations

from pathlib import Path

from remit.kernel.settings import load_settings
from remit.packages.archive import ArchiveLimits, read_archive
from remit.packages.errors import PackageError, PackageIndexError
from remit.packages.index.client import Fetched, PackageIndex, index_name
from remit.packages.index.limits import IndexLimits
from remit.packages.index.state import CONFIG, IndexState
from remit.packages.index.targets import Listed

__all__ = ["find_in_indexes", "index_directory", "open_indexes", "remove_index"]


_FOLDER = "indexes"


def index_directory(root_dir: Path, name: str) -> Path:
    """Where the state of the index ``name`` lies in a root.

    Raises:
        InvalidInputError: no index can have that name.
    """
    return root_dir / _FOLDER / index_name(name)


def open_indexes(root_dir: Path, limits: IndexLimits) -> list[PackageIndex]:
    """The indexes of a root by name; none when none was added.

    Raises:
        PackageIndexError: ``index_damaged``: what is kept of one cannot be read.
    """
    found = sorted((root_dir / _FOLDER).glob(f"[!.]*/{CONFIG}"))
    return [PackageIndex.open(config.parent, limits) for config in found]


def remove_index(root_dir: Path, name: str, lock_timeout_s: float) -> None:
    """Forgets an index, a damaged one too; packages that came from it stay.

    Args:
        lock_timeout_s: seconds to wait for a refresh of it.

    Raises:
        PackageIndexError: ``index_not_added``, ``index_damaged``, ``busy``.
    """
    IndexState(index_directory(root_dir, name)).remove(lock_timeout_s)


def find_in_indexes(
    root_dir: Path,
    package_id: str,
    version: str | None = None,
    *,
    into: Path,
    index: str | None = None,
    limits: IndexLimits | None = None,
    archive_limits: ArchiveLimits | None = None,
) -> Fetched:
    """Fetches a package from the one index that has it, after refreshing all of them.

    When two indexes have different archives of it, none is better: the caller has to name one.
    Id and version are those that were asked for; whose signature counts is still to be checked,
    by the root's trust.

    Args:
        root_dir: the root's directory.
        version: ``None`` for the newest one that is no pre-release.
        into: directory for the files; they are gone again when an error is raised.
        index: only this one.
        limits: those of the root's settings when left out; ``archive_limits`` likewise.

    Raises:
        ArchiveError, ManifestError: the index signed what is no package, or another one.
        PackageIndexError: ``index_not_added``, ``package_not_in_index``, ``package_in_several``,
            or as :meth:`PackageIndex.fetch`; an index that cannot be refreshed is one of them,
            as it might have the package. ``index_mixed``: the archive holds another version.
    """
    if limits is None or archive_limits is None:
        settings = load_settings(root_dir / "remit.toml").settings.packages
        limits = limits or IndexLimits.from_settings(settings)
        archive_limits = archive_limits or ArchiveLimits.from_settings(settings)
    chosen, found = _having(root_dir, package_id, version, index, limits)
    fetched = chosen.fetch(package_id, found.version, into)
    try:
        with fetched.archive.open("rb") as file:
            manifest = read_archive(file, archive_limits, expected_id=package_id).manifest
        if manifest.version != found.version:
            raise PackageIndexError(
                "index_mixed",
                f"The index {chosen.name} lists {package_id} {manifest.version} as "
                f"{found.version}.",
                next_step="Tell who publishes it; nothing was installed.",
            )
    except PackageError:
        for came in (fetched.archive, fetched.envelope):
            if came is not None:
                came.unlink()
        raise
    return fetched


def _having(
    root_dir: Path, package_id: str, version: str | None, index: str | None, limits: IndexLimits
) -> tuple[PackageIndex, Listed]:
    if index is not None:
        indexes = [PackageIndex.open(index_directory(root_dir, index), limits)]
    else:
        indexes = open_indexes(root_dir, limits)
    if not indexes:
        raise PackageIndexError(
            "index_not_added",
            f"{package_id} can be looked up nowhere: this root has no package index.",
            next_step="`remit package index add` adds one; or install from a file.",
        )
    having = [(one, found) for one in indexes if (found := one.find(package_id, version))]
    if not having:
        wanted = package_id if version is None else f"{package_id} {version}"
        raise PackageIndexError(
            "package_not_in_index",
            f"{wanted} is in none of the indexes ({', '.join(one.name for one in indexes)}).",
            next_step="`remit package index search` shows what they have.",
        )
    if len({found.digest for _, found in having}) > 1:
        told = ", ".join(f"{one.name} ({found.version})" for one, found in having)
        raise PackageIndexError(
            "package_in_several",
            f"Several indexes have a different {package_id}: {told}.",
            next_step="Say which you mean, with --index NAME.",
        )
    return having[0]
