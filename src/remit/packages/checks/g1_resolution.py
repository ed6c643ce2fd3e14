"""Checks of packages against their specifications, frameworks and dependencies."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import PurePosixPath

from remit.packages.checks.package_view import RULES, SHAPES, PackageView
from remit.packages.checks.permissions import check_agents, check_contracts
from remit.packages.checks.root_disk import Check, Finding
from remit.packages.dependencies import dependency_order, dependency_problems
from remit.packages.errors import PackageError
from remit.packages.paths import PLANES, is_in_plane
from remit.packages.permissions import allows_path
from remit.packages.registry import Registry

_INSTALL = "Install the package that contains it."
_DOCUMENTS = {
    "HO1/contracts/": "contract",
    "HO1/prompt_packs/": "prompt pack",
    "HO2/agents/": "agent",
}


def check_installed(registry: Registry) -> Iterator[Finding]:
    """Yield a finding if no package is installed, so that no gate passes on an empty root.

    Args:
        registry: the installed packages.
    """
    if not registry.packages:
        yield Finding("No package is installed.", "Run `remit init`.")


def check_resolution(view: PackageView) -> Check:
    """Check that packages name valid specifications and frameworks that agree (gate G1).

    Yields a finding for a specification or framework that is not installed or cannot be used, for a
    package and a specification that name different frameworks, and for a contract, prompt pack or
    agent whose file name occurs in two packages. A learned package may bring further versions of a
    contract. No error is raised.

    Args:
        view: the packages.

    Returns:
        One line with the number of packages, specifications and frameworks.
    """
    yield from view.wrong(*RULES)
    for package_id, package in view.registry.packages.items():
        manifest = package.manifest
        for name in (manifest.spec_id, manifest.framework_id):
            if name not in view.specs and name not in view.frameworks:
                problem = f"{package_id} belongs to {name}, whose document is not installed."
                yield Finding(problem, _INSTALL)
        spec = view.specs.get(manifest.spec_id)
        if spec is not None and spec.framework_id != manifest.framework_id:
            problem = (
                f"{package_id} belongs to {manifest.framework_id}, but its specification "
                f"{spec.spec_id} to {spec.framework_id}."
            )
            fix = (
                f"Name {spec.framework_id} in the manifest of the package, or choose another "
                "specification."
            )
            yield Finding(problem, fix)
    for spec in view.specs.values():
        if spec.framework_id not in view.frameworks:
            problem = f"{spec.spec_id} belongs to {spec.framework_id}, whose document is not "
            yield Finding(f"{problem}installed.", _INSTALL)
    yield from _check_unique(view.registry)
    return (
        f"{len(view.registry.packages)} packages, each with its specification "
        f"({len(view.specs)}) and framework ({len(view.frameworks)})"
    )


def check_completeness(view: PackageView) -> Check:
    """Check that everything declared is installed and usable (gate G1-COMPLETE).

    Frameworks need their expected specifications; specifications need their contracts, tools,
    schemas and agents; agents need their contract and tools. Agents and contracts must keep to the
    permissions of their package, and files to the paths of their package's plane and framework.
    Yields a finding for each fault, and for each file that cannot be used. No error is raised.

    Args:
        view: the packages.

    Returns:
        One line with the number of frameworks, specifications, contracts, schemas and agents.
    """
    yield from view.wrong(*RULES, *SHAPES)
    for framework_id, framework in view.frameworks.items():
        for spec_id in framework.expected_specs:
            expected = view.specs.get(spec_id)
            if expected is None:
                problem = f"{framework_id} expects {spec_id}, which is not installed."
                yield Finding(problem, _INSTALL)
            elif expected.framework_id != framework_id:
                problem = f"{framework_id} expects {spec_id}, which belongs to "
                yield Finding(f"{problem}{expected.framework_id}.", "Make both agree.")
    for spec in view.specs.values():
        declared: list[tuple[str, Collection[str], Collection[str]]] = [
            ("contract", spec.contracts, view.contracts),
            ("tool", spec.tools, view.tool_ids),
            ("schema", spec.schemas, view.schemas),
            ("agent", spec.agents, view.agents),
        ]
        for kind, names, usable in declared:
            for name in names:
                if name not in usable:
                    problem = f"{spec.spec_id} declares the {kind} {name}, which is missing or "
                    fix = _INSTALL if kind != "tool" else "Correct the name in the specification."
                    yield Finding(f"{problem}cannot be used.", fix)
    yield from check_agents(view)
    yield from check_contracts(view)
    yield from check_places(view)
    return (
        f"{len(view.frameworks)} frameworks have their specifications ({len(view.specs)}), with "
        f"all declared parts: {len(view.contracts)} contracts, {len(view.schemas)} "
        f"schemas, {len(view.agents)} agents usable"
    )


def check_places(view: PackageView) -> Iterator[Finding]:
    """Yield files outside of the paths that the plane and framework of their package allow.

    A file that neither of them allows gives two findings. A framework that cannot be used is a
    finding of G1 and is not reported here.

    Args:
        view: the packages.
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
                    f"{package_id} owns {asset.path}, which {framework.framework_id} does not "
                    f"allow; it allows {', '.join(framework.paths) or 'no path'}."
                )
                yield Finding(problem, "Move the file, or choose another specification.")


def check_dependencies(registry: Registry) -> Iterator[Finding]:
    """Yield unmet dependencies, superseded packages that are installed, and circles (gate G3).

    A circle is a group of packages that need each other. Only the first circle is reported, after
    the other findings.

    Args:
        registry: the installed packages.
    """
    manifests = {name: package.manifest for name, package in registry.packages.items()}
    for package_id, other_id, error in dependency_problems(manifests):
        fix = f"Install a compatible version of it, or `remit package remove {package_id}`."
        if error.code == "superseded":
            fix = f"Run `remit package remove {other_id}`."
        yield Finding(error.message, fix)
    try:
        dependency_order(manifests)
    except PackageError as error:
        yield Finding.of(error)


def _check_unique(registry: Registry) -> Iterator[Finding]:
    """Yield contracts, prompt packs and agents that two packages bring.

    Documents are compared by file name, because Remit looks them up by name.
    """
    owners: dict[tuple[str, str], str] = {}
    reported: set[tuple[str, str, str]] = set()
    # The package installed first owns a document; a package without an entry is about to come.
    for package_id, package in sorted(
        registry.packages.items(), key=lambda item: (not item[1].entry_id, item[1].entry_id)
    ):
        for asset in package.manifest.assets:
            kind = next((kind for at, kind in _DOCUMENTS.items() if asset.path.startswith(at)), "")
            if kind == "contract" and package.manifest.learned:
                continue
            name = PurePosixPath(asset.path).stem.partition("@")[0]
            owner = owners.setdefault((kind, name), package_id) if kind else package_id
            if owner != package_id and (kind, name, package_id) not in reported:
                reported.add((kind, name, package_id))
                yield Finding(
                    f"The {kind} {name} belongs to {owner}, but {package_id} contains it too.",
                    f"Choose another id in {package_id}, or change the original in a new version "
                    f"of {owner}.",
                )
