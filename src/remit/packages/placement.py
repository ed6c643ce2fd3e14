"""Where a package's files may go: its own plane and lower, no one else's place."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from remit.kernel.canonical import sha256_hex
from remit.packages.archive import Archive
from remit.packages.errors import PackageError
from remit.packages.files import check_folders, holds
from remit.packages.manifest import Manifest
from remit.packages.paths import folded
from remit.packages.registry import Registry

PLANES = {"hot": ("HOT/", "HO2/", "HO1/"), "ho2": ("HO2/", "HO1/"), "ho1": ("HO1/",)}


def is_in_plane(manifest: Manifest, path: str) -> bool:
    """Return True if a package's plane lets it own a file.

    The specification and the acceptance cases of every package are files of the kernel, which
    checks the package by them.
    """
    own = (f"HOT/specs/{manifest.spec_id}.json", f"HOT/acceptance/{manifest.package_id}.json")
    return path in own or path.startswith(PLANES[manifest.plane_id])


"""By plane, the folders in which its packages may own files."""

RESERVED = ("HOT/installed/", "HOT/registries/", "HOT/keys/")
"""Folders that no package owns files in."""


def check_placement(
    archive: Archive, root: Path, others: Registry, own: Collection[str], ledger_path: str
) -> None:
    """Make sure that the package's files may be where it says.

    Args:
        archive: the package.
        root: the root's directory.
        others: what is installed, without the version that this one replaces.
        own: paths that the replaced versions own.
        ledger_path: the ledger's file, relative to the root or absolute, or its URL.
    """
    manifest = archive.manifest
    files = {folded(path): path for path in others.owners}
    folders = {
        folded(str(folder)): path
        for path in others.owners
        for folder in PurePosixPath(path).parents
    }
    ledger = os.path.relpath(root / ledger_path, root)
    reserved = tuple(map(folded, (*RESERVED, ledger)))
    for path, data in archive.files.items():
        who = f"{manifest.package_id} may not own {path}"
        key = folded(path)
        if f"{key}/".startswith(reserved):
            raise PackageError(
                "reserved_path",
                f"{who}: that is a place of Remit itself.",
                next_step="Give the file another path.",
            )
        if not is_in_plane(manifest, path):
            raise PackageError(
                "plane_path",
                f"{who}: a package of plane {manifest.plane_id} owns files in "
                f"{', '.join(PLANES[manifest.plane_id])}, its specification and its acceptance "
                "cases only.",
                next_step="Give the package another plane_id, or the file another path.",
            )
        above = (files.get(str(folder)) for folder in PurePosixPath(key).parents)
        clash = files.get(key) or folders.get(key) or next(filter(None, above), None)
        if clash is not None:
            raise PackageError(
                "owned_by_other",
                f"{who}: {others.owners[clash].package_id} owns {clash}.",
                next_step="Depending on a package does not give its files away: use another path, "
                "or bring the change in a new version of that package.",
            )
        check_folders(root, path)
        there = os.path.lexists(root / path) and path not in own
        if there and not holds(root / path, f"sha256:{sha256_hex(data)}"):
            raise PackageError(
                "file_in_the_way",
                f"{root / path} is there already, belongs to no package, and is not what would be "
                "installed.",
                next_step="Move it away, or bring it in a package of its own.",
            )
