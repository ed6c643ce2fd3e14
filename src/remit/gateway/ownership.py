"""Audit of the ownership tables against the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import orjson

from remit.gateway.auth.audit import RecordedKey, owner_of_key, recorded_keys
from remit.gateway.objects import STORED_CHAT, provider_id_of
from remit.gateway.tenancy import ORDER_ROW
from remit.ledger import (
    Finding,
    LedgerClient,
    Select,
    archived_to,
    entry_id,
    is_plain_text,
    parse_entry_id,
)
from remit.providers.wire import kinds_made

__all__ = ["OWNER_CHECKS", "Entry", "entries_of", "owner_on_record"]

_IDS_PER_QUERY = 500
_CALLS = "'EXCHANGE', 'EXCHANGE_ORPHANED'"
_SESSION_STARTS_SQL = (
    "SELECT seq FROM entries WHERE {column} = ? "
    "AND event_type IN ('SESSION_START', 'WO_PLANNED', 'DISPATCH') ORDER BY seq LIMIT 1"
)
_LOCAL = {"local": "user:local-operator"}  # over stdio there is no virtual key


class Entry(NamedTuple):
    """An entry that rows of other tables refer to.

    A damaged entry has an empty reason and empty metadata.

    Attributes:
        seq: sequence number in the ledger.
        event_type: the type of the entry.
        reason: its recorded reason.
        metadata: its metadata without content.
    """

    seq: int
    event_type: str
    reason: str
    metadata: dict[str, Any]


def owner_on_record(metadata: dict[str, Any], keys: dict[str, RecordedKey]) -> str:
    """Return the owner of a call's results.

    The form is that of :func:`~remit.gateway.tenancy.owner_of`.

    Args:
        metadata: metadata of the call's entry.
        keys: the recorded keys (:func:`~remit.gateway.auth.audit.recorded_keys`).
    """
    if key_id := metadata.get("key_id"):
        key = keys.get(key_id)
        return owner_of_key(key) if key else _LOCAL.get(key_id, f"key:{key_id}")
    if user_id := metadata.get("user_id"):
        return f"user:{user_id}"
    return f"name:{metadata.get('agent_id', '')}"


def entries_of(select: Select, ids: Iterable[Any]) -> dict[str, Entry]:
    """Return the existing entries among these ids, keyed by id.

    Args:
        select: runs a query.
        ids: ids; values that are not ids of entries are ignored.
    """
    wanted = sorted({seq for one in ids if isinstance(one, str)
                     and (seq := parse_entry_id(one)) is not None})  # fmt: skip
    found: dict[str, Entry] = {}
    for start in range(0, len(wanted), _IDS_PER_QUERY):
        part = wanted[start : start + _IDS_PER_QUERY]
        rows = select(
            "SELECT seq, event_type, record FROM entries "
            f"WHERE seq IN ({', '.join('?' * len(part))})",
            part,
        )
        for seq, event_type, stored in rows:
            found[entry_id(seq)] = _entry(seq, event_type, stored)
    return found


def _entry(seq: int, event_type: str, stored: Any) -> Entry:
    try:
        record = orjson.loads(stored)
        return Entry(seq, event_type, record["reason"], record["metadata"])
    except (ValueError, TypeError, KeyError):  # The ledger's verification reports the damage.
        return Entry(seq, event_type, "", {})


def _check_sessions(ledger: LedgerClient, select: Select) -> Iterator[Finding]:
    """Yield sessions and work orders that do not belong to the first key that called in them.

    The owner of an archived session is known only from the archive.
    """
    keys, archived = recorded_keys(select), archived_to(select)
    for name, owner, first in _first(select, "session_owners", "session_id", "EXCHANGE"):
        if first is not None and _held_owner(first, keys, owner) == owner:
            continue
        order = name.partition(ORDER_ROW)[2] if name.startswith(ORDER_ROW) else ""
        column, own = ("work_order_id", order) if order else ("session_id", name)
        rows = select(
            f"SELECT seq, event_type, record FROM entries WHERE {column} = ? "
            f"AND event_type IN ({_CALLS}) ORDER BY seq",
            (own,),
        )
        calls = (_entry(*row) for row in rows)
        held = next(
            ((one.seq, who) for one in calls if (who := _held_owner(one, keys, owner))), None
        )
        if held is not None:
            if held[1] != owner:
                yield held[0], _given("session_owners", name, owner, held[1])
            continue
        out = select(f"SELECT key_id FROM in_flight WHERE {column} = ?", (own,))
        if any(owner_on_record({"key_id": key_id}, keys) == owner for (key_id,) in out if key_id):
            continue
        if archived and (order or ledger.has_left(own)):
            continue
        for (seq,) in select(_SESSION_STARTS_SQL.format(column=column), (own,)):
            yield seq, _given("session_owners", name, owner, "nobody")


def _check_tasks(ledger: LedgerClient, select: Select) -> Iterator[Finding]:
    """Yield tasks that do not belong to the first key that wrote a thought in them."""
    keys = recorded_keys(select)
    for task_id, owner, first in _first(select, "task_owners", "task_id", "THOUGHT_RECORD"):
        if first is None or (_is_held(first, keys) and first.metadata.get("recorded_by") == owner):
            continue
        rows = select(
            "SELECT seq, event_type, record FROM entries WHERE submission_id = ? "
            "AND event_type = 'THOUGHT_RECORD' ORDER BY seq",
            (task_id,),
        )
        thoughts = (_entry(*row) for row in rows)
        writers = (one.metadata.get("recorded_by") for one in thoughts if _is_held(one, keys))
        writer = next((who for who in writers if who), "nobody")
        if writer != owner and not _has_begun_before(select, task_id):
            yield first.seq, _given("task_owners", task_id, owner, writer)


def _has_begun_before(select: Select, task_id: str) -> bool:
    """Return True if the first thought of a task was archived."""
    rows = select(
        "SELECT t.seq, e.seq FROM thoughts AS t LEFT JOIN entries AS e ON e.seq = t.seq "
        "WHERE t.task_id = ? ORDER BY t.seq LIMIT 1",
        (task_id,),
    )
    return bool(rows) and rows[0][1] is None and rows[0][0] < archived_to(select)


def _first(
    select: Select, table: str, name: str, event_type: str
) -> Iterator[tuple[str, str, Entry | None]]:
    """Yield the rows of a table of owners, each with the first entry of its session or task."""
    column = "session_id" if name == "session_id" else "submission_id"
    rows = select(
        f"SELECT o.{name}, o.owner, e.seq, e.record FROM {table} o LEFT JOIN entries e ON e.seq = "
        f"(SELECT min(f.seq) FROM entries f WHERE f.{column} = o.{name} "
        f"AND f.event_type = '{event_type}')",
        (),
    )
    for named, owner, seq, stored in rows:
        yield named, owner, None if seq is None else _entry(seq, event_type, stored)


def _is_held(entry: Entry, keys: dict[str, RecordedKey]) -> bool:
    """Return True if a caller was restricted to its own sessions: agents' keys, and tokens."""
    key_id = entry.metadata.get("key_id")
    if not key_id:
        return True
    return key_id in keys and keys[key_id].get("role") == "agent"


