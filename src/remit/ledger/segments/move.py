"""The run that moves entries to a segment: copy, verify, record, compare, remove the rows."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.kernel.durable_files import fsync
from remit.kernel.errors import RemitError
from remit.ledger.archived_ranges import (
    ARCHIVED,
    ARCHIVED_TO,
    ArchivedRange,
    Places,
    archived_ranges,
    archived_to,
    left_of,
)
from remit.ledger.contents import Content, content
from remit.ledger.entry import LedgerEntry
from remit.ledger.entry_reader import PUT_INFO
from remit.ledger.errors import LedgerError, NoSignerError
from remit.ledger.filter import instant, to_seq
from remit.ledger.segments.copies import discard, new_copy, publish_copy, remove_copies
from remit.ledger.segments.removal import Guard, remove
from remit.ledger.segments.segment import (
    open_segment,
    purge,
    require_sound,
    segment_name,
    segments_in,
    write_segment,
)
from remit.ledger.segments.selection import leaving, sessions_in_use
from remit.ledger.store import Store, Transaction
from remit.ledger.tlog import TILE_WIDTH, Checkpoint
from remit.ledger.tree import LedgerTree
from remit.ledger.usage_tables import carried_usage
from remit.ledger.verification.report import Progress

if TYPE_CHECKING:
    from remit.ledger.client import LedgerClient

Carry = Callable[["LedgerClient", int], dict[str, Any]]
"""Returns sums over the entries before a cut, from which checks of other tables continue."""

_ATTEMPTS = 3
_BATCH_TILES = 64
_ROWS = 50_000
_TILE = "INSERT INTO tree_hashes VALUES (0, ?, ?) ON CONFLICT (level, idx) DO NOTHING"


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """The result of :func:`move_to_segment`; immutable.

    Attributes:
        first: the first entry of the range.
        end: the first entry after the range; equal to ``first`` if there was nothing to move.
        entries: number of entries that were removed from the database.
        stayed: number of entries before ``end`` that are still in the database.
        archived_id: id of the ``ARCHIVED`` entry; empty if there was nothing to move.
        directory: path of the segment; empty if there was nothing to move.
        remainder: the reason if :meth:`LedgerClient.compact` could not finish; else empty.
        seconds: duration of each step, keyed by the step's name.
    """

    first: int
    end: int
    entries: int
    stayed: int
    archived_id: str
    directory: str
    remainder: str
    seconds: dict[str, float]


def cut_at(ledger: LedgerClient, before: str) -> int:
    """Return the greatest multiple of 256 at or below the requested cut and the ledger's size.

    A time is compared only with entries that were not archived yet.

    Args:
        ledger: the ledger.
        before: a sequence number in decimal digits, an entry id, or a time (ISO 8601, UTC without a
            zone). An id counts by its number; the entry need not exist. A time stands for the first
            entry that is not older, or for the end if there is none.

    Raises:
        InvalidInputError: ``before`` is a malformed id or time.
        LedgerError: the ledger cannot be read.
    """
    size = ledger.count()
    if before.isdecimal():
        seq = int(before)
    elif before.startswith("LED-"):
        seq = to_seq(before) or 0
    else:
        sql = "SELECT min(seq) FROM entries WHERE timestamp >= ? AND seq >= ?"
        rows = ledger.select(sql, (instant(before), archived_to(ledger.select)))
        seq = size if rows[0][0] is None else rows[0][0]
    return min(seq, size) // TILE_WIDTH * TILE_WIDTH


def move_to_segment(
    ledger: LedgerClient,
    end: int,
    directory: Path,
    *,
    by: str,
    carry: Carry,
    guard: Guard,
    jobs: int = 1,
    progress: Callable[[str], Progress] | None = None,
) -> SegmentReport:
    """Move the entries before ``end`` to a segment: see ``docs/operations/growth.md``.

    The steps: verify the ledger, copy the entries to a new file and sync it, verify the file with
    the verifier of every ledger, write the ``ARCHIVED`` entry, then delete the rows. Each row is
    compared with the segment in the transaction that deletes the row. After an interruption at any
    step, the same call starts again or finishes. Entries that an earlier run recorded and did not
    remove are removed first. The database is compacted at the end. Sessions that continue meanwhile
    stay.

    Args:
        ledger: opened with its key.
        end: a multiple of 256, from :func:`cut_at`.
        directory: directory of the segments; made if it does not exist.
        by: the person who asked, for the record.
        carry: :data:`Carry`; its result must be JSON.
        guard: called in each transaction; raises an error if another run has taken over the lease.
        jobs: number of processes that verify the ledger; the segment is verified in this process.
        progress: returns, for a step's name, the function that reports its progress.

    Raises:
        LedgerError: the ledger does not verify, sessions continue to write, or a step failed. The
            message names the step, where the entries are and the next command.
        NoSignerError: the client holds no key.

    Returns:
        The counts, paths and durations; if there was nothing to move, ``end`` equals ``first`` and
        there is no ``archived_id``.
    """
    return _Run(ledger, directory, by, carry, guard, progress).run(end, jobs)


def finish(
    ledger: LedgerClient,
    directories: Sequence[Path],
    *,
    guard: Guard,
    progress: Callable[[str], Progress] | None = None,
    copy_again: Callable[[ArchivedRange], Path] | None = None,
) -> tuple[int, str]:
    """Remove the recorded archived entries that are still in the database.

    Each segment is opened by its name and verified first, and values that were erased since are
    removed from it. Each row is compared with the segment in the transaction that deletes the row.
    If entries were removed, the database is compacted. Ranges are handled in order, so earlier ones
    stay removed after an error.

    Args:
        ledger: opened with its key.
        directories: directories of segments; may be empty if no removal was interrupted.
        guard: as for :func:`move_to_segment`.
        progress: as for :func:`move_to_segment`.
        copy_again: copies a range again and returns the path of its segment. Called only for a
            range that is in none of the directories, and whose entries are all in the database.
            ``None`` refuses such a range.

    Returns:
        The number of removed entries, and the reason if :meth:`LedgerClient.compact` could not
        finish (empty if it finished).

    Raises:
        LedgerError: the segment of entries in the database was not given, cannot be written, or
            does not match them (these entries stay); a directory cannot be read; ``guard`` refused;
            or the ledger cannot be written or, after the removal, compacted.
    """
    removed = 0
    for one, here in _unfinished(ledger._store):
        there = {(first, end): path for first, end, path in segments_in(directories)}
        path = there.get((one.first, one.end))
        if path is None and copy_again is not None and len(here) == one.count:
            path = copy_again(one)
        if path is None:
            raise _not_given(one, len(here))
        with _phase(
            f"The entries {one.first} to {one.end - 1} could not be removed from the database",
            f"Those that were not removed are in the database; {path}, recorded by "
            f"{one.entry.id}, is the only copy of the others.",
            "Keep that file, and run `remit ledger segment --finish --archive DIR` with the "
            "directory that contains it.",
        ):
            removed += _remove(ledger, path, one, here, guard, progress)
    with _phase(
        "The space of the removed entries could not be given back",
        "The entries were removed from the database; the segment contains them.",
        "Run `remit ledger compact`.",
    ):
        return removed, ledger._store.compact()[1] if removed else ""


def _remove(
    ledger: LedgerClient, path: Path, one: ArchivedRange, here: Places, guard: Guard,
    progress: Callable[[str], Progress] | None,
) -> int:  # fmt: skip
    """Verify a segment, and remove its entries from the database; return their number."""
    with contextlib.closing(open_segment(path, ledger._settings)) as store:
        purge(ledger._store, store)
        require_sound(ledger, store, one.left, one.root)
        removed = remove(ledger, here, store, guard, progress and progress("removing"))
        purge(ledger._store, store)  # An erasure meanwhile reached the database alone.
    return removed


def _unfinished(store: Store) -> list[tuple[ArchivedRange, Places]]:
    """Return each recorded range with entries in the database, and the entries."""
    ranges = archived_ranges(store)
    gone = left_of(ranges)
    ((count,),) = store.select("SELECT count(*) FROM entries WHERE seq < ?", (gone.end,))
    if count == gone.end - len(gone):
        return []
    there, last = Places(gone.end), -1
    while rows := store.select(
        f"SELECT seq FROM entries WHERE seq > ? AND seq < ? ORDER BY seq LIMIT {_ROWS}",
        (last, gone.end),
    ):
        for (last,) in rows:
            there.add(last)
    found = [(one, one.left.common(there)) for one in ranges]
    return [(one, here) for one, here in found if len(here)]


def _not_given(one: ArchivedRange, here: int) -> LedgerError:
    again = " If it is lost, `remit ledger segment --before … --out DIR` copies the entries again."
    return LedgerError(
        f"{one.entry.id} of {one.entry.timestamp} records that {one.count} of the entries "
        f"{one.first} to {one.end - 1} were archived; {here} of them are still in the database, "
        f"and their segment {segment_name(one.first, one.end)} was not given. Nothing was removed.",
        next_step="Give the directory that contains it: `remit ledger segment --finish --archive "
        f"DIR`.{again if here == one.count else ''}",
    )


@contextlib.contextmanager
def _phase(failure: str, state: str, next_step: str) -> Iterator[None]:
    """Name the failed phase, the place of the entries and the next step in a block's error."""
    try:
        yield
    except (OSError, RemitError) as error:
        reason = error.message if isinstance(error, RemitError) else str(error)
        raise LedgerError(
            f"{failure}: {reason.rstrip('.')}. {state}", next_step=next_step
        ) from error


