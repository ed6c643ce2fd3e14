"""The copy of a range of entries in files."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from remit.kernel.files import fsync, fsync_tree
from remit.ledger.archive.files import (
    PART_ENTRIES,
    Kind,
    Line,
    part_path,
    parts_in,
    range_name,
    write_part,
)
from remit.ledger.client import LedgerClient
from remit.ledger.errors import LedgerError
from remit.ledger.line_reader import ARCHIVE_ORDER
from remit.ledger.line_writer import lines_of
from remit.ledger.ranges import Places
from remit.ledger.record import columns_of
from remit.ledger.report import Progress
from remit.ledger.store import Store
from remit.ledger.tlog import TILE_WIDTH, Checkpoint, bundle, bundle_path, tile_path
from remit.ledger.tree import LedgerTree

__all__ = ["RangeCopy"]


class RangeCopy:
    """The copy of the entries from ``first`` to before ``end`` that one run makes.

    Each run writes into a new directory, ``<first>-<end>.new-<random>``. :meth:`keep` renames the
    directory to ``<first>-<end>`` after the copy was checked and recorded. No other directory is
    changed.

    Args:
        ledger: opened with its key.
        directory: directory of the archive; made if it does not exist.
        first: the first entry, a multiple of 256.
        end: the first entry after the range, a multiple of 256.
        kind: format of the parts.
        shown: returns, for a step's name, the function that reports its progress.

    Attributes:
        first: the first entry.
        end: the first entry after the range.
        path: the directory that this run writes.
        place: the final name of the directory.
        root: root of the tree of ``end`` entries.
    """

    def __init__(
        self, ledger: LedgerClient, directory: Path, first: int, end: int, kind: Kind,
        shown: Callable[[str], Progress | None],
    ) -> None:  # fmt: skip
        self._ledger = ledger
        self._store = ledger._store
        self.first = first
        self.end = end
        self._kind: Kind = kind
        self._shown = shown
        self.place = directory / range_name(first, end)
        self.path = directory / f"{self.place.name}.new-{secrets.token_hex(4)}"
        self._tree = LedgerTree(self._store.select, self._store)
        self.root = self._tree.root(end)

    def write(self, places: Places) -> None:
        """Write the directory with the entries in ``places`` as its parts, and sync it to disk.

        A checkpoint of the range is signed for the directory. After an error the incomplete
        directory stays; see :meth:`discard`.

        Raises:
            LedgerError: the range's final directory exists already, or a part does not read back as
                written.
            OSError: a file cannot be written.
        """
        if os.path.lexists(self.place):
            raise LedgerError(f"{self.place} exists, and this ledger recorded no such archive.")
        made = [path for path in (self.place.parent, *self.place.parents) if not path.exists()]
        self.place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.mkdir(mode=0o700)
        self._write_tiles()
        self.write_parts(places)
        fsync_tree(self.path)
        for path in {self.place.parent, *(path.parent for path in made)}:
            fsync(path)

    def write_parts(self, places: Places) -> None:
        """Replace the parts by new ones with the entries in ``places``.

        The old parts are deleted first.

        The old parts are deleted first; progress is reported.

        Args:
            places: sequence numbers of the entries.

        Raises:
            OSError: a file cannot be deleted or written; earlier parts stay.
        """
        for old in parts_in(self.path):
            old.unlink()
        lines = _lines(self._store, places)
        shown, total = self._shown("writing parts"), len(places)
        for number in range((total + PART_ENTRIES - 1) // PART_ENTRIES):
            write_part(part_path(self.path, number, self._kind), _some(lines, PART_ENTRIES))
            if shown is not None:
                shown(min(total, (number + 1) * PART_ENTRIES), total)

    def keep(self) -> None:
        """Rename the directory to its final name, durably.

        Raises:
            OSError: the name is taken, or the directory cannot be renamed.
        """
        self.path.rename(self.place)
        fsync(self.place.parent)

    def discard(self) -> None:
        """Remove the directory of this run; errors are ignored."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _write_tiles(self) -> None:
        """Write the range as a C2SP tlog-tiles log, with a signed checkpoint.

        The log holds the range's leaves and records, and all hashes above the leaves, so the
        checkpoint can be checked without the ledger.
        """
        path, shown = self.path, self._shown("copying")
        first, end = self.first, self.end
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


def _lines(store: Store, places: Places) -> Iterator[Line]:
    """Yield the lines of the entries in ``places``."""
    since: dict[str, int] = {}  # The first entry of each session.
    for row, record, contents, steps in lines_of(store, places):
        session_id = columns_of(record["metadata"]).session_id or ""
        first = since.setdefault(session_id, row.seq)
        yield Line(row.seq, row.entry_hash, row.record, contents, steps, first)


def _some(lines: Iterator[Line], number: int) -> Iterator[Line]:
    for _, line in zip(range(number), lines, strict=False):
        yield line


def _put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
