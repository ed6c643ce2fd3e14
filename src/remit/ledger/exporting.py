"""Exports: JSON lines (whole, verifiable, importable), Parquet (for analysis), tiles (C2SP).

The format of the JSON lines is specified in ``docs/ledger-format.md``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import orjson

from remit.ledger.checkpoints import Checkpoints
from remit.ledger.entry import entry_id
from remit.ledger.errors import LedgerError, NoSignerError
from remit.ledger.reader import Reader
from remit.ledger.report import Progress
from remit.ledger.schema import COLUMNS
from remit.ledger.store import EntryRow, Filter, Store
from remit.ledger.telling import Teller
from remit.ledger.tlog import TILE_WIDTH, SignedCheckpoint, bundle, bundle_path, tile_path
from remit.ledger.tree import LedgerTree

__all__ = ["EXPORT_FORMAT", "ErasedMeanwhileError", "Exporter", "export_ledger"]

EXPORT_FORMAT = "remit-ledger-export/1"
"""What the first line of an export says."""

_PAGE = 200
_ATTEMPTS = 3


class ErasedMeanwhileError(LedgerError):
    """An erasure came between the checkpoint of an export and its end."""


@dataclass(frozen=True, slots=True)
class Exporter:
    """Exports one ledger, streaming.

    Attributes:
        store: of the ledger.
        verifier_key: of the ledger; empty where it is not known.
        progress: told how far it is.
    """

    store: Store
    verifier_key: str = ""
    progress: Progress | None = None

    def jsonl(self, out: IO[bytes], signed: SignedCheckpoint | None) -> int:
        """Write everything as JSON lines; returns how many entries.

        Args:
            out: where to.
            signed: the checkpoint to put at the head; what it covers is exported, and all
                entries there are without one.
        """
        size = signed.checkpoint.size if signed is not None else Reader(self.store).size()
        _line(
            out,
            {
                "format": EXPORT_FORMAT,
                "entries": size,
                "checkpoint": str(signed) if signed is not None else None,
                "verifier_key": self.verifier_key or None,
            },
        )
        teller = Teller(self.store)
        for rows in self._pages(size):
            for line in teller.lines(rows):
                _line(out, line)
        rows_after = self.store.select("SELECT max(seq) FROM erasures")
        if rows_after[0][0] is not None and rows_after[0][0] >= size:
            raise ErasedMeanwhileError(
                f"Content was erased under {entry_id(rows_after[0][0])}, after the checkpoint that "
                "this export leads to: what it shows would not be accounted for.",
                next_step="Export again with a new checkpoint: `remit ledger export` signs one.",
            )
        return size

    def tiles(self, directory: Path, signed: SignedCheckpoint) -> int:
        """Write a static C2SP tlog-tiles directory for a checkpoint; returns its size.

        Tiles and bundles that are there already and right are left.

        Raises:
            LedgerError: the directory cannot be written, or holds another log's tiles.
        """
        tree = LedgerTree(self.store.select, self.store)
        size = signed.checkpoint.size
        done = 0
        try:
            checkpoint = directory / "checkpoint"
            if checkpoint.exists():
                there = SignedCheckpoint.parse(checkpoint.read_bytes()).checkpoint
                if (
                    there.origin != signed.checkpoint.origin
                    or there.size > size
                    or tree.root(there.size) != there.root
                ):
                    raise LedgerError(
                        f"{directory} holds tiles of another log, or newer ones ({there.origin}, "
                        f"{there.size} entries).",
                        next_step="Give an empty directory.",
                    )
            level, width = 0, 1
            while size // width > 0:
                hashes = size // width
                for index in range((hashes + TILE_WIDTH - 1) // TILE_WIDTH):
                    count = min(TILE_WIDTH, hashes - index * TILE_WIDTH)
                    tile = tree.tile(level, index)[:count]
                    if len(tile) != count:
                        raise LedgerError(
                            f"The tree hashes of level {level} are not all there.",
                            next_step="Run `remit ledger verify` to see what is damaged.",
                        )
                    _write(directory / tile_path(level, index, count), b"".join(tile))
                    if level == 0:
                        self._write_bundle(directory, index, count)
                        done += count
                        self._tell(done, size)
                level, width = level + 1, width * TILE_WIDTH
            # Last: who reads a checkpoint finds all that it covers.
            _write(checkpoint, str(signed).encode())
        except OSError as error:
            raise LedgerError(
                f"The tiles cannot be written to {directory}: {error.strerror or error}.",
                next_step="Check the free space and the permissions.",
            ) from error
        return size

    def parquet(self, path: Path) -> int:
        """Write the entries as one Parquet table, content in place as JSON; returns how many.

        Raises:
            LedgerError: pyarrow is not installed.
        """
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
        reader = Reader(self.store)
        size = reader.size()
        picked = ", ".join(COLUMNS)
        with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
            for rows in self._pages(size):
                columns = {
                    seq: values
                    for seq, *values in self.store.select(
                        f"SELECT seq, {picked} FROM entries WHERE seq BETWEEN ? AND ?",
                        (rows[0].seq, rows[-1].seq),
                    )
                }
                table = [
                    {
                        "seq": row.seq,
                        **dict(zip(COLUMNS, columns[row.seq], strict=True)),
                        "decision": entry.decision,
                        "reason": entry.reason,
                        "prompts_used": _json(entry.prompts_used),
                        "metadata": _json(entry.metadata),
                        "record": row.record.decode(),
                    }
                    for row, entry in zip(rows, reader.entries(rows), strict=True)
                ]
                writer.write_table(pyarrow.Table.from_pylist(table, schema=schema))
        return size

    def _pages(self, size: int) -> Iterator[list[EntryRow]]:
        after = -1
        while after < size - 1:
            rows = self.store.page(Filter(after=after), min(_PAGE, size - 1 - after))
            if not rows or rows[0].seq != after + 1 or rows[-1].seq - after != len(rows):
                raise LedgerError(
                    f"Entry {after + 1} or one soon after it is not there.",
                    next_step="Run `remit ledger verify` to see what is damaged.",
                )
            yield rows
            after = rows[-1].seq
            self._tell(after + 1, size)

    def _write_bundle(self, directory: Path, index: int, count: int) -> None:
        first = index * TILE_WIDTH
        path = directory / bundle_path(index, count)
        _write(path, bundle(Reader(self.store).records(first, first + count)))

    def _tell(self, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(done, total)


def export_ledger(
    exporter: Exporter,
    target: str | Path | IO[bytes],
    kind: str,
    checkpoints: Checkpoints,
    sign: Callable[[], str] | None,
) -> int:
    """Export to a file, a directory or an open file; returns how many entries.

    Args:
        exporter: of the ledger.
        target: where to.
        kind: ``jsonl``, ``parquet`` or ``tiles``.
        checkpoints: those that are stored.
        sign: makes a new one; ``None`` where there is no key.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return _export(exporter, target, kind, checkpoints, sign)
        except ErasedMeanwhileError:
            # Only a file can be begun anew, and only with a new checkpoint.
            if sign is None or not isinstance(target, (str, Path)):
                raise
    return _export(exporter, target, kind, checkpoints, sign)


