"""The table ``thoughts`` where it is not there yet: made, and filled from what is on record."""

from __future__ import annotations

import weakref
from typing import Any

from remit.ledger import LedgerClient, Transaction
from remit.trail.reading import content_of, seq_of
from remit.trail.record import FIRST_PREV_HASH
from remit.trail.table import EVENT, INSERT, create_table
from remit.trail.verification import hash_problem

__all__ = ["is_ready", "prepare_table", "set_ready"]

_ready: weakref.WeakSet[LedgerClient] = weakref.WeakSet()


def is_ready(ledger: LedgerClient) -> bool:
    """Whether this client has seen to the table already."""
    return ledger in _ready


def prepare_table(tx: Transaction, ledger: LedgerClient) -> None:
    """See that the table is there, inside a transaction of ``ledger``.

    A ledger that was imported has the entries and not the table: what follows from the entries
    is put in again, so that chains go on where they ended. What follows from erased content
    does not, and verification says so.
    """
    create_table(tx)
    if tx.execute("SELECT 1 FROM thoughts LIMIT 1"):
        return
    if tx.execute("SELECT 1 FROM entries WHERE event_type = ? LIMIT 1", (EVENT,)):
        tx.execute_many(INSERT, _rows_from_entries(ledger))


def set_ready(ledger: LedgerClient) -> None:
    """Note that the table is there, durably."""
    _ready.add(ledger)


def _rows_from_entries(ledger: LedgerClient) -> list[tuple[Any, ...]]:
    """Rows of all thoughts whose chain can be followed from its beginning."""
    rows: list[tuple[Any, ...]] = []
    last: dict[str, tuple[int, str]] = {}
    ids: set[str] = set()
    for entry in ledger.query(event_type=EVENT):
        told = entry.metadata
        task_id, thought_id, own_hash = (
            told.get(name) for name in ("task_id", "thought_id", "hash")
        )
        if not isinstance(task_id, str) or task_id != entry.submission_id or thought_id in ids:
            continue
        position, prev_hash = last.get(task_id, (-1, FIRST_PREV_HASH))
        if told.get("position") != position + 1 or hash_problem(
            thought_id, told.get("type"), task_id, content_of(entry),
            told.get("thought_timestamp"), prev_hash, own_hash,
        ):  # fmt: skip
            continue
        ids.add(str(thought_id))
        last[task_id] = (position + 1, str(own_hash))
        rows.append((seq_of(entry), task_id, position + 1, thought_id, prev_hash, own_hash))
    return rows
