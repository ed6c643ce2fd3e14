"""Agents and contracts that packages bring, beside what the packages are permitted (SPEC 10)."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from remit.contracts import PromptContract
from remit.kernel.settings import default_settings
from remit.packages.checks.finding import Checked, Finding
from remit.packages.checks.patterns import allows_model, allows_named, budget_problem
from remit.packages.checks.resolution import Resolved
from remit.packages.checks.shapes import Shapes
from remit.packages.documents import AgentDocument
from remit.packages.manifest import Permissions
from remit.packages.permissions import permits
from remit.packages.registry import Registry

__all__ = ["boundary_model", "check_agents", "check_contracts", "reserved_agents"]

_READS_ALL = "query_ledger_full"
_CURRENT = "current"


def check_agents(
    registry: Registry,
    shapes: Shapes,
    found: Resolved,
    *,
    tool_ids: Collection[str],
    routes: Collection[str] = (),
    reserved: Collection[str] | None = None,
) -> Checked:
    """Agents have their contract and tools, and keep to what their package is permitted and to
    the budgets that their framework lets.

    Args:
        registry: what is installed.
        shapes: what :func:`~remit.packages.checks.read_shapes` gave.
        found: what :func:`~remit.packages.checks.resolve` gave; a framework that cannot be used
            is a finding of G1, and not again here.
        tool_ids: of all tools that there are.
        routes: names that mean a choice of models.
        reserved: ids that no packaged agent may have, ADMIN's; as shipped when left out.
    """
    findings: list[Finding] = []
    kept = reserved_agents() if reserved is None else reserved
    for agent, package_id in shapes.agents.values():
        permissions = registry.packages[package_id].manifest.permissions
        framework = found.framework_of(registry, package_id)
        who = f"The agent {agent.agent_id} of {package_id}"
        if agent.agent_id in kept:
            problem = f"{who} has the id of Remit's own agent."
            findings.append(Finding(problem, "Give it another id.", package_id))
        if agent.contract_id not in shapes.contracts:
            problem = f"{who} answers under {agent.contract_id}, which is not installed."
            findings.append(Finding(problem, "Install the package that brings it.", package_id))
        for tool_id in agent.tools:
            if tool_id not in tool_ids:
                problem = f"{who} may use the tool {tool_id}, which does not exist."
                fix = "Correct its name, or install the distribution that brings it."
                findings.append(Finding(problem, fix, package_id))
            if not permits(permissions.tools, tool_id):
                problem = f"{who} may use the tool {tool_id}, which the package is not permitted."
                fix = f"Add {tool_id} to the tools of the package's permissions."
                findings.append(Finding(problem, fix, package_id))
        findings += _model(agent, package_id, permissions, routes)
        findings += _boundaries(agent, package_id, permissions, shapes)
        for name in ("token_budget", "usd_budget"):
            value = getattr(agent, name)
            if value is None:
                continue  # it has its package's, which has a ceiling of its own
            if problem := budget_problem(permissions.budgets, name, value):
                fix = "Lower it, or have the package permitted more."
                findings.append(Finding(f"{who} {problem}.", fix, package_id))
            if framework is None:
                continue
            if problem := budget_problem(framework.permissions.budgets, name, value):
                problem = f"{who} {problem} by {framework.framework_id}."
                findings.append(Finding(problem, "Lower it.", package_id))
    return Checked(findings, {"agents": len(shapes.agents)})


def check_contracts(registry: Registry, shapes: Shapes) -> Checked:
    """Contracts that ask for entries of other sessions belong to packages that may read them.

    Args:
        registry: what is installed.
        shapes: what :func:`~remit.packages.checks.read_shapes` gave.
    """
    findings: list[Finding] = []
    for versions in shapes.contracts.values():
        for contract, package_id in versions:
            queries = contract.required_context.get("ledger_queries", ())
            tools = registry.packages[package_id].manifest.permissions.tools
            if all(one.get("session_id") == _CURRENT for one in queries):
                continue
            if not permits(tools, _READS_ALL):
                problem = (
                    f"The contract {contract.contract_id} {contract.version} of {package_id} "
                    "reads the record of other sessions, which the package is not permitted."
                )
                fix = (
                    f"Add {_READS_ALL} to the tools of the package's permissions, or ask for "
                    f'"session_id": "{_CURRENT}" alone.'
                )
                findings.append(Finding(problem, fix, package_id))
    return Checked(findings)


def boundary_model(contract: PromptContract) -> str:
    """The model that a contract fixes: ``provider/model``, or the one of both that it names;
    empty when it fixes none."""
    limits = contract.boundary
    return "/".join(one for one in (limits.provider_id, limits.model_id) if one)


def reserved_agents() -> tuple[str, ...]:
    """The id of the agent that comes with Remit, as it ships."""
    return (default_settings().chat.agent_id,)


def _model(
    agent: AgentDocument, package_id: str, permissions: Permissions, routes: Collection[str]
) -> Iterator[Finding]:
    """A route is the configuration's; which models it leads to is looked at there. But a package
    that names no model has its agents answered by the root's default alone."""
    patterns = permissions.models
    if not agent.model or (patterns and agent.model in routes):
        return
    provider_id, slash, model_id = agent.model.partition("/")
    named = (provider_id, model_id) if slash else ("", agent.model)
    # A provider's id alone means its default model.
    if allows_model(patterns, *named) or (not slash and permits(patterns, f"{agent.model}/*")):
        return
    problem = (
        f"The agent {agent.agent_id} of {package_id} asks the model {agent.model}, which the "
        "package is not permitted."
    )
    fix = f"Add {agent.model} to the models of the package's permissions."
    yield Finding(problem, fix, package_id)


def _boundaries(
    agent: AgentDocument, package_id: str, permissions: Permissions, shapes: Shapes
) -> Iterator[Finding]:
    for contract, _ in shapes.contracts.get(agent.contract_id, ()):
        fixed = boundary_model(contract)
        if fixed and not allows_named(permissions.models, fixed):
            problem = (
                f"The agent {agent.agent_id} of {package_id} answers under {contract.contract_id} "
                f"{contract.version}, which fixes the model {fixed}; the package is not permitted "
                "it."
            )
            fix = f"Add it, as provider/model, to the models of {package_id}'s permissions."
            yield Finding(problem, fix, package_id)
