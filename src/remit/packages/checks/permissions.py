"""Checks that packages, agents and contracts keep to their permissions and ceilings."""

from __future__ import annotations

from collections.abc import Iterator

from remit.contracts import PromptContract
from remit.gateway import split_name
from remit.kernel.settings import default_settings
from remit.packages.checks.package_view import PackageView
from remit.packages.checks.root_disk import Finding
from remit.packages.documents import AgentDocument
from remit.packages.permissions import BUDGETS, KINDS, Permissions, permits

_READS_ALL = "query_ledger_full"
_CURRENT = "current"


def check_ceilings(view: PackageView) -> Iterator[Finding]:
    """Yield permissions of packages that exceed the ceilings of their framework (gate G3).

    A package with an agent that may use models must state every budget for which its framework has
    a ceiling. A package whose framework cannot be used is a finding.

    Args:
        view: the packages.
    """
    for package_id, package in view.registry.packages.items():
        manifest, framework = package.manifest, view.framework_of(package_id)
        if framework is None:
            problem = (
                f"The permissions of {package_id} cannot be checked, because "
                f"{manifest.framework_id} is not installed or not valid."
            )
            yield Finding(problem, "Install the package that contains it.")
            continue
        granted, ceilings = manifest.permissions, framework.permissions
        fix = (
            f"Remove the permission from the package, or widen {framework.framework_id}. Keep "
            "a copy of the manifest."
        )
        for kind, word in KINDS.items():
            for name in getattr(granted, kind):
                if not ceilings.covers(kind, name):
                    problem = f"{package_id} has a permission for the {word} {name}, which "
                    yield Finding(f"{problem}{framework.framework_id} does not allow.", fix)
        spends = granted.models and any(one.classification == "agent" for one in manifest.assets)
        for name in BUDGETS:
            value = granted.budgets.get(name)
            if value is None and not spends:
                continue
            if problem := ceilings.budget_problem(name, value):
                yield Finding(f"{package_id} {problem} by {framework.framework_id}.", fix)


def check_agents(view: PackageView) -> Iterator[Finding]:
    """Yield agents without their contract or tools, or beyond the permissions of their package.

    The permissions must cover the model that an agent names and the one that its contract fixes. A
    route counts as covered if the package is permitted any model. Budgets of agents must also be
    within the ceilings of their framework. An agent with the id of one of Remit's own agents is a
    finding too. Agents whose document is not valid are not reported here.

    Args:
        view: the packages.
    """
    for agent, package_id in view.agents.values():
        permissions = view.registry.packages[package_id].manifest.permissions
        framework = view.framework_of(package_id)
        who = f"The agent {agent.agent_id} of {package_id}"
        if agent.agent_id in reserved_agents():
            yield Finding(
                f"{who} has the id of Remit's own agent.", "Choose another id for the agent."
            )
        if agent.contract_id not in view.contracts:
            problem = f"{who} answers under {agent.contract_id}, which is not installed."
            yield Finding(problem, "Install the package that contains it.")
        for tool_id in agent.tools:
            if tool_id not in view.tool_ids:
                problem = f"{who} may use the tool {tool_id}, which does not exist."
                fix = "Correct the name of the tool, or install the distribution that contains it."
                yield Finding(problem, fix)
            if not permissions.allows_tool(tool_id):
                problem = f"{who} may use the tool {tool_id}, which its package does not permit."
                yield Finding(problem, f"Add {tool_id} to the tools of the package's permissions.")
        if not _may_use_model(agent, permissions, view):
            problem = f"{who} asks the model {agent.model}, which its package does not permit."
            fix = f"Add {agent.model} to the models of the package's permissions."
            yield Finding(problem, fix)
        for contract, _ in view.contracts.get(agent.contract_id, ()):
            fixed = boundary_model(contract)
            if fixed and not allows_named(permissions, fixed):
                problem = (
                    f"{who} answers under {contract.contract_id} {contract.version}, which fixes "
                    f"the model {fixed}; the package does not permit this model."
                )
                fix = f"Add the model, as provider/model, to the permissions of {package_id}."
                yield Finding(problem, fix)
        for name in BUDGETS:
            value = getattr(agent, name)
            if value is None:
                continue  # The package's budget applies, and has its own ceiling.
            if problem := permissions.budget_problem(name, value):
                yield Finding(
                    f"{who} {problem}.",
                    "Lower the value, or raise the limit in the package's permissions.",
                )
            if framework is None:
                continue
            if problem := framework.permissions.budget_problem(name, value):
                yield Finding(f"{who} {problem} by {framework.framework_id}.", "Lower it.")


def check_contracts(view: PackageView) -> Iterator[Finding]:
    """Yield contracts that read the ledger of other sessions without a permission.

    The package needs the tool ``query_ledger_full``. A query reads other sessions unless its
    ``session_id`` is ``current``. Contracts that cannot be used are not reported here.

    Args:
        view: the packages.
    """
    for contract, package_id in view.every_contract():
        queries = contract.required_context.get("ledger_queries", ())
        tools = view.registry.packages[package_id].manifest.permissions.tools
        others = any(query.get("session_id") != _CURRENT for query in queries)
        if others and not permits(tools, _READS_ALL):
            problem = (
                f"The contract {contract.contract_id} {contract.version} of {package_id} "
                "reads entries of other sessions, which the package does not permit."
            )
            fix = (
                f"Add {_READS_ALL} to the tools of the package's permissions, or ask for "
                f'"session_id": "{_CURRENT}" alone.'
            )
            yield Finding(problem, fix)


def allows_named(granted: Permissions, name: str) -> bool:
    """Return True if a package is permitted every model that a name can mean.

    Args:
        granted: the package's permissions.
        name: ``provider/model``; a provider, of which every model must be permitted; or a model
            alone, which must be permitted itself or at every provider (``*/model``). Providers are
            those of the permissions and of the shipped settings.
    """
    provider_id, model_id = _named(granted, name)
    if provider_id:
        return permits(granted.models, f"{provider_id}/{model_id or '*'}")
    return any(permits(granted.models, one) for one in (name, f"*/{name}"))


def _named(granted: Permissions, name: str) -> tuple[str, str]:
    """Return the provider and the model in a model's name."""
    heads = {one.partition("/")[0] for one in granted.models}
    return split_name(name, heads, {*default_settings().providers, "local"})


def boundary_model(contract: PromptContract) -> str:
    """Return the model that a contract fixes for its calls.

    Args:
        contract: the contract.

    Returns:
        ``provider/model``; only the provider or only the model if the contract names one of them;
        empty if the contract names none.
    """
    limits = contract.boundary
    return "/".join(one for one in (limits.provider_id, limits.model_id) if one)


def reserved_agents() -> tuple[str, ...]:
    """Return the ids of Remit's own agents, which no package may use."""
    return (default_settings().chat.agent_id,)


def _may_use_model(agent: AgentDocument, granted: Permissions, view: PackageView) -> bool:
    """Return True if an agent may use the model in its document.

    A check of settings covers the models of a route. A package without permitted models leaves its
    agents to the root's default model.
    """
    if not agent.model or (granted.models and agent.model in view.routes):
        return True
    provider_id, model_id = _named(granted, agent.model)
    if provider_id and not model_id:  # A provider alone means its default model.
        model_id = "*"
    return granted.allows_model(provider_id, model_id or agent.model)
