"""Agents brought by packages, within the permissions of their packages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from remit.contracts import PromptContract
from remit.kernel.errors import NotFoundError
from remit.kernel.installed_files import InstalledFiles
from remit.ledger import LedgerClient
from remit.packages import AgentDocument, Framework, Permissions, Registry
from remit.packages.checks import allows_named, boundary_model, reserved_agents

if TYPE_CHECKING:
    from remit.runtime.agent import Agent
    from remit.runtime.runtime import Runtime

_FOLDER = "HO2/agents/"
_CONTRACTS = "HO1/contracts/"
_CHECK = "Run `remit gate check --gate G1-COMPLETE`."

Meaning = Callable[[str], Sequence[tuple[str, str]]]


def packaged_agents(files: InstalledFiles) -> list[str]:
    """Return the ids of agents that packages brought, in order.

    The documents are not read.

    Args:
        files: the installed files of the root.

    Raises:
        ChangedFileError: the table of installed files cannot be read.
    """
    paths = map(PurePosixPath, files.paths(_FOLDER))
    return sorted(path.stem for path in paths if path.suffix == ".json")


def packaged_agent(
    agent_id: str,
    files: InstalledFiles,
    ledger: LedgerClient,
    default: tuple[str, str],
    *,
    model: str | None = None,
    meaning: Meaning | None = None,
    reserved: Collection[str] | None = None,
) -> tuple[AgentDocument, str]:
    """Return an agent, checked against its package's permissions and its framework's ceilings.

    Nothing is written.

    Args:
        agent_id: id of the agent.
        files: the root's installed files.
        ledger: the record of the package's permissions.
        default: provider and model that answer if no other is named.
        model: replaces the model that the agent names.
        meaning: returns the providers and models that a name can mean, all of which must be
            permitted: one, or the choices of a route, or none for a name that is checked elsewhere.
            If left out, only names that are permitted whatever they mean are accepted.
        reserved: ids that no packaged agent may have; ADMIN's as shipped if left out.

    Returns:
        The agent's document, and the id of its package. ``token_budget`` of the document is the
        lowest limit of agent, package and framework, ``usd_budget`` the lower of agent and package.

    Raises:
        NotFoundError: there is no such agent, its id is reserved, its package (by the ledger) or
            framework is not installed, or it exceeds their permissions or limit in dollars.
        ChangedFileError: the agent's file, contract or framework differs from the installed one.
        PackageError: one of these files or the registry cannot be read.
        ContractError: the agent's contract cannot be used.
        LedgerError: the ledger cannot be read.
        ConfigError: ``meaning`` knows no provider for a name.
    """
    _check_id(agent_id, files, reserved_agents() if reserved is None else reserved)
    path = f"{_FOLDER}{agent_id}.json"
    document = AgentDocument.parse(files.read(path), path)
    package_id = files.owner(path)
    registry = Registry.from_ledger(ledger)
    package = registry.packages.get(package_id)
    if package is None:
        raise NotFoundError(
            f"The agent {agent_id} belongs to {package_id}, which is not installed according to "
            "the ledger.",
            next_step="Run `remit gate check --all`.",
        )
    granted = package.manifest.permissions
    for tool_id in document.tools:
        if not granted.allows_tool(tool_id):
            raise NotFoundError(
                f"The agent {agent_id} requests the tool {tool_id}, which {package_id} is not "
                "permitted to use.",
                next_step=_CHECK,
            )
    who = f"The agent {agent_id} of {package_id}"
    _check_model(who, document.model, model, granted, default, meaning)
    _check_contracts(who, document.contract_id, granted, files)
    ceilings = _ceilings(who, package.manifest.framework_id, registry, files)
    return _limited(who, document, granted, ceilings), package_id


def _check_id(agent_id: str, files: InstalledFiles, reserved: Collection[str]) -> None:
    known = packaged_agents(files)
    if agent_id not in known:
        there = "`remit package new` creates a package with an agent."
        if known:
            there = f"Installed agents: {', '.join(known)}."
        raise NotFoundError(
            f"No installed package contains the agent {agent_id!r}.", next_step=there
        )
    if agent_id in reserved:
        raise NotFoundError(
            f"The agent {agent_id} of a package uses the id of Remit's own agent.",
            next_step="Give the agent another id, or `remit package remove` its package.",
        )


def _limited(
    who: str, document: AgentDocument, granted: Permissions, ceilings: Permissions
) -> AgentDocument:
    """Return a document with the lowest of all limits; raise NotFoundError above the framework's
    ceiling.
    """
    own, most = granted.budgets, ceilings.budgets
    tokens = _least(document.token_budget, own.get("token_budget"), most.get("token_budget"))
    usd = _least(document.usd_budget, own.get("usd_budget"))
    if usd is not None and (problem := ceilings.budget_problem("usd_budget", str(usd))):
        raise NotFoundError(f"{who} {problem} by its framework.", next_step=_CHECK)
    return replace(
        document,
        token_budget=None if tokens is None else int(tokens),
        usd_budget=None if usd is None else str(usd),
    )


def agent_of_package(
    runtime: Runtime, document: AgentDocument, package_id: str, model: str | None
) -> Agent[Any]:
    """Return the agent that a document describes, marked as its package's.

    Args:
        runtime: the open root.
        document: the document, as :func:`packaged_agent` returns it.
        package_id: id of the package.
        model: replaces the model of the document; None for that model or the root's default.

    Raises:
        RemitError: an error of :meth:`remit.runtime.Runtime.agent`.
    """
    made: Agent[Any] = runtime.agent(
        document.agent_id,
        instructions=document.instructions,
        tools=document.tools,
        approve=document.approve,
        contract=document.contract_id,
        model=model or document.model or None,
        acceptance=document.acceptance,
        order_tokens=document.token_budget,
        order_usd=None if document.usd_budget is None else float(document.usd_budget),
    )
    return made.of_package(package_id)


def _check_model(
    who: str,
    stated: str,
    asked: str | None,
    granted: Permissions,
    default: tuple[str, str],
    meaning: Meaning | None,
) -> None:
    """Raise NotFoundError unless the package may use the models that the agent and the caller name.

    The model in the document is checked even if the caller names another one.
    """
    permitted = ", ".join(granted.models) or "no model but the root's default"
    answers = "/".join(default)
    for name in dict.fromkeys(name for name in (stated, asked) if name):
        means = [name] if meaning is None else ["/".join(pair) for pair in meaning(name)]
        if granted.models:
            right = all(allows_named(granted, model) for model in means)
        else:  # Only the root's default model, and only if a person names it.
            right = name != stated and means == [answers]
        if not right:
            raise NotFoundError(
                f"{who} may use {permitted}, not {name}.",
                next_step="Choose another model, as provider/model, or add it to the models of "
                "the package's permissions.",
            )
    if not (stated or asked) and granted.models and not allows_named(granted, answers):
        raise NotFoundError(
            f"{who} may use {permitted}, not {answers}, which is the model here.",
            next_step="Choose another model with `model` or [model] default.",
        )


def _check_contracts(
    who: str, contract_id: str, granted: Permissions, files: InstalledFiles
) -> None:
    """Raise NotFoundError unless the package may use every installed version of the contract.

    The loader decides which version is the newest, so all of them are checked.
    """
    for path in files.paths(_CONTRACTS):
        if PurePosixPath(path).stem.partition("@")[0] != contract_id:
            continue
        fixed = boundary_model(PromptContract.parse(files.read(path), path))
        if fixed and not allows_named(granted, fixed):
            raise NotFoundError(
                f"{who} answers under {contract_id}, which requires the model {fixed}; the "
                "package does not permit it.",
                next_step=_CHECK,
            )


def _ceilings(
    who: str, framework_id: str, registry: Registry, files: InstalledFiles
) -> Permissions:
    for package in registry.packages.values():
        for asset in package.manifest.assets:
            name = PurePosixPath(asset.path).name
            if asset.classification == "framework" and name == f"{framework_id}.json":
                return Framework.parse(files.read(asset.path), asset.path).permissions
    raise NotFoundError(
        f"{who} belongs to {framework_id}, which is not installed.",
        next_step="Install the package that contains it.",
    )


def _least(*values: int | str | None) -> Decimal | None:
    return min((Decimal(value) for value in values if value is not None), default=None)
