"""The conversion of archives, which earlier versions wrote, to segments.

An archive has a directory named ``<first>-<end>`` for each range. The directory contains a C2SP
tlog-tiles log (``checkpoint``, ``tile/``) and parts (``part-000000.parquet`` or
``part-000000.jsonl.gz``) with a line of an export for each archived entry, in ledger order.
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import os
import shutil
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.kernel.durable_files import fsync
from remit.kernel.errors import RemitError
from remit.kernel.json_text import load_unique
from remit.ledger.archived_ranges import ArchivedRange
from remit.ledger.errors import LedgerError
from remit.ledger.export_head import ARCHIVE_ORDER
from remit.ledger.export_reader import MAX_LINE_BYTES, LineReader, require_members
from remit.ledger.imports import rows_of_line
from remit.ledger.segments.copies import discard, new_copy, publish_copy
from remit.ledger.segments.segment import (
    Rows,
    open_segment,
    purge,
    require_sound,
    segment_name,
    write_segment,
)
from remit.ledger.subjects import subjects_before
from remit.ledger.tlog import SignedCheckpoint

if TYPE_CHECKING:
    from remit.ledger.client import LedgerClient

_COMPRESS_ABOVE_BYTES = 8192
_PAGE = 1_000  # lines that are written in one transaction
_ROWS = 2_048  # rows of a Parquet group
_MAX_GROUP_BYTES = 1 << 31  # bytes of a Parquet group, inflated
_MEMBERS = {"seq": int, "entry_hash": str, "record": str, "contents": list, "steps": list,
            "since": int}  # fmt: skip


def convert(ledger: LedgerClient, directory: Path) -> int:
    """Replace the archives in a directory by segments; return the number of archives.

    Only archives of the ledger's archived ranges are converted. A segment is verified and compared
    with the ledger's record, and erased values are deleted from it, before its archive is deleted.
    After an interruption the same call continues: a segment that is there is not written again.
    A range without an archive in the directory is skipped.

    Args:
        ledger: the ledger that was archived.
        directory: the directory of the archives, which receives the segments.

    Raises:
        LedgerError: an archive cannot be read or does not match the ledger; it stays, and so does
            the rest. A segment cannot be written, or the ledger cannot be read. Parquet parts need
            pyarrow.
    """
    number = 0
    for one in ledger.archived_ranges():
        old = directory / f"{one.first:012d}-{one.end:012d}"
        if not old.is_dir():
            continue
        path = directory / segment_name(one.first, one.end)
        try:
            if not os.path.lexists(path):
                copy = new_copy(ledger, path)
                _write(ledger, old, copy, one)
                publish_copy(ledger, copy, path)
            _require_sound(ledger, path, one)
            shutil.rmtree(old)
            fsync(directory)
        except (OSError, ValueError, RemitError) as error:
            said = error.message if isinstance(error, RemitError) else str(error)
            raise LedgerError(
                f"The archive {old} could not be converted: {said.rstrip('.')}.",
                next_step="Make room, or restore a copy of the archive; then run the same command "
                "again.",
            ) from error
        number += 1
    return number


def _write(ledger: LedgerClient, old: Path, copy: Path, one: ArchivedRange) -> None:
    signed = SignedCheckpoint.parse((old / "checkpoint").read_bytes())
    try:
        write_segment(copy, ledger, one.left, signed, _pages(ledger, old, signed))
        _require_sound(ledger, copy, one)
    except BaseException:
        discard(copy)
        raise


def _require_sound(ledger: LedgerClient, path: Path, one: ArchivedRange) -> None:
    with contextlib.closing(open_segment(path, ledger._settings)) as store:
        purge(ledger._store, store)  # Also completes an erasure that was interrupted.
        require_sound(ledger, store, one.left, one.root)


def _pages(ledger: LedgerClient, old: Path, signed: SignedCheckpoint) -> Iterator[Rows]:
    """Yield the rows of an archive's lines, and at last the erasures."""
    is_ordered = ARCHIVE_ORDER in signed.checkpoint.extensions
    reader = LineReader(
        subjects_before(ledger.select), is_stated=is_ordered, is_early_archive=not is_ordered
    )
    parts = sorted(path for path in old.iterdir() if path.name.startswith("part-"))
    lines = itertools.chain.from_iterable(map(_lines, parts))
    while page := list(itertools.islice(lines, _PAGE)):
        rows: dict[str, list[Any]] = defaultdict(list)
        for line in page:
            require_members(line, "part-members", "a line", _MEMBERS)
            contents = line["contents"]
            if not is_ordered:
                contents = [_without_kept(item) for item in contents]
            record = line["record"].encode()
            found = reader.read(line["seq"], line["entry_hash"], record, contents, line["steps"])
            for table, row in rows_of_line(found, _COMPRESS_ABOVE_BYTES):
                rows[table].append(row)
        yield rows
    yield {"entries": (), "erasures": reader.erased.items()}


def _without_kept(item: Any) -> Any:
    """Return a content item without ``kept``, which the first versions wrote and nothing reads."""
    if type(item) is dict and item.get("kept") is True and "erased" not in item:
        return {name: value for name, value in item.items() if name != "kept"}
    return item


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a part; raise LedgerError if the part cannot be read."""
    try:
        if path.name.endswith(".parquet"):
            yield from _parquet_lines(path)
            return
        with gzip.open(path, "rb") as file:
            while text := file.readline(MAX_LINE_BYTES + 1):
                if len(text) > MAX_LINE_BYTES:
                    raise ValueError(f"a line is longer than {MAX_LINE_BYTES:,} bytes")
                yield load_unique(text.removesuffix(b"\n"))
    except (
        OSError, EOFError, KeyError, TypeError, ValueError, AttributeError, zlib.error,
    ) as error:  # fmt: skip
        raise LedgerError(f"The part {path} cannot be read: {error}.") from error


def _parquet_lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise LedgerError(
            f"Reading {path} needs pyarrow.", next_step="pip install 'remit[parquet]'"
        ) from error
    with pyarrow.parquet.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            said = file.metadata.row_group(group)
            if said.num_rows > _ROWS or said.total_byte_size > _MAX_GROUP_BYTES:
                raise ValueError(f"row group {group} has more than {_ROWS:,} rows, or is too long")
            for row in file.read_row_group(group, columns=[*_MEMBERS]).to_pylist():
                lists = {name: load_unique(row[name].encode()) for name in ("contents", "steps")}
                yield {**row, **lists}