class _Run:
    def __init__(
        self, ledger: LedgerClient, directory: Path, by: str, carry: Carry, guard: Guard,
        progress: Callable[[str], Progress] | None,
    ) -> None:  # fmt: skip
        self._ledger = ledger
        self._store = ledger._store
        self._directory = directory
        self._by = by
        self._carry = carry
        self._guard = guard
        self._progress = progress
        self._seconds: dict[str, float] = {}
        self._since = time.perf_counter()

    def run(self, end: int, jobs: int) -> SegmentReport:
        ledger = self._ledger
        if ledger.checkpoints.signer is None:
            raise NoSignerError(
                "A segment requires a signed checkpoint, but this client has no signing key.",
                next_step="Open the ledger through its root: `remit ledger segment`.",
            )
        remove_copies(ledger)
        remainder = self._finish()[1]
        first = archived_to(ledger.select)
        if end <= first:
            return SegmentReport(first, first, 0, 0, "", "", remainder, {})
        report = ledger.verify(jobs=jobs, progress=self._shown("verifying"))
        self._took("verify")
        if not report.verified:
            raise LedgerError(
                f"The ledger does not verify ({report.problems[0]}); so no entry was moved.",
                next_step="Run `remit ledger verify` to see what is damaged.",
            )
        size = ledger.count()
        places = leaving(self._store, end)
        self._took("plan")
        if not len(places):
            return SegmentReport(first, first, 0, 0, "", "", remainder, self._seconds)
        with self._writing():
            path = self._path(first, end)
            root = LedgerTree(self._store.select, self._store).root(end)
            copy = self._copy(path, root, places)
            self._took("write")
            archived_id, copy = self._record(copy, first, root, size, places)
            publish_copy(self._ledger, copy, path)
            self._took("record")
        removed, remainder = self._finish()
        self._took("remove")
        stayed = ledger.select("SELECT count(*) FROM entries WHERE seq < ?", (end,))[0][0]
        return SegmentReport(
            first, end, removed, stayed, archived_id, str(path), remainder, self._seconds
        )

    def _finish(self) -> tuple[int, str]:
        directories = [self._directory] if self._directory.is_dir() else []
        return finish(
            self._ledger, directories, guard=self._guard, progress=self._progress,
            copy_again=self._copy_again,
        )  # fmt: skip

    def _writing(self) -> contextlib.AbstractContextManager[None]:
        return _phase(
            "No entry was removed from the database",
            f"All entries are in the database. {self._directory} may contain a copy that is not "
            "complete, or not recorded.",
            "Make sure that the database and the directory can be written, or give another --out; "
            "then run the same command again.",
        )

    def _path(self, first: int, end: int) -> Path:
        """Return the path of a new segment; raise LedgerError if there is a file."""
        path = self._directory / segment_name(first, end)
        if os.path.lexists(path):
            raise LedgerError(f"{path} exists, and this ledger recorded no such segment.")
        return path

    def _copy_again(self, one: ArchivedRange) -> Path:
        with self._writing():
            path = self._path(one.first, one.end)
            copy = self._copy(path, bytes.fromhex(one.root), one.left)
            publish_copy(self._ledger, copy, path)
        return path

    def _copy(self, path: Path, root: bytes, places: Places) -> Path:
        """Write and verify a segment under the name of an interrupted copy; return the path.

        The file is removed if it cannot be completed.
        """
        signer = self._ledger.checkpoints.signer
        assert signer is not None
        signed = Checkpoint(signer.verifier_key.name, places.end, root).sign(signer)
        made = [one for one in path.parents if not one.exists()]
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        copy = new_copy(self._ledger, path)
        try:
            write_segment(copy, self._ledger, places, signed, progress=self._shown("copying"))
            for one in {one.parent for one in made}:
                fsync(one)
            with contextlib.closing(open_segment(copy, self._ledger._settings)) as store:
                purge(self._store, store)
                require_sound(self._ledger, store, places, root.hex())
        except BaseException:
            discard(copy)
            raise
        return copy

    def _shown(self, what: str) -> Progress | None:
        return self._progress(what) if self._progress is not None else None

    def _took(self, step: str) -> None:
        now = time.perf_counter()
        self._seconds[step], self._since = round(now - self._since, 3), now

    def _keep_leaves(self, first: int, end: int) -> None:
        """Store the range's leaf hashes, which proofs need without the records."""
        tree = LedgerTree(self._store.select, self._store)
        last = end // TILE_WIDTH
        for low in range(first // TILE_WIDTH, last, _BATCH_TILES):
            rows = [
                (index, b"".join(tree.tile(0, index)))
                for index in range(low, min(low + _BATCH_TILES, last))
            ]
            self._ledger.transact(functools.partial(_insert, self._guard, rows))

    def _record(
        self, copy: Path, first: int, root: bytes, size: int, places: Places
    ) -> tuple[str, Path]:
        """Write the ``ARCHIVED`` entry; return its id, and the path of the copy.

        If sessions continued or values were erased meanwhile, the copy is first replaced by one
        without them.

        Raises:
            LedgerError: sessions continued during each of three attempts.
        """
        end = places.end
        self._keep_leaves(first, end)
        carried = {"usage": carried_usage(self._ledger, first, end),
                   **self._carry(self._ledger, end)}  # fmt: skip
        for _ in range(_ATTEMPTS):
            done = self._ledger.transact(
                functools.partial(self._record_in, first, end, root, size, places, carried)
            )
            if isinstance(done, str):
                return done, copy
            for seq in done:
                places.remove(seq)
            size = self._ledger.count()
            discard(copy)
            copy = self._copy(self._path(first, end), root, places)
        discard(copy)
        raise LedgerError("Sessions from before the cut continue to write entries.")

    def _record_in(
        self, first: int, end: int, root: bytes, size: int, places: Places,
        carried: dict[str, Any], tx: Transaction,
    ) -> str | list[int]:  # fmt: skip
        """Return the id of the new entry, or the entries that must stay.

        Entries must stay if their session has continued. The list is empty if only a value was
        erased since the copy was made; the copy is then written again.
        """
        self._guard(tx)
        alive = [
            seq
            for session_id in sessions_in_use(tx, tx.execute, size)
            for (seq,) in tx.execute(
                "SELECT seq FROM entries WHERE session_id = ? AND seq < ?", (session_id, end)
            )
            if seq in places
        ]
        if alive or tx.execute("SELECT 1 FROM erasures WHERE seq >= ? LIMIT 1", (size,)):
            return alive
        tx.execute(PUT_INFO, (ARCHIVED_TO, str(end)))
        return tx.append(
            LedgerEntry(
                event_type=ARCHIVED,
                submission_id=self._by,
                decision="ARCHIVED",
                reason=f"Entries {first} to {end - 1} archived",
                metadata={
                    "first": first,
                    "end": end,
                    "root": root.hex(),
                    "entries": len(places),
                    "left": content(places.to_text()),
                    "carried": Content(carried),
                    "by": self._by,
                },
            )
        )


def _insert(guard: Guard, rows: list[tuple[int, bytes]], tx: Transaction) -> None:
    guard(tx)
    tx.execute_many(_TILE, rows)
