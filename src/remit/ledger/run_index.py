"""The index of a run: an entry that names every earlier entry of a session or work order.

The Merkle tree proves that an entry is recorded, but not that a list of entries is all of a
session. An ``INDEXED`` entry states that list in the record itself, so the proof of a run needs
only the run's records, the index and a signed checkpoint. :func:`check_indexes` compares every
index with the ledger. ``docs/ledger-format.md``, section 13, describes the entry.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from remit.kernel.errors import InvalidInputError
from remit.ledger.archived_ranges import Places, left_of
from remit.ledger.entry import LedgerEntry, entry_id
from remit.ledger.entry_reader import as_bytes
from remit.ledger.errors import EntryNotFoundError, LedgerError, LedgerWriteError
from remit.ledger.events import KERNEL_ROWS
from remit.ledger.export_reader import require
from remit.ledger.record import columns_of
from remit.ledger.store import Transaction
from remit.ledger.table_checks import Finding, Select

if TYPE_CHECKING:
    from remit.ledger.client import LedgerClient

INDEXED = "INDEXED"
"""The event type of an index."""

RUNS = ("session_id", "work_order_id")
"""The columns that name a run, the one that receipts count by first."""

ACTIONS = ("EXCHANGE", "EXCHANGE_ORPHANED", "PROMPT_REJECTED", "TOOL_CALL")
"""The event types that end a tool action or a model call."""

_PART = 500
"""The largest number of entries that one index names, so that its record stays below the limit."""

_MEMBERS = {"of": dict, "entries": list, "actions": list, "part": int, "parts": int}
_NO_RECORD = (ValueError, KeyError, TypeError, AttributeError)


def actions_of(records: Mapping[int, Mapping[str, Any]]) -> list[list[int]]:
    """Return the actions of a run, in ledger order.

    Each item begins with the sequence number of the action's last entry: an entry of
    :data:`ACTIONS`. The numbers of the earlier entries that belong to the action follow, ascending:
    the latest start of the session and of the order, the dispatch of a model call, and the intent,
    approvals and last model call of a tool action. Whether an action is complete is not checked.

    Args:
        records: the parsed records of the run, by sequence number.
    """
    found: list[list[int]] = []
    known: dict[tuple[str, Any], set[int]] = {}

    def note(kind: str, value: Any, seq: int, *, replace: bool = False) -> None:
        if isinstance(value, str):
            if replace:
                known.pop((kind, value), None)
            known.setdefault((kind, value), set()).add(seq)

    for seq, record in sorted(records.items()):
        event, metadata = record["event_type"], record["metadata"]
        order = columns_of(metadata).work_order_id
        if event in ACTIONS:
            keys = [("start", ""), ("id", metadata.get("dispatch_entry_id")), ("executing", order)]
            if event == "TOOL_CALL":
                keys += [("key", metadata.get("idempotency_key")), ("model", order)]
            related = _reach(known, keys, records)
            found.append([seq, *sorted(related)])
        elif event == "SESSION_START":
            note("start", "", seq, replace=True)
        elif event == "WO_EXECUTING":
            note("executing", order, seq, replace=True)
        elif event == "LLM_CALL":
            note("model", order, seq, replace=True)
        elif event == "DISPATCH":
            note("id", record["id"], seq)
        elif event in ("TOOL_INTENT", "APPROVAL_REQUESTED"):
            note("key", metadata.get("idempotency_key"), seq)
            note("id", record["id"], seq)
        elif event.startswith("APPROVAL_"):
            note("request", metadata.get("request_id"), seq)
    return found


def _reach(
    known: Mapping[tuple[str, Any], set[int]],
    keys: Sequence[tuple[str, Any]],
    records: Mapping[int, Mapping[str, Any]],
) -> set[int]:
    """Return the entries that the keys lead to, with the approvals of each intent and request."""
    found: set[int] = set()
    for key in keys:
        if isinstance(key[1], str):
            found |= known.get(key, set())
    for seq in list(found):
        approval = records[seq]["metadata"].get("approval")
        if records[seq]["event_type"] == "TOOL_INTENT" and isinstance(approval, str):
            found |= known.get(("id", approval), set())
    for seq in list(found):
        if records[seq]["event_type"] == "APPROVAL_REQUESTED":
            found |= known.get(("request", records[seq]["id"]), set())
    return found


def run_of(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the run of a record, as in an index: the session or, without a session, the order.

    Args:
        record: a parsed record.

    Returns:
        ``session_id`` or ``work_order_id`` as the only key, and the value.

    Raises:
        InvalidInputError: the entry has neither a session nor a work order.
    """
    columns = columns_of(record["metadata"])
    for name in RUNS:
        if value := getattr(columns, name):
            return {name: value}
    raise InvalidInputError(
        f"{record['id']} belongs to no session or work order, so there is no run to write a "
        "receipt of.",
        next_step="`remit ledger prove` proves a single entry.",
    )


