"""Thought records read back: what the chain says from the row, all else from the entry."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from remit.kernel.errors import InvalidInputError
from remit.ledger import EntryNotFoundError, Erased, LedgerClient, LedgerEntry, is_plain_text
from remit.routing.trail.chains import content_of, seq_of
from remit.routing.trail.errors import ThoughtNotFoundError, TrailDamagedError
from remit.routing.trail.record import ThoughtRecord, ThoughtType
from remit.routing.trail.table import EVENT, Row, last_seq, row_of, rows_of, stray_rows

__all__ = ["get_thought_record", "iter_thought_records", "list_thought_records"]


def get_thought_record(ledger: LedgerClient, id: str) -> ThoughtRecord:  # noqa: A002
    """The record with that id.

    Raises:
        ThoughtNotFoundError: there is none.
        TrailDamagedError: its ledger entry is not there, or is not its own.
    """
    row = row_of(ledger, id)
    if row is None:
        raise ThoughtNotFoundError(
            f"There is no thought record {id!r}.", next_step="`remit trail list` shows them."
        )
    if not row.is_sound or row.seq < 0:
        raise _damaged(row)
    try:
        entry = ledger.read(f"LED-{row.seq:08x}")
    except EntryNotFoundError as error:
        raise _damaged(row) from error
    return _record(row, entry)


def list_thought_records(
    ledger: LedgerClient, task_id: str | None = None, limit: int | None = None
) -> list[ThoughtRecord]:
    """Records in the order in which they were recorded.

    Args:
        task_id: only this task's.
        limit: only the first so many, at least 1.

    Raises:
        InvalidInputError: ``limit`` is not a positive whole number, or ``task_id`` is not a text.
        TrailDamagedError: a row's ledger entry is not there, or is not its own.
    """
    return list(iter_thought_records(ledger, task_id, limit))


def iter_thought_records(
    ledger: LedgerClient, task_id: str | None = None, limit: int | None = None
) -> Iterator[ThoughtRecord]:
    """:func:`list_thought_records`, streamed: memory does not grow with the trail.

    What is recorded after the iteration began is not in it.
    """
    if limit is not None and (type(limit) is not int or limit < 1):
        raise InvalidInputError(f"limit is {limit!r}; give a whole number from 1 on.")
    if task_id is not None and not is_plain_text(task_id):
        raise InvalidInputError(
            "task_id is not a text, or holds a NUL character or a lone surrogate."
        )
    return itertools.islice(_records(ledger, task_id), limit)


def _records(ledger: LedgerClient, task_id: str | None) -> Iterator[ThoughtRecord]:
    entries: Iterator[LedgerEntry] | None = None
    for row in stray_rows(ledger, task_id):
        raise _damaged(row)
    for row in rows_of(ledger, task_id, last_seq(ledger)):
        if not row.is_sound:
            raise _damaged(row)
        if entries is None:  # the first row says where to begin
            entries = ledger.query(event_type=EVENT, submission_id=task_id, after=row.seq - 1)
        entry = next((found for found in entries if seq_of(found) >= row.seq), None)
        if entry is None or seq_of(entry) != row.seq:
            raise _damaged(row)
        yield _record(row, entry)


def _record(row: Row, entry: LedgerEntry) -> ThoughtRecord:
    meta = entry.metadata
    content = content_of(entry)
    if entry.event_type != EVENT or meta.get("thought_id") != row.thought_id:
        raise _damaged(row)
    kind: ThoughtType | None = meta.get("type")
    if kind is None or not isinstance(content, (str, Erased)):
        raise _damaged(row)
    return ThoughtRecord(
        id=row.thought_id,
        type=kind,
        task_id=row.task_id,
        agent_id=str(meta.get("agent_id", "")),
        content=content,
        timestamp=str(meta.get("thought_timestamp", "")),
        prev_hash=row.prev_hash,
        hash=row.hash,
        session_id=str(meta.get("session_id", "")),
        entry_id=entry.id,
    )


def _damaged(row: Row) -> TrailDamagedError:
    return TrailDamagedError(
        f"The thought record {row.thought_id!r} cannot be read: its ledger entry "
        f"is not there, or is not its own ({row.place}).",
        next_step="`remit trail verify` says what is damaged.",
    )
