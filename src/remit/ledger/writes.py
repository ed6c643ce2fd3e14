"""Writing to an open ledger: entries, transactions and steps, waited for or not."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, overload

from remit.ledger.committer import GroupCommitter
from remit.ledger.entry import LedgerEntry
from remit.ledger.outage import Outage
from remit.ledger.preparation import Prepared, prepare
from remit.ledger.store import StageOpener, Store, Transaction, Unit, Write

_T = TypeVar("_T")


class LedgerWrites:
    """The writing methods of :class:`~remit.ledger.LedgerClient`; each is a durable transaction."""

    _store: Store
    _committer: GroupCommitter
    _content_keys: frozenset[str]
    _probing: asyncio.Future[Any] | None = None

    def write(self, entry: LedgerEntry, *, subject_id: str | None = None) -> str:
        """Append ``entry`` and return its id once it is durable.

        The entry's ``id``, ``timestamp``, ``previous_hash`` and ``entry_hash`` are filled.

        Args:
            subject_id: the person its content speaks of; kept beside the content for erasure.

        Raises:
            InvalidInputError: the entry cannot be recorded as it is (NaN, a lone surrogate, a
                non-string key, an over-long record, …). Nothing was written.
            LedgerWriteError: the store did not take it. Nothing was written.
        """
        return self.write_many([entry], subject_id=subject_id)[0]

    def write_many(
        self, entries: Iterable[LedgerEntry], *, subject_id: str | None = None
    ) -> list[str]:
        """Append all ``entries`` in one transaction, or none; returns their ids."""
        ids: list[str] = self._committer.run(self._unit(entries, subject_id))
        return ids

    def transact(self, call: Callable[[Transaction], _T]) -> _T:
        """Run ``call`` inside one durable transaction of the ledger's database.

        ``call`` runs in the writer's thread and must not block. Raising from it undoes all
        that it did; the exception is raised here.
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
        """:meth:`write_many` or :meth:`transact` for an event loop.

        The work is under way when this returns, awaited or not. What the same thread submits or
        writes later commits later, or in the same transaction: to wait for it is to wait for this.

        Args:
            work: entries and functions of the transaction, in order, all or none; or one function.
            subject_id: of the entries, as for :meth:`write`.

        Returns:
            A future of the running loop: by piece of work an entry's id, or what a function
            returned. It cannot be cancelled: a task that is, while it awaits this, gets its
            ``CancelledError`` when the work has ended, with the future ``done()``.

        Raises:
            InvalidInputError: an entry cannot be recorded as it is; nothing is written.
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
        """Check and encode ``entry`` ahead of a :meth:`transact` that appends it.

        Raises:
            InvalidInputError: the entry cannot be recorded as it is.
        """
        return prepare(entry, self._content_keys, subject_id)

    def step(self, opener: StageOpener, step: Any) -> asyncio.Future[Any]:
        """Submit one step, to be done together with all others of its kind.

        A step is the fast form of a transaction: what many of them need is read by one
        statement, changed in memory, and written by one statement.

        Args:
            opener: begins the stage, once in a transaction.
            step: the argument of :meth:`Stage.do`. Entries in its attribute ``prepared`` have
                their content looked up ahead.
        """
        return self._committer.submit(Unit(step=step, opener=opener))

    def step_both(
        self, first: tuple[StageOpener, Any], second: tuple[StageOpener, Any]
    ) -> Sequence[asyncio.Future[Any]]:
        """Submit two steps that run in succession, in one transaction unless it is full.

        A step that needs both in one transaction must check that.
        """
        return self._committer.submit_both(
            Unit(step=first[1], opener=first[0]), Unit(step=second[1], opener=second[0])
        )

    def flush(self) -> None:
        """Return when everything submitted before is durable.

        Raises:
            LedgerRollbackError: the ledger lacks what was signed or recorded in it.
        """
        self.transact(lambda _: None)

    @property
    def outage(self) -> Outage:
        """The outcome of the latest write to this ledger."""
        return self._store.outage

    def probe(self) -> None:
        """Have something written, without waiting for it, to see whether an outage is over."""
        if self._probing is None or self._probing.done():
            self._probing = self.submit(_probe)
            self._probing.add_done_callback(lambda probing: probing.exception())

    def _unit(self, entries: Iterable[LedgerEntry], subject_id: str | None) -> Unit:
        entries = list(entries)
        return Unit(entries, [self.prepare(entry, subject_id=subject_id) for entry in entries])


def _probe(tx: Transaction) -> None:
    """Change a page, and leave nothing."""
    tx.execute("INSERT INTO ledger_info VALUES ('probe', '')")
    tx.execute("DELETE FROM ledger_info WHERE name = 'probe'")


def _do_all(writes: Sequence[Write], tx: Transaction) -> list[Any]:
    return [write(tx) if callable(write) else tx.append(write) for write in writes]
