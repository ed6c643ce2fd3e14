"""The server store: PostgreSQL, a short lock per batch, any number of processes."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
from typing_extensions import override

from remit.ledger.entry_reader import PUT_INFO, as_bytes, pages
from remit.ledger.errors import (
    LedgerClosedError,
    LedgerConnectionError,
    LedgerError,
    LedgerFormatError,
    LedgerLayoutError,
    LedgerRollbackError,
    LedgerUnavailableError,
    LedgerWriteError,
)
from remit.ledger.postgres.compaction import compact
from remit.ledger.postgres.connection import (
    ENGINE_ERRORS,
    Writer,
    is_connection_error,
    masked,
    reason,
)
from remit.ledger.postgres.layout import layout_problems
from remit.ledger.postgres.pool import Pool
from remit.ledger.postgres.schema import begin, prepare
from remit.ledger.postgres.transaction import PostgresBatch, is_refusal
from remit.ledger.raw_rows import RawContent, RawEntry
from remit.ledger.schema import COLUMNS, TABLES
from remit.ledger.store import Store, Transaction, Unit
from remit.ledger.store_outage import Outage

_READERS = 4
FROZEN_S = 4.0
"""A writer that stands still within its batch loses it after this, in seconds: whether its process
is stopped or its machine gone, others go on. Awake again, it finds the connection lost, and begins
the batch again."""
_MAX_POSITION = 16_383  # The engine stores no greater position in a tsvector.
_VECTOR_BYTES = 900_000  # the engine's limit is 1 MB
_MAX_PLACES = 255  # The engine stores no more positions of one word.
_RETRY_S = 0.05
_LONGEST_RETRY_S = 1.0
_CLOCK = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)"

_UP = (
    "SELECT CAST(extract(epoch FROM clock_timestamp() - pg_postmaster_start_time()) * 1000 "
    "AS bigint)"
)

_TRANSIENT = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)


_Attempt = tuple[list[Any], tuple[int, str], tuple[int, str]]
"""A transaction before its commit: the results, the last entry, and the sign of the commit."""


class PostgresStore(Store):
    """A ledger in a PostgreSQL database, or in a schema of the database.

    The constructor connects, and makes or migrates the tables. One connection writes, up to four
    read. A single thread at a time may call :meth:`run`; any may read. A process forked after
    opening cannot use the store.

    Args:
        url: ``postgresql://user@host/database``, with ``?search_path=name`` for a schema.
        content_keys: metadata keys whose values are content.
        lock_timeout_s: time limit of waiting for another writer, and of retrying a lost connection,
            in seconds.
        create: True to make the tables if there are none; else LedgerError is raised then.
        require: as for :func:`~remit.ledger.store_factory.open_store`.

    Raises:
        LedgerKeyError: ``require`` refused the ledger's owner.
        LedgerFormatError: the tables belong to another program or a newer version.
        LedgerConnectionError: the server cannot be reached.
        LedgerError: the database cannot be used.
    """

    record_sql = "convert_to(record, 'UTF8')"
    text_sql = "SELECT content_id FROM content_search WHERE words @@ ?::text::tsquery", "content_id"

    def __init__(
        self,
        url: str,
        *,
        content_keys: frozenset[str],
        lock_timeout_s: float,
        create: bool,
        require: Callable[[str, str], None] | None = None,
    ) -> None:
        self._url = url
        self.location = masked(url)
        self._content_keys = content_keys
        self._timeout = lock_timeout_s
        self._closed = False
        self.outage = Outage()
        self._pid = os.getpid()
        self._name = f"writer {secrets.token_hex(8)}"
        self._has_mark = False
        self._writer = Writer(
            url,
            statement_s=2 * lock_timeout_s,
            lock_timeout=_milliseconds(lock_timeout_s),
            idle_in_transaction_session_timeout=_milliseconds(min(lock_timeout_s, FROZEN_S)),
        )
        self._pool = Pool(url, size=_READERS, retry_s=lock_timeout_s, outage=self.outage)
        try:
            self._writer.connect()
            prepare(self._writer, self.location, create=create, require=require)
        except BaseException as error:
            self.close()
            if isinstance(error, (*ENGINE_ERRORS, ValueError, OverflowError)):
                away = is_connection_error(error)
                raise (LedgerConnectionError if away else LedgerError)(
                    f"The ledger {self.location} cannot be opened: {reason(error)}.",
                    next_step="Check the URL, that the server runs, and the user's rights.",
                ) from error
            raise

    # -- writing -----------------------------------------------------------------------

    def run(self, units: Sequence[Unit]) -> list[Any]:
        """Do all units in a single durable transaction, which locks out other writers.

        A lost connection or a deadlock is retried, with sleeps of 50 ms to 1 s, until the lock
        timeout has passed. After a commit without an answer, the store asks whether it took place,
        so nothing is lost or doubled. A refused transaction of several units is repeated, each unit
        in a transaction of its own. Units may therefore be called more than once; only the last
        call counts. The outcome is noted in :attr:`outage`.

        Returns:
            The result of each unit, or the exception that undid it. An error that is no refusal of
            a statement counts for all later units too.

        Raises:
            LedgerClosedError: the store is closed; nothing was recorded.
            LedgerRollbackError: the database lacks entries that this store has seen; :attr:`missed`
                is called first.
            LedgerLayoutError: the database has another layout.
            LedgerConnectionError: the server cannot be reached; if a commit was under way, the
                message says that the entries may or may not be recorded.
            LedgerUnavailableError: the server refused the transaction for now; nothing was
                recorded.
            LedgerWriteError: the server refused a statement; nothing was recorded.
            RemitError: the guard refused the database.
        """
        if self._closed:
            raise LedgerClosedError
        end = time.monotonic() + self._timeout
        delay = _RETRY_S
        sent: _Attempt | None = None  # whose commit went out
        while True:
            in_doubt = sent is not None
            try:
                if self._writer.connect():  # The new connection may lead to another server.
                    self.doubt()
                if sent is None or not self._was_committed(sent):
                    sent, in_doubt = None, False
                    attempt = self._attempt(units)
                    sent = attempt
                    self._writer.fetch("COMMIT")
                results, self.seen, _ = sent
                self.size = self.seen[0] + 1
                self.outage.over()
                return results
            except BaseException as error:
                if isinstance(error, LedgerRollbackError):
                    self._miss()
                self._writer.drop()
                lost = is_connection_error(error) or isinstance(error, _TRANSIENT)
                in_doubt = in_doubt or (lost and sent is not None)
                if not (in_doubt or lost) and len(units) > 1 and is_refusal(error):
                    return self._run_each(units, is_refusal)
                is_engine = isinstance(error, ENGINE_ERRORS)
                # The obstacle to learning the outcome of a commit may be temporary.
                goes_on = lost or (in_doubt and is_engine)
                goes_on = goes_on and time.monotonic() + delay <= end
                if isinstance(error, LedgerLayoutError):
                    self.outage.failed(error.message.rstrip("."))
                elif is_engine and not is_refusal(error):
                    self.outage.failed(reason(error), is_retrying=goes_on)
                if not goes_on:
                    if is_engine:
                        raise self._refused(error, in_doubt=in_doubt) from error
                    raise
            time.sleep(delay)
            delay = min(2 * delay, _LONGEST_RETRY_S)

    def _attempt(self, units: Sequence[Unit]) -> _Attempt:
        """Do the units up to the commit."""
        writer = self._writer
        batch = PostgresBatch(writer, self.location, units, self._content_keys, self.seen[0])
        if batch.seen_hash != self.seen[1] or not self.is_held:
            self._hold(batch)
        first = batch.seq + 1
        results = [batch.do(unit) for unit in units]
        batch.flush()
        size = batch.seq + 1
        # What shows, should the commit not be answered, whether it took place: the last entry's
        # hash, which no other can have; without an entry, a mark of this writer's own.
        seen = sign = (size - 1, batch.entry_hash)
        if size == first:
            sign = (-1, secrets.token_hex(8))
            writer.put(PUT_INFO, (self._name, sign[1]))
            self._has_mark = True
        return results, seen, sign

    def _was_committed(self, sent: _Attempt) -> bool:
        """Return True if a transaction took place whose commit was not answered.

        The transaction's id would not show it: a server that crashed reuses the ids of lost
        transactions.
        """
        writer = self._writer
        begin(writer)  # waits for the old connection's transaction to end
        _, _, (seq, mark) = sent
        if seq >= 0:
            rows = writer.fetch("SELECT entry_hash FROM entries WHERE seq = $1", (seq,))
        else:
            rows = writer.fetch("SELECT value FROM ledger_info WHERE name = $1", (self._name,))
        writer.fetch("ROLLBACK")
        return rows == [(mark,)]

    def _refused(self, error: BaseException, *, in_doubt: bool) -> LedgerWriteError:
        detail = reason(error)
        if in_doubt:
            return LedgerConnectionError(
                f"The connection to {self.location} broke while a commit was under way: {detail}.",
                next_step="The entries may or may not be recorded: look them up (`remit ledger "
                "tail`) before you write them again.",
            )
        if is_connection_error(error):
            return LedgerConnectionError(
                f"The ledger {self.location} cannot be reached: {detail}.",
                next_step="Nothing was recorded. Check that the server runs, then try again.",
            )
        return (LedgerWriteError if is_refusal(error) else LedgerUnavailableError)(
            f"The ledger {self.location} refused the write: {detail}.",
            next_step="Nothing was recorded. Check the server's free space and its log, then try "
            "again.",
        )

    # -- reading -----------------------------------------------------------------------

    @property
    @override
    def now_ms(self) -> int:
        """The server's clock, in milliseconds since 1970; reading the property sends a query.

        Raises:
            LedgerError: the server cannot be reached, or the store is closed.
        """
        ((now,),) = self.select(_CLOCK)
        return int(now)

    @override
    def back_for_ms(self) -> int:
        """Return milliseconds since the server started, or since this store's last outage ended if
        that is less.

        Raises:
            LedgerError: the server cannot be reached, or the store is closed.
        """
        ((up,),) = self.select(_UP)  # an idle process did not see it go
        return min(int(up), super().back_for_ms())

    @override
    def select(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a portable statement in a read-only transaction of its own; return its rows.

        A lost connection is retried for up to ``lock_timeout_s``, but not during a long outage. At
        most four queries run at a time; more wait.

        Args:
            sql: a statement with ``?`` placeholders.
            parameters: values of the placeholders.

        Raises:
            LedgerClosedError: the store is closed, or was opened before a fork.
            LedgerConnectionError: the server cannot be reached.
            LedgerFormatError: the statement failed for another reason, or is not valid.
        """
        if self._closed:
            raise LedgerClosedError
        if self._pid != os.getpid():
            raise LedgerClosedError(
                "This ledger client was opened before a fork.",
                next_step="Open a new LedgerClient in the child process.",
            )
        try:
            return self._pool.fetch(sql, parameters)
        except ENGINE_ERRORS as error:
            if is_connection_error(error):
                raise LedgerConnectionError(
                    f"The ledger {self.location} cannot be reached: {reason(error)}.",
                    next_step="Check that the server runs, then try again.",
                ) from error
            raise LedgerFormatError(
                f"The ledger {self.location} cannot be read: {reason(error)}.",
                next_step="Run `remit ledger verify` to see what is damaged.",
            ) from error

    @override
    def scan_entries(self, first: int, last: int) -> Iterator[RawEntry]:
        """Yield the entry rows from ``first`` to ``last`` (inclusive) by ``seq``, in pages.

        No row has a ``problem``: the columns of the table exclude unreadable values.

        Raises:
            LedgerError: the database cannot be read.
        """
        columns = ", ".join(COLUMNS)
        sql = f"SELECT seq, record, {columns} FROM entries WHERE seq BETWEEN ? AND ? ORDER BY seq"
        for page in pages(self.select, sql, first, last):
            for seq, record, *values in page:
                yield RawEntry(seq, as_bytes(record), tuple(values))

    @override
    def scan_contents(self, first: int, last: int) -> Iterator[RawContent]:
        """Yield the content rows from ``first`` to ``last`` (inclusive) by ``content_id``, in
        pages.

        Missing rows are skipped. Values stay as stored. A row with empty columns has a ``problem``,
        and only its number and commitment.

        Raises:
            LedgerError: the database cannot be read.
        """
        columns = ", ".join(column.name for column in TABLES["contents"])
        sql = f"SELECT {columns} FROM contents WHERE content_id BETWEEN ? AND ? ORDER BY content_id"
        for page in pages(self.select, sql, first, last):
            for content_id, commitment, scope, digest, nonce, length, codec, value in page:
                if None in (commitment, scope, digest, nonce, length, codec, value):
                    problem = f"content row {content_id} has empty columns"
                    yield RawContent(content_id, str(commitment), problem=problem)
                    continue
                yield RawContent(
                    content_id, commitment, scope, digest, nonce, length, codec, value.encode()
                )

    @override
    def integrity_problems(self, *, deep: bool) -> list[str]:
        """Return the faults of the layout, a clause each; empty if there are none.

        Views are compared by making temporary ones, if the role may.

        Args:
            deep: adds nothing.

        Raises:
            LedgerError: the database cannot be read.
        """
        return layout_problems(self.select, self._url)

    # -- text search -------------------------------------------------------------------

    @override
    def search_expression(self, terms: Sequence[Sequence[str]]) -> str:
        """Return the text of a ``tsquery`` that finds contents with all phrases.

        Args:
            terms: phrases; each is a list of words that must follow one another. Words must contain
                only letters and digits; they are not escaped.
        """
        # The literal of a tsquery needs no escapes: words contain only letters and digits.
        return " & ".join(
            "(" + " <-> ".join(f"'{word}'" for word in words) + ")" for words in terms
        )

    @override
    def has_text_index(self) -> bool:
        """Return True: the index is a part of the layout."""
        return True

    @override
    def index_texts(self, tx: Transaction, texts: Sequence[tuple[int, str]]) -> None:
        """Add ``(content_id, text)`` pairs to the text index, inside a transaction.

        A content that is indexed already is skipped. Only the first 16,383 words of a text, less if
        they are long, are indexed, and at most 255 places of one word.

        Args:
            tx: the transaction.
            texts: number of a content row, and its words separated by spaces. Words must be
                case-folded and contain only letters and digits; a quote or backslash breaks the
                statement.
        """
        for content_id, text in texts:
            tx.execute(
                "INSERT INTO content_search VALUES (?, ?::text::tsvector) ON CONFLICT DO NOTHING",
                (content_id, _vector(text)),
            )

    @override
    def unindex_texts(
        self, tx: Transaction, texts: Sequence[tuple[int, str]], *, merge: bool
    ) -> None:
        """Delete the contents of ``texts`` from the text index, inside a transaction; unknown ones
        are ignored.

        Args:
            tx: the transaction.
            texts: pairs of a content's number and its text, which is not needed.
            merge: has no effect: :meth:`compact` removes the bytes.
        """
        tx.execute_many(
            "DELETE FROM content_search WHERE content_id = ?", [(one,) for one, _ in texts]
        )

    # -- erasing -----------------------------------------------------------------------

    @override
    def compact(self) -> tuple[bool, str]:
        """Remove deleted bytes from the files, by
        :func:`~remit.ledger.postgres.compaction.compact`, which tells the result.

        Uses a connection of its own, also if the store is closed. Waits at most the lock's time
        limit for older transactions; if one remains, nothing is removed. Tables with content are
        rewritten, and locked meanwhile.

        Raises:
            LedgerError: the database could not be compacted. What was erased is gone from its rows,
                but may remain in the files.
        """
        # A connection of its own: no vacuum runs inside a transaction, and readers may not.
        writer = Writer(self._url, lock_timeout=str(int(self._timeout * 1000)))
        try:
            writer.connect()
            return compact(writer, self._timeout)
        except ENGINE_ERRORS as error:
            raise LedgerError(
                f"The ledger {self.location} could not be compacted: {reason(error)}.",
                next_step="The content is erased from the tables. Run `remit ledger compact` to "
                "remove the bytes from the files.",
            ) from error
        finally:
            writer.drop()

    @override
    def close(self) -> None:
        """Close all connections, and delete this store's mark of commits from the database.

        Does nothing if the store is closed already, or was opened before a fork. Errors of the
        server are ignored.
        """
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        self._pool.close()
        with contextlib.suppress(*ENGINE_ERRORS):
            if self._has_mark:
                self._writer.fetch("DELETE FROM ledger_info WHERE name = $1", (self._name,))
        self._writer.drop()


def _milliseconds(seconds: float) -> str:
    return str(int(seconds * 1000))


def _vector(text: str) -> str:
    """Return the literal of a tsvector: each word with its positions."""
    places: dict[str, list[str]] = {}
    room = _VECTOR_BYTES
    for position, word in enumerate(text.split()[:_MAX_POSITION], start=1):
        found = places.setdefault(word, [])
        if len(found) < _MAX_PLACES:
            found.append(str(position))
            room -= 2 if len(found) > 1 else len(word.encode()) + 12
            if room < 0:
                break
    return " ".join(f"'{word}':{','.join(numbers)}" for word, numbers in places.items())
