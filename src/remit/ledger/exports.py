"""Exports: JSON lines (complete, importable), Parquet (for analysis), tiles (C2SP).

The format of the JSON lines is specified in ``docs/ledger-format.md``.
"""

from __future__ import annotations

import base64
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Literal

import orjson

from remit.kernel.json_text import dump
from remit.ledger.archived import archived_ranges, archived_to
from remit.ledger.checkpoints import Checkpoints
from remit.ledger.content import NO_STEP, StoredValue, commitments_in
from remit.ledger.entry import entry_id
from remit.ledger.errors import LedgerError, LedgerWriteError, NoSignerError
from remit.ledger.reader import EntryRow, decode_record
from remit.ledger.report import Progress
from remit.ledger.schema import COLUMNS
from remit.ledger.store import Filter, Store
from remit.ledger.subjects import BEFORE, subjects_before
from remit.ledger.tlog import (
    TILE_WIDTH,
    SignedCheckpoint,
    bundle,
    bundle_path,
    tile_path,
)  # fmt: skip
from remit.ledger.tree import LedgerTree
from remit.ledger.usage_audit import archived_usage

Format = Literal["jsonl", "parquet", "tiles"]

EXPORT_FORMAT = "remit-ledger-export/1"
"""What the first line of an export says."""

_PAGE = 200
_ATTEMPTS = 3


class _ErasedMeanwhileError(LedgerError):
    """An erasure came between the checkpoint of an export and its end."""


