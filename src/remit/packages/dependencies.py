"""Which packages need which, and in what order they come."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from remit.packages.errors import PackageError
from remit.packages.manifest import Manifest
from remit.packages.versions import in_range


def in_order(
    incoming: Sequence[Manifest], installed: Mapping[str, Manifest], leaving: Collection[str] = ()
) -> list[str]:
    """The ids of the packages that come, each after those that it needs.

    Args:
        incoming: what is to be installed together.
        installed: by id, what is installed now.
        leaving: ids of what is removed in the same operation.

    Raises:
        PackageError: ``missing_dependency``, ``dependency_version``, ``dependency_cycle``,
            ``needed`` (something that stays needs what goes, or another version of what comes),
            ``superseded`` or ``supersedes_installed``.
    """
    new = {manifest.package_id: manifest for manifest in incoming}
    after = {name: one for name, one in installed.items() if name not in leaving} | new
    for manifest in incoming:
        for other in after.values():
            if manifest.package_id in other.supersedes:
                raise PackageError(
                    "superseded",
                    f"{manifest.package_id} is superseded by {other.package_id}, which is "
                    "installed or comes with it.",
                    next_step=f"Use {other.package_id}.",
                )
        if taken := [name for name in manifest.supersedes if name in after]:
            raise PackageError(
                "supersedes_installed",
                f"{manifest.package_id} supersedes {taken[0]}, which is installed.",
                next_step=f"Run `remit package remove {taken[0]}` first.",
            )
    for manifest in after.values():
        for code, problem in unmet(manifest, after):
            if manifest.package_id in new:
                next_step = "Install what it needs first, or both together."
                raise PackageError(code, problem, next_step=next_step)
            next_step = f"Upgrade or `remit package remove {manifest.package_id}` first."
            raise PackageError("needed", problem, next_step=next_step)
    sorter = TopologicalSorter(
        {
            name: {need.package_id for need in manifest.dependencies}
            for name, manifest in after.items()
        }
    )
    try:
        sorter.prepare()
    except CycleError as error:
        raise PackageError(
            "dependency_cycle",
            f"The packages need each other in a circle: {' needs '.join(error.args[1][::-1])}.",
            next_step="Take one of these dependencies out.",
        ) from error
    ordered: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())  # one order on any machine
        ordered += ready
        sorter.done(*ready)
    return [name for name in ordered if name in new]


def unmet(manifest: Manifest, installed: Mapping[str, Manifest]) -> list[tuple[str, str]]:
    """Code and sentence for each dependency that what is installed does not meet."""
    found = []
    for need in manifest.dependencies:
        problem = f"{manifest.package_id} {manifest.version} needs {need.package_id} {need.version}"
        other = installed.get(need.package_id)
        if other is None:
            found.append(("missing_dependency", f"{problem}, which is not installed."))
        elif not in_range(other.version, need.version):
            found.append(("dependency_version", f"{problem}, not {other.version}."))
    return found
