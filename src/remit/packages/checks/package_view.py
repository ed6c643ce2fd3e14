"""The packages and documents that checks read, as installed or as an operation would leave them."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from remit.contracts import ContractError, PromptContract, PromptPack, parse_contract, parse_pack
from remit.packages.checks.root_disk import Finding, RootDisk
from remit.packages.documents import (
    AgentDocument,
    Framework,
    Specification,
    invalid_document,
    read_cases,
    read_schema,
)
from remit.packages.errors import PackageError
from remit.packages.registry import Registry

RULES = ("spec", "framework")
"""Classifications of files that set rules for packages."""

SHAPES = ("contract", "prompt_pack", "schema", "agent")
"""Classifications of files that shape agents."""

_KEEP_ONE = "Keep one of them."


class PackageView:
    """Packages with their documents; the constructor reads each file once.

    A file that cannot be used is not in the view; :meth:`wrong` says why. Of two documents with one
    id, the first by package id is in the view; another package's is a fault, unless it is an equal
    prompt pack or contract. A contract may have several versions. Later changes of files have no
    effect.

    Args:
        registry: the packages.
        files: the files of the root.
        tool_ids: ids of all existing tools.
        routes: names of routes, which agents may name instead of a model.

    Attributes:
        registry: as given.
        tool_ids: as given.
        routes: as given.
        specs: specifications by id.
        frameworks: frameworks by id.
        contracts: by id, every version of a contract with the id of its package.
        packs: prompt packs by id.
        agents: by id, agents with the id of their package.
        schemas: JSON Schemas by path, of files that end with ``.json``.
        acceptance: acceptance cases by path of their file.

    Raises:
        OSError: the root cannot be opened.
    """

    def __init__(
        self,
        registry: Registry,
        files: RootDisk,
        tool_ids: Collection[str] = (),
        routes: Collection[str] = (),
    ) -> None:
        self.registry = registry
        self.tool_ids = tool_ids
        self.routes = routes
        self.specs: dict[str, Specification] = {}
        self.frameworks: dict[str, Framework] = {}
        self.contracts: dict[str, list[tuple[PromptContract, str]]] = {}
        self.packs: dict[str, PromptPack] = {}
        self.agents: dict[str, tuple[AgentDocument, str]] = {}
        self.schemas: dict[str, Mapping[str, Any]] = {}
        self.acceptance: dict[str, list[dict[str, Any]]] = {}
        self._problems: list[tuple[str, Finding]] = []
        self._packages: dict[str, str] = {}  # By document, the package that brings it.
        for package_id, package in registry.packages.items():
            for asset in package.manifest.assets:
                kind, path = asset.classification, asset.path
                if kind not in (*RULES, *SHAPES, "acceptance"):
                    continue
                try:
                    self._add(kind, path, package_id, files.read(path))
                except FileNotFoundError:
                    problem = f"{path}, which {package_id} brings, is missing."
                    fix = "Run `remit init`, or install the package again."
                    self._problems.append((kind, Finding(problem, fix)))
                except (PackageError, ContractError) as error:
                    fix = "Correct the file in a new version of its package."
                    self._problems.append((kind, Finding.of(error, fix)))
        for contract, _ in self.every_contract():
            if contract.prompt_pack_id not in self.packs:
                problem = (
                    f"{contract.contract_id} {contract.version} binds {contract.prompt_pack_id}, "
                    "which is not installed."
                )
                fix = "Install the package that contains it."
                self._problems.append(("contract", Finding(problem, fix)))

    def wrong(self, *kinds: str) -> Iterator[Finding]:
        """Yield findings about files of some classifications that cannot be used, in the order of
        packages.

        A missing file is a finding too, and, for ``contract`` and after all others, a contract
        without its prompt pack.

        Args:
            kinds: classifications such as ``contract``.
        """
        return (finding for kind, finding in self._problems if kind in kinds)

    def every_contract(self) -> Iterator[tuple[PromptContract, str]]:
        """Yield every version of every contract with the id of its package."""
        return itertools.chain.from_iterable(self.contracts.values())

    def newest(self, contract_id: str) -> PromptContract | None:
        """Return the version of a contract that calls use; ``None`` if none is installed and
        usable.

        This is the greatest release, or the greatest pre-release if there is no release.

        Args:
            contract_id: id of the contract.
        """
        versions = [contract for contract, _ in self.contracts.get(contract_id, ())]
        return max(versions, key=lambda one: (not one.prerelease, one.precedence), default=None)

    def framework_of(self, package_id: str) -> Framework | None:
        """Return the framework of a package; ``None`` if it is not installed or cannot be used.

        Args:
            package_id: id of the package.

        Raises:
            KeyError: the package is not in the registry.
        """
        return self.frameworks.get(self.registry.packages[package_id].manifest.framework_id)

    def _add(self, kind: str, path: str, package_id: str, data: bytes) -> None:
        """Add one document.

        Raises:
            PackageError: ``document_invalid``: the file is invalid, or another package brings the
                same document.
            ContractError: the contract or prompt pack is invalid.
        """
        match kind:
            case "spec":
                spec = Specification.parse(data, path)
                self._claim(spec.spec_id, package_id, path)
                self.specs[spec.spec_id] = spec
            case "framework":
                framework = Framework.parse(data, path)
                self._claim(framework.framework_id, package_id, path)
                self.frameworks[framework.framework_id] = framework
            case "agent":
                agent = AgentDocument.parse(data, path)
                name = f"The agent {agent.agent_id}"
                if self._packages.get(name) != package_id:
                    self._claim(name, package_id, path)
                    self.agents[agent.agent_id] = agent, package_id
            case "contract":
                contract = parse_contract(Path(path), data)
                versions = self.contracts.setdefault(contract.contract_id, [])
                for other, owner in versions:
                    if other.version == contract.version and other.digest != contract.digest:
                        raise invalid_document(
                            f"{path} and {owner} both bring {contract.contract_id} "
                            f"{contract.version}, with different content.",
                            "Change the version of one of them.",
                        )
                versions.append((contract, package_id))
            case "prompt_pack":
                pack = parse_pack(Path(path), data)
                if self.packs.setdefault(pack.prompt_pack_id, pack).digest != pack.digest:
                    problem = f"{path} and another installed file bring different "
                    raise invalid_document(f"{problem}{pack.prompt_pack_id}.", _KEEP_ONE)
            case "acceptance":
                self.acceptance[path] = read_cases(data, path)
            case "schema" if path.endswith(".json"):
                self.schemas[path] = read_schema(data, path)

    def _claim(self, name: str, package_id: str, path: str) -> None:
        owner = self._packages.get(name)
        if owner is not None:
            problem = f"{name} is brought by {owner}, and again by {package_id} ({path})."
            raise invalid_document(problem, _KEEP_ONE)
        self._packages[name] = package_id
