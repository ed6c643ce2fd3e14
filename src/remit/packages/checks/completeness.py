"""G1-COMPLETE: what frameworks expect and specifications declare is there (SPEC 10)."""

from __future__ import annotations

from collections.abc import Collection

from remit.packages.checks.agents import check_agents, check_contracts
from remit.packages.checks.files import Files
from remit.packages.checks.finding import Checked, Finding
from remit.packages.checks.patterns import allows_path
from remit.packages.checks.resolution import Resolved, resolve
from remit.packages.checks.shapes import Shapes, read_shapes
from remit.packages.documents import Specification
from remit.packages.placement import PLANES
from remit.packages.registry import Registry

__all__ = ["check_completeness", "check_places"]

_INSTALL = "Install the package that brings it."


def check_completeness(
    registry: Registry,
    files: Files,
    *,
    tool_ids: Collection[str],
    routes: Collection[str] = (),
    reserved: Collection[str] | None = None,
) -> Checked:
    """Frameworks have their specifications, and these what they declare.

    Every contract, pack, schema and agent that is installed can be used, whether a specification
    declares it or not; agents and contracts keep to what their package is permitted; files lie
    where their package's plane and framework allow.

    Args:
        registry: what is installed; an empty one does not pass.
        files: the governed files.
        tool_ids: of all tools that there are.
        routes: names that mean a choice of models.
        reserved: ids that no packaged agent may have, see
            :func:`~remit.packages.checks.check_agents`.
    """
    found = resolve(registry, files)
    shapes = read_shapes(registry, files)
    findings = [*found.checked.findings, *shapes.checked.findings]
    if not registry.packages:
        findings.append(Finding("No package is installed.", "Run `remit init`."))
    findings += _expected(found)
    for spec_id, spec in found.specs.items():
        findings += _declared(spec, found.owners[spec_id], shapes, tool_ids)
    agents = check_agents(
        registry, shapes, found, tool_ids=tool_ids, routes=routes, reserved=reserved
    )
    contracts = check_contracts(registry, shapes)
    places = check_places(registry, found)
    counts = {
        "frameworks": len(found.frameworks),
        "specifications": len(found.specs),
        "contracts": len(shapes.contracts),
        "schemas": len(shapes.schemas),
    }
    return Checked(findings, counts).joined(agents, contracts, places)


def check_places(registry: Registry, found: Resolved) -> Checked:
    """Files lie where the plane of their package and its framework's rules allow.

    Args:
        registry: what is installed.
        found: what :func:`~remit.packages.checks.resolve` gave; a framework that cannot be used
            is a finding of G1, and not again here.
    """
    findings: list[Finding] = []
    for package_id, package in registry.packages.items():
        manifest = package.manifest
        framework = found.framework_of(registry, package_id)
        for asset in manifest.assets:
            if not asset.path.startswith(PLANES[manifest.plane_id]):
                problem = (
                    f"{package_id}, of the plane {manifest.plane_id}, owns {asset.path}; it may "
                    f"own files below {', '.join(PLANES[manifest.plane_id])}."
                )
                fix = "Move the file, or give the package another plane."
                findings.append(Finding(problem, fix, package_id, asset.path))
            if framework is not None and not allows_path(framework.paths, asset.path):
                problem = (
                    f"{package_id} owns {asset.path}, where {framework.framework_id} lets its "
                    f"packages own nothing; it allows {', '.join(framework.paths) or 'no place'}."
                )
                fix = "Move the file, or choose another specification."
                findings.append(Finding(problem, fix, package_id, asset.path))
    return Checked(findings)


def _expected(found: Resolved) -> list[Finding]:
    findings = []
    for framework_id, framework in found.frameworks.items():
        owner = found.owners[framework_id]
        for spec_id in framework.expected_specs:
            spec = found.specs.get(spec_id)
            if spec is None:
                problem = f"{framework_id} expects {spec_id}, which is not installed."
                findings.append(Finding(problem, _INSTALL, owner))
            elif spec.framework_id != framework_id:
                problem = (
                    f"{framework_id} expects {spec_id}, which says that it belongs to "
                    f"{spec.framework_id}."
                )
                findings.append(Finding(problem, "Let both say the same.", owner))
    return findings


def _declared(
    spec: Specification, package_id: str, shapes: Shapes, tool_ids: Collection[str]
) -> list[Finding]:
    there: dict[str, Collection[str]] = {
        "contract": shapes.contracts,
        "tool": tool_ids,
        "schema": shapes.schemas,
        "agent": shapes.agents,
    }
    named = {
        "contract": spec.contracts,
        "tool": spec.tools,
        "schema": spec.schemas,
        "agent": spec.agents,
    }
    return [
        Finding(
            f"{spec.spec_id} declares the {kind} {name}, which is not there, or cannot be used.",
            _INSTALL if kind != "tool" else "Correct its name in the specification.",
            package_id,
        )
        for kind, names in named.items()
        for name in names
        if name not in there[kind]
    ]
