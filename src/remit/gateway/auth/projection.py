"""The table ``virtual_keys`` as a fold over ``KEY_CREATED`` and ``KEY_REVOKED`` entries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from remit.gateway.auth.virtual_key import ALWAYS_RECORDED, LISTS, KeyRow
from remit.kernel.errors import InvalidInputError
from remit.ledger import (
    Finding,
    LedgerEntry,
    Projection,
    Row,
    Select,
    State,
    Transaction,
    apply,
    entry_id,
    folded_rows,
)

_OWNERS = ("user_id", "team_id", "organisation_id")
_STATED = ("name", "role", "prefix", "user_id", "team_id", "organisation_id", "expires", "hash")
_NOTHING = dict.fromkeys(("rotated", "old_until", "old_hash", "revoked", "revoked_entry"), "")


def recorded_keys(select: Select) -> dict[str, Row]:
    """Return all keys that the ledger ever recorded, keyed by key id; reads all their entries.

    A value is the columns of the key's row; a column that older versions did not record is None.
    Damaged entries are skipped. Imported keys, which have no rows, are included.

    Args:
        select: runs a query.
    """
    return {row["key_id"]: row for row in folded_rows(select, KEYS)}


def _fold(rows: State, entry: LedgerEntry, seq: int) -> None:
    metadata = entry.metadata
    key_id, at = metadata["key_id"], metadata.get("at")
    before = rows.get("virtual_keys", key_id) or {}
    row: dict[str, Any] = {**before, "key_id": key_id, "changed": metadata.get("changed")}
    row["entry_seq"] = seq
    if entry.event_type == "KEY_REVOKED":
        row |= {"revoked": at, "revoked_entry": entry_id(seq), "old_until": "", "old_hash": ""}
    else:
        row |= {name: metadata.get(name) for name in _STATED}
        row |= {
            name: json.dumps(metadata.get(name, []))
            for name in LISTS
            if name in metadata or name not in ALWAYS_RECORDED
        }
        if entry.decision == "ROTATED":
            until = metadata.get("old_until", "")
            old_hash = before.get("hash") if until else ""
            row |= {"rotated": at, "old_until": until, "old_hash": old_hash}
        elif entry.decision != "CHANGED":
            row |= {**_NOTHING, "created": at}
    rows.put("virtual_keys", row)


def _note(key: Row) -> str:
    if key["revoked"] or key["hash"] is not None:
        return ""
    return (
        f"the hash of the key {key['key_id']}, which an older version made, is not recorded; "
        "`remit key rotate` records one"
    )


KEYS = Projection(
    "virtual_keys",
    ("key_id",),
    tuple(name for name in KeyRow.COLUMNS if name != "key_id"),
    ("KEY_CREATED", "KEY_REVOKED"),
    _fold,
    secret=("hash", "old_hash"),
    note=_note,
)
"""The table of virtual keys."""


def check_epoch(select: Select) -> Iterator[Finding]:
    """Yield a finding unless ``key_epoch`` is the number of the latest change of a key.

    Args:
        select: runs a query on the ledger's database.
    """
    changes = [changed for (changed,) in select("SELECT changed FROM virtual_keys", ())]
    latest = max((number for number in changes if type(number) is int), default=0)
    epochs = [row[0] for row in select(KeyRow.EPOCH, ())]
    if epochs != [latest]:
        yield None, f"key_epoch: there is {epochs!r}, and the latest change of a key is {latest}"


def record_change(
    tx: Transaction,
    event: str,
    decision: str,
    reason: str,
    row: KeyRow,
    requested_by: str,
    more: dict[str, Any] | None = None,
) -> KeyRow:
    """Append the entry of a change of a key, apply it to ``virtual_keys`` and return the new row.

    Args:
        tx: the transaction.
        event: ``KEY_CREATED`` or ``KEY_REVOKED``.
        decision: ``CREATED``, ``ROTATED``, ``CHANGED`` or ``REVOKED``.
        reason: one line for people.
        row: the key after the change; columns that the entry does not state are ignored.
        requested_by: who asked for the change.
        more: further metadata; None for none.

    Raises:
        InvalidInputError: ``more`` repeats a key of the entry's own metadata.
    """
    key = row.key
    metadata: dict[str, Any] = {
        "key_id": key.key_id,
        "name": key.name,
        "prefix": key.prefix,
        "requested_by": requested_by,
        "at": key.revoked or key.rotated or key.created,
        "changed": row.changed,
    }
    if event == "KEY_CREATED":
        metadata["hash"] = row.hash
        metadata |= {name: getattr(key, name) for name in ("role", "expires", *_OWNERS)}
        lists = {name: [*getattr(key, name)] for name in LISTS}
        metadata |= {name: one for name, one in lists.items() if one or name in ALWAYS_RECORDED}
    if both := metadata.keys() & (more or {}).keys():
        raise InvalidInputError(f"The entry of a key has {', '.join(sorted(both))} already.")
    metadata |= more or {}
    apply(tx, LedgerEntry(event, key.key_id, decision, reason, metadata=metadata), KEYS)
    return KeyRow.find(tx.execute, key.key_id)
