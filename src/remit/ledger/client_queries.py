"""Reading a ledger: entries by id, queries that stream, counts."""

from __future__ import annotations

import functools
import heapq
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Literal, Unpack

from remit.ledger.archived_ranges import LEAVING, ArchivedRange, archived_ranges, archived_to
from remit.ledger.clock import steps_back
from remit.ledger.contents import ExactText
from remit.ledger.entry import LedgerEntry, entry_id as format_id, parse_entry_id
from remit.ledger.entry_reader import GREATEST, EntryRow, as_bytes, chunks, decode_record, marks
from remit.ledger.errors import EntryArchivedError, EntryNotFoundError, LedgerError
from remit.ledger.filter import Equalities, Filter, build_filter
from remit.ledger.search import TextIndex
from remit.ledger.store import Store, transact
from remit.ledger.tree import LedgerTree
from remit.ledger.verification.report import Progress

Order = Literal["asc", "desc"]

_NARROW = {"work_order_id", "session_id"}  # Filters that make a bound in time unnecessary.
_QUERY = re.compile(r"\s*(SELECT|WITH|VALUES)\b", re.IGNORECASE)
_PAGE = 500  # entries that a query fetches at once
_MAX_KNOWN_BYTES = 8192  # A larger record is parsed at each query.
_FIRST_PAGE = 16  # small, for callers that want only the first match