def _export(
    exporter: Exporter,
    target: str | Path | IO[bytes],
    kind: str,
    checkpoints: Checkpoints,
    sign: Callable[[], str] | None,
) -> int:
    signed = checkpoints.latest() if sign is None else SignedCheckpoint.parse(sign())
    if not isinstance(target, (str, Path)):
        return exporter.jsonl(target, signed)
    path = Path(target)
    if kind == "tiles":
        if signed is None:
            raise NoSignerError(
                "Tiles need a signed checkpoint; there is none, and no key to sign one.",
                next_step="Open the ledger through its root: `remit ledger export --tiles`.",
            )
        return exporter.tiles(path, signed)
    temporary = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            if kind == "parquet":
                count = exporter.parquet(temporary)
            else:
                with temporary.open("wb") as out:
                    count = exporter.jsonl(out, signed)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise LedgerError(
            f"The export cannot be written to {path}: {error.strerror or error}.",
            next_step="Check the free space and the permissions.",
        ) from error
    return count


def _line(out: IO[bytes], value: dict[str, Any]) -> None:
    out.write(orjson.dumps(value) + b"\n")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=lambda item: {"$erased": item.erasure_id})


def _write(path: Path, data: bytes) -> None:
    """Whole or not at all: a reader may be fetching. What is there already is left as it is."""
    if path.exists() and path.stat().st_size == len(data) and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
