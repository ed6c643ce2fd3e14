"""The removal of archived rows from the database, some sessions in each transaction."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from remit.ledger.archived_ranges import Places
from remit.ledger.entry_reader import chunks, marks
from remit.ledger.errors import LedgerError
from remit.ledger.search import TextIndex
from remit.ledger.segments.segment import facts_of, rows_of, steps_above
from remit.ledger.segments.selection import sessions_of
from remit.ledger.store import Store, Transaction
from remit.ledger.verification.report import Progress

if TYPE_CHECKING:
    from remit.ledger.client import LedgerClient

_BATCH_ENTRIES = 2_000  # entries in one transaction; more if one session has more

Guard = Callable[[Transaction], None]
"""Raises an error, in a transaction, if this run does not hold the lease any more."""


def remove(
    ledger: LedgerClient,
    places: Places,
    segment: Store,
    guard: Guard,
    progress: Progress | None = None,
) -> int:
    """Delete the entries in ``places``, with the content that no other entry shows.

    Sessions share a transaction until they have 2,000 entries together; a session's entries in
    ``places`` are deleted in a single transaction. Transactions before an error stay. Each row
    is compared with the segment in the transaction that deletes the row. Messages that a remaining
    entry's list needs stay, and become that entry's. The words of the deleted content are removed
    from the text index at the end. A repeated call continues with the entries that are left.

    Args:
        ledger: the ledger.
        places: the entries, each in the database and part of a session; others are ignored.
        segment: the opened segment.
        guard: called in each transaction; raises if the lease is lost.
        progress: called after each transaction with the number of deleted entries and the number of
            ``places``; ``None`` for none.

    Returns:
        The number of deleted entries.

    Raises:
        LedgerError: the segment lacks a row, the ledger cannot be written, or ``guard`` refused; no
            row of that transaction is deleted.
    """
    total, done = len(places), 0
    index = TextIndex(ledger._store, ledger.transact)
    for batch in _batches(ledger._store, places):
        ledger.transact(
            functools.partial(_remove_batch, ledger._store, segment, index, batch, guard)
        )
        done += sum(map(len, batch.values()))
        if progress is not None:
            progress(done, total)
    if done:
        ledger.transact(index.merge)
    return done


def _batches(store: Store, places: Places) -> Iterator[dict[str, list[int]]]:
    """Yield, by session, the listed entries that are in the database; sessions stay whole."""
    batch: dict[str, list[int]] = {}
    waiting = 0
    for session_id, entries in sessions_of(store):
        if seqs := [seq for _, seq in entries if seq in places]:
            batch[session_id] = seqs
            waiting += len(seqs)
        if waiting >= _BATCH_ENTRIES:
            yield batch
            batch, waiting = {}, 0
    if batch:
        yield batch


def _remove_batch(
    store: Store, segment: Store, index: TextIndex, batch: dict[str, list[int]], guard: Guard,
    tx: Any,
) -> None:  # fmt: skip
    """Delete the rows of some sessions; raise LedgerError if the segment lacks any of them."""
    guard(tx)
    seqs = sorted(seq for seqs in batch.values() for seq in seqs)
    own = rows_of(tx.execute, store.record_sql, seqs)
    copied = rows_of(segment.select, segment.record_sql, seqs)
    if lacking := sorted(facts_of(own) - facts_of(copied), key=str):
        raise LedgerError(
            f"The {lacking[0][0]} {lacking[0][1]} differs between the segment and the database."
        )
    steps = {row[0] for row in own["message_steps"]}
    if steps:
        # A continued session shows its earlier messages again, so these stay.
        steps -= _still_listed(tx, batch, frozenset(seqs))
    for table in ("shown_contents", "shown_lists", "entries"):
        _delete(tx, table, "seq", seqs)
    _delete(tx, "message_steps", "step_id", sorted(steps))
    gone = [
        row[0]
        for part in chunks(sorted({content_id for _, content_id in own["shown_contents"]}))
        for row in tx.execute(
            f"SELECT content_id FROM contents AS c WHERE content_id IN ({marks(part)}) AND NOT "
            "EXISTS (SELECT 1 FROM shown_contents AS s WHERE s.content_id = c.content_id)",
            part,
        )
    ]
    index.forget(tx, gone, merge=False)
    for table in ("content_subjects", "contents"):
        _delete(tx, table, "content_id", gone)
    index.lower_mark(tx)
    tx.forget()


def _delete(tx: Any, table: str, key: str, ids: list[int]) -> None:
    for part in chunks(ids):
        tx.execute(f"DELETE FROM {table} WHERE {key} IN ({marks(part)})", part)


def _still_listed(tx: Any, sessions: Iterable[str], leaving: frozenset[int]) -> set[int]:
    """Return the message steps that remaining entries of some sessions also show.

    The messages of these steps are recorded in ``shown_contents`` for the first remaining entry.
    """
    kept: set[int] = set()
    for session_id in sessions:
        ends = tx.execute(
            "SELECT l.seq, l.step_id FROM entries AS e JOIN shown_lists AS l ON l.seq = e.seq "
            "WHERE e.session_id = ? ORDER BY l.seq",
            (session_id,),
        )
        for seq, step_id in ends:
            if seq in leaving:
                continue
            new = steps_above(tx.execute, {step_id}) - kept
            kept |= new
            for part in chunks(sorted(new)):
                tx.execute(
                    "INSERT INTO shown_contents SELECT DISTINCT CAST(? AS BIGINT), content_id "
                    f"FROM message_steps WHERE step_id IN ({marks(part)}) AND content_id IS "
                    "NOT NULL ON CONFLICT DO NOTHING",
                    (seq, *part),
                )
    return kept
