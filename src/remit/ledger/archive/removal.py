"""The rows of what was archived leave the database, some sessions in each transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from remit.ledger.archive.leaving import sessions_of
from remit.ledger.archived import Places, archived_ranges, left_of
from remit.ledger.reader import chunks, marks
from remit.ledger.report import Progress
from remit.ledger.search import TextIndex
from remit.ledger.store import Store

__all__ = ["remove"]

_AT_ONCE = 2_000  # entries in one transaction, but for a session with more

Run = Callable[[Callable[[Any], Any]], Any]


def remove(store: Store, run: Run, progress: Progress | None = None) -> int:
    """Delete what is on record as archived and still there, with the content that nothing shows
    any more; returns how many entries. Killed anywhere, the next call goes on."""
    places = left_of(archived_ranges(store))
    total, done = len(places), 0
    index = TextIndex(store, run)
    for batch in _batches(store, places):
        run(_Removal(index, batch).run)
        done += sum(map(len, batch.values()))
        if progress is not None:
            progress(done, total)
    if done:
        run(index.merge)
    return done


def _batches(store: Store, places: Places) -> Iterator[dict[str, list[int]]]:
    """Entries that are still there, by session: whole sessions."""
    batch: dict[str, list[int]] = {}
    waiting = 0
    for session_id, entries in sessions_of(store):
        if seqs := [seq for _, seq in entries if seq in places]:
            batch[session_id] = seqs
            waiting += len(seqs)
        if waiting >= _AT_ONCE:
            yield batch
            batch, waiting = {}, 0
    if batch:
        yield batch


class _Removal:
    """One transaction."""

    def __init__(self, index: TextIndex, batch: dict[str, list[int]]) -> None:
        self._index = index
        self._batch = batch
        self._seqs = sorted(seq for seqs in batch.values() for seq in seqs)

    def run(self, tx: Any) -> None:
        """Delete the rows."""
        steps = self._steps(tx, self._seqs)
        contents = self._ids(tx, "content_id", "shown_contents", self._seqs)
        if steps:
            # A session that has gone on since shows again what it said: that stays.
            steps -= self._go_on(tx)
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
        """All steps of the lists of entries."""
        return self._above(tx, self._ids(tx, "step_id", "shown_lists", seqs))

    @staticmethod
    def _above(tx: Any, ends: set[int]) -> set[int]:
        found: set[int] = set()
        for part in chunks(sorted(ends)):
            found.update(
                row[0]
                for row in tx.execute(
                    f"""WITH RECURSIVE walk(step_id) AS (
                            SELECT step_id FROM message_steps WHERE step_id IN ({marks(part)})
                            UNION
                            SELECT s.parent_id FROM walk JOIN message_steps AS s
                            ON s.step_id = walk.step_id WHERE s.parent_id > 0
                        ) SELECT step_id FROM walk""",
                    part,
                )
            )
        return found

    def _go_on(self, tx: Any) -> set[int]:
        """The steps that entries that stay show, too; the messages of these are then noted to be
        shown by the first of those entries."""
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
                new = self._above(tx, {step_id}) - kept
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
