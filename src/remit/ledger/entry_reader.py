"""Reading in portable SQL: entries with their content or erasure marks, and counts."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from remit.ledger.contents import Erased, ExactText, StoredValue, commitments_in, fill
from remit.ledger.entry import LedgerEntry, entry_id
from remit.ledger.errors import LedgerFormatError
from remit.ledger.record import inspect_record, is_plain_text
from remit.ledger.recorded_bodies import Resolve, context_hash

if TYPE_CHECKING:
    from remit.ledger.archived_ranges import Places

GREATEST = (1 << 63) - 1
"""The greatest number that a 64-bit integer column holds."""

_NUMBER = re.compile(r"[0-9]{1,18}")
_CHUNK = 400  # parameters in one statement, well under every engine's limit

_T = TypeVar("_T")

MessageList = list[tuple[str, int | None]]
"""Commitment and content id of each message, oldest first; ``None`` for an erased message's id."""


@dataclass(frozen=True, slots=True)
class EntryRow:
    """A stored entry as a :class:`Reader` returns it, not parsed and not checked; immutable.

    Attributes:
        seq: sequence number.
        entry_hash: hash of the record, in hex.
        record: the canonical record, as stored.
    """

    seq: int
    entry_hash: str
    record: bytes


class Reader(ABC):
    """The reading methods that all stores share; an engine's store implements :meth:`select`.

    Nothing is cached, and the errors of :meth:`select` are raised. :meth:`entries` reads only
    content, none without. It and :meth:`exact` also raise LedgerFormatError for a damaged record or
    value.

    Attributes:
        segment: the entries of a segment; ``None`` for a ledger that grows.
        location: path of the file, or URL of the database without its password.
        record_sql: SQL expression that reads ``record`` so that a damaged one does not stop the
            statement.
    """

    segment: Places | None = None
    location: str
    record_sql: str

    @abstractmethod
    def select(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a portable read-only statement outside any transaction; return its rows.

        Any thread may call this.

        Args:
            sql: the statement, with ``?`` placeholders.
            parameters: values of the placeholders.

        Raises:
            LedgerFormatError: the statement failed.
            LedgerClosedError: the store is closed.
            LedgerConnectionError: the database server cannot be reached.
        """

    def get(self, seq: int) -> EntryRow | None:
        """Return the row at a sequence number; ``None`` if there is none, or it was archived.

        Args:
            seq: the sequence number, below 2⁶³.

        Raises:
            LedgerError: the database cannot be read.
        """
        rows = self.select(
            f"SELECT seq, entry_hash, {self.record_sql} FROM entries WHERE seq = ?", (seq,)
        )
        return EntryRow(rows[0][0], rows[0][1], as_bytes(rows[0][2])) if rows else None

    def head(self) -> tuple[int, str] | None:
        """Return ``(seq, entry_hash)`` of the last entry; ``None`` for an empty ledger.

        Raises:
            LedgerError: the database cannot be read.
        """
        rows = self.select("SELECT seq, entry_hash FROM entries ORDER BY seq DESC LIMIT 1")
        return (rows[0][0], rows[0][1]) if rows else None

    def count(self) -> int:
        """Return the number of entries, archived ones included.

        The number follows from the last sequence number, so gaps are counted. A segment has as many
        as the ledger had at the segment's end.

        Raises:
            LedgerError: the database cannot be read.
        """
        head = self.head()
        end = self.segment.end if self.segment is not None else 0
        return max(end, min(head[0] + 1, GREATEST) if head else 0)

    def count_by_event(self) -> dict[str, int]:
        """Return the number of entries in the database by event type, sorted by the type.

        Archived entries are not counted.

        Raises:
            LedgerError: the database cannot be read.
        """
        rows = self.select(
            "SELECT event_type, count(*) FROM entries GROUP BY event_type ORDER BY event_type"
        )
        return {str(name): int(number) for name, number in rows}

    def values(self, content_ids: Iterable[int]) -> dict[int, StoredValue]:
        """Return the stored values by content id; missing ones are left out.

        Args:
            content_ids: ids, read in parts if there are many.

        Raises:
            LedgerError: the database cannot be read.
        """
        rows = self._in(
            "SELECT content_id, codec, value FROM contents WHERE content_id", content_ids
        )
        return {content_id: StoredValue(codec, value) for content_id, codec, value in rows}

    def shown(self, seqs: Iterable[int]) -> dict[str, int]:
        """Return the content ids that entries show by value, keyed by commitment.

        Messages of lists are not included, and erased values are left out.

        Args:
            seqs: sequence numbers of entries.

        Raises:
            LedgerError: the database cannot be read.
        """
        return dict(
            self._in(
                "SELECT c.commitment, c.content_id FROM shown_contents AS s "
                "JOIN contents AS c ON c.content_id = s.content_id WHERE s.seq",
                seqs,
            )
        )

    def lists(self, seqs: Iterable[int]) -> dict[str, MessageList]:
        """Return the message lists that entries show, keyed by the last step's hash.

        Each list has a commitment and a content id for each message, oldest first; the content id
        is ``None`` if the message was erased. Entries without lists add nothing. Hashes are not
        checked; before a missing step a list ends. Raise LedgerError if the database cannot be
        read.

        Args:
            seqs: sequence numbers of entries.
        """
        found: dict[str, MessageList] = {}
        last_steps = dict(
            self._in(
                "SELECT s.step_id, s.step FROM shown_lists AS l "
                "JOIN message_steps AS s ON s.step_id = l.step_id WHERE l.seq",
                seqs,
            )
        )
        for step_id, step in last_steps.items():
            rows = self.select(
                """WITH RECURSIVE walk(parent_id, content_id, commitment, position) AS (
                       SELECT parent_id, content_id, commitment, position
                       FROM message_steps WHERE step_id = ?
                       UNION ALL
                       SELECT s.parent_id, s.content_id, s.commitment, s.position
                       FROM walk JOIN message_steps AS s ON s.step_id = walk.parent_id
                       WHERE walk.position > s.position
                   ) SELECT commitment, content_id FROM walk ORDER BY position""",
                (step_id,),
            )
            found[step] = [(row[0], row[1]) for row in rows]
        return found

    def erasures(self, commitments: Iterable[str]) -> dict[str, int]:
        """Return the sequence numbers of the erasing entries, keyed by commitment.

        Commitments of values that were not erased are left out.

        Args:
            commitments: commitments, 64 hex digits each.

        Raises:
            LedgerError: the database cannot be read.
        """
        return dict(self._in("SELECT commitment, seq FROM erasures WHERE commitment", commitments))

    def _in(self, sql: str, values: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a statement that ends before its ``IN (…)``.

        A damaged text, which no statement can ask for, has no rows.
        """
        for chunk in chunks([one for one in values if type(one) is not str or is_plain_text(one)]):
            yield from self.select(f"{sql} IN ({marks(chunk)})", chunk)

    def erased_under(self, seq: int) -> list[str]:
        """Return the commitments of the values that an ``ERASURE`` entry erased, in no order.

        Args:
            seq: sequence number of the entry; of another entry the list is empty.

        Raises:
            LedgerError: the database cannot be read.
        """
        rows = self.select("SELECT commitment FROM erasures WHERE seq = ?", (seq,))
        return [str(row[0]) for row in rows]

    def records(self, first: int, end: int) -> list[bytes]:
        """Return the canonical records from ``first`` to before ``end``, in ledger order, as
        stored.

        Missing entries are left out, so places in the list are not sequence numbers.

        Args:
            first: the first sequence number.
            end: the sequence number after the last.

        Raises:
            LedgerError: the database cannot be read.
        """
        rows = self.select(
            f"SELECT {self.record_sql} FROM entries WHERE seq >= ? AND seq < ? ORDER BY seq",
            (first, end),
        )
        return [as_bytes(row[0]) for row in rows]

    def entries(self, rows: Sequence[EntryRow], with_content: bool = True) -> list[LedgerEntry]:
        """Return rows as entries, in the order of ``rows``; all content is read together.

        Erased and missing values become :class:`Erased`; in ``reason``, its text. Messages of a
        list are replaced one by one, and an unknown list is empty. With content, an exchange
        whose record names its dispatch also gets the ``context_hash`` that earlier versions
        recorded. Values are not compared with their commitments, nor records with their hashes.

        Args:
            rows: rows of entries.
            with_content: False leaves commitments in place of content.

        Raises:
            LedgerFormatError: a record or a value cannot be read.
            LedgerError: the database cannot be read.
        """
        records = [decode_record(row) for row in rows]
        resolve = self._resolver(rows, records) if with_content else None
        return [
            LedgerEntry(
                event_type=record["event_type"],
                submission_id=record["submission_id"],
                decision=record["decision"],
                reason=str(fill(record["reason"], resolve) if resolve else record["reason"]),
                prompts_used=record["prompts_used"],
                metadata=filled_metadata(record, resolve) if resolve else record["metadata"],
                id=record["id"],
                timestamp=record["timestamp"],
                previous_hash=record["previous_hash"],
                entry_hash=row.entry_hash,
            )
            for row, record in zip(rows, records, strict=True)
        ]

    def exact(self, row: EntryRow, names: Collection[str] = ()) -> dict[str, ExactText]:
        """Return the content of an entry's row as the bytes that its commitments cover, by metadata
        key.

        A value gives its exact JSON text or RFC 8785 encoding, a message list a list with the bytes
        of each message. Erased and missing values become :class:`Erased`. Metadata that is no
        content, content within objects, and the reason are left out.

        Args:
            row: row of the entry.
            names: metadata keys to return; all if empty.

        Raises:
            LedgerFormatError: the record or a content value cannot be read.
            LedgerError: the database cannot be read.
        """
        record = decode_record(row)
        if names:
            metadata = {key: item for key, item in record["metadata"].items() if key in names}
            record = {"metadata": metadata, "reason": ""}
        resolve = self._resolver([row], [record])
        return {
            key: resolve(item, StoredValue.encoded)
            for key, item in record["metadata"].items()
            if isinstance(item, dict) and ("$content" in item or "$messages" in item)
        }

    def _resolver(self, rows: Sequence[EntryRow], records: Sequence[dict[str, Any]]) -> Resolve:
        """Return a function from a commitment object to its content.

        The function applies its second argument, which by default decodes, to the value or to each
        message of a list; missing content gives :class:`Erased`.
        """
        direct: dict[str, int] = {}
        lists: dict[str, MessageList] = {}
        with_values, with_lists = [], []
        commitments: set[str] = set()
        for row, record in zip(rows, records, strict=True):
            items = commitments_in([record["metadata"], record["reason"]])
            if any("$messages" in item for item in items):
                with_lists.append(row.seq)
            named = [item["$content"][12:] for item in items if "$content" in item]
            if named:
                with_values.append(row.seq)
                commitments.update(named)
        if with_lists:
            lists = self.lists(with_lists)
        if with_values:
            direct = self.shown(with_values)
        ids = {direct[mac] for mac in commitments if mac in direct}
        for messages in lists.values():
            ids.update(content_id for _, content_id in messages if content_id is not None)
        stored = self.values(ids)
        gone = {mac for mac in commitments if direct.get(mac) not in stored}
        gone.update(mac for item in lists.values() for mac, number in item if number not in stored)
        erased = self.erasures(gone) if gone else {}

        def value(mac: str, content_id: int | None, read: Callable[[StoredValue], Any]) -> Any:
            if content_id in stored:
                return read(stored[content_id])
            return Erased(entry_id(erased[mac]) if mac in erased else None)

        def resolve(
            item: dict[str, Any], read: Callable[[StoredValue], Any] = StoredValue.decode
        ) -> Any:
            if "$messages" in item:
                return [value(*message, read) for message in lists.get(item["$messages"], ())]
            mac = item["$content"][12:]
            return value(mac, direct.get(mac), read)

        return resolve


def filled_metadata(record: dict[str, Any], resolve: Resolve) -> dict[str, Any]:
    """Return a copy of a record's metadata with its content, and the ``context_hash`` of an
    exchange.

    The hash is added to an ``EXCHANGE`` that states a dispatch, and a prompt or body (``cut``), but
    no hash. The mark of erased content takes its place if a part was erased.

    Args:
        record: the parsed record of an entry, which is not changed.
        resolve: returns the content of a commitment object, or its bytes; its errors are raised.
    """
    stated = record["metadata"]
    metadata: dict[str, Any] = fill(stated, resolve)
    if (
        record["event_type"] == "EXCHANGE"
        and "dispatch_entry_id" in stated
        and "context_hash" not in stated
        and ("prompt" in stated or "cut" in stated)
    ):
        members = list(metadata.items())
        place = bisect_left([*metadata], "context_hash")  # Members of a record are sorted.
        members.insert(place, ("context_hash", context_hash(stated, resolve)))
        metadata = dict(members)
    return metadata


def decode_record(row: EntryRow) -> dict[str, Any]:
    """Return the parsed record of a row.

    Args:
        row: the row.

    Raises:
        LedgerFormatError: the record is not JSON, or not in the form of a record.
    """
    try:
        record: dict[str, Any] = orjson.loads(row.record)
        if problem := inspect_record(record)[0]:
            raise ValueError(problem)
    except ValueError as error:
        raise LedgerFormatError(
            f"The record at sequence number {row.seq} cannot be read: {error}.",
            next_step="Run `remit ledger verify` to see what is damaged.",
        ) from error
    return record


PUT_INFO = (
    "INSERT INTO ledger_info VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)
"""Stores a row of ``ledger_info``, whether or not the row exists."""


def info_number(select: Callable[..., Any], name: str) -> int:
    """Return the number in a row of ``ledger_info``; 0 if there is no row, or not 1 to 18 digits.

    Args:
        select: runs a query; its errors are raised.
        name: name of the row.
    """
    rows = list(select("SELECT value FROM ledger_info WHERE name = ?", (name,)))
    return int(rows[0][0]) if rows and _NUMBER.fullmatch(str(rows[0][0])) else 0


def pages(
    select: Callable[..., Any], sql: str, first: int, last: int, size: int = _CHUNK
) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the rows from ``first`` to ``last`` in pages, by the key in their first column.

    A page is read when it is requested; pages are never empty.

    Args:
        select: runs a query; its errors are raised.
        sql: a query without ``LIMIT``, which orders by an integer primary key and takes two
            parameters: its lowest and highest value.
        first: the lowest key.
        last: the highest key, inclusive.
        size: rows in a page; 400 by default.

    Raises:
        LedgerFormatError: a page does not go forward, because an index of the engine is damaged.
    """
    while first <= min(last, GREATEST):
        rows = select(f"{sql} LIMIT {size}", (first, min(last, GREATEST)))
        if not rows:
            return
        key = rows[-1][0]
        if type(key) is not int or key < first:
            raise LedgerFormatError(
                f"The row after {first - 1} has the key {key!r}: an index is damaged.",
                next_step="Restore the ledger from a copy that verifies.",
            )
        yield rows
        first = key + 1


def as_bytes(value: Any) -> bytes:
    """Return a stored record as bytes, whatever type the engine returns; empty for NULL."""
    return (
        value.encode("utf-8", "surrogateescape") if isinstance(value, str) else bytes(value or b"")
    )


def chunks(values: Sequence[_T], size: int = _CHUNK) -> Iterator[Sequence[_T]]:
    """Yield ``values``, in order, in pieces of at most ``size``, which fit a statement.

    Args:
        values: any sequence.
        size: largest length of a piece; 400 by default.
    """
    for start in range(0, len(values), size):
        yield values[start : start + size]


def marks(values: Sequence[Any]) -> str:
    """Return SQL placeholders for values, such as ``?, ?, ?``; an empty text for no values.

    Args:
        values: the values, of which only the number counts.
    """
    return ", ".join("?" * len(values))
