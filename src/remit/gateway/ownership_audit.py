"""The tables that say whose sessions, tasks, answers, files and idempotency keys are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from remit.gateway.budget import OWNERS
from remit.gateway.provider_objects import MESSAGE_THREAD, STORED_CHAT, provider_id_of
from remit.gateway.session_owners import ORDER_ROW
from remit.ledger import (
    LedgerEntry,
    Projection,
    Row,
    Select,
    State,
    archived_to,
    entries_of,
    is_plain_text,
    parse_entry_id,
)
from remit.providers.wire import kinds_made

_CALLS = ("EXCHANGE", "EXCHANGE_ORPHANED")
_LOCAL = {"local": "user:local-operator"}  # Over stdio there is no virtual key.
_KEY_IN_FLIGHT = "SELECT key_id FROM in_flight WHERE dispatch_entry_id = ?"


def _owner(rows: State, metadata: dict[str, Any]) -> str:
    """Return the owner of a call's results as :func:`remit.gateway.session_owners.owner_of` does.

    Args:
        rows: the folded rows, with the owners of keys.
        metadata: metadata of the call's entry.
    """
    if key_id := metadata.get("key_id"):
        key = rows.get(OWNERS.table, key_id)
        if key is None:
            return _LOCAL.get(key_id, f"key:{key_id}")
        return f"user:{key['user_id']}" if key["user_id"] else f"key:{key_id}"
    if user_id := metadata.get("user_id"):
        return f"user:{user_id}"
    return f"name:{metadata.get('agent_id', '')}"


def _is_held(rows: State, metadata: dict[str, Any]) -> bool:
    """Return True if a caller was restricted to its own sessions: agents' keys, and tokens."""
    key_id = metadata.get("key_id")
    if not key_id:
        return True
    key = rows.get(OWNERS.table, key_id)
    return key is not None and key["role"] == "agent"


# -- sessions and work orders ------------------------------------------------------------------


def _fold_session(rows: State, entry: LedgerEntry, seq: int) -> None:
    """Note the owner by the first call that was restricted to its own sessions.

    A call without a key is a token's if the session's owner is a token: both are noted.
    """
    metadata = entry.metadata
    order_id = metadata.get("work_order_id")
    names = [metadata.get("session_id"), f"{ORDER_ROW}{order_id}" if order_id else None]
    for name in filter(None, names):
        row = rows.get("session_owners", name)
        is_new = row is None
        row = row or {"session_id": name, "optional": 1, "any_caller": None, "key": None}
        if entry.event_type in _CALLS and row["key"] is None and _is_held(rows, metadata):
            owner = _owner(rows, metadata)
            row["any_caller"] = row["any_caller"] or owner
            row["key"] = owner if metadata.get("key_id") else None
            is_new = True
        if is_new:
            rows.put("session_owners", {**row, "entry_seq": row.get("entry_seq") or seq})


def _check_session(rows: State, live: Row, folded: Row) -> Iterator[str]:
    owner, name = str(live["owner"]), live["session_id"]
    folded["owner"] = folded["any_caller" if owner.startswith("name:") else "key"]
    if folded["owner"] is not None:
        if folded["owner"] != owner:
            yield "owner"
        return
    order_id = name.removeprefix(ORDER_ROW) if name.startswith(ORDER_ROW) else ""
    column, own = ("work_order_id", order_id) if order_id else ("session_id", name)
    calls = rows.select(f"SELECT key_id FROM in_flight WHERE {column} = ?", (own,))
    if any(_owner(rows, {"key_id": key_id}) == owner for (key_id,) in calls if key_id):
        return
    # For an archived session the owner is known only from its segment.
    if archived_to(rows.select) and (order_id or rows.ledger is None or rows.ledger.has_left(own)):
        return
    folded["owner"] = "nobody"
    yield "owner"


SESSION_OWNERS = Projection(
    "session_owners", ("session_id",), ("owner",),
    (*_CALLS, "SESSION_START", "WO_PLANNED", "DISPATCH"), _fold_session,
    memory=("optional", "any_caller", "key"), imported=True, any_writer=True, partial=True,
    check=_check_session,
)  # fmt: skip
"""Sessions and work orders belong to the first key that called in them."""


# -- tasks -------------------------------------------------------------------------------------


def _fold_task(rows: State, entry: LedgerEntry, seq: int) -> None:
    before = rows.get("task_owners", entry.submission_id)
    if before is None or before["writer"] is None:
        writer = entry.metadata.get("recorded_by") if _is_held(rows, entry.metadata) else None
        if before is None or writer:
            rows.put("task_owners", {
                "task_id": entry.submission_id, "optional": 1, "writer": writer or None,
                "entry_seq": seq,
            })  # fmt: skip


def _check_task(rows: State, live: Row, folded: Row) -> Iterator[str]:
    writer = folded["writer"] or "nobody"
    if writer != live["owner"] and not _has_begun_before(rows.select, live["task_id"]):
        folded["owner"] = writer
        yield "owner"


def _has_begun_before(select: Select, task_id: str) -> bool:
    """Return True if the first thought of a task was archived."""
    rows = select(
        "SELECT t.seq, e.seq FROM thoughts AS t LEFT JOIN entries AS e ON e.seq = t.seq "
        "WHERE t.task_id = ? ORDER BY t.seq LIMIT 1",
        (task_id,),
    )
    return bool(rows) and rows[0][1] is None and rows[0][0] < archived_to(select)


