"""Finds contracts and packs in a root, and notices when they change."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from remit.contracts.contract import ContractError, PromptContract
from remit.contracts.pack import PromptPack

__all__ = ["ContractLoader"]

_T = TypeVar("_T")


class ContractLoader:
    """Reads ``contracts/*.json`` and ``prompt_packs/PRM-…`` below one tier folder.

    Args:
        directory: the tier folder, ``HO1`` of a root.
    """

    def __init__(self, directory: Path) -> None:
        self._contracts = directory / "contracts"
        self._packs = directory / "prompt_packs"
        self._cache: dict[Path, tuple[tuple[int, int, int], object]] = {}
        self._lock = threading.Lock()

    def load(self, contract_id: str, version: str | None = None) -> PromptContract:
        """The newest installed version of a contract, or the one asked for.

        Raises:
            ContractError: ``contract_not_found``, or ``contract_schema_invalid`` when a file
                that carries its name cannot be used.
        """
        found: list[PromptContract] = []
        for path in sorted(self._contracts.glob("*.json")):
            try:
                contract = self._cached(path, functools.partial(_contract, path.name))
            except ContractError:
                if path.stem.partition("@")[0] == contract_id:
                    raise
                continue
            if contract.contract_id == contract_id and version in (None, contract.version):
                found.append(contract)
        if not found:
            raise ContractError(
                "contract_not_found",
                f"The contract {contract_id}{f' {version}' if version else ''} is not in "
                f"{self._contracts}.",
                next_step="`remit init` puts the shipped contracts back.",
            )
        return max(found, key=lambda contract: contract.precedence)

    def load_pack(self, prompt_pack_id: str) -> PromptPack:
        """The pack with that id.

        Raises:
            ContractError: ``prompt_pack_not_found``, or it is not a template.
        """
        for path in sorted(self._packs.glob(f"{prompt_pack_id}.*")):
            return self._cached(
                path, lambda data: PromptPack.parse(prompt_pack_id, data.decode("utf-8"))
            )
        raise ContractError(
            "prompt_pack_not_found",
            f"The prompt pack {prompt_pack_id} is not in {self._packs}.",
            next_step="`remit init` puts the shipped packs back.",
        )

    def _cached(self, path: Path, parse: Callable[[bytes], _T]) -> _T:
        try:
            status = path.stat()
            identity = (status.st_ino, status.st_mtime_ns, status.st_size)
            with self._lock:
                known = self._cache.get(path)
            if known is not None and known[0] == identity:
                return known[1]  # type: ignore[return-value]
            value = parse(path.read_bytes())
        except (OSError, UnicodeDecodeError) as error:
            raise ContractError(
                "contract_schema_invalid", f"{path} cannot be read: {error}."
            ) from error
        with self._lock:
            self._cache[path] = (identity, value)
        return value


def _contract(name: str, data: bytes) -> PromptContract:
    return PromptContract.parse(data, name)