class Exporter:
    """Exports one ledger, streaming."""

    def __init__(
        self, store: Store, checkpoints: Checkpoints, progress: Progress | None = None
    ) -> None:
        self._store = store
        self._checkpoints = checkpoints
        self._advance = progress or (lambda done, total: None)

    def export(self, target: str | Path | IO[bytes], kind: Format) -> int:
        """Export to a file, a directory (tiles) or an open file (jsonl); returns the entries.

        Raises:
            NoSignerError: tiles need a checkpoint, and there is neither one nor a key.
            LedgerError: the target cannot be written; tiles: entries were archived.
        """
        if (end := archived_to(self._store.select)) and kind == "tiles":
            raise LedgerError(
                f"Entries of before {entry_id(end)} were archived, and their records are not here.",
                next_step="Each directory of the archive is a tlog-tiles log up to its end.",
            )
        can_sign = self._checkpoints.signer is not None
        for attempt in range(1, _ATTEMPTS + 1):
            signed = self._checkpoint(can_sign)
            try:
                if isinstance(target, (str, Path)):
                    return self._export_to(Path(target), kind, signed)
                return self._jsonl(target, signed)
            except _ErasedMeanwhileError:
                # Only a file can be started over, and only with a new checkpoint.
                if not can_sign or not isinstance(target, (str, Path)) or attempt == _ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    def _checkpoint(self, can_sign: bool) -> SignedCheckpoint | None:
        """What the export leads to: a new checkpoint, or the latest where none can be stored."""
        if can_sign:
            try:
                return SignedCheckpoint.parse(self._checkpoints.sign())
            except LedgerWriteError:  # a read-only medium
                if self._checkpoints.latest() is None:
                    raise
        return self._checkpoints.latest()

    def _export_to(self, path: Path, kind: Format, signed: SignedCheckpoint | None) -> int:
        temporary = path.with_name(f".{path.name}.new")
        try:
            if kind == "tiles":
                return self._tiles(path, signed)
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                if kind == "parquet":
                    count = self._parquet(temporary)
                else:
                    with temporary.open("wb") as out:
                        count = self._jsonl(out, signed)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            raise LedgerError(
                f"The export cannot be written to {path}: {error.strerror or error}.",
                next_step="Check the free space and the permissions.",
            ) from error
        return count

    def _jsonl(self, out: IO[bytes], signed: SignedCheckpoint | None) -> int:
        """Write what ``signed`` covers, or all entries without one; returns how many."""
        size = signed.checkpoint.size if signed is not None else self._store.count()
        key = self._checkpoints.key
        header: dict[str, Any] = {
            "format": EXPORT_FORMAT,
            "entries": size,
            "checkpoint": str(signed) if signed is not None else None,
            "verifier_key": str(key) if key is not None else None,
            BEFORE: subjects_before(self._store.select),
        }
        if ranges := archived_ranges(self._store):
            header["usage"] = list(archived_usage(self._store.select, ranges))
        out.write(orjson.dumps(header) + b"\n")
        lines = _Lines(self._store)
        archived = archived_to(self._store.select)
        expected = 0
        for rows in self._pages(size, archived):
            for line in lines.of(rows):
                out.writelines(self._left(expected, line["seq"]))
                expected = line["seq"] + 1
                if archived and (macs := self._store.erased_under(line["seq"])):
                    line["erased"] = sorted(macs)
                out.write(orjson.dumps(line) + b"\n")
        ((last,),) = self._store.select("SELECT max(seq) FROM erasures")
        if last is not None and last >= size:
            raise _ErasedMeanwhileError(
                f"Content was erased under {entry_id(last)}, after the checkpoint that this "
                "export leads to, so the export does not account for what it shows.",
                next_step="Export again with a new checkpoint: `remit ledger export` signs one.",
            )
        return size

    def _left(self, first: int, end: int) -> Iterator[bytes]:
        """Lines of entries that were archived: their leaf hashes."""
        tree = LedgerTree(self._store.select, self._store)
        for seq in range(first, end):
            index, place = divmod(seq, TILE_WIDTH)
            if seq == first or not place:
                leaves = tree.tile(0, index)
            leaf = base64.b64encode(leaves[place]).decode()
            yield orjson.dumps({"seq": seq, "leaf": leaf}) + b"\n"

    def _tiles(self, directory: Path, signed: SignedCheckpoint | None) -> int:
        """Write a static C2SP tlog-tiles directory; files that are correct already stay."""
        if signed is None:
            raise NoSignerError(
                "Tiles need a signed checkpoint; there is none, and no key to sign one.",
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
                        f"The tree hashes of level {level} are not all there.",
                        next_step="Run `remit ledger verify` to see what is damaged.",
                    )
                _write(directory / tile_path(level, index, count), b"".join(tile))
                if level == 0:
                    records = self._store.records(first, first + count)
                    _write(directory / bundle_path(index, count), bundle(records))
                    self._advance(first + count, size)
            level, width = level + 1, width * TILE_WIDTH
        # Last, so that a reader of the checkpoint finds all that it covers.
        _write(checkpoint, str(signed).encode())
        return size

    def _parquet(self, path: Path) -> int:
        """Write the entries as one table, content in place as JSON."""
        try:
            import pyarrow
            import pyarrow.parquet
        except ModuleNotFoundError as error:
            raise LedgerError(
                "Writing Parquet needs pyarrow.", next_step="pip install 'remit[parquet]'"
            ) from error
        names = ("seq", *COLUMNS, "decision", "reason", "prompts_used", "metadata", "record")
        schema = pyarrow.schema(
            [(name, pyarrow.int64() if name == "seq" else pyarrow.string()) for name in names]
        )
        size = self._store.count()
        with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
            for rows in self._pages(size, archived_to(self._store.select)):
                columns = self._store.select(
                    f"SELECT seq, {', '.join(COLUMNS)} FROM entries "
                    "WHERE seq BETWEEN ? AND ? ORDER BY seq",
                    (rows[0].seq, rows[-1].seq),
                )
                entries = self._store.entries(rows)
                table = [
                    {
                        **dict(zip(names, values, strict=False)),
                        "decision": entry.decision,
                        "reason": entry.reason.encode("utf-8", "backslashreplace").decode(),
                        "prompts_used": _json(entry.prompts_used),
                        "metadata": _json(entry.metadata),
                        "record": row.record.decode(),
                    }
                    for row, values, entry in zip(rows, columns, entries, strict=True)
                ]
                writer.write_table(pyarrow.Table.from_pylist(table, schema=schema))
        return size

    def _pages(self, size: int, archived: int) -> Iterator[list[EntryRow]]:
        """The entries before ``size``; of those before ``archived`` some have left."""
        after = -1
        while after < size - 1:
            rows = self._store.page(Filter(after=after), min(_PAGE, size - 1 - after))
            rows = [row for row in rows if row.seq < size]
            first = max(after + 1, archived)
            there = sum(row.seq >= archived for row in rows)
            if not rows or rows[-1].seq + 1 - min(first, rows[-1].seq + 1) != there:
                raise LedgerError(
                    f"Entry {after + 1} or one soon after it is not there.",
                    next_step="Run `remit ledger verify` to see what is damaged.",
                )
            yield rows
            after = rows[-1].seq
            self._advance(after + 1, size)


def note_erased(
    store: Store,
    records: Mapping[int, dict[str, Any]],
    shown: Mapping[int, set[str]],
    contents: dict[int, list[dict[str, Any]]],
    steps: Mapping[int, list[dict[str, Any]]],
) -> None:
    """Have lines name the erasure of each value that is gone.

    Args:
        store: has the erasures.
        records: of the entries, by sequence number.
        shown: the commitments of the values that are there, by entry.
        contents: of the lines; gets ``commitment`` and ``erased`` of values that entries name.
        steps: of the lines, each with ``gone``, which is taken out; ``erased`` is put in.
    """
    missing: dict[int, list[str]] = {}
    for seq, record in records.items():
        named = [
            item["$content"][12:]
            for item in commitments_in([record["metadata"], record["reason"]])
            if "$content" in item
        ]
        missing[seq] = [mac for mac in dict.fromkeys(named) if mac not in shown[seq]]
    gone = {mac for macs in missing.values() for mac in macs}
    gone.update(step["commitment"] for new in steps.values() for step in new if step["gone"])
    erased = store.erasures(gone) if gone else {}
    for seq in records:
        contents[seq].extend(
            {"commitment": mac, "erased": entry_id(erased[mac])}
            for mac in missing[seq]
            if mac in erased
        )
        for step in steps[seq]:
            if step.pop("gone") and step["commitment"] in erased:
                step["erased"] = entry_id(erased[step["commitment"]])


