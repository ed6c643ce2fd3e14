"""The contracts, packs and agents that packages brought, read through :class:`Files`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from remit.contracts import ContractError, PromptContract, PromptPack
from remit.packages.checks.files import Files
from remit.packages.checks.finding import Checked, Finding
from remit.packages.documents import AgentDocument, read_schema
from remit.packages.errors import PackageError
from remit.packages.registry import Registry

__all__ = ["Shapes", "read_shapes"]

_PACK_SUFFIXES = (".txt", ".md", ".j2")
_MEND = "Bring a usable one in a new version of its package."


@dataclass(slots=True)
class Shapes:
    """What shapes agents, as far as it can be used.

    Attributes:
        contracts: by id, every version with its package.
        packs: by id.
        agents: by id, with their package.
        schemas: paths of the JSON Schemas.
        checked: what is wrong with the files.
    """

    contracts: dict[str, list[tuple[PromptContract, str]]] = field(default_factory=dict)
    packs: dict[str, PromptPack] = field(default_factory=dict)
    agents: dict[str, tuple[AgentDocument, str]] = field(default_factory=dict)
    schemas: set[str] = field(default_factory=set)
    checked: Checked = field(default_factory=Checked)

    def newest(self, contract_id: str) -> PromptContract | None:
        """The version of a contract that is used: the greatest, releases before pre-releases."""
        versions = [contract for contract, _ in self.contracts.get(contract_id, ())]
        return max(versions, key=lambda one: (not one.prerelease, one.precedence), default=None)


def read_shapes(registry: Registry, files: Files) -> Shapes:
    """Read every installed contract, pack, schema and agent.

    Args:
        registry: what is installed.
        files: the governed files.
    """
    found = Shapes()
    for kind, path, package_id, data in _installed(registry, files, found.checked):
        try:
            _take(found, kind, path, package_id, data)
        except (PackageError, ContractError) as error:
            fix = error.next_step or _MEND
            found.checked.findings.append(Finding(error.message, fix, package_id, path))
    for versions in found.contracts.values():
        for contract, package_id in versions:
            if contract.prompt_pack_id not in found.packs:
                problem = (
                    f"{contract.contract_id} {contract.version} binds {contract.prompt_pack_id}, "
                    "which is not installed."
                )
                found.checked.findings.append(
                    Finding(problem, "Install the package that brings it.", package_id)
                )
    return found


def _take(found: Shapes, kind: str, path: str, package_id: str, data: bytes) -> None:
    name = path.rpartition("/")[2]
    stem, _, suffix = name.rpartition(".")
    if kind == "contract":
        contract = PromptContract.parse(data, path)
        names = (contract.contract_id, f"{contract.contract_id}@{contract.version}")
        if stem not in names or suffix != "json":
            raise PackageError(
                "document_invalid",
                f"{path} holds {contract.contract_id} {contract.version}.",
                next_step=f"Call the file {names[0]}.json or {names[1]}.json.",
            )
        versions = found.contracts.setdefault(contract.contract_id, [])
        for other, whose in versions:
            if other.version == contract.version and other.digest != contract.digest:
                raise PackageError(
                    "document_invalid",
                    f"{path} and {whose} both bring {contract.contract_id} {contract.version}, "
                    "and not the same.",
                    next_step="Give one of them a version of its own.",
                )
        versions.append((contract, package_id))
    elif kind == "prompt_pack":
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise PackageError("document_invalid", f"{path} is not UTF-8.") from error
        if f".{suffix}" not in _PACK_SUFFIXES or text.startswith("\ufeff"):
            raise PackageError(
                "document_invalid",
                f"{path} is not a pack: it begins with a byte order mark, or does not end with "
                f"{', '.join(_PACK_SUFFIXES)}.",
            )
        pack = PromptPack.parse(stem, text)
        other_pack = found.packs.setdefault(stem, pack)
        if other_pack.digest != pack.digest:
            raise PackageError(
                "document_invalid",
                f"{path} is another {stem} than one that is installed too.",
                next_step="Keep one of them.",
            )
    elif kind == "agent":
        agent = AgentDocument.parse(data, path)
        _, whose = found.agents.setdefault(agent.agent_id, (agent, package_id))
        if whose != package_id:
            raise PackageError(
                "document_invalid",
                f"{whose} and {package_id} both bring the agent {agent.agent_id}.",
                next_step="Rename one of them.",
            )
    elif path.endswith(".json"):
        read_schema(data, path)
        found.schemas.add(path)


def _installed(
    registry: Registry, files: Files, checked: Checked
) -> Iterator[tuple[str, str, str, bytes]]:
    for package_id, package in registry.packages.items():
        for asset in package.manifest.assets:
            kind, path = asset.classification, asset.path
            if kind not in ("contract", "prompt_pack", "schema", "agent"):
                continue
            try:
                yield kind, path, package_id, files.read(path)
            except FileNotFoundError:
                problem = f"{path}, a {kind.replace('_', ' ')} of {package_id}, is missing."
                fix = "Run `remit init`, or install the package anew."
                checked.findings.append(Finding(problem, fix, package_id, path))
            except PackageError as error:
                checked.findings.append(Finding(error.message, error.next_step, package_id, path))
