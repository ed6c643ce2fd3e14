"""Packages, their specifications and frameworks, and what these declare."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import PurePosixPath

from remit.packages.checks.files import Check, Finding
from remit.packages.checks.permissions import check_agents, check_contracts
from remit.packages.checks.view import RULES, SHAPES, PackageView
from remit.packages.dependencies import dependency_order, dependency_problems
from remit.packages.errors import PackageError
from remit.packages.paths import PLANES, is_in_plane
from remit.packages.permissions import allows_path
from remit.packages.registry import Registry

__all__ = [
    "check_completeness",
    "check_dependencies",
    "check_installed",
    "check_places",
    "check_resolution",
]

_INSTALL = "Install the package that brings it."
_NAMED = {
    "HO1/contracts/": "contract",
    "HO1/prompt_packs/": "prompt pack",
    "HO2/agents/": "agent",
}


def check_installed(registry: Registry) -> Iterator[Finding]:
    """There are packages: no gate passes because nothing is there."""
    if not registry.packages:
        yield Finding("No package is installed.", "Run `remit init`.")


def check_resolution(view: PackageView) -> Check:
    """G1: each package names a specification and a framework that are there, valid, and agree; what
    shapes agents has one owner: every version of a contract, every file of a pack or agent.
    """
    found = view.documents
    yield from found.wrong(*RULES)
    for package_id, package in view.registry.packages.items():
        manifest = package.manifest
        for name in (manifest.spec_id, manifest.framework_id):
            if name not in found.specs and name not in found.frameworks:
                problem = f"{package_id} belongs to {name}, whose document is not installed."
                yield Finding(problem, _INSTALL)
        spec = found.specs.get(manifest.spec_id)
        if spec is not None and spec.framework_id != manifest.framework_id:
            problem = (
                f"{package_id} belongs to {manifest.framework_id}, but its specification "
                f"{spec.spec_id} to {spec.framework_id}."
            )
            fix = f"Name {spec.framework_id} in its manifest, or another specification."
            yield Finding(problem, fix)
    for spec in found.specs.values():
        if spec.framework_id not in found.frameworks:
            problem = f"{spec.spec_id} belongs to {spec.framework_id}, whose document is not "
            yield Finding(f"{problem}installed.", _INSTALL)
    yield from _brought_twice(view.registry)
    return (
        f"{len(view.registry.packages)} packages, each with its specification "
        f"({len(found.specs)}) and framework ({len(found.frameworks)})"
    )


def check_completeness(view: PackageView) -> Check:
    """G1-COMPLETE: frameworks have their specifications, and these what they declare.

    Every contract, pack, schema and agent can be used, whether a specification declares it or
    not; agents and contracts keep to what their package is permitted; files are where their
    package's plane and framework allow.
    """
    found = view.documents
    yield from found.wrong(*RULES, *SHAPES)
    for framework_id, framework in found.frameworks.items():
        for spec_id in framework.expected_specs:
            expected = found.specs.get(spec_id)
            if expected is None:
                problem = f"{framework_id} expects {spec_id}, which is not installed."
                yield Finding(problem, _INSTALL)
            elif expected.framework_id != framework_id:
                problem = f"{framework_id} expects {spec_id}, which says that it belongs to "
                yield Finding(f"{problem}{expected.framework_id}.", "Let both say the same.")
    for spec in found.specs.values():
        declared: list[tuple[str, Collection[str], Collection[str]]] = [
            ("contract", spec.contracts, found.contracts),
            ("tool", spec.tools, view.tool_ids),
            ("schema", spec.schemas, found.schemas),
            ("agent", spec.agents, found.agents),
        ]
        for kind, names, there in declared:
            for name in names:
                if name not in there:
                    problem = f"{spec.spec_id} declares the {kind} {name}, which is not there, or "
                    fix = _INSTALL if kind != "tool" else "Correct its name in the specification."
                    yield Finding(f"{problem}cannot be used.", fix)
    yield from check_agents(view)
    yield from check_contracts(view)
    yield from check_places(view)
    return (
        f"{len(found.frameworks)} frameworks have their specifications ({len(found.specs)}), and "
        f"these what they declare: {len(found.contracts)} contracts, {len(found.schemas)} "
        f"schemas, {len(found.agents)} agents usable"
    )


def check_places(view: PackageView) -> Iterator[Finding]:
    """Files are where the plane of their package and its framework's rules allow.

    A framework that cannot be used is a finding of G1, and not again here.
    """
    for package_id, package in view.registry.packages.items():
        plane_id, framework = package.manifest.plane_id, view.framework_of(package_id)
        for asset in package.manifest.assets:
            if not is_in_plane(package.manifest, asset.path):
                problem = (
                    f"{package_id}, of the plane {plane_id}, owns {asset.path}; it may own files "
                    f"below {', '.join(PLANES[plane_id])}, its specification and its acceptance "
                    "cases."
                )
                yield Finding(problem, "Move the file, or give the package another plane.")
            if framework is not None and not allows_path(framework.paths, asset.path):
                problem = (
                    f"{package_id} owns {asset.path}, where {framework.framework_id} lets its "
                    f"packages own nothing; it allows {', '.join(framework.paths) or 'no place'}."
                )
                yield Finding(problem, "Move the file, or choose another specification.")


def check_dependencies(registry: Registry) -> Iterator[Finding]:
    """Yield unmet dependencies, superseded packages that are installed, and circles (gate G3)."""
    manifests = {name: package.manifest for name, package in registry.packages.items()}
    for code, package_id, other_id, problem in dependency_problems(manifests):
        fix = f"Install a version of it that fits, or `remit package remove {package_id}`."
        if code == "superseded":
            fix = f"Run `remit package remove {other_id}`."
        yield Finding(problem, fix)
    try:
        dependency_order(manifests)
    except PackageError as error:
        yield Finding.of(error)


def _brought_twice(registry: Registry) -> Iterator[Finding]:
    """Ids that two packages bring. By the files' names, as that is how they are looked up.

    A learned package brings further versions of others' contracts: that is what it is for.
    """
    owners: dict[tuple[str, str], str] = {}
    reported: set[tuple[str, str, str]] = set()
    # Who came first has it; what is about to be installed has no entry yet.
    for package_id, package in sorted(
        registry.packages.items(), key=lambda item: (not item[1].entry_id, item[1].entry_id)
    ):
        for asset in package.manifest.assets:
            kind = next((kind for at, kind in _NAMED.items() if asset.path.startswith(at)), "")
            if kind == "contract" and package.manifest.learned:
                continue
            name = PurePosixPath(asset.path).stem.partition("@")[0]
            owner = owners.setdefault((kind, name), package_id) if kind else package_id
            if owner != package_id and (kind, name, package_id) not in reported:
                reported.add((kind, name, package_id))
                yield Finding(
                    f"The {kind} {name} is of {owner}; {package_id} brings it too.",
                    f"Give it another id in {package_id}; a change of it comes in a new version "
                    f"of {owner}.",
                )
