"""Checks of an archive: records against the tree, and content against the records."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import orjson

from remit.kernel.canonical import sha256_hex
from remit.kernel.errors import RemitError
from remit.ledger.archive.files import (
    Line,
    interrupted_copies,
    parts_in,
    range_name,
    ranges_in,
    read_part,
    without_kept,
)
from remit.ledger.client import LedgerClient
from remit.ledger.entry import entry_id, parse_entry_id
from remit.ledger.errors import LedgerError
from remit.ledger.keyfiles import known_as
from remit.ledger.line_reader import ARCHIVE_ORDER, LineReader, is_hash, require
from remit.ledger.ranges import ArchivedRange, Places
from remit.ledger.record import record_problem
from remit.ledger.report import Progress, VerificationReport
from remit.ledger.subjects import subjects_before
from remit.ledger.tlog import (
    TILE_WIDTH,
    SignedCheckpoint,
    VerifierKey,
    bundle_path,
    leaf_hash,
    read_bundle,
    read_tile,
    tile_path,
    tree_root,
)
from remit.ledger.tlog.tiles import tile_levels
from remit.ledger.tree import LedgerTree

__all__ = ["RangeCheck", "check_archive", "check_range", "digest", "root_of"]

_MAX_PROBLEMS = 20
_BATCH_LINES = 400

Erasures = Callable[[Iterable[str]], dict[str, int]]
"""Returns, for commitments, the sequence number of the entry that erased each."""


def check_archive(
    ledger: LedgerClient, directories: Sequence[Path], progress: Progress | None = None
) -> VerificationReport:
    """Return the result of checking an archive against the ledger's record of it.

    Every range that an ``ARCHIVED`` entry names must be present. The range must lead to the root in
    that entry, to the ledger's tree and to the checkpoint in the range's directory. The parts must
    contain exactly the archived entries, and each value that their records commit to, or its
    erasure. Nothing is changed.

    Args:
        ledger: the ledger that was archived.
        directories: directories of the archive.
        progress: called with the number of checked entries and their total; ``None`` for none.

    Returns:
        Numbers of entries and values that were read, and the problems. Directories that the record
        does not name, and interrupted copies, are notes.

    Raises:
        LedgerError: a directory, or the ledger's record of the archive, cannot be read.
    """
    report = VerificationReport()
    there = {
        range_name(first, end): path
        for directory in directories
        for first, end, path in ranges_in(directory)
    }
    ranges = ledger.archived_ranges()
    total, last_hash = ranges[-1].end if ranges else 0, ""
    tree = LedgerTree(ledger.select, ledger._store)
    for one in ranges:
        path = there.pop(range_name(one.first, one.end), None)
        if path is None:
            last_hash = ""
            report.add(one.first, "archive", f"the entries {one.first} to {one.end - 1} are not in "
                                             "the archive")  # fmt: skip
            continue
        before = subjects_before(ledger.select)
        check = RangeCheck(
            path, one.first, one.end, root_of(one), ledger.verifier_key, tree, before
        )
        check.last_hash = last_hash
        check.check(one.left, ledger._store.erasures, progress, total)
        last_hash = check.last_hash
        report.entries += one.end - one.first
        report.contents += check.contents
        for problem in check.problems:
            report.add(one.first, "archive", f"{path.name}: {problem}")
    for name in sorted(there):
        report.notes.append(f"{name}, which no entry of this ledger names, is in the archive too")
    for path in (path for directory in directories for path in interrupted_copies(directory)):
        report.notes.append(
            f"{path} is the copy of an interrupted run, and erasures do not reach it; remove it if "
            "no run is writing it"
        )
    return report


def check_range(
    ledger: LedgerClient, path: Path, first: int, end: int, root: bytes, left: Places
) -> set[bytes]:
    """Check the directory of a range; return the digests of its rows (:attr:`RangeCheck.held`).

    Args:
        ledger: the ledger that was archived.
        path: directory of the range.
        first: the first entry.
        end: the first entry after the range.
        root: recorded root of the tree of ``end`` entries.
        left: the entries that the parts must contain.

    Raises:
        LedgerError: a file is missing or damaged, or does not match the ledger.
    """
    tree = LedgerTree(ledger.select, ledger._store)
    before = subjects_before(ledger.select)
    check = RangeCheck(path, first, end, root, ledger.verifier_key, tree, before)
    check.check(left, ledger._store.erasures)
    if check.problems:
        raise LedgerError(f"The archive {path} does not match the ledger: {check.problems[0]}.")
    return check.held


def root_of(one: ArchivedRange) -> bytes:
    """Return the recorded root of a range; empty bytes if it cannot be read.

    Args:
        one: the range, as its ``ARCHIVED`` entry records it.
    """
    try:
        return bytes.fromhex(one.root)
    except ValueError:
        return b""


class RangeCheck:
    """The check of one range.

    Args:
        path: directory of the range.
        first: the first entry.
        end: the first entry after the range.
        root: recorded root of the tree of ``end`` entries.
        key: verifier key of the ledger; ``None`` leaves signatures unchecked.
        tree: the ledger's tree.
        subjects_before: the first entry whose record names its subject.

    Attributes:
        last_hash: hash of the entry before the range if known, else empty; after the check, hash of
            the range's last entry.
        contents: number of values that match their commitments.
        held: digests (:func:`digest`) of all entries, values, persons and message steps in the
            parts.
        problems: at most 20 sentences.
    """

    def __init__(
        self, path: Path, first: int, end: int, root: bytes, key: VerifierKey | None,
        tree: LedgerTree, subjects_before: int = 0,
    ) -> None:  # fmt: skip
        self._path = path
        self._first = first
        self._end = end
        self._root = root
        self._key = key
        self._tree = tree
        self._subjects_before = subjects_before
        self._is_ordered = False
        self.last_hash = ""
        self.contents = 0
        self.held: set[bytes] = set()
        self.problems: list[str] = []

    def check(
        self, left: Places, erasures: Erasures, progress: Progress | None = None, total: int = 0
    ) -> None:
        """Check tiles, checkpoint and parts; add each fault to :attr:`problems`.

        Args:
            left: the entries that the parts must contain.
            erasures: returns, for commitments, the sequence number of the entry that erased each.
            progress: called with the number of checked entries and ``total``.
            total: number of entries in all ranges.
        """
        try:
            self._check_tiles(progress, total)
            self._check_checkpoint()
            self._check_parts(left, erasures)
        except (OSError, RemitError, ValueError, LookupError) as error:
            self._add(getattr(error, "message", "") or str(error))

    def _add(self, problem: str) -> None:
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(problem)

    # -- records -------------------------------------------------------------------------

    def _check_tiles(self, progress: Progress | None, total: int) -> None:
        hashes = self._level_one()
        for index in range(self._first // TILE_WIDTH, self._end // TILE_WIDTH):
            low = index * TILE_WIDTH
            leaves = read_tile((self._path / tile_path(0, index)).read_bytes())
            records = read_bundle((self._path / bundle_path(index)).read_bytes())
            for place, record in enumerate(records):
                self._check_record(low + place, record, leaves[place])
            if tree_root(leaves) != hashes[index]:
                self._add(f"the tile of entries {low} to {low + TILE_WIDTH - 1} is not the tree's")
            if progress is not None and index % 16 == 15:
                progress(low + TILE_WIDTH, total)
        self._check_upper_tiles(hashes)
        if tree_root_of(hashes) != self._root:
            self._add("its tiles do not lead to the root that is on record")
        if self._tree.root(self._end) != self._root:
            self._add("the ledger's tree has another root there than the record says")

    def _check_upper_tiles(self, hashes: list[bytes]) -> None:
        """Check the tiles above the first level, and report other files."""
        tiles = range(self._first // TILE_WIDTH, self._end // TILE_WIDTH)
        names = {tile_path(0, index) for index in tiles} | {bundle_path(index) for index in tiles}
        for level, row in enumerate([hashes, *tile_levels(hashes)], start=1):
            for low in range(0, len(row), TILE_WIDTH):
                part = row[low : low + TILE_WIDTH]
                name = tile_path(level, low // TILE_WIDTH, len(part))
                names.add(name)
                if level > 1 and read_tile((self._path / name).read_bytes(), len(part)) != part:
                    self._add(f"{name} is not the tree's (archive-tiles)")
        there = (path for path in (self._path / "tile").rglob("*") if not path.is_dir())
        for name in sorted(path.relative_to(self._path).as_posix() for path in there):
            if name not in names:
                self._add(f"{name} is no tile of these entries (archive-tiles)")

    def _level_one(self) -> list[bytes]:
        hashes: list[bytes] = []
        number = self._end // TILE_WIDTH
        for index in range((number + TILE_WIDTH - 1) // TILE_WIDTH):
            count = min(TILE_WIDTH, number - index * TILE_WIDTH)
            hashes += read_tile((self._path / tile_path(1, index, count)).read_bytes(), count)
        return hashes

    def _check_record(self, seq: int, data: bytes, leaf: bytes) -> None:
        if leaf_hash(data) != leaf:
            self._add(f"the record of entry {seq} is not the tree's")
        try:
            record = orjson.loads(data)
            if problem := record_problem(record):
                raise ValueError(problem)
        except ValueError as error:
            self._add(f"the record of entry {seq} cannot be read: {error}")
            self.last_hash = ""
            return
        if record["seq"] != seq or record["id"] != entry_id(seq):
            self._add(f"the record of entry {seq} says that it is {record['id']}")
        if self.last_hash and record["previous_hash"] != self.last_hash:
            self._add(f"previous_hash of entry {seq} is not the hash of the entry before")
        self.last_hash = sha256_hex(data)

    def _check_checkpoint(self) -> None:
        signed = SignedCheckpoint.parse((self._path / "checkpoint").read_bytes())
        self._is_ordered = ARCHIVE_ORDER in signed.checkpoint.extensions
        if self._key is not None:
            signed.verify(known_as(self._key, signed.checkpoint.origin) or self._key)
        if (signed.checkpoint.size, signed.checkpoint.root) != (self._end, self._root):
            self._add("its checkpoint is not of the root that is on record")

    # -- content -------------------------------------------------------------------------

    def _check_parts(self, left: Places, erasures: Erasures) -> None:
        wanted = iter(left)
        reader = LineReader(
            self._subjects_before,
            is_stated=self._is_ordered,
            is_early_archive=not self._is_ordered,
        )
        since: dict[str, int] = {}  # The first entry of each session.
        for line, gone in self._lines(erasures):
            seq = next(wanted, -1)
            if line.seq != seq:
                self._add(
                    f"entry {line.seq} is in its parts, where entry {seq} should be (part-entries)"
                )
                return
            try:
                self._check_line(line, reader, since, gone)
            except (ValueError, RemitError) as error:
                self._add(f"the line of entry {seq} does not hold: {error}")
        if (seq := next(wanted, -1)) >= 0:
            self._add(f"entry {seq} has left the database, and is not in its parts (part-entries)")

    def _lines(self, erasures: Erasures) -> Iterator[tuple[Line, dict[str, int]]]:
        """Yield all lines, each with the erasing entries of its commitments."""

        def asked() -> Iterator[tuple[Line, dict[str, int]]]:
            macs = {
                item["commitment"]
                for one in waiting
                for item in (*one.contents, *one.steps)
                if type(item) is dict and is_hash(item.get("commitment"))
            }
            found = erasures(macs)
            return ((one, found) for one in waiting)

        waiting: list[Line] = []
        for part in parts_in(self._path):
            for line in read_part(part, is_checked=True):
                waiting.append(line)
                if len(waiting) >= _BATCH_LINES:
                    yield from asked()
                    waiting = []
        yield from asked()

    def _check_line(
        self, line: Line, reader: LineReader, since: dict[str, int], gone: dict[str, int]
    ) -> None:
        index, place = divmod(line.seq, TILE_WIDTH)
        is_leaf = leaf_hash(line.record) == self._leaves(index)[place]
        require(is_leaf, "part-entries", "the record is not the tree's")
        for item in (*line.contents, *line.steps):
            is_gone = type(item) is dict and str(item.get("commitment")) in gone
            require(
                not is_gone or "erased" in item, "part-erased",
                "a value that was erased is still here: `remit ledger archive --finish --archive "
                "DIR` takes it out",
            )  # fmt: skip
        contents = line.contents
        if not self._is_ordered:
            contents = [without_kept(item) for item in contents]
        found = reader.read(line.seq, line.entry_hash, line.record, contents, line.steps)
        for item in (*line.contents, *line.steps):
            by = parse_entry_id(item["erased"]) if "erased" in item else None
            is_on_record = gone.get(item["commitment"]) == by
            require(is_on_record, "part-erased", "a value is said to be erased, and no ERASURE "
                                                 "says so")  # fmt: skip
        first = since.setdefault(found.columns.session_id or "", line.seq)
        require(line.since == first, "part-since", f"its session's first entry is {first}")
        self.contents += len(found.values)
        self._hold(line)

    def _hold(self, line: Line) -> None:
        """Collect the digests of a checked line: entry, values, persons, message steps."""
        self.held.add(digest("entry", str(line.seq), line.entry_hash, line.record))
        for item in line.contents:
            if "erased" in item:
                continue
            mac, codec = item["commitment"], "jcs" if "jcs" in item else "json"
            nonce = base64.b64decode(item["nonce"])
            self.held.add(digest("value", mac, nonce, codec, item[codec].encode()))
            persons = item.get("subjects", ())
            self.held.update(digest("person of the value", mac, one) for one in persons)
        for step in line.steps:
            self.held.add(digest("message", step["step"], step["commitment"]))

    def _leaves(self, index: int) -> list[bytes]:
        if getattr(self, "_at", None) != index:
            self._at, self._tile = index, self._tree.tile(0, index)
        return self._tile


def digest(*parts: str | bytes) -> bytes:
    """Return a digest of 16 bytes over a row's parts, each with its length."""
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        found.update(len(data).to_bytes(8, "big") + data)
    return found.digest()


def tree_root_of(hashes: list[bytes]) -> bytes:
    """Return the root over the roots of complete subtrees of 256 leaves.

    Args:
        hashes: roots of the subtrees, left to right, 32 bytes each.
    """
    return tree_root(hashes)
