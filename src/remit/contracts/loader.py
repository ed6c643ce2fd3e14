"""Finds contracts and packs, in every version, and notices when they change."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from remit.contracts.contract import PromptContract
from remit.contracts.folder import ContractError, Folder, text_of
from remit.contracts.pack import PromptPack
from remit.kernel.installed import InstalledFiles

_PACK_ID = re.compile(r"PRM-[A-Z]+-[0-9]+")
_PACK_SUFFIXES = (".txt", ".md", ".j2")

_T = TypeVar("_T")
_Digested = TypeVar("_Digested", PromptContract, PromptPack)
_Versions = dict[str, list[tuple[Path, PromptContract]]]
_Broken = list[tuple[Path, ContractError]]
_Problems = list[str]
_Contracts = list[PromptContract]


class ContractLoader:
    """Reads ``contracts/`` and ``prompt_packs/`` below tier folders.

    A contract's file is called ``{contract_id}.json`` or ``{contract_id}@{version}.json``, a
    pack's ``{prompt_pack_id}`` with the suffix ``.txt``, ``.md`` or ``.j2``. What two files say
    of one version, or of one pack, must be equal.

    Args:
        directory: the tier folder, ``HO1`` of a root.
        more: folders of the same form, searched after it.
        installed: of the root that ``directory`` belongs to: only what packages brought to it
            is loaded, and only as they brought it.
        framework_of: the framework of an installed package, by the package's id.
    """

    def __init__(
        self,
        directory: Path,
        *more: Path,
        installed: InstalledFiles | None = None,
        framework_of: Callable[[str], str] | None = None,
    ) -> None:
        self._directory, self._installed, self._framework_of = directory, installed, framework_of
        places = [(directory, installed), *((place, None) for place in more)]
        self._contracts = [
            Folder(place / "contracts", (".json",), parse_contract, known)
            for place, known in places
        ]
        self._packs = [
            Folder(place / "prompt_packs", _PACK_SUFFIXES, parse_pack, known)
            for place, known in places
        ]

    def load(self, contract_id: str, version: str | None = None) -> PromptContract:
        """The newest installed version of a contract, or exactly the one asked for.

        Newest is by the precedence of Semantic Versioning 2.0.0; a pre-release only where
        there is no release.

        Raises:
            ContractError: ``contract_not_found``; or ``contract_schema_invalid``, when a file
                that could hold what is asked for cannot be used, or two files disagree.
        """
        versions, broken = self._versions(contract_id)
        found = {known: files for known, files in versions.items() if version in (None, known)}
        names = (contract_id, f"{contract_id}@{version}")
        for path, error in broken:
            if version is None or (not found and path.stem in names):
                raise error
        if not found:
            raise self._not_found(contract_id, version, versions)
        newest = max(found, key=lambda known: _rank(found[known][0][1]))
        _same(f"{contract_id} {newest}", found[newest])
        return self._owned(*found[newest][0])

    def in_place_of(
        self, contract: PromptContract, aside: Collection[str]
    ) -> PromptContract | None:
        """Return the newest version before ``contract`` that allows no more; ``None`` if none does.

        Both versions come from packages; a program's own contracts are never replaced.

        Args:
            contract: a contract that :meth:`load` returned.
            aside: versions that are skipped, ``contract@version``.
        """
        versions, _ = self._versions(contract.contract_id)
        known = sorted(versions.values(), key=lambda files: _rank(files[0][1]), reverse=True)
        for files in known if contract.package_id else ():
            before = self._owned(*files[0])
            if (
                _rank(before) < _rank(contract)
                and before.package_id
                and before.name not in aside
                and before.prerelease is contract.prerelease
                and before.allows_no_more_than(contract)
            ):
                with contextlib.suppress(ContractError):  # An unusable version is skipped.
                    _same(before.name, files)
                    self.load_pack(before.prompt_pack_id)
                    return before
        return None

    def _owned(self, path: Path, contract: PromptContract) -> PromptContract:
        """The contract with the package that brought it."""
        if self._installed is None or not path.is_relative_to(self._directory):
            return contract
        owner = self._installed.owner(self._installed.path_of(path))
        framework = self._framework_of(owner) if owner and self._framework_of else ""
        return replace(contract, package_id=owner, framework_id=framework)

    def load_pack(self, prompt_pack_id: str) -> PromptPack:
        """The pack with that id.

        Raises:
            ContractError: ``prompt_pack_not_found``; or ``contract_schema_invalid``, when it
                is not a pack, or two files disagree.
        """
        found: list[tuple[Path, PromptPack]] = []
        if _PACK_ID.fullmatch(prompt_pack_id):
            for path, value in _all(self._packs, prompt_pack_id):
                if isinstance(value, ContractError):
                    raise value
                found.append((path, value))
        if not found:
            raise ContractError(
                "prompt_pack_not_found",
                f"The prompt pack {prompt_pack_id!r} is not in {_places(self._packs)}."
                f"{_nearest(prompt_pack_id, self._packs)}",
                next_step="`remit init` restores the shipped packs.",
            )
        _same(prompt_pack_id, found)
        return found[0][1]

    def list(self) -> _Contracts:
        """Every version of every contract that can be loaded, by id, older versions first."""
        return self._examined()[0]

    def beside(self) -> _Problems:
        """Ids of the contracts in the folders that are searched after the first one."""
        return _names(self._contracts[1:])

    def problems(self) -> _Problems:
        """Return the problems of contract and pack files, a sentence each; empty if there are none.

        A contract without its pack is a problem too.
        """
        contracts, problems = self._examined()
        for name in _names(self._packs):
            try:
                self.load_pack(name)
            except ContractError as error:
                problems.append(error.message)
        for contract in contracts:
            try:
                self.load_pack(contract.prompt_pack_id)
            except ContractError as error:
                if error.code == "prompt_pack_not_found":
                    about = f"{contract.contract_id} {contract.version}"
                    problems.append(f"{about} cannot be used: {error.message}")
        return problems

    def _versions(self, contract_id: str) -> tuple[_Versions, _Broken]:
        """The files of a contract by the version they hold, and those that cannot be used."""
        versions: _Versions = {}
        broken: _Broken = []
        for path, value in _all(self._contracts, contract_id):
            if isinstance(value, ContractError):
                broken.append((path, value))
            else:
                versions.setdefault(value.version, []).append((path, value))
        return versions, broken

    def _examined(self) -> tuple[_Contracts, _Problems]:
        problems: list[str] = []
        good: list[PromptContract] = []
        for name in _names(self._contracts):
            versions, broken = self._versions(name)
            problems += [error.message for _, error in broken]
            for version, found in versions.items():
                try:
                    _same(f"{name} {version}", found)
                    good.append(found[0][1])
                except ContractError as error:
                    problems.append(error.message)
        good.sort(key=lambda it: (it.contract_id, it.precedence, it.version))
        return good, problems

    def _not_found(
        self, contract_id: str, version: str | None, versions: _Versions
    ) -> ContractError:
        hint = f" There is {', '.join(sorted(versions))}."
        if not versions:
            hint = _nearest(contract_id, self._contracts)
        return ContractError(
            "contract_not_found",
            f"The contract {contract_id!r}{f' {version}' if version else ''} is not in "
            f"{_places(self._contracts)}.{hint}",
            next_step="`remit init` restores the shipped contracts.",
        )


def _all(folders: Iterable[Folder[_T]], name: str) -> Iterator[tuple[Path, _T | ContractError]]:
    for folder in folders:
        for file in folder.names().get(name, ()):
            if (value := folder.read(file)) is not None:
                yield folder.path / file, value


def _names(folders: Iterable[Folder[_T]]) -> _Problems:
    return sorted({name for folder in folders for name in folder.names()})


def _places(folders: Iterable[Folder[_T]]) -> str:
    return " or ".join(str(folder.path) for folder in folders)


def _nearest(name: str, folders: Iterable[Folder[_T]]) -> str:
    near = difflib.get_close_matches(name, _names(folders), n=1)
    return f" Did you mean {near[0]}?" if near else ""


def _same(what: str, found: Iterable[tuple[Path, _Digested]]) -> None:
    (first, value), *others = found
    for path, other in others:
        if other.digest != value.digest:
            raise ContractError(
                "contract_schema_invalid",
                f"{first} and {path} both contain {what} but differ.",
                next_step="Give one of them another version.",
            )


def _rank(contract: PromptContract) -> tuple[object, ...]:
    return (not contract.prerelease, contract.precedence, contract.version)


def parse_contract(path: Path, data: bytes) -> PromptContract:
    """The contract in a file; raises :class:`ContractError`, also for another file name."""
    contract = PromptContract.parse(data, path.name)
    names = f"{contract.contract_id}.json", f"{contract.contract_id}@{contract.version}.json"
    if path.name not in names:
        raise ContractError(
            "contract_schema_invalid",
            f"{path.name} contains {contract.contract_id} {contract.version}.",
            next_step=f"Rename the file to {names[0]} or {names[1]}.",
        )
    return contract


def parse_pack(path: Path, data: bytes) -> PromptPack:
    """The pack in a file; raises :class:`ContractError`, also for another file name."""
    if not _PACK_ID.fullmatch(path.stem) or path.suffix not in _PACK_SUFFIXES:
        raise ContractError(
            "contract_schema_invalid",
            f"{path.name} is not a valid name of a prompt pack.",
            next_step="Use the name in the contract, such as PRM-NAME-001.txt.",
        )
    return PromptPack.parse(path.stem, text_of(data, path.name))
