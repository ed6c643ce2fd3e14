"""What packages, agents and contracts may use, under permissions and ceilings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal

from remit.contracts import PromptContract
from remit.gateway import split_name
from remit.kernel.settings import default_settings
from remit.packages.checks.files import Finding
from remit.packages.checks.view import PackageView
from remit.packages.documents import AgentDocument
from remit.packages.permissions import allows_path, permits, permits_tool

__all__ = [
    "allows_model",
    "allows_named",
    "boundary_model",
    "budget_problem",
    "check_agents",
    "check_ceilings",
    "check_contracts",
    "reserved_agents",
]

_BUDGETS = ("token_budget", "usd_budget")
_READS_ALL = "query_ledger_full"
_CURRENT = "current"


def check_ceilings(view: PackageView) -> Iterator[Finding]:
    """No package is permitted more than its framework lets it.

    A package that brings an agent and may use models states the budgets for which its framework
    has a ceiling: without one there would be no limit. A package whose framework cannot be used
    does not pass.
    """
    for package_id, package in view.registry.packages.items():
        manifest, framework = package.manifest, view.framework_of(package_id)
        if framework is None:
            problem = (
                f"What {package_id} may be permitted is not known: {manifest.framework_id} is "
                "not installed, or cannot be used."
            )
            yield Finding(problem, "Install the package that brings it.")
            continue
        granted, ceilings = manifest.permissions, framework.permissions
        fix = f"Take it out of the package's permissions, or widen {framework.framework_id}."
        for kind, permitted in (("tool", permits), ("model", permits), ("path", allows_path)):
            most: tuple[str, ...] = getattr(ceilings, f"{kind}s")
            for name in getattr(granted, f"{kind}s"):
                if not permitted(most, name):
                    problem = f"{package_id} is permitted the {kind} {name}, which "
                    yield Finding(f"{problem}{framework.framework_id} does not let.", fix)
        spends = granted.models and any(one.classification == "agent" for one in manifest.assets)
        for name in _BUDGETS:
            value = granted.budgets.get(name)
            if value is None and not spends:
                continue
            if problem := budget_problem(ceilings.budgets, name, value):
                yield Finding(f"{package_id} {problem} by {framework.framework_id}.", fix)


def check_agents(view: PackageView) -> Iterator[Finding]:
    """Agents have their contract and tools, and keep to what their package is permitted and to
    the budgets that their framework lets.
    """
    for agent, package_id in view.documents.agents.values():
        permissions = view.registry.packages[package_id].manifest.permissions
        framework = view.framework_of(package_id)
        who = f"The agent {agent.agent_id} of {package_id}"
        if agent.agent_id in reserved_agents():
            yield Finding(f"{who} has the id of Remit's own agent.", "Give it another id.")
        if agent.contract_id not in view.documents.contracts:
            problem = f"{who} answers under {agent.contract_id}, which is not installed."
            yield Finding(problem, "Install the package that brings it.")
        for tool_id in agent.tools:
            if tool_id not in view.tool_ids:
                problem = f"{who} may use the tool {tool_id}, which does not exist."
                fix = "Correct its name, or install the distribution that brings it."
                yield Finding(problem, fix)
            if not permits_tool(permissions.tools, tool_id):
                problem = f"{who} may use the tool {tool_id}, which the package is not permitted."
                yield Finding(problem, f"Add {tool_id} to the tools of the package's permissions.")
        if not _may_use_model(agent, permissions.models, view):
            problem = f"{who} asks the model {agent.model}, which the package is not permitted."
            fix = f"Add {agent.model} to the models of the package's permissions."
            yield Finding(problem, fix)
        for contract, _ in view.documents.contracts.get(agent.contract_id, ()):
            fixed = boundary_model(contract)
            if fixed and not allows_named(permissions.models, fixed):
                problem = (
                    f"{who} answers under {contract.contract_id} {contract.version}, which fixes "
                    f"the model {fixed}; the package is not permitted it."
                )
                fix = f"Add it, as provider/model, to the models of {package_id}'s permissions."
                yield Finding(problem, fix)
        for name in _BUDGETS:
            value = getattr(agent, name)
            if value is None:
                continue  # it has its package's, which has a ceiling of its own
            if problem := budget_problem(permissions.budgets, name, value):
                yield Finding(f"{who} {problem}.", "Lower it, or have the package permitted more.")
            if framework is None:
                continue
            if problem := budget_problem(framework.permissions.budgets, name, value):
                yield Finding(f"{who} {problem} by {framework.framework_id}.", "Lower it.")


def check_contracts(view: PackageView) -> Iterator[Finding]:
    """Contracts that ask for entries of other sessions belong to packages that may read them."""
    for contract, package_id in view.documents.every_contract():
        queries = contract.required_context.get("ledger_queries", ())
        tools = view.registry.packages[package_id].manifest.permissions.tools
        others = any(query.get("session_id") != _CURRENT for query in queries)
        if others and not permits(tools, _READS_ALL):
            problem = (
                f"The contract {contract.contract_id} {contract.version} of {package_id} reads "
                "the record of other sessions, which the package is not permitted."
            )
            fix = (
                f"Add {_READS_ALL} to the tools of the package's permissions, or ask for "
                f'"session_id": "{_CURRENT}" alone.'
            )
            yield Finding(problem, fix)


def allows_model(patterns: Iterable[str], provider_id: str, model_id: str) -> bool:
    """Whether one of ``patterns``, written ``provider/model``, allows a model.

    An empty ``provider_id`` is one that is not known: any that the patterns name will do.
    """
    if provider_id:
        return permits(patterns, f"{provider_id}/{model_id}")
    return permits((one.partition("/")[2] if "/" in one else one for one in patterns), model_id)


def allows_named(patterns: Iterable[str], name: str) -> bool:
    """Whether one of ``patterns`` allows what ``name`` means, whatever runs it.

    That is ``provider/model``; a provider, which means its default model; or a model alone, which
    has to be allowed for every provider, as nothing says here which one it is.
    """
    known = list(patterns)
    provider_id, model_id = _named(known, name)
    if provider_id:
        return permits(known, f"{provider_id}/{model_id or '*'}")
    return any(permits(known, one) for one in (name, f"*/{name}"))


def _named(patterns: Iterable[str], name: str) -> tuple[str, str]:
    """Return the provider that a model's name states, and the model behind it."""
    heads = {one.partition("/")[0] for one in patterns}
    return split_name(name, heads, {*default_settings().providers, "local"})


