"""Reading archived entries with their content."""

from __future__ import annotations

import base64
import heapq
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import orjson

from remit.kernel.canonical import sha256_hex
from remit.kernel.errors import InvalidInputError
from remit.ledger.archive.files import Line, parts_in, ranges_in, read_part
from remit.ledger.client import LedgerClient
from remit.ledger.contents import NO_STEP, Erased, ExactText, StoredValue, commit, fill
from remit.ledger.entry import LedgerEntry, parse_entry_id
from remit.ledger.entry import entry_id as format_id
from remit.ledger.errors import (
    EntryArchivedError,
    EntryNotFoundError,
    LedgerError,
    LedgerFormatError,
)
from remit.ledger.queries import Equalities, Order, instant, to_seq
from remit.ledger.ranges import ArchivedRange
from remit.ledger.reader import EntryRow, decode_record, filled_metadata
from remit.ledger.record import columns_of

__all__ = ["Archive"]

_PAGE = 300


class Archive:
    """An archive of a ledger, which is only read.

    Args:
        directories: the directories that ``remit ledger archive --out`` was given.

    Raises:
        LedgerError: a directory cannot be read, or no directory holds an archive.
    """

    def __init__(self, directories: Sequence[Path]) -> None:
        self._ranges = sorted(
            (first, end, path)
            for directory in directories
            for first, end, path in ranges_in(directory)
        )
        if not self._ranges:
            raise LedgerError(
                f"No archive was found in {', '.join(map(str, directories))}.",
                next_step="Give the directory that `remit ledger archive --out` was given.",
            )

    def require(self, ranges: Sequence[ArchivedRange]) -> None:
        """Raise LedgerError unless the archive contains all archived ranges of a ledger.

        Args:
            ranges: the ranges that the ledger records.
        """
        there = {(first, end) for first, end, _ in self._ranges}
        for one in ranges:
            if (one.first, one.end) not in there:
                raise LedgerError(
                    f"The entries {one.first} to {one.end - 1} were archived, but the given "
                    "archive "
                    "does not contain them.",
                    next_step="Name each directory that holds a part of the archive. If a run of "
                    "`remit ledger archive` was interrupted, run it again first.",
                )

    def parts(self) -> Iterator[Path]:
        """Yield the paths of all parts, range by range."""
        for _, _, path in self._ranges:
            yield from parts_in(path)

    def lines(self) -> Iterator[Line]:
        """Yield all archived entries, in ledger order.

        Raises:
            LedgerError: a part cannot be read.
        """
        every = (itertools.chain.from_iterable(map(read_part, parts_in(path)))
                 for _, _, path in self._ranges)  # fmt: skip
        return heapq.merge(*every, key=lambda line: line.seq)

    def read(self, entry_id: str) -> LedgerEntry:
        """Return an archived entry with its content.

        Raises:
            EntryNotFoundError: the entry is not in the archive.
            LedgerError: a part cannot be read, or a record or value does not match its hash.
        """
        line, path = self._find(entry_id)
        return next(self._filled([line], path))

    def read_record(self, entry_id: str) -> bytes:
        """Return an archived entry's canonical record.

        Raises:
            EntryNotFoundError: the entry is not in the archive.
            LedgerError: a part cannot be read.
        """
        return self._find(entry_id)[0].record

    def exact(self, entry_id: str, names: Collection[str] = ()) -> dict[str, ExactText]:
        """Return an archived entry's content as bytes, as :meth:`LedgerClient.exact` does.

        Args:
            entry_id: id of the entry.
            names: metadata keys to return; all if empty.

        Raises:
            EntryNotFoundError: the entry is not in the archive.
            LedgerError: a part cannot be read, or a value does not match its commitment.
        """
        line, path = self._find(entry_id)
        values = self._values([line], path)
        return {
            key: values.of(item, StoredValue.encoded)
            for key, item in decode_record(_row(line))["metadata"].items()
            if (not names or key in names)
            and isinstance(item, dict)
            and ("$content" in item or "$messages" in item)
        }

    def _find(self, entry_id: str) -> tuple[Line, Path]:
        seq = parse_entry_id(entry_id)
        for _, end, path in self._ranges:
            if seq is not None and seq < end:
                for part in parts_in(path):
                    for line in read_part(part, None, seq, seq):
                        return line, path
        raise EntryNotFoundError(
            f"The entry {entry_id} is not in the archive.",
            next_step="Read the entry from the database, which holds all entries that were not "
            "archived.",
        )

    def query(
        self,
        *,
        since: Any = None,
        until: Any = None,
        after: str | int | None = None,
        limit: int | None = None,
        order: Order = "asc",
        text: str | None = None,
        with_content: bool = True,
        **equals: Unpack[Equalities],
    ) -> Iterator[LedgerEntry]:
        """Return an iterator over matching archived entries, as :meth:`LedgerClient.query` does.

        Args:
            since: first instant, inclusive.
            until: last instant, exclusive.
            after: id or sequence number of the entry to continue after.
            limit: maximum number of entries; ``None`` for all.
            order: ``asc`` or ``desc``.
            text: refused, because an archive has no text index.
            with_content: False leaves commitments in place of content.
            equals: values of columns.

        Raises:
            InvalidInputError: ``text`` is given, or an argument cannot be understood.
            LedgerError: a part cannot be read or does not match its hashes; raised by the iterator.
        """
        if text is not None:
            raise InvalidInputError(
                "An archive has no text index.",
                next_step="Search by session, type or time, or query the Parquet parts directly.",
            )
        wanted = {name: str(value) for name, value in equals.items() if value is not None}
        low, high = instant(since), instant(until)
        place = to_seq(after)
        runs = [
            self._of_range(path, wanted, place, order == "desc", (low, high), with_content)
            for _, _, path in self._ranges
        ]
        merged = heapq.merge(*runs, key=_seq_of, reverse=order == "desc")
        return itertools.islice(merged, limit)

    def _of_range(
        self, path: Path, wanted: dict[str, str], place: int | None, descending: bool,
        time: tuple[str | None, str | None], with_content: bool,
    ) -> Iterator[LedgerEntry]:  # fmt: skip
        first = place + 1 if place is not None and not descending else 0
        last = place - 1 if place is not None and descending else (1 << 63) - 1
        parts = parts_in(path)
        for part in parts[::-1] if descending else parts:
            lines: Iterator[Line] = read_part(part, wanted, first, last)
            if time != (None, None):
                lines = (line for line in lines if _is_within(line, *time))
            if descending:
                lines = reversed(list(lines))
            for page in _pages(iter(lines)):
                if with_content:
                    yield from self._filled(page, path)
                else:
                    for line in page:
                        yield _entry(line, None)

    def _filled(self, page: list[Line], path: Path) -> Iterator[LedgerEntry]:
        """Yield lines of one range as entries with content."""
        values = self._values(page, path)
        return (_entry(line, values.of) for line in page)

    @staticmethod
    def _values(page: list[Line], path: Path) -> _Values:
        """Return the content that lines show, from these and earlier lines of their sessions."""
        names = {columns_of(decode_record(_row(line))["metadata"]).session_id for line in page}
        sessions = frozenset(name for name in names if name is not None)
        values = _Values()
        low, high = min(line.since for line in page), max(line.seq for line in page)
        for part in parts_in(path):
            for line in read_part(part, {"session_id": sessions}, low, high):
                values.add(line)
        return values


