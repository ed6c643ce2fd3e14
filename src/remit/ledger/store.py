"""The interface of a store, for any database engine.

Reads that portable SQL can express are in :mod:`remit.ledger.entry_reader`.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from remit.ledger.clock import Clock
from remit.ledger.entry import LedgerEntry
from remit.ledger.entry_reader import GREATEST, EntryRow, Reader, as_bytes, info_number
from remit.ledger.errors import lost
from remit.ledger.filter import Filter
from remit.ledger.raw_rows import RawContent, RawEntry
from remit.ledger.record_builder import Prepared
from remit.ledger.session_pages import KINDS, MAX_KINDS, page_of_session
from remit.ledger.store_outage import Outage

if TYPE_CHECKING:
    from remit.ledger.transaction import Batch


class Transaction(Clock, Protocol):
    """An atomic change of the ledger's database: see :meth:`LedgerClient.transact`.

    Entries and statements commit together or not at all. Use it only inside its function.

    Attributes:
        cache: rows that stages remember from the transaction before, by name. Empty if another
            writer, a function of a transaction, or an error may have changed the rows since.
        begun_at: number of the last entry before it; -1 if there is none, or while a stage opens.
    """

    cache: dict[str, Any]
    begun_at: int

    def append(self, entry: LedgerEntry | Prepared) -> str:
        """Append an entry, prepared or not, and return the entry's id.

        Rows are written with the transaction. The entry's own fields are not filled.

        Raises:
            InvalidInputError: the entry cannot be recorded.
            RecordTooLargeError: the record would exceed 65,535 bytes.
            LedgerFormatError: a stored content value that the entry repeats is damaged.
            LedgerError: the database is a segment.
        """

    @property
    def last_timestamp(self) -> str:
        """Timestamp of the last appended entry: ISO 8601, UTC, microseconds, ``Z``."""

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a portable SQL statement with ``?`` placeholders; return the rows.

        Rows of entries appended before are visible. A statement that the engine refuses undoes the
        whole piece of work, whose submitter gets LedgerWriteError. The error is the engine's own if
        the function catches it here.

        Args:
            sql: the statement.
            parameters: values of the placeholders.
        """

    def ask(self, sql: str, parameters: Sequence[Any] = ()) -> Iterable[tuple[Any, ...]]:
        """Run a statement that only reads, and return its rows, to iterate inside the transaction.

        Statements issued before any iteration may share a round trip. Errors are those of
        :meth:`execute`, raised by the call or by the iteration.

        Args:
            sql: the statement, with ``?`` placeholders.
            parameters: values of the placeholders.
        """

    def execute_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a portable SQL statement for each of ``rows``, which hold the parameters."""


Execute = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]
"""Runs a portable SQL statement; returns its rows."""

Write = LedgerEntry | Prepared | Callable[[Transaction], Any]
"""An entry, prepared or not, or a function of the transaction."""


class Stage(Protocol):
    """State that steps of a kind share within a transaction, read once and written once.

    A :data:`StageOpener` makes the stage. The stage ends with the transaction, or earlier if a
    call, a unit of several entries, or another stage of the same kind runs.
    """

    def do(self, step: Any) -> Any:
        """Do a step in memory and return its result.

        An error is raised only before any change; it fails this step alone.

        Args:
            step: the argument of ``LedgerClient.step``.
        """

    def write(self) -> None:
        """Write the changes since the last call to the tables, by ``execute_many`` alone."""


StageOpener = Callable[[Transaction, Sequence[Any]], Stage]
"""Opens a stage and reads the rows of the given steps. Equal openers share a stage. If openers are
one method of several objects, each stage writes before the next one reads."""


class Unit(Struct):
    """Work for the writer that succeeds or fails as one: entries, a ``call``, or a ``step``.

    Attributes:
        entries: the entries of ``prepared``; :meth:`finish` fills their ids and hashes.
        prepared: the prepared entries.
        call: a function of the transaction.
        step: the argument of the stage's :meth:`Stage.do`.
        opener: opens the stage of ``step``.
    """

    entries: Sequence[LedgerEntry] = ()
    prepared: Sequence[Prepared] = ()
    call: Callable[[Any], Any] | None = None
    step: Any = None
    opener: StageOpener | None = None

    def finish(self, result: Any) -> Any:
        """Return the submitter's result: the list of the entries' ids, or the unchanged result of
        a call or step.

        The ids, times and both hashes of :attr:`entries` are filled, unless the unit is a call or
        step.

        Args:
            result: the unit's result from :meth:`Store.run`.
        """
        if self.call is not None or self.opener is not None:
            return result
        for entry, sealed in zip(self.entries, result, strict=True):
            entry.id, entry.timestamp = sealed.id, sealed.timestamp
            entry.entry_hash, entry.previous_hash = sealed.entry_hash, sealed.previous_hash
        return [sealed.id for sealed in result]


class Store(Reader):
    """A database that holds a ledger; each engine has a subclass.

    :meth:`run` is called from one thread only; the readers may be called from any. The store lives
    from :func:`~remit.ledger.store_factory.open_store` to :meth:`close`, not in a forked child.

    Attributes:
        outage: the outcome of the latest write.
        text_sql: the statement that finds content by a :attr:`Filter.text`, and its id column.
        location: the place of the database for people, without a password.
        size: number of entries after this store's own last commit; 0 before the first.
        seen: sequence number and hash of the last entry then; ``(-1, "")`` before the first commit.
            A database that lacks this entry is not written again, unless it may be archived.
        guard: called in the first transaction and after a possible replacement; raises on one.
        missed: called once with ``seen`` if that entry is missing or differs.
        is_held: True if the guard has accepted this database.
    """

    outage: Outage
    text_sql: tuple[str, str]
    location: str
    size: int = 0
    seen: tuple[int, str] = (-1, "")
    guard: Callable[[Execute], None] | None = None
    missed: Callable[[int, str], None] | None = None
    is_held: bool = False

    def doubt(self) -> None:
        """Have the guard called again before the next write, as after a change of the database."""
        self.is_held = False

    def _miss(self) -> None:
        """Call :attr:`missed` once, because seen entries are missing or differ."""
        call, self.missed = self.missed, None
        if call is not None and self.seen[0] >= 0:
            call(*self.seen)

    def _hold(self, batch: Batch) -> None:
        """Refuse another database than before, in a transaction that has written nothing yet.

        Raises:
            LedgerRollbackError: entries that this store has seen are missing or differ.
            RemitError: the guard refused the database.
        """
        seq, entry_hash = self.seen
        if (
            seq >= 0
            and batch.seen_hash != entry_hash
            and not (batch.seen_hash is None and may_have_left(batch.execute, seq))
        ):
            raise lost(self.location, batch.seq + 1, seq + 1)
        if not self.is_held and self.guard is not None:
            self.guard(batch.execute)
        self.is_held = True

    def require_seen(self) -> None:
        """Check without writing that the last entry which this store has seen still exists,
        unchanged.

        An entry that may have been archived counts as existing. Before the first commit nothing is
        compared.

        Raises:
            LedgerRollbackError: the entry is missing or differs.
            LedgerError: the database cannot be read.
        """
        seq, entry_hash = self.seen
        rows = self.select("SELECT entry_hash FROM entries WHERE seq = ?", (max(seq, 0),))
        if seq >= 0 and rows != [(entry_hash,)] and (rows or not may_have_left(self.select, seq)):
            raise lost(self.location, self.count(), seq + 1)

    @abstractmethod
    def run(self, units: Sequence[Unit]) -> list[Any]:
        """Do all units in a single durable transaction.

        If the engine refuses a statement that several units share, each unit runs in a transaction
        of its own, so that only the faulty one fails. A unit may be called more than once. The
        guard runs first if it has not accepted the database yet; afterwards :attr:`size` and
        :attr:`seen` are those of the commit.

        Returns:
            For each unit its result (the sealed records of prepared entries), or the exception that
            undid this unit alone.

        Raises:
            LedgerClosedError: the store is closed.
            LedgerRollbackError: the database lacks entries that this store has seen.
            RemitError: the whole transaction failed. Nothing of it is recorded, unless a
                LedgerConnectionError says that the outcome is unknown.
        """

    def _run_each(
        self, units: Sequence[Unit], is_refusal: Callable[[BaseException], bool]
    ) -> list[Any]:
        """Run each unit alone; the first error that is no refusal counts for all the rest."""
        results: list[Any] = []
        for unit in units:
            try:
                results += self.run([unit])
            except Exception as error:  # noqa: BLE001 - raised to the submitter of the unit
                if not is_refusal(error.__cause__ or error):
                    return results + [error] * (len(units) - len(results))
                results.append(error)
        return results

    def bounded(self, where: Filter) -> Filter:
        """Return a copy of ``where`` with ``first`` and ``last`` for its bounds in time, so that
        pages read less.

        ``since`` gives ``first``, the lowest number with a time at or after the bound; ``until``
        gives ``last``, the greatest number with an earlier time. Clocks may have gone back, so the
        bounds in time stay in force. A bound that excludes no entry, or is not set, gives ``None``.
        A bound that excludes all gives a number outside the ledger. Given numbers are replaced.

        Args:
            where: the filter of a query.

        Raises:
            LedgerError: the database cannot be read.
        """
        # Each by itself: of both at once SQLite reads all of the index.
        ((earliest, latest),) = self.select(
            "SELECT (SELECT min(timestamp) FROM entries), (SELECT max(timestamp) FROM entries)"
        )
        first = last = None
        if earliest is not None and where.since is not None and where.since > earliest:
            sql = "SELECT min(seq + 0) FROM entries WHERE timestamp >= ?"
            ((first,),) = self.select(sql, (where.since,))
            first = GREATEST if first is None else first
        if latest is not None and where.until is not None and where.until <= latest:
            sql = "SELECT max(seq + 0) FROM entries WHERE timestamp < ?"
            ((last,),) = self.select(sql, (where.until,))
            last = -1 if last is None else last
        return replace(where, first=first, last=last)

    def page(self, where: Filter, limit: int) -> list[EntryRow]:
        """Return the first rows of matching entries, by sequence number in the filter's direction.

        Args:
            where: the filter, its ``text`` from :meth:`search_expression`. The entry at its cursor
                ``after`` is left out. For a session alone, ``first`` and ``last`` may be ignored.
            limit: largest number of rows.

        Raises:
            LedgerError: the database cannot be read.
        """
        if found := self._page_of_session(where, limit):
            return self._rows(*found, where.descending, limit)
        clauses = self.equalities(where)
        parameters: list[Any] = list(where.equals.values())
        for value, clause in (
            # No index has this expression, so the rows are read in their order.
            (where.since, "timestamp || '' >= ?"),
            (where.until, "timestamp || '' < ?"),
            (where.first, "seq >= ?"),
            (where.last, "seq <= ?"),
            (where.after, "seq < ?" if where.descending else "seq > ?"),
        ):  # fmt: skip
            if value is not None:
                clauses.append(clause)
                parameters.append(value)
        if where.text is not None:
            clauses.append(self._text_clause(where))
            parameters.append(where.text)
        return self._rows(" AND ".join(clauses), parameters, where.descending, limit)

    def _text_clause(self, where: Filter) -> str:
        """Return the condition of a text, whose parameter is the text.

        With a limit, at most so many contents with the words are searched, the latest ones that an
        entry before the filter's end may show, and at most so many of their entries.
        """
        found, column = self.text_sql
        shown = "SELECT seq FROM shown_contents WHERE content_id IN "
        if where.text_limit is None:
            return f"seq IN ({shown}({found}))"
        ends = [GREATEST if where.last is None else where.last]
        ends += [where.after - 1] if where.after is not None and where.descending else []
        end, limit = f"seq <= {min(ends):d}", f"LIMIT {where.text_limit:d}"
        # Content that a later entry showed first has a greater id; repeated content is older.
        latest = (
            f"SELECT content_id FROM shown_contents AS s WHERE {end} AND NOT EXISTS ("
            "SELECT 1 FROM shown_contents AS b WHERE b.content_id = s.content_id "
            "AND b.seq < s.seq) ORDER BY seq DESC, content_id DESC LIMIT 1"
        )
        found += f" AND {column} <= ({latest}) ORDER BY {column} DESC {limit}"
        order = "ORDER BY content_id DESC, seq DESC"
        return f"seq IN ({shown}({found}) AND {end} {order} {limit})"

    def _page_of_session(self, where: Filter, limit: int) -> tuple[str, list[Any]] | None:
        """Return the condition of a page of a whole session; ``None`` for other filters."""
        session_id = where.equals.get("session_id", "")
        if len(where.equals) != 1 or not session_id or where.since or where.until or where.text:
            return None
        kinds = [str(name) for (name,) in self.select(KINDS, (session_id, session_id))]
        if not 0 < len(kinds) <= MAX_KINDS:
            return None
        return page_of_session(session_id, kinds, where.after, where.descending, limit)

    def _rows(
        self, condition: str, parameters: Sequence[Any], descending: bool, limit: int
    ) -> list[EntryRow]:
        rows = self.select(
            f"SELECT seq, entry_hash, {self.record_sql} FROM entries "
            f"{f'WHERE {condition} ' if condition else ''}"
            f"ORDER BY seq {'DESC' if descending else 'ASC'} LIMIT ?",
            (*parameters, limit),
        )
        return [EntryRow(seq, entry_hash, as_bytes(record)) for seq, entry_hash, record in rows]

    @property
    @abstractmethod
    def now_ms(self) -> int:
        """The shared clock of all writers, outside a transaction."""

    def back_for_ms(self) -> int:
        """Return milliseconds, by the monotonic clock, since the last outage ended.

        Without an outage the number is about 10¹². During an outage the time counts from the end of
        the outage before. A store on a server also asks the server, and may raise LedgerError.
        """
        return int((time.monotonic() - self.outage.ended) * 1000)

    @property
    def wall_ms(self) -> int:
        """The wall clock of the database's machine in milliseconds since 1970, outside a
        transaction.

        A server has a single clock, so :attr:`now_ms` is returned here, with its errors; SQLite's
        store returns this machine's clock.
        """
        return self.now_ms

    def equalities(self, where: Filter) -> list[str]:
        """Return a condition for each of ``where.equals``, in the engine's best form."""
        return [f"{column} = ?" for column in where.equals]

    @abstractmethod
    def scan_entries(self, first: int, last: int) -> Iterator[RawEntry]:
        """Yield the entry rows from ``first`` to ``last`` (inclusive) by ``seq``, however damaged.

        Missing entries are skipped. The iteration raises LedgerError if it cannot read.
        """

    @abstractmethod
    def scan_contents(self, first: int, last: int) -> Iterator[RawContent]:
        """Yield the content rows from ``first`` to ``last`` (inclusive), however damaged.

        The order is that of ``content_id``; missing rows are skipped. The iteration raises
        LedgerError if it cannot read.
        """

    @abstractmethod
    def integrity_problems(self, *, deep: bool) -> list[str]:
        """Return the faults of the database and its layout, a clause each; empty if there are none.

        Args:
            deep: True to have SQLite check every page and index too, up to the first fault.
                PostgreSQL has no such check, so nothing is added there.

        Raises:
            LedgerError: the database cannot be read.
        """

    @abstractmethod
    def search_expression(self, terms: Sequence[Sequence[str]]) -> str:
        """Return the :attr:`Filter.text` that finds contents with all of ``terms``.

        The expression is in the engine's own syntax; nothing is run.

        Args:
            terms: phrases; each is a list of words that must follow one another. Words must be
                case-folded, of letters and digits alone: they are not escaped.
        """

    @abstractmethod
    def has_text_index(self) -> bool:
        """Return True if a text index exists."""

    @abstractmethod
    def index_texts(self, tx: Transaction, texts: Sequence[tuple[int, str]]) -> None:
        """Add ``(content_id, text)`` pairs to the text index, inside a transaction.

        On SQLite a missing index is made, and no pair may be added twice. PostgreSQL skips a
        content that is indexed already.

        Args:
            tx: the transaction.
            texts: number of a content row, and its words separated by spaces. Words must be
                case-folded and contain only letters and digits; they are not escaped.
        """

    @abstractmethod
    def unindex_texts(
        self, tx: Transaction, texts: Sequence[tuple[int, str]], *, merge: bool
    ) -> None:
        """Remove ``(content_id, text)`` pairs from the text index, inside a transaction.

        The index must exist on SQLite. PostgreSQL ignores unknown contents.

        Args:
            tx: the transaction.
            texts: the pairs exactly as they were indexed; on SQLite others damage the index.
            merge: True to rewrite SQLite's index without the words, which else remain in the file.
                On PostgreSQL it has no effect: only :meth:`compact` removes the bytes.
        """

    @abstractmethod
    def compact(self) -> tuple[bool, str]:
        """Remove deleted bytes from the files; return False if a later call can remove more, and
        the reason if bytes remain, else empty.

        Raises:
            LedgerError: the database could not be compacted; deleted bytes may remain.
        """

    @abstractmethod
    def close(self) -> None:
        """Close all connections, also twice; later runs and reads raise LedgerClosedError."""


def transact(store: Store, call: Callable[[Any], Any]) -> Any:
    """Run a function in a transaction of a store without a writer of its own; return its result.

    Args:
        store: the store, such as an attached segment; one thread at a time may write.
        call: the function of the transaction. It may be called more than once; its error is raised
            and undoes the transaction.

    Raises:
        RemitError: the transaction failed. Nothing was changed, unless a LedgerConnectionError says
            that the outcome is unknown.
    """
    (result,) = store.run([Unit(call=call)])
    if isinstance(result, Exception):
        raise result
    return result


def may_have_left(select: Execute, seq: int) -> bool:
    """Return True if a missing entry may have been archived: it lies below the archived end.

    Args:
        select: runs a query; its errors are raised.
        seq: sequence number of the entry, which may exist.
    """
    return seq < info_number(select, "archived_to")
