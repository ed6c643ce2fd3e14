"""Audit of the table ``virtual_keys`` against the ledger."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import orjson

from remit.gateway.auth.virtual_key import ALWAYS_RECORDED, LISTS, KeyRow, VirtualKey
from remit.ledger import KERNEL_ROWS, Finding, Select, Uncheckable, entry_id, imported_size

__all__ = ["RecordedKey", "check_keys", "owner_of_key", "recorded_keys"]

_KEY_FIELDS = ("name", "role", "prefix", "user_id", "team_id", "organisation_id", "expires")
_NOTHING = dict.fromkeys(("rotated", "old_until", "old_hash", "revoked", "revoked_entry"), "")
_SHOWN = frozenset(item.name for item in fields(VirtualKey))


RecordedKey = dict[str, Any]
"""The expected columns of a key's row, and ``seq``, the sequence number of its latest entry.

A column that older versions did not record is None.
"""


def owner_of_key(key: RecordedKey) -> str:
    """Return the owner's name: the key's user if it has one, else the key."""
    return f"user:{key['user_id']}" if key.get("user_id") else f"key:{key['key_id']}"


def recorded_keys(select: Select) -> dict[str, RecordedKey]:
    """Return all keys that the ledger ever recorded, keyed by key id.

    The values are the columns that the key's row should have, None for unknown ones, and ``seq`` of
    the latest entry. Damaged entries are skipped.

    Args:
        select: runs a query.
    """
    found: dict[str, RecordedKey] = {}
    rows = select(
        "SELECT seq, event_type, record FROM entries "
        f"WHERE event_type IN ('KEY_CREATED', 'KEY_REVOKED') AND {KERNEL_ROWS} ORDER BY seq",
        (),
    )
    for seq, event_type, stored in rows:
        try:
            record = orjson.loads(stored)
            decision, metadata = record["decision"], record["metadata"]
            key_id = metadata["key_id"]
        except (ValueError, TypeError, KeyError):
            continue  # The ledger's own verification reports damaged entries.
        after = _after(found.get(key_id, {}), seq, event_type, decision, metadata)
        found[key_id] = {**after, "seq": seq}
    return found


def _after(
    before: dict[str, Any], seq: int, event_type: str, decision: str, metadata: dict[str, Any]
) -> dict[str, Any]:
    """Return a key's columns after one of its entries; None for values that it does not state."""
    at, changed = metadata.get("at"), metadata.get("changed")
    if event_type == "KEY_REVOKED":
        revoked = {"revoked": at, "revoked_entry": entry_id(seq), "changed": changed}
        ended = {"key_id": metadata["key_id"], "old_until": "", "old_hash": ""}
        return {**before, **revoked, **ended}
    given = {name: metadata.get(name) for name in _KEY_FIELDS}
    given |= {name: json.dumps(metadata[name]) for name in ALWAYS_RECORDED if name in metadata}
    given |= {name: json.dumps(metadata.get(name, [])) for name in LISTS[len(ALWAYS_RECORDED) :]}
    given |= {"hash": metadata.get("hash"), "changed": changed}
    if decision == "CHANGED":
        return {**before, **given}
    if decision != "ROTATED":
        return {**_NOTHING, "key_id": metadata["key_id"], "created": at, **given}
    until = metadata.get("old_until", "")
    old_hash = before.get("hash") if until else ""
    return {**before, **given, "rotated": at, "old_until": until, "old_hash": old_hash}


def check_keys(select: Select) -> Iterator[Finding]:
    """Yield each difference of ``virtual_keys`` and ``key_epoch`` from the ledger's entries."""
    recorded = recorded_keys(select)
    there = [dict(zip(KeyRow.COLUMNS, row, strict=True)) for row in select(KeyRow.SELECT, ())]
    rows = {row["key_id"]: row for row in there}
    for key_id, row in rows.items():
        key = recorded.get(key_id)
        if key is None:
            yield None, f"virtual_keys: no entry created the key {key_id!r}"
            continue
        known = {name: value for name, value in key.items() if value is not None and name != "seq"}
        wrong = [name for name, value in known.items() if row[name] != value]
        if wrong:
            said = ", ".join(_said(name, row[name], known[name]) for name in wrong)
            yield key["seq"], f"virtual_keys: of the key {key_id} {said}"
        if row["revoked"] == "" and key.get("hash") is None:
            said = (
                f"the hash of the key {key_id}, which an older version created, is not "
                "recorded; `remit key rotate` records one"
            )
            yield key["seq"], Uncheckable(said)
    first = imported_size(select)
    for key_id, key in recorded.items():
        if key_id not in rows and key["seq"] >= first:
            yield key["seq"], f"virtual_keys: the key {key_id} has no row"
        if key_id in rows and key["seq"] < first:  # no import brings a key
            said = f"ledger_info: {first} entries came with an import, and the key {key_id} did not"
            yield key["seq"], said
    changes = [row["changed"] for row in rows.values()]
    latest = max((number for number in changes if type(number) is int), default=0)
    epochs = [row[0] for row in select(KeyRow.EPOCH, ())]
    if epochs != [latest]:
        yield None, f"key_epoch: there is {epochs!r}, and the latest change of a key is {latest}"


def _said(name: str, there: Any, recorded: Any) -> str:
    if name in _SHOWN:
        return f"{name} is {there!r}, and its entry says {recorded!r}"
    return f"{name} is not that of its entry"
