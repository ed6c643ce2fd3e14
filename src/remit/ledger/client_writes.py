"""Writing to an open ledger: entries, transactions and steps, awaited or not."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, overload

from remit.kernel.loops import abandon
from remit.ledger.entry import LedgerEntry
from remit.ledger.group_commit import GroupCommitter
from remit.ledger.record_builder import Prepared, prepare
from remit.ledger.store import StageOpener, Store, Transaction, Unit, Write
from remit.ledger.store_outage import Outage

_T = TypeVar("_T")


class LedgerWrites:
    """The writing methods of :class:`~remit.ledger.LedgerClient`, each a durable transaction; not
    used alone.

    Any thread may call them; inside a transaction, all but :meth:`prepare` raise LedgerError.
    :meth:`submit`, :meth:`step` and :meth:`probe` need a running event loop; the other writes
    block. A write that fails while a
    commit is under way at a database server raises LedgerConnectionError, which says that the
    outcome is unknown.
    """

    _store: Store
    _committer: GroupCommitter
    _content_keys: frozenset[str]
    _probing: asyncio.Future[Any] | None = None

    def write(self, entry: LedgerEntry, *, subject_id: str | None = None) -> str:
        """Append ``entry`` and return its id after the commit.

        The entry's ``id``, ``timestamp``, ``previous_hash`` and ``entry_hash`` are filled. Metadata
        under a configured content key, and values marked with :func:`remit.ledger.content`, are
        stored as content.

        Args:
            entry: the entry.
            subject_id: the person that its content is about, stored for erasure; ``None`` for none.

        Raises:
            InvalidInputError: the entry cannot be recorded (NaN, a lone surrogate, a key that is no
                text, an over-long record). Nothing was written.
            LedgerWriteError: the store refused the entry. Nothing was written, unless a
                LedgerConnectionError says that the outcome is unknown.
            LedgerFormatError: a stored content value that the entry repeats is damaged.
            LedgerClosedError: the client is closed, or was opened before a fork.
            LedgerError: called inside a transaction, or the database is a segment.
        """
        return self.write_many([entry], subject_id=subject_id)[0]

    def write_many(
        self, entries: Iterable[LedgerEntry], *, subject_id: str | None = None
    ) -> list[str]:
        """Append all ``entries`` in a single transaction, or none; return their ids, in order.

        The fields of each entry are filled as by :meth:`write`. The call blocks until the commit.

        Args:
            entries: the entries; none of them still makes a transaction.
            subject_id: the person that the content of all entries is about; ``None`` for none.

        Raises:
            InvalidInputError: an entry cannot be recorded. Nothing was written.
            LedgerWriteError: the store refused the transaction. Nothing was written, unless a
                LedgerConnectionError says that the outcome is unknown.
            LedgerFormatError: a stored content value that an entry repeats is damaged.
            LedgerClosedError: the client is closed, or was opened before a fork.
            LedgerError: called inside a transaction, or the database is a segment.
        """
        ids: list[str] = self._committer.run(self._unit(entries, subject_id))
        return ids

    def transact(self, call: Callable[[Transaction], _T]) -> _T:
        """Run ``call`` inside a durable transaction of the ledger's database; return its result.

        ``call`` runs in the writer's thread and must not block. An exception from it undoes all its
        changes and is raised here; StopIteration becomes RuntimeError. It may be called again after
        a lost connection, or if another unit of a shared transaction was refused; only the last
        call counts.

        Args:
            call: takes the transaction, through which it appends entries and runs SQL.

        Raises:
            LedgerWriteError: the store refused the transaction or a statement. Nothing was written,
                unless a LedgerConnectionError says that the outcome is unknown.
            LedgerClosedError: the client is closed, or was opened before a fork.
            LedgerError: called inside a transaction.
        """
        result: _T = self._committer.run(Unit(call=call))
        return result

    @overload
    def submit(
        self, work: Iterable[LedgerEntry], *, subject_id: str | None = None
    ) -> asyncio.Future[list[str]]: ...

    @overload
    def submit(
        self, work: Iterable[Write], *, subject_id: str | None = None
    ) -> asyncio.Future[list[Any]]: ...

    @overload
    def submit(self, work: Callable[[Transaction], _T]) -> asyncio.Future[_T]: ...

    def submit(
        self,
        work: Iterable[Write] | Callable[[Transaction], Any],
        *,
        subject_id: str | None = None,
    ) -> asyncio.Future[Any]:
        """Start :meth:`write_many` or :meth:`transact` from an event loop; return a future.

        The work continues whether the future is awaited or not. Later work of the same thread
        commits later, or in the same transaction, so waiting for later work is enough. If ``work``
        has nothing but entries, their fields are filled as by :meth:`write`.

        Args:
            work: entries and functions of the transaction, in order, all or none; or one function.
            subject_id: the person that the entries' content is about; ``None`` for none. Prepared
                entries have their own, and functions ignore it.

        Returns:
            A future of the running loop, done once the work is durable or has failed: a list with
            an entry's id or a function's result for each
            piece of work, or the result of the one function. The future raises the error of a
            function, of an over-long record, or of the store. The future cannot be cancelled: a
            cancelled task that awaits it gets its ``CancelledError`` when the work has ended, and
            the future is then ``done()``.

        Raises:
            InvalidInputError: an entry cannot be recorded; nothing is written.
            LedgerClosedError: the client is closed, or was opened before a fork.
            LedgerError: called inside a transaction.
            RuntimeError: no event loop is running.
        """
        if callable(work):
            return self._committer.submit(Unit(call=work))
        writes = list(work)
        entries = [write for write in writes if isinstance(write, LedgerEntry)]
        if len(entries) == len(writes):
            return self._committer.submit(self._unit(entries, subject_id))
        writes = [
            self.prepare(write, subject_id=subject_id) if isinstance(write, LedgerEntry) else write
            for write in writes
        ]
        prepared = [write for write in writes if isinstance(write, Prepared)]
        return self._committer.submit(Unit((), prepared, functools.partial(_do_all, writes)))

    def prepare(self, entry: LedgerEntry, *, subject_id: str | None = None) -> Prepared:
        """Check and encode ``entry`` for a later :meth:`transact`; write nothing.

        The size of the record is checked only by the append.

        Args:
            entry: the entry, which is not changed.
            subject_id: the person that its content is about; ``None`` for none.

        Raises:
            InvalidInputError: the entry cannot be recorded.
        """
        return prepare(entry, self._content_keys, subject_id)

    def step(self, opener: StageOpener, step: Any) -> asyncio.Future[Any]:
        """Submit a step, which runs together with all others of its kind; return a future.

        A step is the fast form of a transaction: the data of many steps is read by one statement,
        changed in memory, and written by one statement.

        Args:
            opener: opens the stage, once in a transaction.
            step: the argument of :meth:`Stage.do`. The content of entries in its attribute
                ``prepared`` is looked up beforehand.

        Returns:
            A future of the running loop, which cannot be cancelled: once the step is durable, the
            result of :meth:`Stage.do`; or the error of the step or of the transaction.

        Raises:
            LedgerClosedError: the client is closed, or was opened before a fork.
            LedgerError: called inside a transaction.
            RuntimeError: no event loop is running.
        """
        return self._committer.submit(Unit(step=step, opener=opener))

    def flush(self) -> None:
        """Wait until all earlier submissions are durable, by an empty transaction. Blocks.

        Failures of the earlier submissions are not raised here.

        Raises:
            LedgerRollbackError: the ledger lacks signed or recorded entries.
            LedgerWriteError: the store cannot be written.
            LedgerClosedError: the client is closed, or was opened before a fork.
            LedgerError: called inside a transaction.
        """
        self.transact(lambda _: None)

    @property
    def outage(self) -> Outage:
        """The outcome of the latest write to this ledger; its ``reason`` is empty unless writes
        fail now.
        """
        return self._store.outage

    def probe(self) -> None:
        """Start a small write, without waiting, that shows whether an outage is over.

        The write inserts and deletes a row of ``ledger_info``; its outcome appears in
        :attr:`outage`, and its error is not raised. While an earlier probe is running, nothing is
        started.

        Raises:
            LedgerClosedError: the client is closed, or was opened before a fork.
            LedgerError: called inside a transaction.
            RuntimeError: no event loop is running.
        """
        if self._probing is None or self._probing.done():
            self._probing = self.submit(_probe)
            abandon(self._probing)

    def _unit(self, entries: Iterable[LedgerEntry], subject_id: str | None) -> Unit:
        entries = list(entries)
        return Unit(entries, [self.prepare(entry, subject_id=subject_id) for entry in entries])


def _probe(tx: Transaction) -> None:
    """Insert and delete a row, so that a page changes and nothing remains."""
    tx.execute("INSERT INTO ledger_info VALUES ('probe', '')")
    tx.execute("DELETE FROM ledger_info WHERE name = 'probe'")


def _do_all(writes: Sequence[Write], tx: Transaction) -> list[Any]:
    return [write(tx) if callable(write) else tx.append(write) for write in writes]
