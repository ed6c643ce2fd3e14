"""All indexes of a root together."""

from __future__ import annotations

from pathlib import Path

from remit.kernel.settings import PackageSettings, load_settings
from remit.packages.archive import ArchiveLimits, read_archive
from remit.packages.errors import PackageError, PackageIndexError
from remit.packages.index.client import CONFIG, Fetched, PackageIndex, not_added, not_in_index
from remit.packages.index.files import LOCK, drafted, index_directory, locked
from remit.packages.index.listing import Listed

__all__ = ["find_in_indexes", "open_indexes", "remove_index"]


def open_indexes(root_dir: Path, settings: PackageSettings) -> list[PackageIndex]:
    """The indexes of a root by name; empty when none was added.

    Raises:
        PackageIndexError: ``index_damaged``: what is kept of one cannot be read.
    """
    found = sorted((root_dir / "indexes").glob(f"[!.]*/{CONFIG}"))
    return [PackageIndex.open(root_dir, config.parent.name, settings) for config in found]


def remove_index(root_dir: Path, name: str, lock_timeout_s: float) -> None:
    """Forgets an index, a damaged one too; packages that came from it stay.

    Args:
        lock_timeout_s: seconds to wait for a refresh of it.

    Raises:
        PackageIndexError: ``index_not_added``, ``index_damaged``, ``busy``.
    """
    directory = index_directory(root_dir, name)
    with drafted(directory, lock_timeout_s) as draft:
        if not directory.is_dir():
            raise not_added(name)
        with locked(directory / LOCK, lock_timeout_s):
            directory.rename(draft)  # in one step, so that no half of it is ever used


def find_in_indexes(
    root_dir: Path,
    package_id: str,
    version: str | None = None,
    *,
    into: Path,
    index: str | None = None,
    settings: PackageSettings | None = None,
) -> Fetched:
    """Fetches a package from the one index that has it, after refreshing all of them.

    When two indexes have different archives of it, neither is preferred: the caller has to name
    one. The archive's id and version are checked; whether its signature counts is still to be
    checked, by the root's trust.

    Args:
        root_dir: the root's directory.
        version: ``None`` for the newest one that is no pre-release.
        into: directory for the files; they are deleted when an error is raised.
        index: only this one.
        settings: those of the root when left out.

    Raises:
        ArchiveError, ManifestError: the index signed what is no package, or another one.
        PackageIndexError: ``index_not_added``, ``package_not_in_index``, ``package_in_several``,
            or as :meth:`PackageIndex.fetch`; an index that cannot be refreshed raises, as it
            might have the package. ``index_mixed``: the archive holds another version.
    """
    settings = settings or load_settings(root_dir / "remit.toml").settings.packages
    if index is not None:
        indexes = [PackageIndex.open(root_dir, index, settings)]
    else:
        indexes = open_indexes(root_dir, settings)
    chosen, found = _choose(indexes, package_id, version)
    fetched = chosen.fetch(package_id, found.version, into)
    try:
        with fetched.archive.open("rb") as file:
            archive = read_archive(
                file, ArchiveLimits.from_settings(settings), expected_id=package_id
            )
        if archive.manifest.version != found.version:
            raise PackageIndexError(
                "index_mixed",
                f"The index {chosen.name} lists {package_id} {archive.manifest.version} as "
                f"{found.version}.",
                next_step="Report it to who publishes the index; nothing was installed.",
            )
    except PackageError:
        for file_ in (fetched.archive, fetched.envelope):
            if file_ is not None:
                file_.unlink()
        raise
    return fetched


def _choose(
    indexes: list[PackageIndex], package_id: str, version: str | None
) -> tuple[PackageIndex, Listed]:
    if not indexes:
        raise PackageIndexError(
            "index_not_added",
            f"There is no file {package_id}, and this root has no package index to search for it.",
            next_step="`remit package index add` adds one; or install from a file.",
        )
    having = [(index, found) for index in indexes if (found := index.find(package_id, version))]
    if not having:
        wanted = package_id if version is None else f"{package_id} {version}"
        names = ", ".join(index.name for index in indexes)
        raise not_in_index(f"{wanted} is in none of the indexes ({names}).")
    if len({found.digest for _, found in having}) > 1:
        which = ", ".join(f"{index.name} ({found.version})" for index, found in having)
        raise PackageIndexError(
            "package_in_several",
            f"Several indexes have a different {package_id}: {which}.",
            next_step="Say which you mean, with --index NAME.",
        )
    return having[0]
