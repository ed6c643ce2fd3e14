"""The loader of contracts and packs, in every version, which notices changes of files."""

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
from remit.kernel.installed_files import InstalledFiles

_PACK_ID = re.compile(r"PRM-[A-Z]+-[0-9]+")
_PACK_SUFFIXES = (".txt", ".md", ".j2")

_T = TypeVar("_T")
_Digested = TypeVar("_Digested", PromptContract, PromptPack)
_Versions = dict[str, list[tuple[Path, PromptContract]]]
_Broken = list[tuple[Path, ContractError]]
_Texts = list[str]
_Contracts = list[PromptContract]


class ContractLoader:
    """A reader of ``contracts/`` and ``prompt_packs/`` below tier folders.

    The file of a contract is named ``{contract_id}.json`` or ``{contract_id}@{version}.json``, that
    of a pack ``{prompt_pack_id}`` with the suffix ``.txt``, ``.md`` or ``.j2``. Two files of one
    version, or of one pack, must be equal. Parsed files stay in memory, and are read again if they
    changed.

    Args:
        directory: the tier folder, ``HO1`` of a root.
        more: folders of the same form that are searched after it.
        installed: installed files of the root that ``directory`` belongs to. If given, only
            unchanged files of packages are loaded from there.
        framework_of: returns the framework of an installed package, given the package's id.
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
        """Return the newest version of a contract, or the given version.

        The order is that of Semantic Versioning 2.0.0; a pre-release is returned only if there is
        no release. Files are read again only if they changed. Without a version, any unusable file
        of the contract is refused. With a version, an unusable file is refused only if its name
        allows the version and no usable file contains it. The pack is not loaded. ``package_id``
        and ``framework_id`` are set if a package installed the file.

        Args:
            contract_id: id without version.
            version: exact version; ``None`` for the newest.

        Raises:
            ContractError: ``contract_not_found``: there is no such contract or version;
                ``contract_schema_invalid``: a folder cannot be listed, a file is refused as not
                valid, or two files of the version differ; ``contract_changed``: a file is refused
                as not installed, or not as it was installed.
            ChangedFileError: the table of installed files cannot be read.
        """
        versions, broken = self._versions(contract_id)
        found = {known: files for known, files in versions.items() if version in (None, known)}
        names = (contract_id, f"{contract_id}@{version}")
        for path, error in broken:
            if version is None or (not found and path.stem in names):
                raise error
        if not found:
            raise self._not_found(contract_id, version, versions)
        newest, *others = found
        if others:
            newest = max(found, key=lambda known: _rank(found[known][0][1]))
        _same(f"{contract_id} {newest}", found[newest])
        return self._owned(*found[newest][0])

    def in_place_of(
        self, contract: PromptContract, aside: Collection[str]
    ) -> PromptContract | None:
        """Return the newest older version that may replace a contract; ``None`` if none may.

        Both versions come from packages; a program's own contracts are never replaced. An older
        version may replace the contract if :meth:`PromptContract.allows_no_more_than` is true, both
        are releases or both pre-releases, and its pack can be loaded. Unusable files, and versions
        that two files state differently, are skipped.

        Args:
            contract: a contract that :meth:`load` returned.
            aside: versions that are skipped, ``contract@version``.

        Raises:
            ContractError: the folder cannot be listed.
            ChangedFileError: the table of installed files cannot be read.
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
        """Return the contract with its package and framework."""
        if self._installed is None or not path.is_relative_to(self._directory):
            return contract
        owner = self._installed.owner(self._installed.path_of(path))
        framework = self._framework_of(owner) if owner and self._framework_of else ""
        return replace(contract, package_id=owner, framework_id=framework)

    def load_pack(self, prompt_pack_id: str) -> PromptPack:
        """Return the prompt pack with an id, from the first of the folders that has it.

        Args:
            prompt_pack_id: ``PRM-NAME-001``; another form is not found.

        Raises:
            ContractError: ``prompt_pack_not_found``: there is no such pack;
                ``contract_schema_invalid``: a folder cannot be listed, a file is not a pack, or two
                files differ; ``contract_changed``: a file is not installed, or not as it was
                installed.
            ChangedFileError: the table of installed files cannot be read.
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
        """Return every valid version of every contract, by id, older versions first.

        Invalid files and versions whose files differ are left out; :meth:`problems` names them.
        ``package_id`` and ``framework_id`` are empty.

        Raises:
            ContractError: a folder cannot be listed.
            ChangedFileError: the table of installed files cannot be read.
        """
        return self._examined()[0]

    def further_ids(self) -> _Texts:
        """Return the ids of the contracts in the folders after the first.

        The ids are sorted. The files are not checked.

        Raises:
            ContractError: a folder cannot be listed.
        """
        return _names(self._contracts[1:])

    def problems(self) -> _Texts:
        """Return the problems of contract and pack files, a sentence each; empty if there are none.

        A contract without its pack is a problem too. Problems of contracts come first, then those
        of packs, then contracts without a pack.

        Raises:
            ContractError: a folder of contracts or packs cannot be listed.
            ChangedFileError: the table of installed files cannot be read.
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
        """Return the files of a contract by version, and the invalid files."""
        versions: _Versions = {}
        broken: _Broken = []
        for path, value in _all(self._contracts, contract_id):
            if isinstance(value, ContractError):
                broken.append((path, value))
            else:
                versions.setdefault(value.version, []).append((path, value))
        return versions, broken

    def _examined(self) -> tuple[_Contracts, _Texts]:
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


def _names(folders: Iterable[Folder[_T]]) -> _Texts:
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
                next_step="Change the version of one of them.",
            )


def _rank(contract: PromptContract) -> tuple[object, ...]:
    return (not contract.prerelease, contract.precedence, contract.version)


def parse_contract(path: Path, data: bytes) -> PromptContract:
    """Return the contract in a file. ``package_id`` and ``framework_id`` stay empty.

    Args:
        path: the file's path, for its name; the file is not read.
        data: the file's bytes.

    Raises:
        ContractError: ``contract_schema_invalid``: the file is not a contract, or its name is not
            that of the contract.
    """
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
    """Return the pack in a file.

    Args:
        path: the file's path, for its name; the file is not read.
        data: the file's bytes.

    Raises:
        ContractError: ``contract_schema_invalid``: the bytes are not UTF-8, the file is not a pack,
            or its name is not that of a pack.
    """
    if not _PACK_ID.fullmatch(path.stem) or path.suffix not in _PACK_SUFFIXES:
        raise ContractError(
            "contract_schema_invalid",
            f"{path.name} is not a valid name of a prompt pack.",
            next_step="Use the name in the contract, such as PRM-NAME-001.txt.",
        )
    return PromptPack.parse(path.stem, text_of(data, path.name))
