"""Agents that packages brought (SPEC 10): what they may do stands in their package."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from decimal import Decimal
from pathlib import PurePosixPath

from remit.errors import RemitError
from remit.installed import InstalledFiles
from remit.ledger import LedgerClient
from remit.packages import Permissions, Registry
from remit.packages.documents import AgentDocument
from remit.packages.permissions import permits

__all__ = ["AgentNotInstalledError", "PackagedAgent", "packaged_agent", "packaged_agents"]

_FOLDER = "HO2/agents/"


class AgentNotInstalledError(RemitError):
    """No installed package brought that agent, or it may not be used as it is."""


@dataclass(frozen=True, slots=True)
class PackagedAgent:
    """An agent, and what its package lets it do.

    Attributes:
        document: as the package brought it.
        package_id: which package.
        token_budget: most tokens of one order, the lesser of what both say; ``None``: as
            configured.
        usd_budget: most US dollars of one order, likewise.
    """

    document: AgentDocument
    package_id: str
    token_budget: int | None
    usd_budget: float | None


def packaged_agents(files: InstalledFiles) -> list[str]:
    """Ids of the agents that packages brought."""
    paths = map(PurePosixPath, files.paths(_FOLDER))
    return sorted(path.stem for path in paths if path.suffix == ".json")


def packaged_agent(
    agent_id: str, files: InstalledFiles, ledger: LedgerClient, model: tuple[str, str]
) -> PackagedAgent:
    """One agent, held against the permissions of its package.

    Args:
        agent_id: which.
        files: of the root.
        ledger: tells what its package is permitted.
        model: provider and model that answer where the agent names none.

    Raises:
        AgentNotInstalledError: there is none, or it goes beyond its package's permissions.
        ChangedFileError: its file is not as it was installed.
        PackageError: its file or the registry cannot be read.
    """
    known = packaged_agents(files)
    if agent_id not in known:
        raise AgentNotInstalledError(
            f"No installed package brought an agent {agent_id!r}.",
            next_step=f"There is {', '.join(known)}."
            if known
            else "`remit package new` begins one.",
        )
    path = f"{_FOLDER}{agent_id}.json"
    document = AgentDocument.parse(files.read(path), path)
    package_id = files.owner(path)
    package = Registry.from_ledger(ledger).packages.get(package_id)
    if package is None:
        raise AgentNotInstalledError(
            f"The agent {agent_id} belongs to {package_id}, which the ledger does not have as "
            "installed.",
            next_step="Run `remit gate check --all`.",
        )
    granted = package.manifest.permissions
    _check_tools(agent_id, document.tools, granted, package_id)
    if not document.model and granted.models and not permits(granted.models, "/".join(model)):
        raise AgentNotInstalledError(
            f"The agent {agent_id} of {package_id} may use {', '.join(granted.models)}, not "
            f"{'/'.join(model)}, which is the model here.",
            next_step="Choose another model with --model or [model] default.",
        )
    tokens = _least(document.token_budget, granted.budgets.get("token_budget"))
    usd = _least(document.usd_budget, granted.budgets.get("usd_budget"))
    return PackagedAgent(
        document, package_id, None if tokens is None else int(tokens),
        None if usd is None else float(usd),
    )  # fmt: skip


def _check_tools(
    agent_id: str, tools: Collection[str], granted: Permissions, package_id: str
) -> None:
    for tool_id in tools:
        if not permits(granted.tools, tool_id):
            raise AgentNotInstalledError(
                f"The agent {agent_id} asks for the tool {tool_id}, which {package_id} is not "
                "permitted.",
                next_step="Run `remit gate check --gate G1-COMPLETE`.",
            )


def _least(*values: int | str | None) -> Decimal | None:
    return min((Decimal(one) for one in values if one is not None), default=None)