class LedgerQueries:
    """The reading methods of :class:`~remit.ledger.LedgerClient`; not used alone.

    They may be called from any thread. Only a search of ``text`` and :meth:`index_text` write, to
    the text index. Reading after the client was closed raises
    LedgerClosedError; if a database server cannot be reached, LedgerConnectionError.
    """

    _store: Store
    _segments: list[Store]
    _index: TextIndex

    @property
    def location(self) -> str:
        """The path or URL of the ledger, for people: without a password."""
        return self._store.location

    @property
    def is_of_one_machine(self) -> bool:
        """True for a SQLite file, whose writers all run on the same machine."""
        return "://" not in self.location

    @property
    def archived_to(self) -> int:
        """The first sequence number after all archived ranges; 0 without any or if it is damaged.

        Entries with lower numbers may be missing in the database. Each access reads the database
        and raises LedgerError if that fails.
        """
        return archived_to(self.select)

    def archived_ranges(self) -> list[ArchivedRange]:
        """Return the archived ranges by the ``ARCHIVED`` entries, oldest first; empty for none.

        Raises:
            LedgerFormatError: the entries and ``ledger_info`` differ.
            LedgerError: the ledger cannot be read.
        """
        return archived_ranges(self._store)

    def has_left(self, session_id: str) -> bool:
        """Return True if the entries of the session may have left the database for a segment.

        The result is False if nothing was archived, if the session's ``SESSION_START`` follows all
        archived ranges, or if the database still has work entries of it before their end, other
        than ``TOOL_INTENT``. All other sessions give True, unknown ones too.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        end = self.archived_to
        sql = "SELECT min(seq) FROM entries WHERE session_id = ? AND event_type = 'SESSION_START'"
        ((began,),) = self.select(sql, (session_id,)) if end else ((None,),)
        if not end or (began is not None and began >= end):
            return False
        types = [name for name in LEAVING if name != "TOOL_INTENT"]  # Approved ones stay.
        rows = self.select(
            f"SELECT 1 FROM entries WHERE session_id = ? AND event_type IN ({marks(types)}) "
            "AND seq < ? LIMIT 1",
            (session_id, *types, end),
        )
        return not rows

    def steps_back(self) -> list[int]:
        """Return the sequence numbers at which a clock went back by a second or more, ascending.

        Only the last 10,000 entries are compared, each with the entry before it.

        Raises:
            LedgerError: the ledger cannot be read.
            ValueError: a stored timestamp is not ISO 8601.
        """
        return steps_back(self.select, self.count())

    def back_for_ms(self) -> int:
        """Return milliseconds since the store became reachable again after an outage.

        Leases cannot have been renewed before that. An outage is one that this process saw; without
        one the number is about 10¹². On PostgreSQL the server's uptime is returned if shorter.

        Raises:
            LedgerError: the server cannot be reached.
        """
        return self._store.back_for_ms()

    @property
    def now_ms(self) -> int:
        """The shared clock of all writers in milliseconds, see
        :attr:`~remit.ledger.store.Clock.now_ms`; from the database server if there is one.

        Raises:
            LedgerError: the server cannot be reached.
        """
        return self._store.now_ms

    @property
    def wall_ms(self) -> int:
        """The wall clock in milliseconds since 1970, see :attr:`~remit.ledger.store.Clock.wall_ms`;
        from the database server if there is one.

        Raises:
            LedgerError: the server cannot be reached.
        """
        return self._store.wall_ms

    @property
    def wall_time(self) -> datetime:
        """The time by :attr:`wall_ms`, in UTC: the base of deadlines that several machines keep."""
        return datetime.fromtimestamp(self.wall_ms / 1000, UTC)

    def read(self, entry_id: str, *, with_content: bool = True) -> LedgerEntry:
        """Return the entry with that id.

        Args:
            entry_id: id of the entry.
            with_content: False leaves commitments in place of content. With True,
                :class:`~remit.ledger.Erased` replaces erased content.

        Raises:
            EntryNotFoundError: there is no such entry.
            EntryArchivedError: the entry is in a segment that is not attached.
            LedgerFormatError: the record or a content value cannot be read.
            LedgerError: the ledger cannot be read.
        """
        store, row = self._locate(entry_id)
        return store.entries([row], with_content)[0]

    def read_many(self, entry_ids: Iterable[str]) -> Iterator[LedgerEntry]:
        """Yield the existing entries with the given ids, with content, in ledger order, each once.

        Unknown and malformed ids are skipped, and so are entries that only a segment contains,
        attached or not. The ledger is read, and errors are raised, during the iteration.

        Args:
            entry_ids: ids in any order.

        Raises:
            LedgerFormatError: a record or a content value cannot be read.
            LedgerError: the ledger cannot be read.
        """
        numbers = map(parse_entry_id, entry_ids)
        seqs = sorted({seq for seq in numbers if seq is not None and seq <= GREATEST})
        for part in chunks(seqs):
            rows = self.select(
                f"SELECT seq, entry_hash, {self._store.record_sql} FROM entries "
                f"WHERE seq IN ({marks(part)}) ORDER BY seq",
                part,
            )
            yield from self._store.entries([EntryRow(s, h, as_bytes(r)) for s, h, r in rows])

    def read_record(self, entry_id: str) -> bytes:
        """Return an entry's canonical record: the JSON bytes whose SHA-256 is the entry's hash.

        The record holds commitments in place of content. It is returned as stored, damaged or not.

        Args:
            entry_id: id of the entry.

        Raises:
            EntryNotFoundError: there is no such entry.
            EntryArchivedError: the entry is in a segment that is not attached.
            LedgerError: the ledger cannot be read.
        """
        return self._locate(entry_id)[1].record

    def exact(self, entry_id: str, names: Collection[str] = ()) -> dict[str, ExactText]:
        """Return the content of an entry as the bytes that its commitments cover, by metadata key.

        Exact content gives its JSON text, a list the text of each element, other content the RFC
        8785 encoding. :class:`Erased` replaces erased content. Metadata that is not content,
        content inside objects of the metadata, and the reason are not returned.

        Args:
            entry_id: id of the entry.
            names: metadata keys to return; all if empty.

        Raises:
            EntryNotFoundError: there is no such entry.
            EntryArchivedError: the entry is in a segment that is not attached.
            LedgerFormatError: the record or a content value cannot be read.
            LedgerError: the ledger cannot be read.
        """
        store, row = self._locate(entry_id)
        return store.exact(row, names)

    def read_all(self) -> list[LedgerEntry]:
        """Return all entries with content, in ledger order.

        Archived entries are included only if their segments are attached.

        Raises:
            LedgerError: segments are attached, but not all; or the ledger cannot be read.
        """
        return list(self.query())

    def read_by_event_type(self, event_type: str) -> list[LedgerEntry]:
        """Return the entries of an event type with content, in ledger order; empty for none.

        Archived entries are found in attached segments alone.

        Raises:
            InvalidInputError: ``event_type`` holds a NUL character or a lone surrogate.
            LedgerError: segments are attached, but not all; or the ledger cannot be read.
        """
        return list(self.query(event_type=event_type))

    def read_by_submission(self, submission_id: str) -> list[LedgerEntry]:
        """Return the entries of a submission with content, in ledger order; empty for none.

        Archived entries are found in attached segments alone.

        Args:
            submission_id: id of the contract, session or work order that the entries belong to.

        Raises:
            InvalidInputError: ``submission_id`` holds a NUL character or a lone surrogate.
            LedgerError: segments are attached, but not all; or the ledger cannot be read.
        """
        return list(self.query(submission_id=submission_id))

    def query(
        self,
        *,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        after: str | int | None = None,
        limit: int | None = None,
        order: Order = "asc",
        text: str | None = None,
        text_limit: int | None = None,
        with_content: bool = True,
        known: MutableMapping[str, LedgerEntry] | None = None,
        **equals: Unpack[Equalities],
    ) -> Iterator[LedgerEntry]:
        """Return an iterator over the entries that match all arguments, read page by page.

        Archived entries are found in attached segments alone. Entries appended during the iteration
        may appear in it. Arguments are checked, and ``text`` is indexed, before this method
        returns.

        Args:
            equals: ``event_type``, ``submission_id``, ``session_id``, ``work_order_id``,
                ``agent_id``, ``tier``, ``framework_id``, ``contract_id``, ``model_id``,
                ``outcome``: value of the column; ``None`` compares nothing.
            since: first instant, inclusive; ISO 8601 or a ``datetime``; UTC without a zone.
            until: last instant, exclusive; ``None`` for no bound, as for ``since``.
            after: id or sequence number of the entry to continue after, in the requested order;
                ``None`` for the beginning. The entry need not exist.
            limit: maximum number of entries; ``None`` for all.
            order: ``asc`` (ledger order) or ``desc`` (newest first).
            text: words that content shown by the entry must all contain; words ``"in double
                quotes"`` in that order. A message of a conversation belongs to the entry that
                showed it first. Of a value only the first 16,383 words are found, and none of over
                48 characters. New content is indexed first, which writes to the ledger.
            text_limit: number of contents to search for each page that is read: the latest ones
                that contain the words and that an entry before ``until`` and, newest first,
                ``after`` may show. Of the entries that show them, at most so many are searched.
                ``None`` for all.
            with_content: False leaves commitments in place of content, which is faster.
            known: entries that such queries read before, by ``entry_hash``, all without content,
                whatever ``with_content`` is. Known entries are not parsed again, and others of at
                most 8 KB are added; the caller bounds their number. ``None`` parses all.

        Raises:
            InvalidInputError: a bound, a cursor, a value or the order cannot be understood,
                ``limit`` is negative, or ``text`` contains no word or more than 100.
            TypeError: there is no such column.
            LedgerWriteError: ``text`` is given, and new content cannot be indexed.
            LedgerError: segments are attached, but not all; or the ledger cannot be read, which the
                iterator raises too.
            LedgerFormatError: a record or a content value cannot be read; raised by the iterator.
        """
        where = build_filter(equals, since, until, after, limit, order)
        if self._segments:
            self._require_segments()

        def found(store: Store) -> Iterator[LedgerEntry]:
            own = where
            if text is not None:
                run = functools.partial(transact, store)
                index = self._index if store is self._store else TextIndex(store, run)
                own = replace(where, text=index.expression(text), text_limit=text_limit)
                index.catch_up()
            return (
                entry
                for rows in _pages(store, own, limit)
                for entry in (
                    store.entries(rows, with_content)
                    if known is None
                    else _recalled(store, rows, known)
                )
            )

        runs = [found(store) for store in (self._store, *self._segments)]
        if len(runs) == 1:
            return runs[0]
        merged = heapq.merge(*runs, key=attrgetter("seq"), reverse=where.descending)
        # An entry whose removal was interrupted is in the database and in a segment.
        each = (next(same) for _, same in itertools.groupby(merged, attrgetter("seq")))
        return itertools.islice(each, limit)

    def _require_segments(self) -> None:
        """Raise LedgerError unless this ledger's segment of each archived range is attached."""
        roots = {
            (store.count(), LedgerTree(store.select, store).root(store.count()).hex())
            for store in self._segments
        }
        for one in self.archived_ranges():
            if (one.end, one.root) not in roots:
                raise LedgerError(
                    f"The entries {one.first} to {one.end - 1} were archived, but the given "
                    "directories do not contain their segment.",
                    next_step="Name each directory that holds segments. If a run of "
                    "`remit ledger segment` was interrupted, run it again first.",
                )

    def index_text(self, progress: Progress | None = None) -> None:
        """Index the content of the database written since the last search, in transactions of 200
        values.

        A missing index is made. Values that cannot be read are indexed without words. Segments are
        not indexed here.

        Args:
            progress: called after each transaction with the number of new values done and their
                total; ``None`` for none.

        Raises:
            LedgerWriteError: the ledger cannot be written.
            LedgerClosedError: the client is closed.
            LedgerError: called inside a transaction, or the ledger cannot be read.
        """
        self._index.catch_up(progress)

    def count(self) -> int:
        """Return the number of entries, archived ones included; fast, as only the last is read.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        return self._store.count()

    def count_by_event(self) -> dict[str, int]:
        """Return the number of entries in the database by event type, sorted; reads the whole
        index.

        Archived entries are not counted.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        return self._store.count_by_event()

    def head(self) -> tuple[int, str] | None:
        """Return ``(seq, entry_hash)`` of the last entry; ``None`` for an empty ledger.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        return self._store.head()

    def select(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of an SQL query over the documented tables, on a read-only connection.

        Archived entries and attached segments are not read.

        Args:
            sql: a statement that begins with ``SELECT``, ``WITH`` or ``VALUES``, in any case.
            parameters: values of its ``?`` placeholders.

        Raises:
            LedgerError: the statement begins otherwise. A read-only connection accepts some of
                these, which lift the restriction, lock the ledger, or copy it to a file.
            LedgerFormatError: the query failed.
            LedgerClosedError: the client is closed.
            LedgerConnectionError: the database server cannot be reached.
        """
        if not _QUERY.match(sql):
            raise LedgerError(
                f"This is not a query: {sql[:80]!r}.",
                next_step="Begin it with SELECT, WITH or VALUES.",
            )
        return self._store.select(sql, parameters)

    def orphans(self) -> list[LedgerEntry]:
        """Return the ``DISPATCH`` entries without ``EXCHANGE`` or ``EXCHANGE_ORPHANED``, with
        content.

        These are calls without a recorded end, running ones included. The list is in ledger order.
        All entries of the three types in the database are read; segments are not.

        Raises:
            LedgerFormatError: a record or a content value cannot be read.
            LedgerError: the ledger cannot be read.
        """
        closed = {
            str(decode_record(row)["metadata"].get("dispatch_entry_id", ""))
            for event_type in ("EXCHANGE", "EXCHANGE_ORPHANED")
            for rows in _pages(self._store, Filter(equals={"event_type": event_type}))
            for row in rows
        }
        return [
            entry
            for rows in _pages(self._store, Filter(equals={"event_type": "DISPATCH"}))
            for entry in self._store.entries(
                [row for row in rows if format_id(row.seq) not in closed]
            )
        ]

    def _locate(self, entry_id: str) -> tuple[Store, EntryRow]:
        """Return the database or attached segment that contains an entry, and the entry's row.

        Raises:
            EntryNotFoundError: there is no such entry.
            EntryArchivedError: the entry is in a segment that is not attached.
        """
        seq = parse_entry_id(entry_id)
        for store in self._segments if seq is not None and seq < self.archived_to else ():
            if self._store.get(seq or 0) is None and (row := store.get(seq or 0)) is not None:
                return store, row
        return self._store, self._row(entry_id)

    def _row(self, entry_id: str) -> EntryRow:
        seq = parse_entry_id(entry_id)
        row = self._store.get(seq) if seq is not None and seq < 1 << 63 else None
        if row is None and seq is not None and seq < self.archived_to:
            raise EntryArchivedError(format_id(seq))
        if row is None:
            raise EntryNotFoundError(
                f"The ledger {self.location} has no entry {entry_id!r}.",
                next_step="Ids look like LED-0000002a; `remit ledger tail` shows the latest.",
            )
        return row


