"""The removal of archived rows from the database, some sessions in each transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from remit.ledger.archive.check import digest
from remit.ledger.archive.selection import sessions_of
from remit.ledger.client import LedgerClient
from remit.ledger.contents import StoredValue
from remit.ledger.errors import LedgerError
from remit.ledger.ranges import Places
from remit.ledger.reader import as_bytes, chunks, marks
from remit.ledger.report import Progress
from remit.ledger.search import TextIndex
from remit.ledger.store import Store, Transaction

__all__ = ["Guard", "remove"]

_BATCH_ENTRIES = 2_000  # entries in one transaction; more if one session has more

Guard = Callable[[Transaction], None]
"""Raises an error, in a transaction, if this run does not hold the lease any more."""

_STEPS = "SELECT step, commitment FROM message_steps WHERE step_id"
_VALUES = "SELECT commitment, nonce, codec, value FROM contents WHERE content_id"
_PERSONS = (
    "SELECT c.commitment, o.subject_id FROM content_subjects AS o "
    "JOIN contents AS c ON c.content_id = o.content_id WHERE o.content_id"
)


def remove(
    ledger: LedgerClient,
    places: Places,
    held: set[bytes],
    guard: Guard,
    progress: Progress | None = None,
) -> int:
    """Delete the entries in ``places``, with the content that no other entry shows.

    Some sessions share a transaction; a session is deleted whole. Each row is compared with the
    archive in the transaction that deletes the row. The words of the deleted content are removed
    from the text index.

    Args:
        ledger: the ledger.
        places: the entries; some may be deleted already.
        held: digests of the archive's rows, from :func:`check_range`.
        guard: called in each transaction; raises if the lease is lost.
        progress: called with the number of deleted entries and their total; ``None`` for none.

    Returns:
        The number of deleted entries.

    Raises:
        LedgerError: the archive lacks a row; no row of that transaction is deleted.
    """
    total, done = len(places), 0
    index = TextIndex(ledger._store, ledger.transact)
    for batch in _batches(ledger._store, places):
        ledger.transact(_Removal(ledger._store, index, batch, held, guard).run)
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


def _unchanged(*parts: str) -> tuple[str, ...]:
    return parts


def _record(entry_hash: str, record: Any) -> tuple[str, bytes]:
    return entry_hash, as_bytes(record)


def _value(nonce: bytes, codec: str, value: str | bytes) -> tuple[bytes, str, bytes]:
    stored = StoredValue(codec, value)
    return bytes(nonce), "json" if stored.is_exact else "jcs", stored.encoded()


class _Removal:
    """The removal of some sessions' rows in one transaction."""

    def __init__(
        self, store: Store, index: TextIndex, batch: dict[str, list[int]], held: set[bytes],
        guard: Guard,
    ) -> None:  # fmt: skip
        self._entries_sql = f"SELECT seq, entry_hash, {store.record_sql} FROM entries WHERE seq"
        self._index = index
        self._batch = batch
        self._held = held
        self._guard = guard
        self._seqs = sorted(seq for seqs in batch.values() for seq in seqs)

    def run(self, tx: Any) -> None:
        """Delete the rows; raise LedgerError if one of them is not in the archive."""
        self._guard(tx)
        steps = self._steps(tx, self._seqs)
        contents = self._ids(tx, "content_id", "shown_contents", self._seqs)
        if steps:
            # A continued session shows its earlier messages again, so these stay.
            steps -= self._go_on(tx)
        self._require(tx, "entry", self._entries_sql, self._seqs, _record)
        self._require(tx, "message", _STEPS, sorted(steps))
        for part in chunks(self._seqs):
            for table in ("shown_contents", "shown_lists", "entries"):
                tx.execute(f"DELETE FROM {table} WHERE seq IN ({marks(part)})", part)
        for part in chunks(sorted(steps)):
            tx.execute(f"DELETE FROM message_steps WHERE step_id IN ({marks(part)})", part)
        gone = sorted(contents - self._still_shown(tx, contents))
        self._require(tx, "value", _VALUES, gone, _value)
        self._require(tx, "person of the value", _PERSONS, gone)
        self._index.forget(tx, gone, merge=False)
        for part in chunks(gone):
            for table in ("content_subjects", "contents"):
                tx.execute(f"DELETE FROM {table} WHERE content_id IN ({marks(part)})", part)
        self._index.lower_mark(tx)
        tx.forget()

    def _require(
        self, tx: Any, kind: str, sql: str, ids: list[int], parts: Callable[..., Any] = _unchanged
    ) -> None:
        """Raise LedgerError if a row to delete is not in the archive."""
        for part in chunks(ids):
            for name, *more in tx.execute(f"{sql} IN ({marks(part)})", part):
                if digest(kind, str(name), *parts(*more)) not in self._held:
                    raise LedgerError(
                        f"The {kind} {name} differs between the archive and the database."
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
