"""Archiving: a copy outside that is checked, an entry that says so, and then the rows go."""

from __future__ import annotations

import functools
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remit.ledger.archive.checking import RangeCheck
from remit.ledger.archive.files import (
    PART_ENTRIES,
    RECORDED,
    Kind,
    Line,
    fsync,
    fsync_tree,
    kind_there,
    part_path,
    parts_in,
    range_name,
    write_part,
)
from remit.ledger.archive.leaving import leaving, refers
from remit.ledger.archive.lines import lines_of
from remit.ledger.archive.removal import remove
from remit.ledger.archived import ARCHIVED, ARCHIVED_TO, Places, archived_to
from remit.ledger.client import LedgerClient
from remit.ledger.content import Content, content
from remit.ledger.entry import LedgerEntry
from remit.ledger.errors import LedgerError, NoSignerError
from remit.ledger.report import Progress
from remit.ledger.store import Transaction
from remit.ledger.tlog import TILE_WIDTH, Checkpoint, bundle, bundle_path, tile_path
from remit.ledger.tree import LedgerTree
from remit.ledger.usage_audit import carried_usage

__all__ = ["ArchiveReport", "Carry", "archive", "cut_at", "finish"]

Carry = Callable[[LedgerClient, int], dict[str, Any]]
"""What other parts of Remit need of the entries before a cut, to check what they keep."""

_ATTEMPTS = 3
_TILES_AT_ONCE = 64
_TILE = "INSERT INTO tree_hashes VALUES (0, ?, ?) ON CONFLICT (level, idx) DO NOTHING"
_INFO = (
    f"INSERT INTO ledger_info VALUES ('{ARCHIVED_TO}', ?) ON CONFLICT (name) DO UPDATE "
    "SET value = excluded.value"
)


@dataclass(frozen=True, slots=True)
class ArchiveReport:
    """What was archived.

    Attributes:
        first: the first entry of the range; ``end`` the first after it. Equal where there was
            nothing to archive.
        entries: how many left the database.
        stayed: how many of before ``end`` are still in it.
        archived_id: the ``ARCHIVED`` entry; empty when there was nothing to archive.
        directory: of the range.
        remainder: what could not be done at once, and how it can be; empty when all was.
        seconds: by step, how long it took.
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
    """The greatest cut that is at or below what was asked: a multiple of 256.

    Args:
        ledger: to be cut.
        before: a sequence number, an entry's id, or a time (ISO 8601): then the first entry that
            is not older.

    Raises:
        InvalidInputError: it is none of these.
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
    jobs: int = 1,
    kind: Kind | None = None,
    progress: Callable[[str], Progress] | None = None,
) -> ArchiveReport:
    """Archive what is before ``end``: see ``docs/operations/growth.md``.

    The copy is on disk and checked before the ``ARCHIVED`` entry is written, and that before the
    first row goes. Killed anywhere, the next call begins again, or goes on.

    Args:
        ledger: with its key.
        end: a multiple of 256 (:func:`cut_at`).
        directory: of the archive; made where it is not there.
        by: who asked, on record.
        carry: :data:`Carry`; what it gives must be JSON.
        jobs: processes for the verification before.
        kind: of the parts; Parquet where pyarrow is installed.
        progress: gives, for what is done just now, what is called with done and total.

    Raises:
        LedgerError: the ledger does not verify, is in use up to the cut, or the archive cannot be
            written.
        NoSignerError: the client holds no key.
    """
    run = _Archiving(ledger, directory, by, carry, kind or kind_there(), progress)
    return run.run(end, jobs)


def finish(
    ledger: LedgerClient, progress: Callable[[str], Progress] | None = None
) -> tuple[int, str]:
    """Remove what is on record as archived and still there; how many entries that was, and what
    of :meth:`LedgerClient.compact` could not be done."""
    if not archived_to(ledger.select):
        return 0, ""
    removed = remove(ledger._store, ledger.transact, progress and progress("removing"))
    return removed, ledger._store.compact() if removed else ""