TASK_OWNERS = Projection(
    "task_owners", ("task_id",), ("owner",), ("THOUGHT_RECORD",), _fold_task,
    memory=("optional", "writer"), imported=True, any_writer=True, partial=True,
    check=_check_task,
)  # fmt: skip
"""Tasks belong to the first key that wrote a thought in them."""


# -- idempotency keys, answers, files and batches ----------------------------------------------


def _check_idempotency(rows: State, live: Row, folded: Row) -> Iterator[str]:
    entry, caller = folded["entry"], live["caller"]
    metadata = entry.metadata
    is_callers = caller == f"key:{metadata.get('key_id')}" or (
        not metadata.get("key_id") and caller.endswith(f"/session:{metadata.get('session_id')}")
    )
    is_claims = metadata.get("claim", live["token"]) == live["token"]
    if entry.event_type != "EXCHANGE" or not is_callers or not is_claims:
        yield "exchange_entry_id"
    if not is_callers:
        yield "caller"
    if not is_claims:
        yield "token"


IDEMPOTENCY = Projection(
    "idempotency", ("caller", "idempotency_key"), ("exchange_entry_id", "token"),
    where="exchange_entry_id <> ''", source="exchange_entry_id", check=_check_idempotency,
)  # fmt: skip
"""Idempotency keys lead to the answer of the call that claimed them."""


def _check_response(rows: State, live: Row, folded: Row) -> Iterator[str]:
    entry, name = folded["entry"], live["response_id"]
    metadata = entry.metadata
    if entry.event_type not in ("EXCHANGE", "DISPATCH", "CONVERSATION_CHANGED"):
        yield "entry_id"
        return
    if metadata.get("session_id") != live["session_id"]:
        yield "session_id"
    caller = metadata
    if entry.event_type == "DISPATCH":
        calls = rows.select(_KEY_IN_FLIGHT, (live["entry_id"],))
        key_id = calls[0][0] if calls else ""
        caller = {**metadata, "key_id": key_id} if key_id else _orphan(rows.select, entry)
    if _owner(rows, caller) != live["owner"]:
        yield "owner"
    # The answer of a call in flight, which has the id, is not there yet.
    known = (metadata.get("response_id"), metadata.get("conversation_id"))
    if (
        entry.event_type != "DISPATCH"
        and name not in known
        and (entry.event_type != "EXCHANGE" or not _says(rows, entry.id, name))
    ):
        yield "response_id"


def _says(rows: State, made: str, name: str) -> bool:
    """Return True if a call's recorded answer contains this id, or is erased."""
    if rows.ledger is None or not is_plain_text(name):
        return False
    sought = orjson.dumps(name)
    in_text = sought.replace(b'"', b'\\"')  # A stream is recorded as one JSON text.
    return any(
        not isinstance(text, bytes) or sought in text or in_text in text
        for text in rows.ledger.exact(made, ("replied", "answer")).values()
    )


def _orphan(select: Select, dispatch: LedgerEntry) -> dict[str, Any]:
    """Return the metadata of the ``EXCHANGE_ORPHANED`` of a dispatch; its own if there is none."""
    found = select(
        "SELECT id FROM entries WHERE session_id = ? AND event_type = 'EXCHANGE_ORPHANED' "
        "AND seq > ?",
        (dispatch.metadata.get("session_id"), parse_entry_id(dispatch.id)),
    )
    for entry in entries_of(select, (name for (name,) in found)).values():
        if entry.metadata.get("dispatch_entry_id") == dispatch.id:
            return entry.metadata
    return dispatch.metadata


RESPONSES = Projection(
    "response_ids", ("response_id",), ("owner", "session_id", "entry_id"),
    source="entry_id", check=_check_response,
)  # fmt: skip
"""Ids of the Responses API lead to a call of their owner."""


def _check_object(rows: State, live: Row, folded: Row) -> Iterator[str]:
    entry, kind = folded["entry"], live["kind"]
    if entry.event_type != "EXCHANGE":
        yield "entry_id"
        return
    named = entry.metadata.get("dispatch_entry_id", "")
    dispatch = entries_of(rows.select, (named,)).get(named)
    provider = dispatch.reason.removeprefix("Dispatching to ") if dispatch else ""
    wire = str(entry.metadata.get("wire", ""))
    of_batch = "batches" in wire and kind == "batch"
    passed = kinds_made(wire)
    made_by_code = "batches" not in wire and "files" not in wire
    made_by_code = made_by_code and kind in ("container", STORED_CHAT, MESSAGE_THREAD)
    if provider.partition("/")[0] != live["provider_id"]:
        yield "provider_id"
    if _owner(rows, entry.metadata) != live["owner"]:
        yield "owner"
    if kind not in passed if passed else not (of_batch or kind == "file" or made_by_code):
        yield "kind"
    # Files of results, whose ids came later, are recorded under the batch's call too.
    object_id = provider_id_of(live["object_id"])
    if (
        ("batches" not in wire or of_batch)
        and object_id != named
        and not _says(rows, entry.id, object_id)
    ):
        yield "object_id"


OBJECTS = Projection(
    "provider_objects", ("object_id",), ("kind", "provider_id", "owner", "entry_id"),
    source="entry_id", check=_check_object,
)  # fmt: skip
"""Files and batches at providers lead to the call that made them."""

OWNERSHIP = (SESSION_OWNERS, TASK_OWNERS, IDEMPOTENCY, RESPONSES, OBJECTS)
"""The tables of owners; their checks read the owners of keys, which are folded before."""
