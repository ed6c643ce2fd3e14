"""The removal of archived rows from the database, some sessions in each transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from remit.ledger.errors import LedgerError
from remit.ledger.ranges import Places
from remit.ledger.reader import chunks, marks
from remit.ledger.report import Progress
from remit.ledger.search import TextIndex
from remit.ledger.segments.segment import facts_of, rows_of, steps_above
from remit.ledger.segments.selection import sessions_of
from remit.ledger.store import Store, Transaction

if TYPE_CHECKING:
    from remit.ledger.client import LedgerClient

__all__ = ["Guard", "remove"]

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

    Some sessions share a transaction; a session is deleted whole. Each row is compared with the
    segment in the transaction that deletes the row. The words of the deleted content are removed
    from the text index.

    Args:
        ledger: the ledger.
        places: the entries; some may be deleted already.
        segment: the opened segment.
        guard: called in each transaction; raises if the lease is lost.
        progress: called with the number of deleted entries and their total; ``None`` for none.

    Returns:
        The number of deleted entries.

    Raises:
        LedgerError: the segment lacks a row; no row of that transaction is deleted.
    """
    total, done = len(places), 0
    index = TextIndex(ledger._store, ledger.transact)
    for batch in _batches(ledger._store, places):
        ledger.transact(_Removal(ledger._store, index, batch, segment, guard).run)
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


class _Removal:
    """The removal of some sessions' rows in one transaction."""

    def __init__(
        self, store: Store, index: TextIndex, batch: dict[str, list[int]], segment: Store,
        guard: Guard,
    ) -> None:  # fmt: skip
        self._record_sql = store.record_sql
        self._index = index
        self._batch = batch
        self._segment = segment
        self._guard = guard
        self._seqs = sorted(seq for seqs in batch.values() for seq in seqs)

    def run(self, tx: Any) -> None:
        """Delete the rows; raise LedgerError if the segment lacks any of them."""
        self._guard(tx)
        steps = self._steps(tx, self._seqs)
        contents = self._ids(tx, "content_id", "shown_contents", self._seqs)
        if steps:
            # A continued session shows its earlier messages again, so these stay.
            steps -= self._go_on(tx)
        self._require(tx)
        for part in chunks(self._seqs):
            for table in ("shown_contents", "shown_lists", "entries"):
                tx.execute(f"DELETE FROM {table} WHERE seq IN ({marks(part)})", part)
        for part in chunks(sorted(steps)):
            tx.execute(f"DELETE FROM message_steps WHERE step_id IN ({marks(part)})", part)
        gone = sorted(contents - self._still_shown(tx, contents))
        self._index.forget(tx, gone, merge=False)
        for part in chunks(gone):
            for table in ("content_subjects", "contents"):
                tx.execute(f"DELETE FROM {table} WHERE content_id IN ({marks(part)})", part)
        self._index.lower_mark(tx)
        tx.forget()

    def _require(self, tx: Any) -> None:
        """Raise LedgerError if the segment lacks anything that the rows to delete say."""
        segment = rows_of(self._segment.select, self._segment.record_sql, self._seqs)
        own = rows_of(tx.execute, self._record_sql, self._seqs)
        if lacking := sorted(facts_of(own) - facts_of(segment), key=str):
            raise LedgerError(
                f"The {lacking[0][0]} {lacking[0][1]} differs between the segment and the database."
            )

    @staticmethod
    def _ids(tx: Any, column: str, table: str, seqs: list[int]) -> set[int]:
        return {
            row[0]
            for part in chunks(seqs)
            for row in tx.execute(
                f"SELECT {column} FROM {table} WHERE seq IN ({marks(part)})", part
            )
        }

    def _steps(self, tx: Any, seqs: list[int]) -> set[int]:
        """Return all message steps of the entries' lists."""
        return steps_above(tx.execute, self._ids(tx, "step_id", "shown_lists", seqs))

    def _go_on(self, tx: Any) -> set[int]:
        """Return the message steps that remaining entries also show.

        The messages of these steps are recorded in ``shown_contents`` for the first remaining
        entry.
        """
        kept: set[int] = set()
        leaving = frozenset(self._seqs)
        for session_id in self._batch:
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

    @staticmethod
    def _still_shown(tx: Any, contents: set[int]) -> set[int]:
        return {
            row[0]
            for part in chunks(sorted(contents))
            for row in tx.execute(
                "SELECT DISTINCT content_id FROM shown_contents "
                f"WHERE content_id IN ({marks(part)})",
                part,
            )
        }
