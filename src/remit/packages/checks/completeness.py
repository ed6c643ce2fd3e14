"""G1-COMPLETE: what frameworks expect and specifications declare is there (SPEC 10)."""

from __future__ import annotations

from collections.abc import Collection

from remit.packages.checks.files import Files
from remit.packages.checks.finding import Checked, Finding
from remit.packages.checks.patterns import allows_model, allows_path, budget_problem
from remit.packages.checks.resolution import Resolved, resolve
from remit.packages.checks.shapes import Shapes, read_shapes
from remit.packages.documents import AgentDocument, Specification
from remit.packages.permissions import permits
from remit.packages.placement import PLANES
from remit.packages.registry import Registry

__all__ = ["check_agents", "check_completeness", "check_places"]

_INSTALL = "Install the package that brings it."


def check_completeness(
    registry: Registry, files: Files, *, tool_ids: Collection[str], routes: Collection[str] = ()
) -> Checked:
    """Frameworks have their specifications, and these what they declare.

    Every contract, pack, schema and agent that is installed can be used, whether a specification
    declares it or not; agents keep to what their package is permitted; files lie where their
    package's plane and framework allow.

    Args:
        registry: what is installed; an empty one does not pass.
        files: the governed files.
        tool_ids: of all tools that there are.
        routes: names that mean a choice of models.
    """
    found = resolve(registry, files)
    shapes = read_shapes(registry, files)
    findings = [*found.checked.findings, *shapes.checked.findings]
    if not registry.packages:
        findings.append(Finding("No package is installed.", "Run `remit init`."))
    findings += _expected(found)
    for spec_id, spec in found.specs.items():
        findings += _declared(spec, found.owners[spec_id], shapes, tool_ids)
    agents = check_agents(registry, shapes, tool_ids=tool_ids, routes=routes)
    places = check_places(registry, found)
    counts = {
        "frameworks": len(found.frameworks),
        "specifications": len(found.specs),
        "contracts": len(shapes.contracts),
        "schemas": len(shapes.schemas),
    }
    return Checked(findings, counts).joined(agents, places)


def check_agents(
    registry: Registry, shapes: Shapes, *, tool_ids: Collection[str], routes: Collection[str] = ()
) -> Checked:
    """Agents have their contract and tools, and keep to what their package is permitted.

    Args:
        registry: what is installed.
        shapes: what :func:`~remit.packages.checks.read_shapes` gave.
        tool_ids: of all tools that there are.
        routes: names that mean a choice of models.
    """
    findings: list[Finding] = []
    for agent, package_id in shapes.agents.values():
        permissions = registry.packages[package_id].manifest.permissions
        who = f"The agent {agent.agent_id} of {package_id}"
        if agent.contract_id not in shapes.contracts:
            told = f"{who} answers under {agent.contract_id}, which is not installed."
            findings.append(Finding(told, _INSTALL, package_id))
        for tool_id in agent.tools:
            if tool_id not in tool_ids:
                told = f"{who} may use the tool {tool_id}, which does not exist."
                mend = "Correct its name, or install the distribution that brings it."
                findings.append(Finding(told, mend, package_id))
            if not permits(permissions.tools, tool_id):
                told = f"{who} may use the tool {tool_id}, which the package is not permitted."
                mend = f"Add {tool_id} to the tools of the package's permissions."
                findings.append(Finding(told, mend, package_id))
        findings += _model(agent, package_id, registry, routes)
        for name in ("token_budget", "usd_budget"):
            value = getattr(agent, name)
            # An agent without a budget of its own has its package's.
            problem = value is not None and budget_problem(permissions.budgets, name, value)
            if problem:
                mend = "Lower it, or have the package permitted more."
                findings.append(Finding(f"{who} {problem}.", mend, package_id))
    return Checked(findings, {"agents": len(shapes.agents)})


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
                told = (
                    f"{package_id}, of the plane {manifest.plane_id}, owns {asset.path}; it may "
                    f"own files below {', '.join(PLANES[manifest.plane_id])}."
                )
                mend = "Move the file, or give the package another plane."
                findings.append(Finding(told, mend, package_id, asset.path))
            if framework is not None and not allows_path(framework.paths, asset.path):
                told = (
                    f"{package_id} owns {asset.path}, where {framework.framework_id} lets its "
                    f"packages own nothing; it allows {', '.join(framework.paths) or 'no place'}."
                )
                mend = "Move the file, or choose another specification."
                findings.append(Finding(told, mend, package_id, asset.path))
    return Checked(findings)


def _expected(found: Resolved) -> list[Finding]:
    findings = []
    for framework_id, framework in found.frameworks.items():
        owner = found.owners[framework_id]
        for spec_id in framework.expected_specs:
            spec = found.specs.get(spec_id)
            if spec is None:
                told = f"{framework_id} expects {spec_id}, which is not installed."
                findings.append(Finding(told, _INSTALL, owner))
            elif spec.framework_id != framework_id:
                told = (
                    f"{framework_id} expects {spec_id}, which says that it belongs to "
                    f"{spec.framework_id}."
                )
                findings.append(Finding(told, "Let both say the same.", owner))
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


def _model(
    agent: AgentDocument, package_id: str, registry: Registry, routes: Collection[str]
) -> list[Finding]:
    """A route is the configuration's; which models it leads to is looked at there."""
    if not agent.model or agent.model in routes:
        return []
    patterns = registry.packages[package_id].manifest.permissions.models
    provider_id, slash, model_id = agent.model.partition("/")
    named = (provider_id, model_id) if slash else ("", agent.model)
    # A provider's id alone means its default model.
    if allows_model(patterns, *named) or (not slash and permits(patterns, f"{agent.model}/*")):
        return []
    told = (
        f"The agent {agent.agent_id} of {package_id} asks the model {agent.model}, which the "
        "package is not permitted."
    )
    mend = f"Add {agent.model} to the models of the package's permissions."
    return [Finding(told, mend, package_id)]