class _Values:
    """Content by commitment, and message lists by their last step."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._steps: dict[str, tuple[str, str]] = {}

    def add(self, line: Line) -> None:
        """Add the values and message steps of a line.

        Raises:
            LedgerFormatError: a value does not match its commitment.
        """
        for item in line.contents:
            mac = item["commitment"]
            if "erased" not in item and commit(_nonce(item), _encoded(item)) != mac:
                raise LedgerFormatError(
                    f"A value of {format_id(line.seq)} in the archive differs from the record.",
                    next_step="Run `remit ledger verify --archive DIR`; put back a sound copy.",
                )
            self._values[mac] = item
        for step in line.steps:
            self._steps[step["step"]] = (step["parent"], step["commitment"])
            if "erased" in step:
                self._values[step["commitment"]] = step

    def of(
        self, item: dict[str, Any], read: Callable[[StoredValue], Any] = StoredValue.decode
    ) -> Any:
        """Return the value, or the list of messages, that a commitment object stands for."""
        if "$messages" not in item:
            return self._value(item["$content"][12:], read)
        return [self._value(mac, read) for mac in messages_of(self._steps, item["$messages"])]

    def _value(self, mac: str, read: Callable[[StoredValue], Any]) -> Any:
        item = self._values.get(mac, {})
        if "jcs" in item:
            return read(StoredValue("json", item["jcs"]))
        if "json" in item:
            return read(StoredValue("exact", item["json"]))
        return Erased(item.get("erased"))


def messages_of(steps: Mapping[str, tuple[str, str]], last: str) -> list[str]:
    """Return the commitments of a list's messages, oldest first.

    Args:
        steps: parent and message of each step.
        last: the last step of the list.

    Raises:
        LedgerFormatError: a step is missing, or the steps form a circle.
    """
    found: list[str] = []
    step = last
    while step != NO_STEP:
        if step not in steps or len(found) == len(steps):
            raise LedgerFormatError(
                f"The archive does not contain the message list {last}.",
                next_step="Run `remit ledger verify --archive DIR`; put back a sound copy.",
            )
        step, mac = steps[step]
        found.append(mac)
    return found[::-1]


def joined(
    ledger: LedgerClient, archive: Archive, limit: int | None, **filters: Any
) -> Iterator[LedgerEntry]:
    """Yield matching entries of a ledger and its archive, in the requested order, each once.

    An entry in both is yielded once.

    Args:
        ledger: the ledger.
        archive: all of its archive.
        limit: maximum number of entries; ``None`` for all.
        filters: arguments of :meth:`LedgerClient.query`.

    Raises:
        LedgerError: a part of the archive was not given.
    """
    archive.require(ledger.archived_ranges())
    filters["limit"] = limit
    runs = (ledger.query(**filters), archive.query(**filters))
    reverse = filters.get("order") == "desc"
    seen = -1
    for entry in itertools.islice(heapq.merge(*runs, key=_seq_of, reverse=reverse), limit):
        if _seq_of(entry) != seen:  # archived, and not removed yet
            yield entry
        seen = _seq_of(entry)


def read_either(ledger: LedgerClient, archive: Archive, entry_id: str) -> LedgerEntry:
    """Return an entry with content from the database, or from the archive if it was archived.

    Args:
        ledger: the ledger, which is tried first.
        archive: the archive, read only if the ledger says that the entry was archived.
        entry_id: id of the entry.

    Raises:
        EntryNotFoundError: neither contains the entry.
        LedgerError: the entry cannot be read.
    """
    try:
        return ledger.read(entry_id)
    except EntryArchivedError:
        return archive.read(entry_id)


def _nonce(item: dict[str, Any]) -> bytes:
    return base64.b64decode(item["nonce"])


def _encoded(item: dict[str, Any]) -> bytes:
    text: str = item["jcs"] if "jcs" in item else item["json"]
    return text.encode()


def _pages(lines: Iterator[Line]) -> Iterator[list[Line]]:
    size = 16
    while page := list(itertools.islice(lines, size)):
        yield page
        size = _PAGE


def _row(line: Line) -> EntryRow:
    return EntryRow(line.seq, line.entry_hash, line.record)


def _entry(line: Line, resolve: Any) -> LedgerEntry:
    if sha256_hex(line.record) != line.entry_hash:
        raise LedgerFormatError(
            f"The record of {format_id(line.seq)} in the archive does not match its hash.",
            next_step="Run `remit ledger verify --archive DIR`; put back a sound copy.",
        )
    record = decode_record(_row(line))
    names = ("event_type", "submission_id", "decision", "prompts_used", "id", "timestamp",
             "previous_hash")  # fmt: skip
    return LedgerEntry(
        **{name: record[name] for name in names},
        reason=str(fill(record["reason"], resolve) if resolve else record["reason"]),
        metadata=filled_metadata(record, resolve) if resolve else record["metadata"],
        entry_hash=line.entry_hash,
    )


def _seq_of(entry: LedgerEntry) -> int:
    return int(entry.id[4:], 16)


def _is_within(line: Line, since: str | None, until: str | None) -> bool:
    time = orjson.loads(line.record)["timestamp"]
    return (since is None or time >= since) and (until is None or time < until)
