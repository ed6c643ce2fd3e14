"""The checks that an operation must pass before it changes anything."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path, PurePosixPath

from remit.kernel.installed_files import digest_of
from remit.packages.archive import Archive
from remit.packages.checks import (
    Finding,
    PackageView,
    RootDisk,
    check_acceptance,
    check_ceilings,
    check_completeness,
    check_installed,
    check_ownership,
    check_places,
    check_registries,
    check_resolution,
)
from remit.packages.errors import PackageError
from remit.packages.journal import check_folders, has_digest
from remit.packages.paths import PLANES, RESERVED, folded, is_in_plane
from remit.packages.registry import REGISTRY_FOLDER, Registry
from remit.providers.prices import PriceTable

_PRICES = "HOT/prices/prices.toml"


def check_placement(
    archive: Archive, root: Path, others: Registry, own: Collection[str], ledger_path: str
) -> None:
    """Check that every file of a package may be written at its path; nothing is written.

    Args:
        archive: the package.
        root: the root's directory.
        others: the installed packages without the versions that the operation replaces.
        own: paths that the replaced versions own.
        ledger_path: the ledger's file, relative to the root or absolute, or its URL.

    Raises:
        PackageError: ``reserved_path``: in a folder of Remit itself, or the name begins with that
            of the ledger's file; ``plane_path``: outside of the package's plane;
            ``owned_by_other``: another package owns the path, a path that differs only in case, or
            a file above or below it; ``linked_folder``: a part above the path is a link or file;
            ``file_in_the_way``: the root contains something else there that no package owns.
        OSError: a part of the root cannot be examined.
    """
    manifest = archive.manifest
    files = {folded(path): path for path in others.owners}
    folders = {
        folded(str(folder)): path
        for path in others.owners
        for folder in PurePosixPath(path).parents
    }
    reserved = tuple(map(folded, (*RESERVED, os.path.relpath(root / ledger_path, root))))
    for path, data in archive.files.items():
        who = f"{manifest.package_id} may not own {path}"
        key = folded(path)
        if f"{key}/".startswith(reserved):
            raise PackageError(
                "reserved_path",
                f"{who}: the path is reserved for Remit.",
                next_step="Move the file to another path.",
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
                next_step="A dependency on a package does not allow changing its files: use "
                "another path, or make the change in a new version of that package.",
            )
        check_folders(root, path)
        exists = os.path.lexists(root / path) and path not in own
        if exists and not has_digest(root / path, digest_of(data)):
            raise PackageError(
                "file_in_the_way",
                f"{root / path} exists, belongs to no package, and differs from the file to be "
                "installed.",
                next_step="Move the file away, or put it into a package of its own.",
            )


def check_before(registry: Registry, disk: RootDisk, changing: Collection[str] = ()) -> None:
    """Check that no installed file or registry was changed (gate G0B).

    Nothing is checked if no package is installed. Registries are not compared in a root without any
    file, as after an import of its ledger.

    Args:
        registry: the installed packages.
        disk: the root's files.
        changing: paths of files that the operation adds or removes; :func:`check_placement` has
            checked them. Such a file may be missing or without an owner, but not changed.

    Raises:
        PackageError: ``gate_failed``: a file is missing, changed, without an owner, with two owners
            or in a reserved folder, or a registry differs from the ledger or is unknown to it; the
            message names the first fault. ``unreadable_file``: a folder cannot be listed.
        OSError: the root cannot be opened.
    """
    if registry.packages:
        _require("G0B", check_ownership(registry, disk, changing))
        # A root whose ledger was imported has neither registries nor files yet.
        if disk.names(REGISTRY_FOLDER) or any(disk.walk()):
            _require("G0B", check_registries(registry, disk))


def check_after(
    after: Registry, files: RootDisk, tool_ids: Collection[str], routes: Collection[str]
) -> None:
    """Check that the planned state of a root passes the gates; nothing is written.

    The gates are G1, G1-COMPLETE, the permissions' ceilings of G3, and G4 if packages bring
    contracts or acceptance cases. G4 takes the planned file of prices, or the shipped prices if no
    package owns that file. A state without packages fails G1.

    Args:
        after: the packages as the operation would leave them.
        files: the root's files as the operation would leave them.
        tool_ids: ids of all existing tools.
        routes: names of routes, which agents may name instead of a model.

    Raises:
        PackageError: ``gate_failed``: a gate does not pass; the message names the first fault.
            ``unsafe_file`` or ``unreadable_file``: the file of prices cannot be read.
        RemitError: the file of prices has a wrong key.
        OSError: the root cannot be opened, or the file of prices does not exist.
    """
    _require("G1", check_installed(after))
    view = PackageView(after, files, tool_ids, routes)
    _require("G1", check_resolution(view))
    _require("G1-COMPLETE", check_places(view))
    _require("G3", check_ceilings(view))
    _require("G1-COMPLETE", check_completeness(view))
    if any(after.by_classification(kind) for kind in ("contract", "acceptance")):
        prices = PriceTable.shipped()
        if _PRICES in after.owners:
            prices = PriceTable.from_bytes(files.read(_PRICES), _PRICES)
        _require("G4", check_acceptance(view, prices))


def _require(gate: str, findings: Iterable[Finding]) -> None:
    if found := list(findings):
        first, more = found[0], len(found) - 1
        raise PackageError(
            "gate_failed",
            f"Gate {gate} fails: {first.message}" + (f" (and {more} more)" if more else ""),
            next_step=first.next_step,
        )
