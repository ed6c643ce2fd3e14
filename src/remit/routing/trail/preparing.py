"""The table ``thoughts`` where it is not there yet: made, and filled from what is on record."""

from __future__ import annotations

import weakref
from typing import Any

from remit.ledger import LedgerClient, LedgerEntry, Transaction
from remit.routing.trail.ends import NO_END, End
from remit.routing.trail.reading import content_of, seq_of
from remit.routing.trail.table import EVENT, INSERT
from remit.routing.trail.verification import hash_problem

__all__ = ["is_ready", "prepare_table", "row_behind", "set_ready"]

_ready: weakref.WeakSet[LedgerClient] = weakref.WeakSet()


def is_ready(ledger: LedgerClient) -> bool:
    """Whether this client has seen to the table already."""
    return ledger in _ready


def prepare_table(tx: Transaction, ledger: LedgerClient) -> int:
    """See that the table is there, inside a transaction of ``ledger``; how many rows it put in.

    A ledger that was imported has the entries and not the table: what follows from the entries
    is put in again, so that chains go on where they ended. What follows from erased content
    does not: an export of the trail can put it back, and until then the chain does not go on.
    """
    if tx.execute("SELECT 1 FROM thoughts LIMIT 1"):
        return 0
    if not tx.execute("SELECT 1 FROM entries WHERE event_type = ? LIMIT 1", (EVENT,)):
        return 0
    rows = _rows_from_entries(ledger)
    tx.execute_many(INSERT, rows)
    return len(rows)


def set_ready(ledger: LedgerClient) -> None:
    """Note that the table is there, durably."""
    _ready.add(ledger)


def row_behind(entry: LedgerEntry, task_id: str, end: End) -> tuple[Any, ...] | None:
    """The row of a task's entry, where its content shows that it follows ``end``."""
    told = entry.metadata
    thought_id, own_hash = told.get("thought_id"), told.get("hash")
    if told.get("task_id") != task_id or told.get("position") != end.position + 1:
        return None
    if hash_problem(
        thought_id, told.get("type"), task_id, content_of(entry), told.get("thought_timestamp"),
        end.hash, own_hash,
    ):  # fmt: skip
        return None
    return seq_of(entry), task_id, end.position + 1, thought_id, end.hash, own_hash


def _rows_from_entries(ledger: LedgerClient) -> list[tuple[Any, ...]]:
    """Rows of all thoughts whose chain can be followed from its beginning."""
    rows: list[tuple[Any, ...]] = []
    ends: dict[str, End] = {}
    ids: set[str] = set()
    for entry in ledger.query(event_type=EVENT):
        task_id = entry.submission_id
        row = row_behind(entry, task_id, ends.get(task_id, NO_END))
        if row is not None and row[3] not in ids:
            ids.add(row[3])
            ends[task_id] = End(row[2], row[5], row[0])
            rows.append(row)
    return rows
