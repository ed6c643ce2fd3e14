"""Context that a contract requires: entries of the ledger, frameworks, files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import orjson

from remit.contracts.contract import PromptContract
from remit.contracts.folder import ContractError, read_inside, text_of
from remit.kernel.errors import InvalidInputError
from remit.kernel.installed_files import ChangedFileError, InstalledFiles, NotInstalledError
from remit.kernel.json_text import dump, load_exact
from remit.ledger import Erased, LedgerPort

_CURRENT = "current"
_LIMIT = 10  # The contract schema states this default of a query.
_FRAMEWORK_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_FRAMEWORK_SUFFIXES = (".md", ".json", ".txt")


def required_context(
    contract: PromptContract,
    ledger: LedgerPort,
    directory: Path,
    *,
    max_bytes: int,
    session_id: str = "",
    installed: InstalledFiles | None = None,
) -> dict[str, Any]:
    """Return the context that the contract's ``required_context`` names.

    Files and ledger are only read. A missing framework or file is refused, a query without results
    is not. A query returns at most 10 entries, latest first, unless it states otherwise. The bytes
    of queries, frameworks and files count in this order. If the first file of a framework may not
    be used, the framework is refused and no other suffix tried.

    Args:
        contract: the contract.
        ledger: the ledger; a scoped handle returns only entries that its tier may see.
        directory: the tier folder. Frameworks are in its ``frameworks`` (``.md``, ``.json``,
            ``.txt``, the first that exists), and no file outside is read.
        max_bytes: limit of the bytes of everything together, entries as JSON.
        session_id: the session for a query with ``"current"``; such a query is refused if empty.
        installed: installed files of the root that ``directory`` belongs to. If given, only
            unchanged files of packages are read.

    Returns:
        ``{"ledger": [row, …], "frameworks": {id: text}, "files": {path: text}}``. The rows of all
        queries form one list, in the order of the queries. A row is ``{id, event_type, timestamp,
        reason, metadata}`` with JSON values only. An erased value is ``{"erased": erasure id or
        null}``. A query without results adds no row.

    Raises:
        ContractError: ``required_context_missing``: something is missing, refused or too large; the
            message names it.
        LedgerError: the ledger cannot be read.
    """
    needs = contract.required_context
    budget = _Budget(contract.contract_id, max_bytes, installed)
    rows: list[dict[str, Any]] = []
    for number, query in enumerate(needs.get("ledger_queries", ()), 1):
        rows += _rows(query, f"ledger query {number}", ledger, session_id, budget)
    return {
        "ledger": rows,
        "frameworks": {
            name: _framework(name, directory, budget) for name in needs.get("framework_refs", ())
        },
        "files": {name: _file(name, directory, budget) for name in needs.get("file_refs", ())},
    }


class _Budget:
    """The number of bytes that may still be added, and the errors of one contract."""

    def __init__(self, contract_id: str, max_bytes: int, installed: InstalledFiles | None) -> None:
        self._contract_id = contract_id
        self.installed = installed
        self._most = max_bytes
        self.left = max_bytes

    def take(self, size: int, what: str) -> None:
        self.left -= size
        if self.left < 0:
            raise self.error(what, f"does not fit into the {self._most} bytes there are for all")

    def error(self, what: str, why: str, next_step: str = "") -> ContractError:
        return ContractError(
            "required_context_missing",
            f"{self._contract_id} requires {what}, which {why}.",
            next_step=next_step,
        )


def _rows(
    query: Mapping[str, Any], what: str, ledger: LedgerPort, session_id: str, budget: _Budget
) -> list[dict[str, Any]]:
    filters = {
        name: query[name] for name in ("event_type", "session_id", "work_order_id") if name in query
    }
    if filters.get("session_id") == _CURRENT:
        if not session_id:
            raise budget.error(what, "asks for the current session, but there is none")
        filters["session_id"] = session_id
    found: list[dict[str, Any]] = []
    try:
        for entry in ledger.query(
            **filters, limit=query.get("limit", _LIMIT), order=query.get("order", "desc")
        ):
            row = {
                "id": entry.id,
                "event_type": entry.event_type,
                "timestamp": entry.timestamp,
                "reason": entry.reason,
                "metadata": entry.metadata,
            }
            encoded = dump(row, _plain, orjson.OPT_PASSTHROUGH_DATACLASS)
            budget.take(len(encoded), what)
            found.append(load_exact(encoded))
    except InvalidInputError as error:
        raise budget.error(what, f"cannot be asked: {error.message}") from error
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, Erased):
        return {"erased": value.erasure_id}
    raise TypeError(type(value).__name__)


def _framework(name: str, directory: Path, budget: _Budget) -> str:
    what = f"the framework {name!r}"
    if not _FRAMEWORK_ID.fullmatch(name):
        raise budget.error(what, "is not a valid framework name")
    for suffix in _FRAMEWORK_SUFFIXES:
        text = _text(directory, directory / "frameworks" / f"{name}{suffix}", what, budget)
        if text is not None:
            return text
    raise budget.error(
        what,
        f"is not in {directory / 'frameworks'}",
        f"Add {name}.md there, or leave it out of the contract.",
    )


def _file(name: str, directory: Path, budget: _Budget) -> str:
    what = f"the file {name!r}"
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\\" in name:
        raise budget.error(what, "is not a path inside the folder of the tier")
    text = _text(directory, directory / path, what, budget)
    if text is None:
        raise budget.error(what, f"is not in {directory}")
    return text


def _text(directory: Path, path: Path, what: str, budget: _Budget) -> str | None:
    try:
        data = read_inside(directory, path, budget.left)
        if budget.installed is not None:
            data = budget.installed.read(budget.installed.path_of(path))
        text = text_of(data, path.name)
    except FileNotFoundError:
        return None
    except (ContractError, NotInstalledError, ChangedFileError) as error:
        raise budget.error(what, f"may not be used: {error.message.rstrip('.')}") from error
    budget.take(len(data), what)
    return text