def _recalled(
    store: Store, rows: Sequence[EntryRow], known: MutableMapping[str, LedgerEntry]
) -> list[LedgerEntry]:
    """Return the entries of rows without content, from ``known`` as far as it has them."""
    found = {row.entry_hash: entry for row in rows if (entry := known.get(row.entry_hash))}
    rest = [row for row in rows if row.entry_hash not in found]
    for row, entry in zip(rest, store.entries(rest, with_content=False), strict=True):
        found[row.entry_hash] = entry
        if len(row.record) <= _MAX_KNOWN_BYTES:
            known[row.entry_hash] = entry
    return [found[row.entry_hash] for row in rows]


def _pages(store: Store, where: Filter, limit: int | None = None) -> Iterator[list[EntryRow]]:
    """Yield matching rows page by page, each read when it is needed."""
    if (where.since or where.until) and not _NARROW & where.equals.keys():
        where = store.bounded(where)
    left = limit
    now = _FIRST_PAGE if limit is None else _PAGE
    while left is None or left > 0:
        wanted = now if left is None else min(now, left)
        rows = store.page(where, wanted)
        if rows:
            yield rows
        if len(rows) < wanted:
            return
        left = None if left is None else left - len(rows)
        where = replace(where, after=rows[-1].seq)
        now = min(now * 4, _PAGE)