def _held_owner(entry: Entry, keys: dict[str, RecordedKey], owner: str) -> str:
    """Return the owner by a call that was restricted to its own sessions; empty for other calls.

    A call without a key counts as a token's if the session's owner is a token.
    """
    if not entry.metadata.get("key_id") and not owner.startswith("name:"):
        return ""
    return owner_on_record(entry.metadata, keys) if _is_held(entry, keys) else ""


def _given(table: str, name: str, owner: str, recorded: str) -> str:
    return f"{table}: {name} is given to {owner!r}, and on record it is {recorded!r} who began it"


def _check_idempotency(ledger: LedgerClient, select: Select) -> Iterator[Finding]:
    """Yield idempotency keys that lead to the answer of another call or caller."""
    rows = select(
        "SELECT caller, idempotency_key, exchange_entry_id, token FROM idempotency "
        "WHERE exchange_entry_id <> ''",
        (),
    )
    entries = entries_of(select, (row[2] for row in rows))
    archived = archived_to(select)
    for caller, key, exchange_id, token in rows:
        entry = entries.get(exchange_id)
        if entry is None and _is_archived(exchange_id, archived):
            continue
        if entry is None or entry.event_type != "EXCHANGE":
            yield None, f"idempotency: {key!r} of {caller} leads to {exchange_id!r}, no EXCHANGE"
            continue
        meta = entry.metadata
        if meta.get("claim", token) != token:
            yield entry.seq, f"idempotency: {key!r} of {caller} leads to another call's answer"
        if caller != f"key:{meta.get('key_id')}" and (
            meta.get("key_id") or not caller.endswith(f"/session:{meta.get('session_id')}")
        ):
            yield entry.seq, f"idempotency: {key!r} of {caller} leads to another's {exchange_id}"


