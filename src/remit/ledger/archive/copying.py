"""The copy of a range: its directory, on disk and read back before anything else is done."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from remit.ledger.archive.checking import RangeCheck
from remit.ledger.archive.files import (
    PART_ENTRIES,
    RECORDED,
    Kind,
    Line,
    fsync,
    fsync_tree,
    part_path,
    parts_in,
    range_name,
    write_part,
)
from remit.ledger.archived import Places
from remit.ledger.client import LedgerClient
from remit.ledger.errors import LedgerError
from remit.ledger.line_reader import ARCHIVE_ORDER
from remit.ledger.line_writer import lines_of
from remit.ledger.record import columns_of
from remit.ledger.report import Progress
from remit.ledger.store import Store
from remit.ledger.subjects import subjects_before
from remit.ledger.tlog import TILE_WIDTH, Checkpoint, bundle, bundle_path, tile_path
from remit.ledger.tree import LedgerTree

__all__ = ["RangeCopy"]


class RangeCopy:
    """The copy of the entries from ``first`` to before ``end``.

    Args:
        ledger: with its key.
        directory: of the archive; made where it is not there.
        first: a multiple of 256, as ``end`` is.
        end: the first entry behind it.
        kind: of the parts.
        shown: gives, for what is done just now, what is called with done and total.

    Attributes:
        place: the directory of the range.
        root: of the tree of ``end`` entries.
    """

    def __init__(
        self, ledger: LedgerClient, directory: Path, first: int, end: int, kind: Kind,
        shown: Callable[[str], Progress | None],
    ) -> None:  # fmt: skip
        self._ledger = ledger
        self._store = ledger._store
        self._directory = directory
        self._first = first
        self._end = end
        self._kind: Kind = kind
        self._shown = shown
        self.place = directory / range_name(first, end)
        self._tree = LedgerTree(self._store.select, self._store)
        self.root = self._tree.root(end)

    def write(self, places: Places) -> None:
        """Make the directory, whole and checked, with what leaves in its parts.

        Raises:
            LedgerError: it is an archive already, or does not read back.
            OSError: it cannot be written.
        """
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self.place.with_name(f".{self.place.name}.new")
        if (self.place / RECORDED).exists():
            raise LedgerError(
                f"{self.place} is an archive already.",
                next_step="Nothing was done. Give another directory.",
            )
        for left in (new, self.place):  # of a run that was killed before its entry was on record
            if left.exists():
                shutil.rmtree(left)
        new.mkdir(mode=0o700)
        self._write_tiles(new)
        self._write_parts(new, places)
        fsync_tree(new)
        self.check(new, places)
        new.rename(self.place)
        for path in (self._directory, self._directory.parent):
            fsync(path)

    def write_parts_again(self, places: Places) -> None:
        """As :meth:`write`, of the parts alone: what leaves is not what it was."""
        self._write_parts(self.place, places)  # each is on disk, and so is its name
        self.check(self.place, places)

    def note(self, archived_id: str) -> None:
        """Say in the directory that it is on record; raises OSError."""
        path = self.place / RECORDED
        _put(path, f"{archived_id}\n".encode())
        for one in (path, self.place):
            fsync(one)

    def _write_tiles(self, path: Path) -> None:
        """The range as a C2SP tlog-tiles log: all hashes above the leaves, so that its checkpoint
        can be checked by itself, and of the range leaves and records."""
        shown, first, end = self._shown("copying"), self._first, self._end
        for index in range(first // TILE_WIDTH, end // TILE_WIDTH):
            low = index * TILE_WIDTH
            _put(path / tile_path(0, index), b"".join(self._tree.tile(0, index)))
            _put(path / bundle_path(index), bundle(self._store.records(low, low + TILE_WIDTH)))
            if shown is not None:
                shown(low + TILE_WIDTH - first, end - first)
        level, hashes = 1, end // TILE_WIDTH
        while hashes:
            for low in range(0, hashes, TILE_WIDTH):
                index, count = low // TILE_WIDTH, min(TILE_WIDTH, hashes - low)
                data = b"".join(self._tree.tile(level, index)[:count])
                _put(path / tile_path(level, index, count), data)
            level, hashes = level + 1, hashes // TILE_WIDTH
        signer = self._ledger.checkpoints.signer
        assert signer is not None
        name = signer.verifier_key.name
        signed = Checkpoint(name, end, self.root, (ARCHIVE_ORDER,)).sign(signer)
        _put(path / "checkpoint", str(signed).encode())

    def _write_parts(self, path: Path, places: Places) -> None:
        for old in parts_in(path):
            old.unlink()
        lines = _lines(self._store, places)
        shown, total = self._shown("writing parts"), len(places)
        for number in range((total + PART_ENTRIES - 1) // PART_ENTRIES):
            write_part(part_path(path, number, self._kind), _some(lines, PART_ENTRIES))
            if shown is not None:
                shown(min(total, (number + 1) * PART_ENTRIES), total)

    def check(self, path: Path, places: Places) -> None:
        """Read it back; raises LedgerError where it is not what was to be written."""
        tree = LedgerTree(self._store.select, self._store)
        key = self._ledger.verifier_key
        before = subjects_before(self._store.select)
        found = RangeCheck(path, self._first, self._end, self.root, key, tree, before)
        found.check(places, self._store.erasures)
        if problem := next(iter(found.problems), ""):
            raise LedgerError(
                f"What was written to {path} does not read back: {problem}.",
                next_step="Nothing has left the database. Check the disk, and archive again.",
            )


def _lines(store: Store, places: Places) -> Iterator[Line]:
    """Yield the lines of the entries in ``places``."""
    since: dict[str, int] = {}  # by session, its first entry
    for line in lines_of(store, places):
        session_id = columns_of(line.record["metadata"]).session_id or ""
        first = since.setdefault(session_id, line.row.seq)
        row = line.row
        yield Line(row.seq, row.entry_hash, row.record, line.contents, line.steps, first)


def _some(lines: Iterator[Line], number: int) -> Iterator[Line]:
    for _, line in zip(range(number), lines, strict=False):
        yield line


def _put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
