"""G1: from a package to its specification and its framework (SPEC 10)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from remit.packages.checks.files import Files
from remit.packages.checks.finding import Checked, Finding
from remit.packages.documents import Framework, Specification
from remit.packages.errors import PackageError
from remit.packages.registry import Registry

__all__ = ["Resolved", "check_resolution", "resolve"]

_INSTALL = "Install the package that brings it."
_NAMED = {
    "HO1/contracts/": "contract",
    "HO1/prompt_packs/": "prompt pack",
    "HO2/agents/": "agent",
}


@dataclass(slots=True)
class Resolved:
    """The specifications and frameworks that are installed and valid.

    Attributes:
        specs: by id.
        frameworks: by id.
        owners: by the id of either, the package that brought it.
        checked: what is wrong with their files.
    """

    specs: dict[str, Specification] = field(default_factory=dict)
    frameworks: dict[str, Framework] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    checked: Checked = field(default_factory=Checked)

    def framework_of(self, registry: Registry, package_id: str) -> Framework | None:
        """The framework of an installed package; ``None`` where it cannot be used."""
        return self.frameworks.get(registry.packages[package_id].manifest.framework_id)


def resolve(registry: Registry, files: Files) -> Resolved:
    """Read every installed specification and framework.

    Args:
        registry: what is installed.
        files: the governed files.
    """
    found = Resolved()
    for path, package_id, data in _documents(registry, files, "spec", found.checked):
        try:
            spec = Specification.parse(data, path)
        except PackageError as error:
            found.checked.findings.append(_invalid(error, package_id, path))
            continue
        if _is_new(found, spec.spec_id, package_id, path):
            found.specs[spec.spec_id] = spec
    for path, package_id, data in _documents(registry, files, "framework", found.checked):
        try:
            framework = Framework.parse(data, path)
        except PackageError as error:
            found.checked.findings.append(_invalid(error, package_id, path))
            continue
        if _is_new(found, framework.framework_id, package_id, path):
            found.frameworks[framework.framework_id] = framework
    return found


def check_resolution(registry: Registry, files: Files, found: Resolved | None = None) -> Checked:
    """Each package names a specification and a framework that are there, valid, and agree; what
    shapes agents has one owner: every version of a contract, every file of a pack or agent.

    Args:
        registry: what is installed; an empty one does not pass.
        files: the governed files.
        found: what :func:`resolve` gave, where the caller has it already.
    """
    found = found or resolve(registry, files)
    findings = list(found.checked.findings)
    if not registry.packages:
        findings.append(Finding("No package is installed.", "Run `remit init`."))
    for package_id, package in registry.packages.items():
        manifest = package.manifest
        spec = found.specs.get(manifest.spec_id)
        if spec is None:
            problem = (
                f"{package_id} belongs to {manifest.spec_id}, whose document is not installed."
            )
            findings.append(Finding(problem, _INSTALL, package_id))
        elif spec.framework_id != manifest.framework_id:
            problem = (
                f"{package_id} belongs to {manifest.framework_id}, but its specification "
                f"{spec.spec_id} to {spec.framework_id}."
            )
            fix = f"Name {spec.framework_id} in its manifest, or another specification."
            findings.append(Finding(problem, fix, package_id))
        if manifest.framework_id not in found.frameworks:
            problem = (
                f"{package_id} belongs to {manifest.framework_id}, whose document is not installed."
            )
            findings.append(Finding(problem, _INSTALL, package_id))
    for spec_id, spec in found.specs.items():
        if spec.framework_id not in found.frameworks:
            problem = f"{spec_id} belongs to {spec.framework_id}, whose document is not installed."
            findings.append(Finding(problem, _INSTALL, found.owners[spec_id]))
    findings += _owners(registry)
    counts = {
        "packages": len(registry.packages),
        "specifications": len(found.specs),
        "frameworks": len(found.frameworks),
    }
    return Checked(findings, counts)


def _owners(registry: Registry) -> Iterator[Finding]:
    """Ids that two packages bring. By the files' names, as that is how they are looked up."""
    owners: dict[tuple[str, str], str] = {}
    reported: set[tuple[str, str, str]] = set()
    # Who came first has it; what is about to be installed has no entry yet.
    known = registry.packages.items()
    for package_id, package in sorted(
        known, key=lambda one: (not one[1].entry_id, one[1].entry_id)
    ):
        for asset in package.manifest.assets:
            kind = next((its for start, its in _NAMED.items() if asset.path.startswith(start)), "")
            if not kind:
                continue
            name = PurePosixPath(asset.path).stem.partition("@")[0]
            owner = owners.setdefault((kind, name), package_id)
            if owner != package_id and (kind, name, package_id) not in reported:
                reported.add((kind, name, package_id))
                yield Finding(
                    f"The {kind} {name} is of {owner}; {package_id} brings it too.",
                    f"Give it another id in {package_id}; a change of it comes in a new version "
                    f"of {owner}.",
                    package_id,
                    asset.path,
                )


def _documents(
    registry: Registry, files: Files, kind: str, checked: Checked
) -> Iterator[tuple[str, str, bytes]]:
    for package_id, package in registry.packages.items():
        for asset in package.manifest.assets:
            if asset.classification != kind:
                continue
            try:
                yield asset.path, package_id, files.read(asset.path)
            except FileNotFoundError:
                problem = f"{asset.path} is missing."
                checked.findings.append(Finding(problem, _INSTALL, package_id, asset.path))
            except PackageError as error:
                checked.findings.append(_invalid(error, package_id, asset.path))


def _is_new(found: Resolved, document_id: str, package_id: str, path: str) -> bool:
    other = found.owners.setdefault(document_id, package_id)
    if document_id in found.specs or document_id in found.frameworks:
        problem = f"{document_id} is brought by {other}, and again by {package_id} ({path})."
        found.checked.findings.append(Finding(problem, "Keep one of them.", package_id, path))
        return False
    return True


def _invalid(error: PackageError, package_id: str, path: str) -> Finding:
    fix = error.next_step or "Bring a valid one in a new version of its package."
    return Finding(error.message, fix, package_id, path)
