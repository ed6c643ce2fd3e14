"""Exports: JSON lines (complete, importable) and tiles (C2SP).

The format of the JSON lines is specified in ``docs/ledger-format.md``.
"""

from __future__ import annotations

import base64
import heapq
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Literal, get_args

import orjson

from remit.kernel.durable_files import replacing
from remit.kernel.errors import InvalidInputError
from remit.ledger.archived_ranges import archived_ranges, archived_to
from remit.ledger.checkpoints import Checkpoints
from remit.ledger.entry import entry_id
from remit.ledger.entry_reader import as_bytes
from remit.ledger.errors import LedgerError, LedgerWriteError, NoSignerError
from remit.ledger.export_head import EXPORT_FORMAT, STATEMENT, statement_of
from remit.ledger.export_reader import MAX_LINE_BYTES
from remit.ledger.export_writer import Line, lines_of
from remit.ledger.store import Store
from remit.ledger.subjects import BEFORE, subjects_before
from remit.ledger.tlog import (
    TILE_WIDTH,
    Checkpoint,
    SignedCheckpoint,
    bundle,
    bundle_path,
    tile_path,
)  # fmt: skip
from remit.ledger.tree import LedgerTree, missing_hash
from remit.ledger.usage_tables import archived_usage
from remit.ledger.verification.report import Progress

Format = Literal["jsonl", "tiles"]

_PAGE = 200
_ATTEMPTS = 3
_UNVOUCHED = (
    "SELECT c.commitment, o.subject_id FROM content_subjects AS o JOIN contents AS c "
    "ON c.content_id = o.content_id WHERE (SELECT min(s.seq) FROM shown_contents AS s "
    "WHERE s.content_id = o.content_id) < ? ORDER BY c.commitment, o.subject_id"
)


