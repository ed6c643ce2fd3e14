"""Files and batches that providers keep: whose they are (SPEC 4.0)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from remit.ledger import LedgerClient, Transaction, is_plain_text
from remit.providers.wire.body import Body

__all__ = ["KeptObject", "Objects", "files_named", "forget", "keep"]

Kind = Literal["file", "batch"]

_MOST_CHARS = 512
_AT_ONCE = 500  # ids in one query
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


def files_named(body: Body) -> list[str]:
    """Ids of the files that a call names, in any dialect."""
    # Looked for in the text first: nearly no call names any, and a name may be escaped.
    if b"file_id" not in body.raw and b"\\u00" not in body.raw:
        return []
    found: dict[str, None] = {}
    left: list[Any] = [body.value]
    while left:
        value = left.pop()
        if type(value) is list:
            left += value
        elif type(value) is dict:
            left += value.values()
            for name in ("file_id", "file_ids"):
                named = value.get(name)
                for each in named if type(named) is list else [named]:
                    if isinstance(each, str) and _is_id(each):
                        found[each] = None
    return list(found)


def keep(tx: Transaction, objects: Iterable[KeptObject]) -> None:
    """Note whose new objects are; what is known already stays its owner's."""
    tx.execute_many(_KEEP, [tuple(kept) for kept in objects if _is_id(kept.object_id)])


def forget(tx: Transaction, object_id: str) -> None:
    """An object is gone."""
    tx.execute_many("DELETE FROM provider_objects WHERE object_id = ?", [(object_id,)])


def _is_id(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _MOST_CHARS and is_plain_text(value)
