"""The embedded store: a SQLite file in WAL mode, every commit durable."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from typing_extensions import override

from remit.ledger.archived_ranges import places_of_segment
from remit.ledger.clock import BootClock
from remit.ledger.entry_reader import pages
from remit.ledger.errors import (
    LedgerClosedError,
    LedgerError,
    LedgerFormatError,
    LedgerLayoutError,
    LedgerRollbackError,
    LedgerUnavailableError,
    LedgerWriteError,
)
from remit.ledger.filter import Filter
from remit.ledger.raw_rows import RawContent, RawEntry
from remit.ledger.schema import COLUMNS, LAYOUT_VERSION, NARROWEST_FIRST
from remit.ledger.sqlite.connection import connect, is_read_only
from remit.ledger.sqlite.schema import SEARCH, create_if_absent, layout_problems
from remit.ledger.sqlite.transaction import (
    RECORD_SQL,
    SameFile,
    SqliteBatch,
    Turns,
    is_refusal,
    read_again,
)
from remit.ledger.store import Store, Transaction, Unit
from remit.ledger.store_outage import Outage

_HEADER = 20  # bytes of the file's header: the last two say how it is written, and read
_PAGES_AT_ONCE = 4_096
_RETRY_S = 0.05


class SqliteStore(Store):
    """A ledger in a SQLite file, with a connection that writes and another that reads.

    An older layout is migrated. A closed ledger on a read-only medium is opened read-only. A single
    thread at a time may call :meth:`run`; any may read. A process forked after opening must not use
    the store.

    Args:
        path: the file.
        content_keys: metadata keys whose values are content.
        compress_above: stored values longer than this many bytes are compressed.
        lock_timeout_s: time limit of waiting for another process's transaction, in seconds.
        create: True to make the file and its directory if there is no file, or an empty one.
        require: as for :func:`~remit.ledger.store_factory.open_store`.

    Raises:
        LedgerKeyError: ``require`` refused the ledger's owner.
        LedgerFormatError: the file is not a ledger, is damaged, or is of a newer version.
        LedgerError: the file cannot be opened or made, or is missing or empty and ``create`` is
            False.
    """

    record_sql = RECORD_SQL
    text_sql = "SELECT rowid FROM content_search WHERE content_search MATCH ?", "rowid"

    def __init__(
        self,
        path: Path,
        *,
        content_keys: frozenset[str],
        compress_above: int,
        lock_timeout_s: float,
        create: bool,
        require: Callable[[str, str], None] | None = None,
    ) -> None:
        self._require = require
        self._path = path
        self.location = str(path)
        self._content_keys = content_keys
        self._compress_above = compress_above
        self._timeout = lock_timeout_s
        self._closed = False
        self._batch: SqliteBatch | None = None  # The last transaction made it and was committed.
        try:
            if create:
                create_if_absent(path)
            elif not path.exists() or path.stat().st_size == 0:
                raise LedgerError(
                    f"There is no ledger at {path}.",
                    next_step="If there was a ledger, find it or restore a copy: a new ledger does "
                    "not continue the old one. `remit init` creates a new one.",
                )
            with contextlib.ExitStack() as opened:
                self._writer = opened.enter_context(
                    contextlib.closing(connect(path, lock_timeout_s, require))
                )
                self._reader = opened.enter_context(
                    contextlib.closing(connect(path, lock_timeout_s, require))
                )
                self._same = SameFile(path, self._writer)
                opened.pop_all()
        except OSError as error:
            raise LedgerError(
                f"The ledger {path} cannot be opened: {error.strerror or error}.",
                next_step="Check the path and its permissions.",
            ) from error
        self._reader.execute("PRAGMA query_only=ON")
        self._read_lock = threading.Lock()
        self._turns = Turns(path.absolute().parent)
        self._clock = BootClock()
        self.outage = Outage()
        try:
            self.segment = places_of_segment(self.select)
        except BaseException:
            self.close()
            raise

    # -- writing -----------------------------------------------------------------------

    @override
    def run(self, units: Sequence[Unit]) -> list[Any]:
        """Do all units in a single durable transaction, which locks the file for other writers.

        A refused transaction of several units is repeated, each unit in a transaction of its own. A
        unit may therefore be called more than once; only its last call counts. One thread at a time
        may call this. The calls of a process take turns with other processes. An unavailable file
        or changed layout begins an outage in :attr:`outage`; a commit that changes rows ends it.

        Returns:
            The result of each unit, or the exception that undid it. An error that is no refusal of
            a statement counts for all later units too.

        Raises:
            LedgerClosedError: the store is closed. After this and each error below, nothing was
                recorded.
            LedgerRollbackError: the file was replaced, or lacks entries that this store has seen;
                :attr:`missed` is called first.
            LedgerLayoutError: another program changed the layout.
            LedgerUnavailableError: the disk is full, the file is locked, or the like.
            LedgerWriteError: SQLite refused a statement of the only unit; of several, it is a
                result.
            RemitError: the guard refused the database.
        """
        if self._closed:
            raise LedgerClosedError
        writer = self._writer
        results: list[Any] = []
        is_shared, before = False, writer.total_changes
        try:
            self._turns.take()
            if writer.in_transaction:
                writer.execute("ROLLBACK")
            if self._clock.offset_ms is None:
                self._clock.settle(writer, write=True)
            writer.execute("BEGIN IMMEDIATE")
            (version,) = writer.execute("PRAGMA data_version").fetchone()
            batch = self._batch
            if batch is None or not batch.renew(version):
                batch = self._batch = SqliteBatch(
                    writer, self._content_keys, self._compress_above, self._clock, self.seen[0],
                    version,
                )  # fmt: skip
                batch.is_segment = self.segment is not None
            if batch.layout != LAYOUT_VERSION:
                raise LedgerLayoutError(str(self._path), batch.layout, LAYOUT_VERSION)
            self._same.require(deep=True)
            if batch.seen_hash != self.seen[1] or not self.is_held:
                self._hold(batch)
            batch.begun_at = batch.seq
            batch.open(units)
            for unit in units:
                results.append(batch.do(unit))
            batch.flush()
            writer.execute("COMMIT")
        except BaseException as error:
            self._batch = None
            if isinstance(error, LedgerRollbackError):
                self._miss()
            if isinstance(error, LedgerLayoutError):
                self.outage.failed(error.message.rstrip("."))
            if writer.in_transaction:
                is_shared = len(units) > 1 and is_refusal(error)
                with contextlib.suppress(sqlite3.Error):  # done before the next transaction begins
                    writer.execute("ROLLBACK")
            if is_shared:
                return self._run_each(units, is_refusal)
            if isinstance(error, (sqlite3.Error, OSError)):
                passes = isinstance(error, OSError) or not is_refusal(error)
                if passes:
                    self.outage.failed(str(error))
                raise (LedgerUnavailableError if passes else LedgerWriteError)(
                    f"The ledger {self._path} refused the write: {error}.",
                    next_step="Nothing was recorded. Check free space, permissions and whether "
                    "another process holds the file, then try again.",
                ) from error
            raise
        finally:
            self._turns.give_back()
        self.size, self.seen = batch.seq + 1, (batch.seq, batch.entry_hash)
        if (
            self.outage.reason and writer.total_changes > before
        ):  # A commit without changes proves nothing.
            self.outage.over()
        return results

    # -- reading -----------------------------------------------------------------------

    @property
    @override
    def now_ms(self) -> int:
        """The clock of all writers on this machine, in milliseconds since 1970.

        Before a writer of this boot stored the clock's offset, or if the offset cannot be read, the
        wall clock.
        """
        with self._read_lock, contextlib.suppress(sqlite3.Error):
            if self._clock.offset_ms is None:
                self._clock.settle(self._reader, write=False)
        return self._clock.now_ms()

    @property
    @override
    def wall_ms(self) -> int:
        """The machine's wall clock, in milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    @override
    def require_seen(self) -> None:
        """Check without writing that the file was not replaced, and that the last entry this store
        has seen is unchanged or was archived.

        Raises:
            LedgerRollbackError: the file was replaced, or the entry is missing or differs.
            LedgerError: the database cannot be read.
        """
        self._same.require()
        super().require_seen()

    @override
    def select(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a portable read-only statement; a single thread at a time reads, the others wait.

        Bytes of a stored text that are not UTF-8 become surrogates.

        Args:
            sql: the statement, with ``?`` placeholders. One that would write fails.
            parameters: values of the placeholders.

        Returns:
            All rows.

        Raises:
            LedgerClosedError: the store is closed.
            LedgerFormatError: the statement failed.
        """
        if self._closed:
            raise LedgerClosedError
        try:
            with self._read_lock:
                try:
                    return self._reader.execute(sql, parameters).fetchall()
                except sqlite3.OperationalError as error:
                    return read_again(self._reader, sql, parameters, error)
        except (sqlite3.Error, UnicodeEncodeError, OverflowError) as error:
            raise LedgerFormatError(
                f"The ledger {self._path} cannot be read: {error}.",
                next_step="Run `remit ledger verify` to see what is damaged.",
            ) from error

    @override
    def equalities(self, where: Filter) -> list[str]:
        """Return an SQL condition with a placeholder for each of ``where.equals``, in its order.

        Only the narrowest column may use an index: the first of work order, session, submission and
        event type that is compared. With a session, the event type may use its index too. A plus
        before any other column's name excludes that column's index.

        Args:
            where: the filter, whose values are given as parameters.
        """
        # The narrowest column drives the search; a plus keeps SQLite from using the index of
        # another, of which it cannot know that it holds half the ledger.
        driver = next((column for column in NARROWEST_FIRST if column in where.equals), "")
        together = {driver, "event_type"} if driver == "session_id" else {driver}
        return [f"{'' if column in together else '+'}{column} = ?" for column in where.equals]

    @override
    def scan_entries(self, first: int, last: int) -> Iterator[RawEntry]:
        """Yield the entry rows from ``first`` to ``last`` (inclusive) by ``seq``, in pages.

        A record that is not stored as text has a ``problem``.

        Raises:
            LedgerError: the file cannot be read.
        """
        sql = (
            f"SELECT seq, typeof(record), {RECORD_SQL}, {', '.join(COLUMNS)} FROM entries "
            "WHERE seq BETWEEN ? AND ? ORDER BY seq"
        )
        for page in pages(self.select, sql, first, last):
            for seq, kind, record, *columns in page:
                problem = "" if kind == "text" else f"it is stored as {kind}, not as text"
                yield RawEntry(seq, record or b"", tuple(columns), problem)

    @override
    def scan_contents(self, first: int, last: int) -> Iterator[RawContent]:
        """Yield the content rows from ``first`` to ``last`` (inclusive) by ``content_id``, in
        pages.

        Missing rows are skipped. Values stay as stored, perhaps compressed; only types are checked.
        A row with values of wrong types has only its ``content_id`` and a ``problem``.

        Raises:
            LedgerError: the file cannot be read.
        """
        sql = (
            "SELECT content_id, digest, nonce, bytes, CAST(value AS BLOB), typeof(value), "
            "commitment, scope, codec FROM contents "
            "WHERE content_id BETWEEN ? AND ? ORDER BY content_id"
        )
        for page in pages(self.select, sql, first, last):
            for content_id, digest, nonce, length, value, kind, commitment, scope, codec in page:
                if (
                    type(commitment) is type(scope) is type(codec) is str
                    and type(digest) is type(nonce) is type(value) is bytes
                    and type(length) is int
                    and kind in ("text", "blob")
                ):
                    yield RawContent(
                        content_id, commitment, scope, digest, nonce, length, codec, value, kind
                    )
                else:
                    yield RawContent(
                        content_id, problem=f"content row {content_id} has wrong types"
                    )

    @override
    def integrity_problems(self, *, deep: bool) -> list[str]:
        """Return the faults of the layout and the journal mode, a clause each; empty if there are
        none.

        Args:
            deep: True to add SQLite's first integrity fault, for which the whole file is read.

        Raises:
            LedgerError: the file cannot be read.
            OSError: a read-only file cannot be opened.
        """
        problems = list(layout_problems(self.select))
        if not self._has_log():
            problems.append(
                "its journal is no write-ahead log (`PRAGMA journal_mode=WAL` makes it one)"
            )
        if deep:
            found = self.select("PRAGMA integrity_check(1)")
            problems += [str(row[0]) for row in found if row != ("ok",)]
        return problems

    def _has_log(self) -> bool:
        """Return True if the file's journal is a write-ahead log."""
        if not is_read_only(self._path):
            # To open and close the file past the engine would drop the locks of this process.
            return bool(self.select("PRAGMA journal_mode") == [("wal",)])
        with self._path.open("rb") as file:
            return file.read(_HEADER)[18:] == b"\2\2"

    # -- text search -------------------------------------------------------------------

    @override
    def search_expression(self, terms: Sequence[Sequence[str]]) -> str:
        """Return the text of an FTS query that finds contents with all phrases."""
        return " AND ".join('"' + " ".join(words) + '"' for words in terms)

    @override
    def index_texts(self, tx: Transaction, texts: Sequence[tuple[int, str]]) -> None:
        """Add ``(content_id, text)`` pairs to the text index, which is created if it is missing.

        A content that is indexed already must not be among ``texts``; ``tx`` is the transaction.
        """
        tx.execute(SEARCH)
        for content_id, text in texts:
            tx.execute("INSERT INTO content_search(rowid, text) VALUES (?, ?)", (content_id, text))

    @override
    def unindex_texts(
        self, tx: Transaction, texts: Sequence[tuple[int, str]], *, merge: bool
    ) -> None:
        """Remove ``(content_id, text)`` pairs from the text index, inside a transaction.

        The index must exist.

        Args:
            tx: the transaction.
            texts: the pairs exactly as they were indexed; others damage the index.
            merge: True to rewrite the index without their words, and without those of earlier
                calls, also if ``texts`` is empty. Else they remain in the file, marked as deleted.
        """
        for content_id, text in texts:
            tx.execute(
                "INSERT INTO content_search(content_search, rowid, text) VALUES ('delete', ?, ?)",
                (content_id, text),
            )
        if merge:
            # A deletion only marks words; merging the index removes them from the file.
            tx.execute("INSERT INTO content_search(content_search) VALUES ('optimize')")

    @override
    def has_text_index(self) -> bool:
        """Return True if the index was created; the first search or indexing does that.

        Raises:
            LedgerError: the file cannot be read.
        """
        return bool(self.select("SELECT 1 FROM sqlite_master WHERE name = 'content_search'"))

    # -- erasing -----------------------------------------------------------------------

    @override
    def compact(self) -> tuple[bool, str]:
        """Give free pages back to the file system and empty the write-ahead log.

        Uses a connection of its own, also if the store is closed. Retries while others read, until
        the lock's time limit has passed. Writers wait only while 4,096 pages at a time are freed.

        Returns:
            True and an empty text; or False and a sentence that says that readers still hold the
            old log.

        Raises:
            LedgerError: the file could not be opened or compacted. Erased content is gone from the
                tables, but may remain in the file.
        """
        connection = connect(self._path, self._timeout, self._require)
        try:
            # Few pages at a time, so that writers wait only briefly. A script is stepped to
            # its end; a single execute would free a single page.
            while connection.execute("PRAGMA freelist_count").fetchone()[0]:
                connection.executescript(f"PRAGMA incremental_vacuum({_PAGES_AT_ONCE})")
            end = time.monotonic() + self._timeout
            while True:
                # Truncating needs a moment without any reader; busy is the first column.
                (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                if not busy:
                    return True, ""
                if time.monotonic() > end:
                    return False, (
                        "Other processes are reading, so the erased bytes are still in "
                        f"{self._path}-wal. The bytes are removed when the last reader closes, "
                        "or by `remit ledger compact`."
                    )
                time.sleep(_RETRY_S)
        except sqlite3.Error as error:
            raise LedgerError(
                f"The ledger {self._path} could not be compacted: {error}.",
                next_step="The content is erased from the tables. Run `remit ledger compact` to "
                "remove the bytes from the file.",
            ) from error
        finally:
            connection.close()

    @override
    def close(self) -> None:
        """Close all connections; a running query is waited for. Closing twice is harmless.

        Later reads and calls of :meth:`run` raise LedgerClosedError.
        """
        self._closed = True
        with self._read_lock:
            self._reader.close()
        self._writer.close()
        self._turns.close()