def _check_responses(ledger: LedgerClient, select: Select) -> Iterator[Finding]:
    """Yield ids of the Responses API that do not lead to a call of their owner."""
    keys = recorded_keys(select)
    rows = select(
        "SELECT r.response_id, r.owner, r.session_id, r.entry_id, f.key_id FROM response_ids r "
        "LEFT JOIN in_flight f ON f.dispatch_entry_id = r.entry_id",
        (),
    )
    entries = entries_of(select, (row[3] for row in rows))
    archived = archived_to(select)
    for name, owner, session_id, led_to, key_id in rows:
        entry = entries.get(led_to)
        if entry is None and _is_archived(led_to, archived):
            continue
        if entry is None or entry.event_type not in _ANSWERS:
            yield None, f"response_ids: {name!r} leads to {led_to!r}, no call"
            continue
        metadata = entry.metadata
        if entry.event_type == "DISPATCH":
            metadata = {**metadata, "key_id": key_id} if key_id else _orphan(select, entry)
        wrong = [
            column
            for column, differs in (
                ("session_id", entry.metadata.get("session_id") != session_id),
                ("owner", owner_on_record(metadata, keys) != owner),
                ("response_id", not _is_named(ledger, name, entry)),
            )
            if differs
        ]
        if wrong:
            yield entry.seq, f"response_ids: {' and '.join(wrong)} of {name} is not on record so"


def _is_archived(named: Any, archived: int) -> bool:
    seq = parse_entry_id(named) if isinstance(named, str) else None
    return seq is not None and seq < archived


_ANSWERS = ("EXCHANGE", "DISPATCH", "CONVERSATION_CHANGED")


def _is_named(ledger: LedgerClient, name: str, entry: Entry) -> bool:
    """Return True if a call has this id as its response, an item of it, or its conversation."""
    if entry.event_type == "DISPATCH":
        return True  # its answer, which has the id, is not there
    known = (entry.metadata.get("response_id"), entry.metadata.get("conversation_id"))
    return name in known or (
        entry.event_type == "EXCHANGE" and _says(ledger, entry_id(entry.seq), name)
    )


def _says(ledger: LedgerClient, made: str, name: str) -> bool:
    """Return True if a call's recorded answer contains this id, or is erased."""
    if not is_plain_text(name):
        return False  # a damaged id
    sought = orjson.dumps(name)
    in_text = sought.replace(b'"', b'\\"')  # of an answer that is not JSON, such as a stream
    return any(
        not isinstance(text, bytes) or sought in text or in_text in text
        for text in ledger.exact(made, ("replied", "answer")).values()
    )


def _orphan(select: Select, dispatch: Entry) -> dict[str, Any]:
    """Return the metadata of the ``EXCHANGE_ORPHANED`` of a dispatch; its own if there is none."""
    rows = select(
        "SELECT seq, event_type, record FROM entries WHERE session_id = ? "
        "AND event_type = 'EXCHANGE_ORPHANED' AND seq > ?",
        (dispatch.metadata.get("session_id"), dispatch.seq),
    )
    for entry in (_entry(*row) for row in rows):
        if entry.metadata.get("dispatch_entry_id") == entry_id(dispatch.seq):
            return entry.metadata
    return dispatch.metadata


def _check_objects(ledger: LedgerClient, select: Select) -> Iterator[Finding]:
    """Yield stored objects that are not those of the call that made them."""
    keys = recorded_keys(select)
    rows = select("SELECT object_id, kind, provider_id, owner, entry_id FROM provider_objects", ())
    entries = entries_of(select, (row[4] for row in rows))
    dispatches = entries_of(
        select, (entry.metadata.get("dispatch_entry_id") for entry in entries.values())
    )
    for name, kind, provider_id, owner, made in rows:
        entry = entries.get(made)
        if entry is None or entry.event_type != "EXCHANGE":
            yield None, f"provider_objects: {name!r} leads to {made!r}, no EXCHANGE"
            continue
        dispatch = dispatches.get(entry.metadata.get("dispatch_entry_id", ""))
        to = dispatch.reason.removeprefix("Dispatching to ") if dispatch else ""
        wire = str(entry.metadata.get("wire", ""))
        of_batch = "batches" in wire and kind == "batch"
        passed = kinds_made(wire)
        of_call = "batches" not in wire and "files" not in wire  # made by code that it ran
        wrong = [
            column
            for column, differs in (
                ("provider_id", to.partition("/")[0] != provider_id),
                ("owner", owner_on_record(entry.metadata, keys) != owner),
                (
                    "kind",
                    kind not in passed
                    if passed
                    else not of_batch
                    and kind != "file"
                    and not (of_call and kind in ("container", STORED_CHAT)),
                ),
                # Files of results, whose ids came later, are kept under the batch's call too.
                (
                    "object_id",
                    ("batches" not in wire or of_batch)
                    and provider_id_of(name) != entry.metadata.get("dispatch_entry_id")
                    and not _says(ledger, made, provider_id_of(name)),
                ),
            )
            if differs
        ]
        if wrong:
            said = " and ".join(wrong)
            yield entry.seq, f"provider_objects: {said} of {name} is not on record so"


OWNER_CHECKS = {
    "session_owners": _check_sessions,
    "task_owners": _check_tasks,
    "idempotency": _check_idempotency,
    "response_ids": _check_responses,
    "provider_objects": _check_objects,
}
"""The checks of ownership tables, by table."""