class _Archiving:
    def __init__(
        self, ledger: LedgerClient, directory: Path, by: str, carry: Carry, kind: Kind,
        progress: Callable[[str], Progress] | None,
    ) -> None:  # fmt: skip
        self._ledger = ledger
        self._store = ledger._store
        self._directory = directory
        self._by = by
        self._carry = carry
        self._kind: Kind = kind
        self._progress = progress
        self._seconds: dict[str, float] = {}
        self._since = time.perf_counter()

    def run(self, end: int, jobs: int) -> ArchiveReport:
        ledger = self._ledger
        if ledger.checkpoints.signer is None:
            raise NoSignerError(
                "An archive needs a signed checkpoint, and this client holds no key.",
                next_step="Open the ledger through its root: `remit ledger archive`.",
            )
        remainder = finish(ledger, self._progress)[1]
        first = archived_to(ledger.select)
        if end <= first:
            return ArchiveReport(first, first, 0, 0, "", "", remainder, {})
        report = ledger.verify(jobs=jobs, progress=self._shown("verifying"))
        self._took("verify")
        if not report.verified:
            raise LedgerError(
                f"The ledger does not verify ({report.problems[0]}); nothing is archived of it.",
                next_step="Run `remit ledger verify` to see what is damaged.",
            )
        size = ledger.count()
        places = leaving(self._store, end)
        self._took("plan")
        place = self._directory / range_name(first, end)
        try:
            root = self._write(place, first, end, places)
            self._took("write")
            self._keep_leaves(first, end)
            carried = {"usage": carried_usage(ledger, first, end), **self._carry(ledger, end)}
            archived_id = self._record(place, first, end, root, size, places, carried)
            _put(place / RECORDED, f"{archived_id}\n".encode())
            for path in (place / RECORDED, place):
                fsync(path)
            self._took("record")
        except OSError as error:
            raise LedgerError(
                f"The archive cannot be written to {self._directory}: {error.strerror or error}.",
                next_step="Nothing has left the database. Check free space and permissions.",
            ) from error
        remove(self._store, ledger.transact, self._shown("removing"))
        self._took("remove")
        remainder = self._store.compact()
        self._took("compact")
        stayed = ledger.select("SELECT count(*) FROM entries WHERE seq < ?", (end,))[0][0]
        return ArchiveReport(
            first, end, len(places), stayed, archived_id, str(place), remainder, self._seconds
        )

    def _shown(self, what: str) -> Progress | None:
        return self._progress(what) if self._progress is not None else None

    def _took(self, step: str) -> None:
        now = time.perf_counter()
        self._seconds[step], self._since = round(now - self._since, 3), now

    # -- the copy ----------------------------------------------------------------------

    def _write(self, place: Path, first: int, end: int, places: Places) -> bytes:
        """The directory of the range, whole and checked, in its place; returns the root."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = place.with_name(f".{place.name}.new")
        if (place / RECORDED).exists():
            raise LedgerError(
                f"{place} is an archive already.",
                next_step="Nothing was done. Give another directory.",
            )
        for left in (new, place):  # of a run that was killed before its entry was on record
            if left.exists():
                shutil.rmtree(left)
        new.mkdir(mode=0o700)
        tree = LedgerTree(self._store.select, self._store)
        root = self._write_tiles(new, tree, first, end)
        self._write_parts(new, places)
        fsync_tree(new)
        self._check(new, first, end, root, places)
        new.rename(place)
        for path in (self._directory, self._directory.parent):
            fsync(path)
        return root

    def _write_tiles(self, path: Path, tree: LedgerTree, first: int, end: int) -> bytes:
        """The range as a C2SP tlog-tiles log: all hashes above the leaves, so that its checkpoint
        can be checked by itself, and of the range leaves and records."""
        shown = self._shown("copying")
        for index in range(first // TILE_WIDTH, end // TILE_WIDTH):
            low = index * TILE_WIDTH
            _put(path / tile_path(0, index), b"".join(tree.tile(0, index)))
            _put(path / bundle_path(index), bundle(self._store.records(low, low + TILE_WIDTH)))
            if shown is not None:
                shown(low + TILE_WIDTH - first, end - first)
        level, hashes = 1, end // TILE_WIDTH
        while hashes:
            for low in range(0, hashes, TILE_WIDTH):
                index, count = low // TILE_WIDTH, min(TILE_WIDTH, hashes - low)
                data = b"".join(tree.tile(level, index)[:count])
                _put(path / tile_path(level, index, count), data)
            level, hashes = level + 1, hashes // TILE_WIDTH
        root = tree.root(end)
        signer = self._ledger.checkpoints.signer
        assert signer is not None
        signed = Checkpoint(signer.verifier_key.name, end, root).sign(signer)
        _put(path / "checkpoint", str(signed).encode())
        return root

    def _write_parts(self, path: Path, places: Places) -> None:
        for old in parts_in(path):
            old.unlink()
        lines = lines_of(self._store, places)
        shown, total = self._shown("writing parts"), len(places)
        for number in range((total + PART_ENTRIES - 1) // PART_ENTRIES):
            write_part(part_path(path, number, self._kind), _some(lines, PART_ENTRIES))
            if shown is not None:
                shown(min(total, (number + 1) * PART_ENTRIES), total)

    def _check(self, path: Path, first: int, end: int, root: bytes, places: Places) -> None:
        tree = LedgerTree(self._store.select, self._store)
        found = RangeCheck(path, first, end, root, self._ledger.verifier_key, tree)
        found.check(places, self._store.erasures)
        if problem := next(iter(found.problems), ""):
            raise LedgerError(
                f"What was written to {path} does not read back: {problem}.",
                next_step="Nothing has left the database. Check the disk, and archive again.",
            )

    # -- the record ----------------------------------------------------------------------

    def _keep_leaves(self, first: int, end: int) -> None:
        """Store the leaf hashes of the range: proofs need them, and the records go."""
        tree = LedgerTree(self._store.select, self._store)
        last = end // TILE_WIDTH
        for low in range(first // TILE_WIDTH, last, _TILES_AT_ONCE):
            rows = [
                (index, b"".join(tree.tile(0, index)))
                for index in range(low, min(low + _TILES_AT_ONCE, last))
            ]
            self._ledger.transact(functools.partial(_insert, rows))

    def _record(
        self, place: Path, first: int, end: int, root: bytes, size: int, places: Places,
        carried: dict[str, Any],
    ) -> str:  # fmt: skip
        """Write the ``ARCHIVED`` entry; what came to life meanwhile, or was erased, is first taken
        out of the archive."""
        for _ in range(_ATTEMPTS):
            done = self._ledger.transact(
                functools.partial(self._record_in, first, end, root, size, places, carried)
            )
            if isinstance(done, str):
                return done
            for seq in done:
                places.remove(seq)
            size = self._ledger.count()
            self._write_parts(place, places)  # each is on disk, and so is its name
            self._check(place, first, end, root, places)
        raise LedgerError(
            "Sessions of before the cut go on all the time.",
            next_step="Nothing has left the database. Archive again later, or less.",
        )

    def _record_in(
        self, first: int, end: int, root: bytes, size: int, places: Places,
        carried: dict[str, Any], tx: Transaction,
    ) -> str | list[int]:  # fmt: skip
        """The id of the entry; or the entries that cannot leave, as their sessions go on: none
        where only something was erased."""
        if archived_to(tx.execute) != first:
            raise LedgerError(
                "Another process archives this ledger.", next_step="Nothing was done here."
            )
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


def _insert(rows: list[tuple[int, bytes]], tx: Transaction) -> None:
    tx.execute_many(_TILE, rows)


def _some(lines: Iterator[Line], number: int) -> Iterator[Line]:
    for _, line in zip(range(number), lines, strict=False):
        yield line


def _put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
