"""Dependencies of packages: version ranges, unmet dependencies, and the order of installation."""

from __future__ import annotations

import operator
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from remit.contracts import precedence
from remit.packages.errors import PackageError
from remit.packages.manifest import Manifest

_COMPARATOR = re.compile(r"(==|>=|<=|>|<)(.*)")
_OPERATORS = {
    "==": operator.eq, ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt,
}  # fmt: skip


def in_range(version: str, allowed: str) -> bool:
    """Return True if a dependency's range allows ``version``.

    Args:
        version: a version of Semantic Versioning 2.0.0.
        allowed: comparators separated by commas, all of which must hold, such as
            ``>=1.0.0,<2.0.0``. Build metadata is ignored. A pre-release is allowed only if a
            comparator names a pre-release of the same three numbers: ``<2.0.0`` excludes
            ``2.0.0-rc.1``.

    Raises:
        ValueError: a version is malformed.
        AssertionError: ``allowed`` has another form, which no valid manifest states.
    """
    mine = precedence(version)
    allows_prerelease = not _is_prerelease(version)
    for comparator in allowed.split(","):
        found = _COMPARATOR.fullmatch(comparator)
        assert found is not None, "the manifest's schema accepts comparators only"
        sign, bound = found.groups()
        theirs = precedence(bound)
        if not _OPERATORS[sign](mine, theirs):
            return False
        allows_prerelease |= _is_prerelease(bound) and mine[:3] == theirs[:3]
    return allows_prerelease


def in_order(
    incoming: Sequence[Manifest], installed: Mapping[str, Manifest], leaving: Collection[str] = ()
) -> list[str]:
    """Return the ids of incoming packages, each after its dependencies.

    Problems that the installed packages had before are refused too, except that one supersedes
    another. The first problem is raised.

    Args:
        incoming: the packages to install together; each replaces an installed one with its id.
        installed: by id, the installed packages.
        leaving: ids of packages that the same operation removes.

    Raises:
        PackageError: ``missing_dependency``: a needed package is not installed;
            ``dependency_version``: it has a version outside the range; ``dependency_cycle``:
            packages need each other in a circle; ``needed``: a package that is not incoming would
            lack a dependency, such as a leaving package or another version of an incoming one;
            ``superseded``: an incoming package is superseded by an incoming or installed one;
            ``supersedes_installed``: an incoming package supersedes an installed one.
    """
    new = {manifest.package_id: manifest for manifest in incoming}
    after = {name: one for name, one in installed.items() if name not in leaving} | new
    for package_id, other_id, error in dependency_problems(after):
        code = error.code
        if code != "superseded":
            next_step = "Install the missing package first, or install both together."
            if package_id not in new:
                code, next_step = "needed", f"Upgrade or `remit package remove {package_id}` first."
        elif other_id in new:
            next_step = f"Use {package_id}."
        elif package_id in new:
            code = "supersedes_installed"
            next_step = f"Run `remit package remove {other_id}` first."
        else:
            continue
        raise PackageError(code, error.message, next_step=next_step)
    return [name for name in dependency_order(after) if name in new]


def dependency_problems(
    manifests: Mapping[str, Manifest],
) -> Iterator[tuple[str, str, PackageError]]:
    """Yield superseded packages first, then every unmet dependency of the packages.

    The errors are yielded, not raised. Circles are not looked for.

    Args:
        manifests: the manifests of all installed packages, by id.

    Yields:
        The id of the package that supersedes or needs the other, the other id, and the error:
        ``superseded``, ``missing_dependency`` or ``dependency_version``, without a next step.
    """
    for package_id, manifest in manifests.items():
        for other_id in manifest.supersedes:
            if other_id in manifests:
                message = f"{package_id} supersedes {other_id}; only one of them may be installed."
                yield package_id, other_id, PackageError("superseded", message)
    for package_id, manifest in manifests.items():
        for need in manifest.dependencies:
            message = f"{package_id} {manifest.version} needs {need.package_id} {need.version}"
            other = manifests.get(need.package_id)
            if other is None:
                code, message = "missing_dependency", f"{message}, which is not installed."
            elif not in_range(other.version, need.version):
                code, message = "dependency_version", f"{message}, not {other.version}."
            else:
                continue
            yield package_id, need.package_id, PackageError(code, message)


def dependency_order(manifests: Mapping[str, Manifest]) -> list[str]:
    """Return the ids of packages, each after its dependencies; the same order on any machine.

    Dependencies outside of ``manifests`` are part of the order too. Packages that do not depend on
    each other are sorted by id within their step.

    Args:
        manifests: manifests by package id.

    Raises:
        PackageError: ``dependency_cycle``: packages need each other in a circle.
    """
    sorter = TopologicalSorter(
        {
            name: {need.package_id for need in manifest.dependencies}
            for name, manifest in manifests.items()
        }
    )
    try:
        sorter.prepare()
    except CycleError as error:
        circle = " → ".join(reversed(error.args[1]))  # graphlib lists each before its dependents.
        raise PackageError(
            "dependency_cycle",
            f"These packages depend on each other in a circle: {circle}.",
            next_step="Omit one of these dependencies.",
        ) from error
    ordered: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        ordered += ready
        sorter.done(*ready)
    return ordered


def _is_prerelease(version: str) -> bool:
    return "-" in version.partition("+")[0]
