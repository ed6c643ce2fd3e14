"""Files, batches and containers that providers keep: whose they are (SPEC 4.0)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple

from remit.gateway.auth import Identity
from remit.gateway.call import Candidate
from remit.gateway.tenancy import owner_of
from remit.kernel.json_text import JsonTextError, load
from remit.ledger import LedgerClient, Transaction, is_plain_text
from remit.providers.wire.body import Body

__all__ = ["KeptObject", "Objects", "forget", "keep", "may_name", "notes_made", "objects_named"]

Kind = Literal["file", "batch", "container"]

_MOST_CHARS = 512
_AT_ONCE = 500  # ids in one query
_NAMES = ("file_id", "file_ids", "container_id", "container")
_OUTPUTS = ("code_execution_output", "bash_code_execution_output")  # blocks with a file
_KEEP = (
    "INSERT INTO provider_objects (object_id, kind, provider_id, owner, entry_id) "
    "VALUES (?, ?, ?, ?, ?) ON CONFLICT (object_id) DO NOTHING"
)


class KeptObject(NamedTuple):
    """Something that a provider keeps for a caller.

    Attributes:
        owner: as :func:`~remit.gateway.tenancy.owner_of` names them.
        entry_id: of the ``EXCHANGE`` that made it.
    """

    object_id: str
    kind: str
    provider_id: str
    owner: str
    entry_id: str


class Objects:
    """What is kept, read from the ledger's database; blocks."""

    def __init__(self, ledger: LedgerClient) -> None:
        self._ledger = ledger

    def find(self, object_id: str, kind: Kind, owner: str) -> KeptObject | None:
        """An object of an owner; ``None`` where there is none, or it is another's."""
        if not _is_id(object_id):
            return None
        rows = self._ledger.select(
            "SELECT object_id, kind, provider_id, owner, entry_id FROM provider_objects "
            "WHERE object_id = ?",
            (object_id,),
        )
        found = KeptObject(*rows[0]) if rows else None
        return found if found is not None and (found.kind, found.owner) == (kind, owner) else None

    def of_others(self, names: list[str], owner: str) -> str:
        """The first of these objects that another caller made; empty where there is none.

        What was not made here (by the operator, at the provider) belongs to no other caller.
        """
        for start in range(0, len(names), _AT_ONCE):
            group = names[start : start + _AT_ONCE]
            rows = self._ledger.select(
                "SELECT object_id FROM provider_objects WHERE owner <> ? AND object_id IN "
                f"({', '.join('?' * len(group))}) LIMIT 1",
                (owner, *group),
            )
            if rows:
                return str(rows[0][0])
        return ""

    def of_owner(self, kind: Kind, owner: str) -> dict[str, str]:
        """An owner's objects: id and provider."""
        rows = self._ledger.select(
            "SELECT object_id, provider_id FROM provider_objects WHERE owner = ? AND kind = ?",
            (owner, kind),
        )
        return dict(rows)


def may_name(raw: bytes) -> bool:
    """Whether a text may name an object: nearly none does. A name may be escaped."""
    return b"file_id" in raw or b'"container' in raw or b"\\u00" in raw


def objects_named(body: Body) -> list[str]:
    """Ids of the files and containers that a call names, in any dialect, at any place."""
    if not may_name(body.raw):
        return []
    found: dict[str, None] = {}
    for value in _mappings(body.value):
        for name in _NAMES:
            named = value.get(name)
            if type(named) is dict:
                named = named.get("id")
            for each in named if type(named) is list else [named]:
                if isinstance(each, str) and _is_id(each):
                    found[each] = None
    return list(found)


def notes_made(
    identity: Identity | None, to: Candidate, answer: bytes
) -> Callable[[Transaction, str], None] | None:
    """Notes the containers that code of a call ran in, and the files it wrote, as the caller's:
    those that the answer tells of and the call did not name."""
    if identity is None or to.outgoing is None:
        return None
    asked, owner = to.outgoing.body.raw, owner_of(identity)
    try:
        value = load(answer)
    except JsonTextError:
        return None
    found: dict[str, Kind] = {}
    for part in _mappings(value):
        container = part.get("container")
        made: list[tuple[Any, Kind]] = [
            (part.get("container_id"), "container"),
            (container.get("id") if type(container) is dict else None, "container"),
            (part.get("file_id") if part.get("type") in _OUTPUTS else None, "file"),
        ]
        for name, kind in made:
            if isinstance(name, str) and _is_id(name) and name.encode() not in asked:
                found[name] = kind
    if not found:
        return None
    return lambda tx, entry_id: keep(
        tx, [KeptObject(name, kind, to.provider_id, owner, entry_id)
             for name, kind in found.items()],
    )  # fmt: skip


def _mappings(value: Any) -> Iterator[dict[str, Any]]:
    left = [value]
    while left:
        value = left.pop()
        if type(value) is list:
            left += value
        elif type(value) is dict:
            left += value.values()
            yield value


def keep(tx: Transaction, objects: Iterable[KeptObject]) -> None:
    """Note whose new objects are; what is known already stays its owner's."""
    tx.execute_many(_KEEP, [tuple(kept) for kept in objects if _is_id(kept.object_id)])


def forget(tx: Transaction, object_id: str) -> None:
    """An object is gone."""
    tx.execute_many("DELETE FROM provider_objects WHERE object_id = ?", [(object_id,)])


def _is_id(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _MOST_CHARS and is_plain_text(value)