def budget_problem(ceilings: Mapping[str, int | str], name: str, value: int | str | None) -> str:
    """Why the budget ``name`` is above its ceiling, ending a sentence; empty when it is not.

    ``token_budget`` is in tokens, ``usd_budget`` in US dollars as decimal text. A ceiling that is
    absent is none; a ``value`` of ``None`` states no budget, which is no limit.
    """
    ceiling = ceilings.get(name)
    if ceiling is None:
        return ""
    if value is None:
        return f"states no {name}, where {ceiling} is the most"
    if Decimal(str(value)) > Decimal(str(ceiling)):
        return f"has a {name} of {value}, where {ceiling} is the most"
    return ""


def boundary_model(contract: PromptContract) -> str:
    """The model that a contract fixes: ``provider/model``, or the one of both that it names;
    empty when it fixes none."""
    limits = contract.boundary
    return "/".join(one for one in (limits.provider_id, limits.model_id) if one)


def reserved_agents() -> tuple[str, ...]:
    """The id of the agent that comes with Remit, as it ships."""
    return (default_settings().chat.agent_id,)


def _may_use_model(agent: AgentDocument, patterns: tuple[str, ...], view: PackageView) -> bool:
    """A route is the configuration's; which models it leads to is looked at there. But a package
    that names no model has its agents answered by the root's default alone."""
    if not agent.model or (patterns and agent.model in view.routes):
        return True
    provider_id, model_id = _named(patterns, agent.model)
    if provider_id and not model_id:  # it means the provider's default model
        model_id = "*"
    return allows_model(patterns, provider_id, model_id or agent.model)