class Exporter:
    """The export of a ledger, page by page. Each object makes a single export.

    Without ``segments``, the constructor reads the end of the archived entries, and raises
    LedgerError if that fails.

    Args:
        store: the store of the ledger.
        checkpoints: its checkpoints, one of which the export contains.
        progress: called with the number of entries done and their total; ``None`` for nothing.
        segments: all segments of the ledger, to write archived entries like all others; if one is
            missing, :meth:`export` raises LedgerError at its entries. Empty to leave them out.
    """

    def __init__(
        self, store: Store, checkpoints: Checkpoints, progress: Progress | None = None,
        segments: Sequence[Store] = (),
    ) -> None:  # fmt: skip
        self._store = store
        self._stores = (store, *segments)
        # Entries before this number may be missing.
        self._archived = 0 if segments else archived_to(store.select)
        self._checkpoints = checkpoints
        self._advance = progress or (lambda done, total: None)

    def export(self, target: str | Path | IO[bytes], kind: Format) -> int:
        """Write the ledger to a path or an open file (jsonl); return the number of entries.

        A client that can sign first stores a new checkpoint, if the ledger is writable; otherwise
        the latest stored one counts. JSON lines without any checkpoint contain all entries; all
        others end at the checkpoint. The number is that end, so it counts archived entries. Without
        their segments, archived entries are leaf hashes in JSON lines. An export to a path is
        repeated, at most twice, if content is erased during the export. A file is replaced only by
        a complete one. Folders are made. Tiles that exist already and are correct are not written
        again.

        Args:
            target: path of a file, path of a directory for tiles, or for jsonl an open binary file.
            kind: ``jsonl`` or ``tiles``.

        Raises:
            InvalidInputError: there is no such format, or an open file is to get another than
                jsonl.
            NoSignerError: tiles need a checkpoint, and there is neither one nor a key.
            LedgerError: the target cannot be written, holds tiles of another log or newer ones;
                tiles are requested without the segments of a ledger; the ledger is damaged; or
                content was erased during the export.
            TlogError: the file ``checkpoint`` in the directory is no checkpoint.
            OSError: an open file cannot be written.
        """
        is_path = isinstance(target, (str, Path))
        kinds: tuple[str, ...] = get_args(Format) if is_path else ("jsonl",)
        if kind not in kinds:
            raise InvalidInputError(
                f"{kind!r} is no format of an export to {'a path' if is_path else 'an open file'}.",
                next_step=f"Use {' or '.join(kinds)}.",
            )
        if self._archived and kind == "tiles":
            raise LedgerError(
                f"Entries before {entry_id(self._archived)} were archived, and their records are "
                "not here.",
                next_step="Give their segments: `remit ledger export --tiles --archive DIR`.",
            )
        can_sign = self._checkpoints.signer is not None
        attempt = 0
        while True:
            attempt += 1
            signed = self._checkpoint(can_sign)
            try:
                if isinstance(target, (str, Path)):
                    return self._export_to(Path(target), kind, signed)
                return self._jsonl(target, signed)
            except LedgerError:
                # An erasure after the checkpoint needs a new one, and a file to start over.
                if (
                    attempt == _ATTEMPTS
                    or not can_sign
                    or signed is None
                    or not isinstance(target, (str, Path))
                    or not self._late_erasure(signed.checkpoint.size)
                ):
                    raise

    def _checkpoint(self, can_sign: bool) -> SignedCheckpoint | None:
        """Return the export's checkpoint: a new one, or the latest if none can be stored."""
        if can_sign:
            try:
                return SignedCheckpoint.parse(self._checkpoints.sign())
            except LedgerWriteError:  # a read-only medium
                if self._checkpoints.latest() is None:
                    raise
        return self._checkpoints.latest()

    def _export_to(self, path: Path, kind: Format, signed: SignedCheckpoint | None) -> int:
        try:
            if kind == "tiles":
                return self._tiles(path, signed)
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as out:
                return self._jsonl(out, signed)
        except OSError as error:
            raise LedgerError(
                f"The export cannot be written to {path}: {error.strerror or error}.",
                next_step="Check the free space and the permissions.",
            ) from error

    def _jsonl(self, out: IO[bytes], signed: SignedCheckpoint | None) -> int:
        """Write the entries under ``signed``, or all if it is ``None``; return their number."""
        size = signed.checkpoint.size if signed is not None else self._store.count()
        key = self._checkpoints.key
        before = subjects_before(self._store.select)
        header: dict[str, Any] = {
            "format": EXPORT_FORMAT,
            "entries": size,
            "checkpoint": None,
            "verifier_key": str(key) if key is not None else None,
            BEFORE: min(before, size),
        }
        if ranges := archived_ranges(self._store) if self._archived else []:
            header["usage"] = sorted(archived_usage(self._store.select, ranges))
        if signed is not None:
            header["checkpoint"] = str(self._stated(signed.checkpoint, header, before) or signed)
        _write_line(out, header)
        expected = 0
        for row, _, contents, steps in self._lines(size):
            seq = row.seq
            self._require_all(expected, seq)
            out.writelines(self._left(expected, seq))
            expected = seq + 1
            line = {
                "seq": seq,
                "entry_hash": row.entry_hash,
                "record": row.record.decode(),
                "contents": contents,
                "steps": steps,
            }
            # Only archived entries may show some of the values that an erasure erased.
            if ranges and (macs := self._store.erased_under(seq)):
                line["erased"] = sorted(macs)
            _write_line(out, line)
            if expected % _PAGE == 0 or expected == size:
                self._advance(expected, size)
        self._require_all(expected, size)
        if late := self._late_erasure(size):
            raise LedgerError(
                f"Content was erased under {late}, after the checkpoint of this export, so the "
                "export does not account for the erasure.",
                next_step="Export again with a new checkpoint: `remit ledger export` signs one.",
            )
        return size

    def _late_erasure(self, size: int) -> str:
        """Return the id of the last ``ERASURE`` if it is not in the first ``size``; else empty."""
        ((last,),) = self._store.select("SELECT max(seq) FROM erasures")
        return entry_id(last) if last is not None and last >= size else ""

    def _stated(
        self, checkpoint: Checkpoint, header: dict[str, Any], before: int
    ) -> SignedCheckpoint | None:
        """Return the checkpoint with a signed line over the statement of the export.

        The result is ``None`` if this client cannot sign the checkpoint.
        """
        signer = self._checkpoints.signer
        if signer is None or signer.name != checkpoint.origin:
            return None
        subjects: dict[str, list[str]] = {}
        pairs = {
            (commitment, subject)
            for store in self._stores if before
            for commitment, subject in store.select(_UNVOUCHED, (before,))
        }  # fmt: skip
        for commitment, subject in sorted(pairs):
            subjects.setdefault(commitment, []).append(subject)
        digest = base64.b64encode(statement_of(header, [*subjects.items()])).decode()
        return replace(checkpoint, extensions=(f"{STATEMENT}{digest}",)).sign(signer)

    def _lines(self, size: int) -> Iterator[Line]:
        """Yield the lines of all entries before ``size`` that are in the database or a segment.

        A value or message step that several databases contain is in the first line alone.
        """
        runs = [
            lines_of(store, itertools.chain.from_iterable(_pages(store, size)))
            for store in self._stores
        ]
        if len(runs) == 1:
            yield from runs[0]
            return
        given: set[bytes] = set()

        def is_new(text: str) -> bool:
            before = len(given)
            given.add(bytes.fromhex(text))
            return len(given) > before

        last = -1
        for row, record, contents, steps in heapq.merge(*runs, key=lambda line: line[0].seq):
            if row.seq > last:  # An entry whose removal was interrupted is in two databases.
                new = [one for one in contents if "erased" in one or is_new(one["commitment"])]
                yield row, record, new, [one for one in steps if is_new(one["step"])]
            last = row.seq

    def _require_all(self, expected: int, seq: int) -> None:
        """Raise LedgerError if an entry from ``expected`` to before ``seq`` may not be missing."""
        if seq > max(expected, self._archived):
            raise LedgerError(
                f"Entry {max(expected, self._archived)} is not there.",
                next_step="Run `remit ledger verify` to see what is damaged.",
            )

    def _left(self, first: int, end: int) -> Iterator[bytes]:
        """Yield the lines of archived entries, which contain leaf hashes."""
        tree = LedgerTree(self._store.select, self._store)
        for seq in range(first, end):
            index, place = divmod(seq, TILE_WIDTH)
            if seq == first or not place:
                leaves = tree.tile(0, index)
            if place >= len(leaves):
                raise missing_hash(0, seq)
            leaf = base64.b64encode(leaves[place]).decode()
            yield orjson.dumps({"seq": seq, "leaf": leaf}) + b"\n"

    def _tiles(self, directory: Path, signed: SignedCheckpoint | None) -> int:
        """Write a static C2SP tlog-tiles directory; correct files are not written again."""
        if signed is None:
            raise NoSignerError(
                "Tiles require a signed checkpoint; there is none, and no key to sign one.",
                next_step="Open the ledger through its root: `remit ledger export --tiles`.",
            )
        tree = LedgerTree(self._store.select, self._store)
        size = signed.checkpoint.size
        checkpoint = directory / "checkpoint"
        if checkpoint.exists():
            old = SignedCheckpoint.parse(checkpoint.read_bytes()).checkpoint
            if (
                old.origin != signed.checkpoint.origin
                or old.size > size
                or tree.root(old.size) != old.root
            ):
                raise LedgerError(
                    f"{directory} holds tiles of another log, or newer ones ({old.origin}, "
                    f"{old.size} entries).",
                    next_step="Give an empty directory.",
                )
        level, width = 0, 1
        while hashes := size // width:
            for index in range((hashes + TILE_WIDTH - 1) // TILE_WIDTH):
                first = index * TILE_WIDTH
                count = min(TILE_WIDTH, hashes - first)
                tile = tree.tile(level, index)[:count]
                if len(tile) != count:
                    raise LedgerError(
                        f"The tree hashes of level {level} are incomplete.",
                        next_step="Run `remit ledger verify` to see what is damaged.",
                    )
                _write(directory / tile_path(level, index, count), b"".join(tile))
                if level == 0:
                    records = self._records(first, first + count)
                    _write(directory / bundle_path(index, count), bundle(records))
                    self._advance(first + count, size)
            level, width = level + 1, width * TILE_WIDTH
        # Last, so that a reader of the checkpoint finds all that it covers.
        _write(checkpoint, str(signed).encode())
        return size

    def _records(self, first: int, end: int) -> list[bytes]:
        """Return the records of all entries from ``first`` to before ``end``."""
        found = {
            seq: as_bytes(record)
            for store in self._stores
            for seq, record in store.select(
                f"SELECT seq, {store.record_sql} FROM entries WHERE seq >= ? AND seq < ?",
                (first, end),
            )
        }
        for seq in range(first, end):
            self._require_all(seq, seq + (seq not in found))
        return [found[seq] for seq in range(first, end)]


def _pages(store: Store, size: int) -> Iterator[list[int]]:
    """Yield pages of the numbers of a database's entries before ``size``."""
    after = -1
    sql = "SELECT seq FROM entries WHERE seq > ? AND seq < ? ORDER BY seq LIMIT ?"
    while rows := store.select(sql, (after, size, _PAGE)):
        yield [seq for (seq,) in rows]
        after = rows[-1][0]


def _write_line(out: IO[bytes], line: dict[str, Any]) -> None:
    data = orjson.dumps(line)
    if len(data) > MAX_LINE_BYTES:
        raise LedgerError(
            f"The line of entry {line.get('seq')} would be longer than {MAX_LINE_BYTES:,} bytes, "
            "which no reader of exports takes.",
            next_step="Export tiles.",
        )
    out.write(data + b"\n")


def _write(path: Path, data: bytes) -> None:
    """Write a file atomically, as a reader may be fetching the file; skip an equal file."""
    if path.exists() and path.stat().st_size == len(data) and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(data)
