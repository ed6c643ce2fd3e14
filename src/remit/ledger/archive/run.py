"""Archiving: copy old entries to files, check the copy, record it, then remove the rows."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remit.kernel.errors import RemitError
from remit.ledger.archive.check import check_range, root_of
from remit.ledger.archive.erasure import purge
from remit.ledger.archive.files import Kind, kind_there, parts_in, range_name, ranges_in
from remit.ledger.archive.range_copy import RangeCopy
from remit.ledger.archive.removal import Guard, remove
from remit.ledger.archive.selection import leaving, refers
from remit.ledger.client import LedgerClient
from remit.ledger.contents import Content, content
from remit.ledger.entry import LedgerEntry
from remit.ledger.errors import LedgerError, NoSignerError
from remit.ledger.ranges import (
    ARCHIVED,
    ARCHIVED_TO,
    ArchivedRange,
    Places,
    archived_ranges,
    archived_to,
    left_of,
)
from remit.ledger.report import Progress
from remit.ledger.store import Store, Transaction
from remit.ledger.tlog import TILE_WIDTH
from remit.ledger.tree import LedgerTree
from remit.ledger.usage_audit import carried_usage

__all__ = ["ArchiveReport", "Carry", "archive", "cut_at", "finish"]

Carry = Callable[[LedgerClient, int], dict[str, Any]]
"""Returns sums over the entries before a cut, from which checks of other tables continue."""

_ATTEMPTS = 3
_BATCH_TILES = 64
_ROWS = 50_000
_TILE = "INSERT INTO tree_hashes VALUES (0, ?, ?) ON CONFLICT (level, idx) DO NOTHING"
_INFO = (
    f"INSERT INTO ledger_info VALUES ('{ARCHIVED_TO}', ?) ON CONFLICT (name) DO UPDATE "
    "SET value = excluded.value"
)
_IN_DATABASE = "All entries are in the database"
_REPEAT = "run the same command again."


@dataclass(frozen=True, slots=True)
class ArchiveReport:
    """The result of a run.

    Attributes:
        first: the first entry of the range.
        end: the first entry after the range; equal to ``first`` if there was nothing to archive.
        entries: number of entries that were removed from the database.
        stayed: number of entries before ``end`` that are still in the database.
        archived_id: id of the ``ARCHIVED`` entry; empty if there was nothing to archive.
        directory: directory of the range; empty if there was nothing to archive.
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

    Args:
        ledger: the ledger to archive.
        before: a sequence number, an entry id, or a time (ISO 8601). A time stands for the first
            entry that is not older, or for the end if there is none.

    Raises:
        InvalidInputError: ``before`` is none of these.
    """
    from remit.ledger.queries import instant, to_seq

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


def archive(
    ledger: LedgerClient,
    end: int,
    directory: Path,
    *,
    by: str,
    carry: Carry,
    guard: Guard,
    jobs: int = 1,
    kind: Kind | None = None,
    progress: Callable[[str], Progress] | None = None,
) -> ArchiveReport:
    """Archive the entries before ``end``: see ``docs/operations/growth.md``.

    The steps: verify the ledger, copy the range to files and sync them, check the copy, write the
    ``ARCHIVED`` entry, then delete the rows. Each row is compared with the archive in the
    transaction that deletes the row. After an interruption at any step, the same call starts again
    or finishes.

    Args:
        ledger: opened with its key.
        end: a multiple of 256, from :func:`cut_at`.
        directory: directory of the archive; made if it does not exist.
        by: the person who asked, for the record.
        carry: :data:`Carry`; its result must be JSON.
        guard: called in each transaction; raises an error if another run has taken over the lease.
        jobs: number of processes that verify the ledger.
        kind: format of the parts; ``None`` means Parquet if pyarrow is installed, else JSON lines.
        progress: returns, for a step's name, the function that reports its progress.

    Raises:
        LedgerError: the ledger does not verify, or a step failed. The message names the step, where
            the entries are and the next command.
        NoSignerError: the client holds no key.
    """
    run = _Archiving(ledger, directory, by, carry, guard, kind or kind_there(), progress)
    return run.run(end, jobs)


def finish(
    ledger: LedgerClient,
    directories: Sequence[Path],
    *,
    guard: Guard,
    progress: Callable[[str], Progress] | None = None,
    copy_again: Callable[[ArchivedRange], Path] | None = None,
) -> tuple[int, str]:
    """Remove the recorded archived entries that are still in the database.

    The archive of each range is checked first, and bytes that were erased since are removed from
    it. Each row is compared with the archive in the transaction that deletes the row. If entries
    were removed, the database is compacted.

    Args:
        ledger: opened with its key.
        directories: directories of the archive; may be empty if no removal was interrupted.
        guard: as for :func:`archive`.
        progress: as for :func:`archive`.
        copy_again: copies a range again and returns its directory. Called only for a range that is
            in none of the directories, and whose entries are all in the database.

    Returns:
        The number of removed entries, and the reason if :meth:`LedgerClient.compact` could not
        finish (empty if it finished).

    Raises:
        LedgerError: the archive of entries in the database was not given, or does not match them;
            these entries stay.
    """
    removed = 0
    for one, here in _unfinished(ledger._store):
        there = (found for directory in directories for found in ranges_in(directory))
        path = next((path for *name, path in there if name == [one.first, one.end]), None)
        if path is None and copy_again is not None and len(here) == one.count:
            path = copy_again(one)
        if path is None:
            raise _not_given(one, len(here))
        with _phase(
            f"The entries {one.first} to {one.end - 1} could not be removed from the database",
            f"Those that were not removed are in the database; {path}, recorded by "
            f"{one.entry.id}, is the only copy of the others.",
            "Keep that directory, and run `remit ledger archive --finish --archive DIR` with the "
            "directory that contains it.",
        ):
            purge(ledger, parts_in(path), guard)
            held = check_range(ledger, path, one.first, one.end, root_of(one), one.left)
            removed += remove(ledger, here, held, guard, progress and progress("removing"))
    with _phase(
        "The space of the removed entries could not be given back",
        "The entries were removed from the database; the archive contains them.",
        "Run `remit ledger compact`.",
    ):
        return removed, ledger._store.compact() if removed else ""


def _unfinished(store: Store) -> list[tuple[ArchivedRange, Places]]:
    """Return each recorded range with entries in the database, and these entries."""
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
    again = " If it is lost, `remit ledger archive --before … --out DIR` copies the entries again."
    return LedgerError(
        f"{one.entry.id} of {one.entry.timestamp} records that {one.count} of the entries "
        f"{one.first} to {one.end - 1} were archived; {here} of them are still in the database, "
        f"and the directory {range_name(one.first, one.end)} of their archive was not given. "
        "Nothing was removed.",
        next_step="Give the directory that contains it: `remit ledger archive --finish --archive "
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


class _Archiving:
    def __init__(
        self, ledger: LedgerClient, directory: Path, by: str, carry: Carry, guard: Guard,
        kind: Kind, progress: Callable[[str], Progress] | None,
    ) -> None:  # fmt: skip
        self._ledger = ledger
        self._store = ledger._store
        self._directory = directory
        self._by = by
        self._carry = carry
        self._guard = guard
        self._kind: Kind = kind
        self._progress = progress
        self._seconds: dict[str, float] = {}
        self._since = time.perf_counter()

    def run(self, end: int, jobs: int) -> ArchiveReport:
        ledger = self._ledger
        if ledger.checkpoints.signer is None:
            raise NoSignerError(
                "An archive requires a signed checkpoint, but this client has no signing key.",
                next_step="Open the ledger through its root: `remit ledger archive`.",
            )
        remainder = self._finish()[1]
        first = archived_to(ledger.select)
        if end <= first:
            return ArchiveReport(first, first, 0, 0, "", "", remainder, {})
        report = ledger.verify(jobs=jobs, progress=self._shown("verifying"))
        self._took("verify")
        if not report.verified:
            raise LedgerError(
                f"The ledger does not verify ({report.problems[0]}); so nothing was archived.",
                next_step="Run `remit ledger verify` to see what is damaged.",
            )
        size = ledger.count()
        places = leaving(self._store, end)
        self._took("plan")
        if not len(places):
            return ArchiveReport(first, first, 0, 0, "", "", remainder, self._seconds)
        copy = self._copy(first, end, places)
        self._took("write")
        archived_id = self._record(copy, size, places)
        self._keep(copy)
        self._took("record")
        removed, remainder = self._finish()
        self._took("remove")
        stayed = ledger.select("SELECT count(*) FROM entries WHERE seq < ?", (end,))[0][0]
        return ArchiveReport(
            first, end, removed, stayed, archived_id, str(copy.place), remainder, self._seconds
        )

    def _finish(self) -> tuple[int, str]:
        directories = [self._directory] if self._directory.is_dir() else []
        return finish(
            self._ledger, directories, guard=self._guard, progress=self._progress,
            copy_again=self._copy_again,
        )  # fmt: skip

    def _copy_again(self, one: ArchivedRange) -> Path:
        copy = self._copy(one.first, one.end, one.left)
        self._keep(copy)
        return copy.place

    def _copy(self, first: int, end: int, places: Places) -> RangeCopy:
        """Write a copy of a range and check it; remove it if that fails."""
        copy = RangeCopy(self._ledger, self._directory, first, end, self._kind, self._shown)
        with _phase(
            f"The copy {copy.path} could not be written and checked",
            f"{_IN_DATABASE}. If {copy.path} is there, it is incomplete and can be removed.",
            "Make sure that there is space and that the directory can be written, or give another "
            f"--out; then {_REPEAT}",
        ):
            try:
                copy.write(places)
                self._check(copy, places)
            except BaseException:
                copy.discard()
                raise
        return copy

    def _check(self, copy: RangeCopy, places: Places) -> None:
        check_range(self._ledger, copy.path, copy.first, copy.end, copy.root, places)

    def _keep(self, copy: RangeCopy) -> None:
        with _phase(
            f"{copy.path} could not be renamed to {copy.place}",
            f"{_IN_DATABASE}, and a complete copy is in one of these directories.",
            f"Make sure that no other file has that name; then {_REPEAT}",
        ):
            copy.keep()

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

    def _record(self, copy: RangeCopy, size: int, places: Places) -> str:
        """Write the ``ARCHIVED`` entry; return its id.

        Entries of sessions that continued meanwhile, and values that were erased, are first removed
        from the copy.

        Raises:
            LedgerError: sessions continued during each of three attempts.
        """
        first, end = copy.first, copy.end
        with _phase(
            "The ARCHIVED entry could not be recorded",
            f"{_IN_DATABASE}. A copy is in {copy.path}.",
            f"Make sure that the database and the disk can be written; then {_REPEAT} Remove "
            f"{copy.path} after that.",
        ):
            self._keep_leaves(first, end)
            carried = {"usage": carried_usage(self._ledger, first, end),
                       **self._carry(self._ledger, end)}  # fmt: skip
            for _ in range(_ATTEMPTS):
                done = self._ledger.transact(
                    functools.partial(self._record_in, first, end, copy.root, size, places, carried)
                )
                if isinstance(done, str):
                    return done
                for seq in done:
                    places.remove(seq)
                size = self._ledger.count()
                copy.write_parts(places)
                self._check(copy, places)
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
            for session_id in refers(tx, tx.execute, size)
            for (seq,) in tx.execute(
                "SELECT seq FROM entries WHERE session_id = ? AND seq < ?", (session_id, end)
            )
            if seq in places
        ]
        if alive or tx.execute("SELECT 1 FROM erasures WHERE seq >= ? LIMIT 1", (size,)):
            return alive
        tx.execute(_INFO, (str(end),))
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
