"""The packages that checks look at, installed or as they would be, with their documents."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from remit.contracts import (
    ContractError,
    PromptContract,
    PromptPack,
    parse_contract,
    parse_pack,
)
from remit.packages.checks.files import Finding, RootDisk
from remit.packages.documents import (
    Acceptance,
    AcceptanceCase,
    AgentDocument,
    DocumentError,
    Framework,
    Specification,
    read_schema,
)
from remit.packages.errors import PackageError
from remit.packages.registry import Registry

__all__ = ["RULES", "SHAPES", "Documents", "PackageView"]

RULES = ("spec", "framework")
"""Classifications of what says what a package may be."""

SHAPES = ("contract", "prompt_pack", "schema", "agent")
"""Classifications of what shapes agents."""

_KEEP_ONE = "Keep one of them."


@dataclass(slots=True)
class Documents:
    """What packages bring, as far as it can be used.

    Attributes:
        specs: by id.
        frameworks: by id.
        contracts: by id, every version with its package.
        packs: by id.
        agents: by id, with their package.
        schemas: JSON Schemas, by path.
        acceptance: cases, by path of their file.
        problems: what is wrong with the files, each with the file's classification.
    """

    specs: dict[str, Specification] = field(default_factory=dict)
    frameworks: dict[str, Framework] = field(default_factory=dict)
    contracts: dict[str, list[tuple[PromptContract, str]]] = field(default_factory=dict)
    packs: dict[str, PromptPack] = field(default_factory=dict)
    agents: dict[str, tuple[AgentDocument, str]] = field(default_factory=dict)
    schemas: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    acceptance: dict[str, tuple[AcceptanceCase, ...]] = field(default_factory=dict)
    problems: list[tuple[str, Finding]] = field(default_factory=list)

    def wrong(self, *kinds: str) -> Iterator[Finding]:
        """What is wrong with the files of these classifications."""
        return (finding for kind, finding in self.problems if kind in kinds)

    def every_contract(self) -> Iterator[tuple[PromptContract, str]]:
        """Every version of every contract, with its package."""
        return itertools.chain.from_iterable(self.contracts.values())

    def newest(self, contract_id: str) -> PromptContract | None:
        """The version of a contract that is used: the greatest, releases before pre-releases."""
        versions = [contract for contract, _ in self.contracts.get(contract_id, ())]
        return max(versions, key=lambda one: (not one.prerelease, one.precedence), default=None)


@dataclass(frozen=True)
class PackageView:
    """Packages and their files.

    Attributes:
        registry: the packages.
        files: gives their files.
        tool_ids: of all tools that there are.
        routes: names that mean a choice of models.
    """

    registry: Registry
    files: RootDisk
    tool_ids: Collection[str] = ()
    routes: Collection[str] = ()

    def framework_of(self, package_id: str) -> Framework | None:
        """The framework of a package; ``None`` where it cannot be used."""
        manifest = self.registry.packages[package_id].manifest
        return self.documents.frameworks.get(manifest.framework_id)

    @cached_property
    def documents(self) -> Documents:
        """What the packages bring; each file is read once."""
        found, owners = Documents(), dict[str, str]()
        for package_id, package in self.registry.packages.items():
            for asset in package.manifest.assets:
                kind, path = asset.classification, asset.path
                if kind not in (*RULES, *SHAPES, "acceptance"):
                    continue
                try:
                    _add(found, owners, kind, path, package_id, self.files.read(path))
                except FileNotFoundError:
                    problem = f"{path}, which {package_id} brings, is missing."
                    fix = "Run `remit init`, or install the package again."
                    found.problems.append((kind, Finding(problem, fix)))
                except (PackageError, ContractError) as error:
                    fix = "Bring a valid file in a new version of its package."
                    found.problems.append((kind, Finding.of(error, fix)))
        for contract, _ in found.every_contract():
            if contract.prompt_pack_id not in found.packs:
                problem = (
                    f"{contract.contract_id} {contract.version} binds {contract.prompt_pack_id}, "
                    "which is not installed."
                )
                fix = "Install the package that brings it."
                found.problems.append(("contract", Finding(problem, fix)))
        return found


def _add(
    found: Documents, owners: dict[str, str], kind: str, path: str, package_id: str, data: bytes
) -> None:
    match kind:
        case "spec":
            spec = Specification.parse(data, path)
            _claim(owners, spec.spec_id, package_id, path)
            found.specs[spec.spec_id] = spec
        case "framework":
            framework = Framework.parse(data, path)
            _claim(owners, framework.framework_id, package_id, path)
            found.frameworks[framework.framework_id] = framework
        case "agent":
            agent = AgentDocument.parse(data, path)
            name = f"The agent {agent.agent_id}"
            if owners.get(name) != package_id:
                _claim(owners, name, package_id, path)
                found.agents[agent.agent_id] = agent, package_id
        case "contract":
            contract = parse_contract(Path(path), data)
            versions = found.contracts.setdefault(contract.contract_id, [])
            for other, owner in versions:
                if other.version == contract.version and other.digest != contract.digest:
                    problem = f"{path} and {owner} both bring {contract.contract_id} "
                    problem += f"{contract.version}, and not the same."
                    raise DocumentError(problem, next_step="Give one of them another version.")
            versions.append((contract, package_id))
        case "prompt_pack":
            pack = parse_pack(Path(path), data)
            if found.packs.setdefault(pack.prompt_pack_id, pack).digest != pack.digest:
                problem = f"{path} is another {pack.prompt_pack_id} than one that is installed too."
                raise DocumentError(problem, next_step=_KEEP_ONE)
        case "acceptance":
            found.acceptance[path] = Acceptance.parse(data, path).cases
        case "schema" if path.endswith(".json"):
            found.schemas[path] = read_schema(data, path)


def _claim(owners: dict[str, str], name: str, package_id: str, path: str) -> None:
    if name in owners:
        problem = f"{name} is brought by {owners[name]}, and again by {package_id} ({path})."
        raise DocumentError(problem, next_step=_KEEP_ONE)
    owners[name] = package_id
