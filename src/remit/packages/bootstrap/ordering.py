"""In what order packages are installed: discovered from what they need."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from remit.packages import ArchiveLimits, Manifest, read_archive
from remit.packages.bootstrap.errors import BootstrapError
from remit.packages.dependencies import in_order

__all__ = ["Bundled", "in_install_order"]


@dataclass(frozen=True, slots=True)
class Bundled:
    """A package's archive.

    Attributes:
        archive: its file name.
        data: its bytes.
    """

    archive: str
    manifest: Manifest
    data: bytes


def in_install_order(archives: Mapping[str, bytes], limits: ArchiveLimits) -> list[Bundled]:
    """The packages, each after those that it needs; the same order on any machine.

    Args:
        archives: content by file name.
        limits: what reading one may cost.

    Raises:
        BootstrapError: there is none, or a package is there twice.
        PackageError: one is not a package, or they do not have what they need of each other.
    """
    found: dict[str, Bundled] = {}
    for name, data in sorted(archives.items()):
        manifest = read_archive(io.BytesIO(data), limits).manifest
        if manifest.package_id in found:
            raise BootstrapError(
                f"{found[manifest.package_id].archive} and {name} are both of "
                f"{manifest.package_id}.",
                next_step="Keep one of them.",
            )
        found[manifest.package_id] = Bundled(name, manifest, data)
    if not found:
        raise BootstrapError(
            "There are no packages, so there is nothing to install.",
            next_step="Packages are files *.tar.gz; unpack CP_BOOTSTRAP.tar.gz anew.",
        )
    in_order([one.manifest for one in found.values()], {})  # nothing is missing, no circle
    depths: dict[str, int] = {}
    for package_id in found:
        _depth(package_id, found, depths)
    return sorted(found.values(), key=lambda one: (depths[_id(one)], _id(one)))


def _id(one: Bundled) -> str:
    return one.manifest.package_id


def _depth(package_id: str, found: Mapping[str, Bundled], depths: dict[str, int]) -> int:
    """How many packages at most stand one on another below this one."""
    if package_id not in depths:
        needs: Sequence[str] = [one.package_id for one in found[package_id].manifest.dependencies]
        depths[package_id] = 1 + max((_depth(one, found, depths) for one in needs), default=-1)
    return depths[package_id]
