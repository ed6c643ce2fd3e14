"""Which packages need which, and in what order they come (SPEC 10)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from remit.packages.errors import PackageError
from remit.packages.manifest import Manifest
from remit.packages.versions import in_range

__all__ = ["in_order", "unmet"]


def in_order(
    incoming: Sequence[Manifest], there: Mapping[str, Manifest], leaving: Collection[str] = ()
) -> list[Manifest]:
    """The packages that come, each after those that it needs.

    Args:
        incoming: what is to be installed together.
        there: by id, what is installed now.
        leaving: ids of what is taken away in the same operation.

    Raises:
        PackageError: ``missing_dependency``, ``dependency_version``, ``dependency_cycle``,
            ``needed`` (something that stays needs what goes, or another version of what comes)
            or ``superseded``.
    """
    new = {one.package_id: one for one in incoming}
    after = {name: one for name, one in there.items() if name not in leaving} | new
    for manifest in incoming:
        for other in after.values():
            if manifest.package_id in other.supersedes:
                raise PackageError(
                    "superseded",
                    f"{manifest.package_id} is superseded by {other.package_id}, which is "
                    "installed or comes with it.",
                    next_step=f"Use {other.package_id}.",
                )
        if taken := [one for one in manifest.supersedes if one in after]:
            raise PackageError(
                "supersedes_installed",
                f"{manifest.package_id} supersedes {taken[0]}, which is installed.",
                next_step=f"Run `remit package remove {taken[0]}` first.",
            )
    for manifest in after.values():
        for code, problem in unmet(manifest, after):
            mine = manifest.package_id in new
            raise PackageError(
                code if mine else "needed",
                problem,
                next_step="Install what it needs first, or both together."
                if mine
                else f"Remove or upgrade {manifest.package_id} first.",
            )
    graph = {
        name: {one.package_id for one in manifest.dependencies}
        for name, manifest in sorted(after.items())
    }
    try:
        return [new[name] for name in TopologicalSorter(graph).static_order() if name in new]
    except CycleError as error:
        raise PackageError(
            "dependency_cycle",
            f"The packages need each other in a circle: {' needs '.join(error.args[1][::-1])}.",
            next_step="Take one of these dependencies out.",
        ) from error


def unmet(manifest: Manifest, there: Mapping[str, Manifest]) -> list[tuple[str, str]]:
    """Code and sentence for each dependency that what is there does not meet."""
    found = []
    for need in manifest.dependencies:
        who = f"{manifest.package_id} {manifest.version}"
        if need.package_id not in there:
            found.append(
                (
                    "missing_dependency",
                    f"{who} needs {need.package_id} {need.version}, which is not installed.",
                )
            )
        elif not in_range(there[need.package_id].version, need.version):
            version = there[need.package_id].version
            found.append(
                (
                    "dependency_version",
                    f"{who} needs {need.package_id} {need.version}, not {version}.",
                )
            )
    return found
