"""The files of an archive: parts with archived entries, as Parquet or compressed JSON lines.

Each archived range is a directory named ``<first>-<end>``. The directory contains a C2SP tlog-tiles
log of the range (``checkpoint``, ``tile/``) and parts (``part-000000.parquet`` or
``part-000000.jsonl.gz``) with a row for each archived entry, in ledger order.
"""

from __future__ import annotations

import collections
import contextlib
import gzip
import hashlib
import os
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import orjson

from remit.kernel.files import fsync
from remit.kernel.json_text import load_unique
from remit.ledger.errors import LedgerError
from remit.ledger.line_reader import MAX_LINE_BYTES, require, require_members
from remit.ledger.record import columns_of
from remit.ledger.schema import COLUMNS

__all__ = [
    "PART_ENTRIES", "Kind", "Line", "Wanted", "interrupted_copies",
    "kind_there", "part_path", "parts_in", "range_name", "ranges_in", "read_part",
    "unfinished_part", "without_kept", "write_part",
]  # fmt: skip

Kind = Literal["parquet", "jsonl"]
"""The format of parts."""

PART_ENTRIES = 65_536
"""Maximum number of entries in a part."""

_SUFFIX = {"parquet": ".parquet", "jsonl": ".jsonl.gz"}
_NAME = re.compile(r"(\d{12})-(\d{12})")
_ROWS = 2_048  # A row group of so many rows is read at once.
_GROUP_BYTES = 1 << 26  # a row group is closed when it has so many
_MAX_GROUP_BYTES = 1 << 31  # bytes of a row group, inflated
_MEMBERS = {"seq": int, "entry_hash": str, "record": str, "contents": list, "steps": list,
            "since": int}  # fmt: skip
_TEXTS = (*COLUMNS, "record", "contents", "steps")


class Line(NamedTuple):
    """An archived entry with the members of an export's line.

    Attributes:
        seq: sequence number.
        entry_hash: hash of the record.
        record: the canonical record.
        contents: content items, as in an export.
        steps: message steps, as in an export.
        since: the first archived entry of the session; all content of the line is at or after it.
    """

    seq: int
    entry_hash: str
    record: bytes
    contents: list[dict[str, Any]]
    steps: list[dict[str, Any]]
    since: int

    def to_dict(self) -> dict[str, Any]:
        """Return the members of an export's line, and ``since``."""
        return {**self._asdict(), "record": self.record.decode()}


Wanted = Mapping[str, str | Collection[str]]
"""The wanted value of each column, or several allowed values."""

_GREATEST = (1 << 63) - 1


def range_name(first: int, end: int) -> str:
    """Return the name of a range's directory: both numbers in 12 digits, joined by a hyphen.

    Args:
        first: sequence number of the first entry.
        end: sequence number after the last entry.
    """
    return f"{first:012d}-{end:012d}"


def ranges_in(directory: Path) -> list[tuple[int, int, Path]]:
    """Return first entry, end and directory of each range in a directory, in order.

    Other names in the directory are ignored. Order is by first entry.

    Args:
        directory: a directory of an archive.

    Raises:
        LedgerError: the directory cannot be read.
    """
    found = []
    try:
        for path in directory.iterdir():
            if (match := _NAME.fullmatch(path.name)) and path.is_dir():
                found.append((int(match[1]), int(match[2]), path))
    except OSError as error:
        raise LedgerError(
            f"The archive {directory} cannot be read: {error.strerror or error}.",
            next_step="Give the directory that `remit ledger archive --out` was given.",
        ) from error
    return sorted(found)


def interrupted_copies(directory: Path) -> list[Path]:
    """Return the directories of runs that are writing a copy, or were interrupted, sorted.

    Args:
        directory: a directory of an archive.
    """
    return sorted(directory.glob("????????????-????????????.new-*"))


def parts_in(path: Path) -> list[Path]:
    """Return the paths of a range's parts, in ledger order.

    Args:
        path: directory of the range.
    """
    return sorted(one for one in path.iterdir() if one.name.startswith("part-"))