class _Lines:
    """The lines of entries, each with the content and message steps no earlier line had.

    Content and message steps are numbered in the order in which entries first show them, so
    what is new is what has a greater number than anything exported: memory stays flat.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._last_content = 0
        self._last_step = 0

    def of(self, rows: list[EntryRow]) -> Iterator[dict[str, Any]]:
        """One object for each of ``rows``, which follow those given before."""
        contents, shown = self._contents(rows[0].seq, rows[-1].seq)
        steps = self._steps(rows[0].seq, rows[-1].seq)
        records = {row.seq: decode_record(row) for row in rows}
        note_erased(self._store, records, shown, contents, steps)
        for row in rows:
            yield {
                "seq": row.seq,
                "entry_hash": row.entry_hash,
                "record": row.record.decode(),
                "contents": contents[row.seq],
                "steps": steps[row.seq],
            }

    def _contents(
        self, first: int, last: int
    ) -> tuple[dict[int, list[dict[str, Any]]], dict[int, set[str]]]:
        """By entry: its new values, and the commitments of all that it shows by value."""
        new: dict[int, list[dict[str, Any]]] = defaultdict(list)
        shown: dict[int, set[str]] = defaultdict(set)
        subjects: dict[int, list[str]] = defaultdict(list)
        for content_id, subject_id in self._store.select(
            "SELECT DISTINCT o.content_id, o.subject_id FROM shown_contents AS s "
            "JOIN content_subjects AS o ON o.content_id = s.content_id "
            "WHERE s.seq BETWEEN ? AND ? ORDER BY o.content_id, o.subject_id",
            (first, last),
        ):
            subjects[content_id].append(subject_id)
        for seq, content_id, commitment, nonce, codec, value in self._store.select(
            "SELECT s.seq, c.content_id, c.commitment, c.nonce, c.codec, c.value "
            "FROM shown_contents AS s JOIN contents AS c ON c.content_id = s.content_id "
            "WHERE s.seq BETWEEN ? AND ? ORDER BY s.seq, c.content_id",
            (first, last),
        ):
            shown[seq].add(commitment)
            if content_id <= self._last_content:
                continue
            self._last_content = content_id
            stored = StoredValue(codec, value)
            item = {
                "commitment": commitment,
                "nonce": base64.b64encode(nonce).decode(),
                "json" if stored.is_exact else "jcs": stored.encoded().decode(),
            }
            if content_id in subjects:
                item["subjects"] = subjects[content_id]
            new[seq].append(item)
        return new, shown

    def _steps(self, first: int, last: int) -> dict[int, list[dict[str, Any]]]:
        """By entry: its new message steps, oldest first."""
        ends = self._store.select(
            "SELECT seq, step_id FROM shown_lists WHERE seq BETWEEN ? AND ? ORDER BY seq, step_id",
            (first, last),
        )
        new: dict[int, list[dict[str, Any]]] = defaultdict(list)
        greatest = max((step_id for _, step_id in ends), default=0)
        by_id = {
            row[0]: row
            for row in self._store.select(
                "SELECT s.step_id, s.step, s.parent_id, s.commitment, s.content_id, p.step "
                "FROM message_steps AS s LEFT JOIN message_steps AS p ON p.step_id = s.parent_id "
                "WHERE s.step_id > ? AND s.step_id <= ?",
                (self._last_step, greatest),
            )
        }
        for seq, end in ends:
            chain: list[dict[str, Any]] = []
            row = by_id.pop(end, None)
            while row is not None:
                chain.append(
                    {"step": row[1], "parent": row[5] or NO_STEP, "commitment": row[3],
                     "gone": row[4] is None}
                )  # fmt: skip
                row = by_id.pop(row[2], None)
            new[seq].extend(reversed(chain))
        self._last_step = max(self._last_step, greatest)
        return new


def _json(value: Any) -> str:
    option = orjson.OPT_PASSTHROUGH_DATACLASS
    return dump(value, lambda item: {"$erased": item.erasure_id}, option).decode()


def _write(path: Path, data: bytes) -> None:
    """Write atomically, as a reader may be fetching; leave a file that is correct already."""
    if path.exists() and path.stat().st_size == len(data) and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