def read_index(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the metadata of an index, with ``first``; ``None`` if the entry is no index of the
    kernel.

    ``first`` is the sequence number of the first part of the index. Whether the index is true is
    not checked.

    Args:
        record: a parsed record.

    Raises:
        ValueError: the entry is an index and malformed (``index-members``).
    """
    metadata = record["metadata"]
    if record["event_type"] != INDEXED or columns_of(metadata).tier not in (None, "hot"):
        return None
    kinds = {name: type(metadata.get(name)) for name in _MEMBERS}
    is_one = kinds == _MEMBERS and metadata.keys() == _MEMBERS.keys()
    require(is_one, "index-members", "an index has not exactly its members")
    (of, entries, actions, part, parts) = (metadata[name] for name in _MEMBERS)
    is_run = len(of) == 1 and of.keys() <= {*RUNS} and all(type(one) is str for one in of.values())
    require(is_run, "index-members", "an index names no session or work order")
    first = record["seq"] - part + 1
    lists = [entries, *actions] if all(type(one) is list for one in actions) else [None]
    for one in lists:
        is_list = type(one) is list and all(type(n) is int and 0 <= n < first for n in one)
        require(is_list, "index-members", "an index lists no sequence numbers before it")
    is_sorted = all(one == sorted({*one}) for one in (entries, *(one[1:] for one in actions)))
    is_sorted = is_sorted and all(one and one[0] in entries for one in actions)
    require(is_sorted and 0 < part <= parts, "index-members", "an index is not in order")
    found: dict[str, Any] = {**metadata, "first": first}
    return found


def index_run(
    ledger: LedgerClient,
    run: Mapping[str, str],
    seq: int | None = None,
    *,
    later: Callable[[int], None] | None = None,
) -> tuple[list[int], dict[int, bytes]]:
    """Record the index of a run, unless the last index names all of the run's entries.

    An index has a part, an ``INDEXED`` entry, for each 500 entries. If the run gets entries
    meanwhile, the attempt is repeated. If the ledger is read-only, the last index serves, with the
    entries that it names.

    Args:
        ledger: the ledger, with its segments attached if entries of the run were archived.
        run: one of ``session_id`` and ``work_order_id``, and its value.
        seq: an entry that the index must name; ``None`` for any.
        later: called with the number of entries that the last index of a read-only ledger lacks.

    Returns:
        The sequence numbers of the index's parts, and the run's records by sequence number,
        ascending.

    Raises:
        EntryNotFoundError: the run has no entries.
        LedgerWriteError: the ledger is read-only, and no index names the entry; or it cannot be
            written for another reason.
        LedgerError: entries of the run may be archived, and no or not all segments are attached; or
            the ledger cannot be read.
    """
    while True:
        records = _records_of(ledger, run)
        parts, listed = _last_index(ledger, run, records)
        if listed != sorted(records):
            try:
                new = ledger.transact(functools.partial(_append, run, records, ledger.archived_to))
            except LedgerWriteError as error:
                if not _is_read_only(error):
                    raise
                if not parts or (seq is not None and seq not in listed):
                    raise LedgerWriteError(
                        f"A receipt needs an index of its run, an entry: {error.message}",
                        next_step="Copy the root to a place that can be written, and run the "
                        "command there.",
                    ) from error
                if later is not None:
                    later(len(records) - len(listed))
                return parts, {one: records[one] for one in listed}
            parts = new
        if parts:
            return parts, records


def _is_read_only(error: LedgerWriteError) -> bool:
    """Return True if the medium, the database or its role accepts no writes at all."""
    cause = error.__cause__
    code, state = getattr(cause, "sqlite_errorcode", None), getattr(cause, "sqlstate", None)
    is_file = code is not None and code & 0xFF == sqlite3.SQLITE_READONLY
    return is_file or state in ("25006", "42501")  # a read-only transaction, a missing privilege


def _records_of(ledger: LedgerClient, run: Mapping[str, str]) -> dict[int, bytes]:
    ((name, value),) = run.items()
    if ledger.archived_to and not ledger.has_segments:
        session = value
        if name != "session_id":
            sql = f"SELECT min(session_id) FROM entries WHERE {name} = ?"
            session = ledger.select(sql, (value,))[0][0] or ""
        if ledger.has_left(session):
            raise LedgerError(
                f"Entries of {value} may be in a segment that is not attached.",
                next_step="Give the directory of the segments: `--archive DIR`.",
            )
    found = ledger.records_where(f"{name} = ?", (value,))
    if not found:
        raise EntryNotFoundError(
            f"The ledger has no entry of {value!r}.",
            next_step="`remit session list` shows sessions.",
        )
    return found


def _last_index(
    ledger: LedgerClient, run: Mapping[str, str], records: Mapping[int, bytes]
) -> tuple[list[int], list[int]]:
    """Return the parts of the run's last whole index, and the entries that it names."""
    rows = ledger.select(
        f"SELECT record FROM entries WHERE submission_id = ? AND event_type = ? AND {KERNEL_ROWS} "
        "ORDER BY seq DESC LIMIT ?",
        (*run.values(), INDEXED, 1 + len(records) // _PART),
    )
    found = [orjson.loads(as_bytes(record)) for (record,) in rows][::-1]
    own = [one for one in found if one["metadata"].get("of") == run]
    own = own[-own[-1]["metadata"]["parts"] :] if own else []
    listed = [seq for one in own for seq in one["metadata"]["entries"]]
    is_one = [one["metadata"]["part"] for one in own] == [*range(1, len(own) + 1)]
    is_whole = is_one and own and own[-1]["metadata"]["parts"] == len(own)
    if not is_whole or not records.keys() >= {*listed}:
        return [], []
    return [one["seq"] for one in own], listed


def _append(
    run: Mapping[str, str], records: Mapping[int, bytes], archived_to: int, tx: Transaction
) -> list[int]:
    """Append an index of the records; return its parts, or nothing if the run has others now."""
    ((name, value),) = run.items()
    live = [seq for (seq,) in tx.execute(f"SELECT seq FROM entries WHERE {name} = ?", (value,))]
    rows = tx.execute("SELECT value FROM ledger_info WHERE name = 'archived_to'", ())
    if not {*live} <= records.keys() or [str(archived_to)] != [one for (one,) in rows or (("0",),)]:
        return []
    seqs = sorted(records)
    actions = actions_of({seq: orjson.loads(record) for seq, record in records.items()})
    chunks = [seqs[at : at + _PART] for at in range(0, len(seqs), _PART)]
    parts = []
    for number, chunk in enumerate(chunks, 1):
        own = [one for one in actions if chunk[0] <= one[0] <= chunk[-1]]
        metadata = {"of": dict(run), "entries": chunk, "actions": own, "part": number,
                    "parts": len(chunks)}  # fmt: skip
        reason = f"All entries of {value} until here"
        entry = LedgerEntry(INDEXED, value, "INDEXED", reason, metadata=metadata)
        parts.append(int(tx.append(entry)[4:], 16))
    return parts


def check_indexes(ledger: LedgerClient, since_mark: bool) -> Iterator[Finding]:
    """Yield findings about indexes that do not name exactly the entries of their run.

    Args:
        ledger: the ledger, which is only read.
        since_mark: True to check nothing, as after a mark.

    Yields:
        The sequence number of an index and a sentence about its fault, in ledger order; missing
        parts come last.

    Raises:
        LedgerError: the ledger, or the record of its archived ranges, cannot be read.
    """
    if not since_mark:
        yield from index_faults(ledger.select, left_of(ledger.archived_ranges()))


def index_faults(select: Select, away: Places) -> Iterator[Finding]:
    """Yield the findings of :func:`check_indexes`, for any database with the entries.

    Indexes of the kernel alone are read. A malformed index, one that is no record, and one of which
    parts are missing, is a finding.

    Args:
        select: runs a query; its errors are raised.
        away: the entries that were archived, which an index may name.
    """
    pending: dict[int, list[dict[str, Any]]] = {}  # the parts so far, by the first part's number
    sql = f"SELECT seq, record FROM entries WHERE event_type = ? AND {KERNEL_ROWS} ORDER BY seq"
    for seq, data in select(sql, (INDEXED,)):
        try:
            found = read_index(orjson.loads(as_bytes(data)))
            require(found is not None, "index-members", "the record is of another event")
        except _NO_RECORD as error:
            yield seq, f"the index is malformed: {error}"
            continue
        assert found is not None
        parts = pending.setdefault(found["first"], [])
        parts.append(found)
        if found["part"] == found["parts"] == len(parts):
            del pending[found["first"]]
            yield from ((seq, said) for said in _faults(select, parts, away))
    for first in pending:
        yield first, "parts of the index are missing"


def _faults(select: Select, parts: Sequence[dict[str, Any]], away: Places) -> Iterator[str]:
    """Yield a message for each false statement in the parts of an index."""
    ((name, value),) = parts[0]["of"].items()
    names = {seq for part in parts for seq in part["entries"]}
    sql = f"SELECT seq, record FROM entries WHERE {name} = ? AND seq < ?"
    there: dict[int, Any] = dict(select(sql, (value, parts[0]["first"])))
    for seq in sorted(there.keys() - names):
        yield f"the index of {value} does not name {entry_id(seq)}"
    for seq in sorted(names - there.keys()):
        if seq not in away:
            yield f"the index of {value} names {entry_id(seq)}, which is no entry of it"
    if names == there.keys():
        try:
            actions = actions_of({seq: orjson.loads(as_bytes(one)) for seq, one in there.items()})
        except _NO_RECORD:
            yield f"the index of {value} names an entry whose record cannot be read"
            return
        if [row for part in parts for row in part["actions"]] != actions:
            yield f"the index of {value} names other actions than its entries"