def part_path(path: Path, number: int, kind: Kind) -> Path:
    """Return the path of a range's part; nothing is read or made.

    Args:
        path: directory of the range.
        number: number of the part, which becomes six digits.
        kind: kind of the part, which gives the suffix.
    """
    return path / f"part-{number:06d}{_SUFFIX[kind]}"


def kind_there() -> Kind:
    """Return ``parquet`` if pyarrow is installed, else ``jsonl``."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ModuleNotFoundError:
        return "jsonl"
    return "parquet"


def write_part(path: Path, lines: Iterable[Line]) -> None:
    """Write a part and replace the file at ``path`` by it, durably.

    The new part is written under another name, synced to disk and read back before the replacement.

    Args:
        path: path of the part, whose suffix decides the format.
        lines: its lines, in ledger order.

    Raises:
        LedgerError: the new part does not read back as written; the old file stays.
        OSError: the new part cannot be written; the old file stays.
    """
    new, written = unfinished_part(path), hashlib.blake2b()
    try:
        with _private(new) as file:
            if path.name.endswith(".parquet"):
                _write_parquet(file, _hashed(lines, written))
            else:
                with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
                    for line in _hashed(lines, written):
                        packed.write(orjson.dumps(line.to_dict()) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        found = hashlib.blake2b()
        collections.deque(_hashed(read_part(new), found), maxlen=0)
        if found.digest() != written.digest():
            raise LedgerError(f"The part written for {path} does not read back as it was written.")
        new.replace(path)
        fsync(path.parent)
    finally:
        new.unlink(missing_ok=True)


def unfinished_part(path: Path) -> Path:
    """Return the name under which a part is written before it takes its place.

    Args:
        path: path of the finished part.
    """
    return path.with_name(f".{path.name}")


def _hashed(lines: Iterable[Line], found: Any) -> Iterator[Line]:
    for line in lines:
        found.update(orjson.dumps(line.to_dict()) + b"\n")
        yield line


def read_part(
    path: Path, wanted: Wanted | None = None, low: int = 0, high: int = _GREATEST, *,
    is_checked: bool = False,
) -> Iterator[Line]:  # fmt: skip
    """Yield the lines of a part, in ledger order.

    Args:
        path: the part.
        wanted: the value of each named column, or several allowed values; ``None`` for all entries.
        low: the lowest sequence number.
        high: the greatest sequence number.
        is_checked: True to compare the columns with the records, and to keep items unchanged.

    Raises:
        LedgerError: the part cannot be read, or a column differs from the record.
    """
    try:
        if path.name.endswith(".parquet"):
            yield from _read_parquet(path, wanted or {}, low, high, is_checked)
        else:
            with gzip.open(path, "rb") as file:
                while text := file.readline(MAX_LINE_BYTES + 1):
                    if len(text) > MAX_LINE_BYTES:
                        raise ValueError(f"a line is longer than {MAX_LINE_BYTES:,} bytes")
                    line = _line(load_unique(text.removesuffix(b"\n")), is_checked)
                    if line.seq > high:
                        return
                    if line.seq >= low and _matches(line, wanted or {}):
                        yield line
    except (
        OSError, EOFError, KeyError, TypeError, ValueError, AttributeError, zlib.error,
    ) as error:  # fmt: skip
        raise LedgerError(
            f"The part {path} of the archive cannot be read: {error}.",
            next_step="Put back a sound copy of the archive.",
        ) from error


@contextlib.contextmanager
def _private(path: Path) -> Iterator[Any]:
    path.unlink(missing_ok=True)  # A killed process may have left it.
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w+b") as file:
        yield file


def _line(found: dict[str, Any], is_checked: bool) -> Line:
    require_members(found, "part-members", "a line", _MEMBERS)
    contents = found["contents"]
    if not is_checked:
        contents = [without_kept(item) for item in contents]
    record, steps = found["record"].encode(), found["steps"]
    return Line(found["seq"], found["entry_hash"], record, contents, steps, found["since"])


def without_kept(item: Any) -> Any:
    """Return a content item without ``kept``, which earlier versions wrote and nothing reads.

    Args:
        item: a content item of an archive; any other value is returned unchanged.
    """
    if type(item) is dict and item.get("kept") is True and "erased" not in item:
        return {name: value for name, value in item.items() if name != "kept"}
    return item


def _matches(line: Line, wanted: Wanted) -> bool:
    if not wanted:
        return True
    values = _columns(line)
    return all(_is_of(values[name], value) for name, value in wanted.items())


def _is_of(value: Any, wanted: str | Collection[str]) -> bool:
    return value == wanted if isinstance(wanted, str) else value in wanted


def _columns(line: Line) -> dict[str, Any]:
    record = orjson.loads(line.record)
    names = ("id", "timestamp", "event_type", "submission_id")
    return {
        **{name: record[name] for name in names},
        "entry_hash": line.entry_hash,
        **columns_of(record["metadata"])._asdict(),
    }


def _write_parquet(file: Any, lines: Iterable[Line]) -> None:
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema(
        [
            *((name, pyarrow.int64()) for name in ("seq", "since")),
            *((name, pyarrow.string()) for name in _TEXTS),
        ]
    )

    def flush(rows: list[dict[str, Any]]) -> None:
        writer.write_table(pyarrow.Table.from_pylist(rows, schema=schema))
        rows.clear()

    waiting: list[dict[str, Any]] = []
    size = 0
    with pyarrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for line in lines:
            row = {"seq": line.seq, "since": line.since, **_columns(line)}
            row["record"] = line.record.decode()
            row["contents"] = orjson.dumps(line.contents).decode()
            row["steps"] = orjson.dumps(line.steps).decode()
            waiting.append(row)
            size += sum(len(row[name]) for name in ("record", "contents", "steps"))
            if len(waiting) >= _ROWS or size >= _GROUP_BYTES:
                flush(waiting)
                size = 0
        flush(waiting)


def _read_parquet(
    path: Path, wanted: Wanted, low: int, high: int, is_checked: bool
) -> Iterator[Line]:
    try:
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise LedgerError(
            f"Reading {path} needs pyarrow.", next_step="pip install 'remit[parquet]'"
        ) from error
    names = ["seq", "since", "entry_hash", "record", "contents", "steps"]
    with pyarrow.parquet.ParquetFile(path) as file:
        is_whole = file.schema_arrow.names == ["seq", "since", *_TEXTS]
        require(is_whole, "part-members", "it has other columns")
        for group in range(file.num_row_groups):
            said = file.metadata.row_group(group)
            if said.num_rows > _ROWS or said.total_byte_size > _MAX_GROUP_BYTES:
                raise ValueError(f"row group {group} has more than {_ROWS:,} rows, or is too long")
            places = _places(file, group, wanted, low, high)
            if not places:
                continue
            columns = [*names, *COLUMNS] if is_checked else names
            table = file.read_row_group(group, columns=list(dict.fromkeys(columns)))
            for row in table.take(places).to_pylist():
                contents, steps = (
                    load_unique(row[name].encode()) for name in ("contents", "steps")
                )
                parts = {name: row[name] for name in names}
                line = _line({**parts, "contents": contents, "steps": steps}, is_checked)
                if is_checked:
                    fits = _columns(line) == {name: row[name] for name in COLUMNS}
                    require(fits, "part-columns", f"a column of entry {line.seq} differs")
                yield line


def _places(file: Any, group: int, wanted: Wanted, low: int, high: int) -> list[int]:
    """Return the rows of a group that match, found by the columns alone."""
    seqs = file.metadata.row_group(group).column(0).statistics
    if seqs is not None and (seqs.max < low or seqs.min > high):
        return []
    columns = file.read_row_group(group, columns=["seq", *wanted]).to_pydict()
    return [
        place
        for place, seq in enumerate(columns["seq"])
        if low <= seq <= high
        and all(_is_of(columns[name][place], value) for name, value in wanted.items())
    ]
