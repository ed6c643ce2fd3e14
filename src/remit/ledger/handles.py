"""Handles of a ledger: protocols for readers and agents, and a handle of a single tier."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from remit.kernel.errors import InvalidInputError
from remit.ledger.contents import ExactText
from remit.ledger.entry import LedgerEntry
from remit.ledger.errors import EntryNotFoundError, LedgerError
from remit.ledger.events import may_write
from remit.ledger.record import columns_of
from remit.ledger.record_builder import Prepared
from remit.ledger.store import Write

_VISIBLE = {
    "hot": frozenset({"hot", "ho2", "ho1", None}),
    "ho2": frozenset({"ho2", "ho1"}),
    "ho1": frozenset({"ho1"}),
}


class LedgerReader(Protocol):
    """The reading part of a ledger, for learners, which write nothing.

    :class:`~remit.ledger.LedgerClient` has these methods.
    """

    def read(self, entry_id: str) -> LedgerEntry:
        """Return the entry with that id, with content; Erased stands for an erased value.

        Args:
            entry_id: id of the entry.

        Raises:
            EntryNotFoundError: there is no such entry, or this reader may not see it;
                EntryArchivedError if it was archived.
            LedgerError: the entry cannot be read.
        """

    def read_many(self, entry_ids: Iterable[str]) -> Iterator[LedgerEntry]:
        """Yield the existing entries with the given ids, with content, in ledger order, each once.

        The iteration raises LedgerError if the ledger cannot be read.

        Args:
            entry_ids: ids; missing, archived and malformed ones are left out.
        """

    def select(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a ``SELECT`` with ``?`` placeholders, on a read-only connection.

        Args:
            sql: a statement that begins with ``SELECT``, ``WITH`` or ``VALUES``.
            parameters: values of its placeholders.

        Raises:
            LedgerError: the statement is no query, or failed.
        """

    @property
    def query(self) -> Callable[..., Iterator[LedgerEntry]]:
        """The method :meth:`LedgerClient.query`, which yields matching entries."""


class LedgerPort(Protocol):
    """The part of a ledger that agents use: a client, or a scoped handle."""

    def write(self, entry: LedgerEntry, *, subject_id: str | None = None) -> str:
        """Append an entry and fill its id, time and hashes; return the id after the commit.

        Args:
            entry: the entry, whose fields are filled in place. A scoped handle may add its tier
                and work order to the metadata.
            subject_id: the person that the content is about; ``None`` for none.

        Raises:
            InvalidInputError: the entry cannot be recorded.
            LedgerError: this handle may not write the entry, the call is inside a transaction, or
                the store refused the entry. Nothing was written, unless a LedgerConnectionError
                says that the outcome is unknown.
            LedgerClosedError: the client is closed.
        """

    def submit(self, work: Iterable[Write]) -> asyncio.Future[list[Any]]:
        """Do the work in a single transaction, before later writes; return a future of the results.

        The results are in the order of ``work``: an entry's id, or a function's result. The future
        cannot be cancelled. It gets the error of a function, of an over-long record, or of the
        store; nothing is then written, unless a LedgerConnectionError says that the outcome is
        unknown.

        Args:
            work: entries, prepared entries, and functions of the transaction, in order.

        Raises:
            InvalidInputError: an entry cannot be recorded; nothing is submitted.
            LedgerError: this handle may not write an entry, or the call is inside a transaction;
                nothing is submitted.
            LedgerClosedError: the client is closed.
            RuntimeError: no event loop is running.
        """

    def prepare(self, entry: LedgerEntry, *, subject_id: str | None = None) -> Prepared:
        """Check and encode an entry for a later :meth:`submit`; write nothing.

        The size of the record is checked only by the append.

        Args:
            entry: the entry. A scoped handle may add its tier and work order to the metadata.
            subject_id: the person that the content is about; ``None`` for none.

        Raises:
            InvalidInputError: the entry cannot be recorded.
            LedgerError: this handle may not write the entry.
        """

    def read(self, entry_id: str) -> LedgerEntry:
        """Return the entry with that id, with content; Erased stands for an erased value.

        Args:
            entry_id: id of the entry.

        Raises:
            EntryNotFoundError: there is no such entry, or this handle may not see it;
                EntryArchivedError if it was archived.
            LedgerError: the entry cannot be read.
        """

    def exact(self, entry_id: str) -> dict[str, ExactText]:
        """Return the entry's content as bytes, by metadata key, as :meth:`LedgerClient.exact` does.

        Args:
            entry_id: id of the entry.

        Raises:
            EntryNotFoundError: there is no such entry, or this handle may not see it;
                EntryArchivedError if it was archived.
            LedgerError: the content cannot be read.
        """

    def has_left(self, session_id: str) -> bool:
        """Return True if the entries of the session may have left the database for a segment.

        An unknown session counts as archived once the ledger has archived anything. Raise
        LedgerError if the ledger cannot be read.

        Args:
            session_id: the session.
        """

    @property
    def query(self) -> Callable[..., Iterator[LedgerEntry]]:
        """The method :meth:`LedgerClient.query`, which yields matching entries."""


class ScopedLedger:
    """A handle that writes only entries of its tier and reads only entries that the tier may see.

    ``hot`` sees entries of the three tiers and without a tier, ``ho2`` those of ``ho2`` and
    ``ho1``, and ``ho1`` those of ``ho1`` in its own work order. ``hot`` may write every event type.
    The other tiers may write a program's own event types, and those of Remit that their part writes
    (see ``docs/events.md``). The handle shares the client's connections; nothing has to be closed.

    Args:
        ledger: the ledger, or a handle to narrow. A handle with a work order keeps its limits.
        tier: ``hot``, ``ho2`` or ``ho1``.
        work_order_id: the only work order that the handle writes to, and that ``ho1`` reads;
            required for ``ho1`` to read anything. ``None`` does not limit writing to an order.

    Raises:
        InvalidInputError: there is no such tier, or the given handle has no work order and another
            tier.
    """

    _ledger: LedgerPort
    _tier: str
    _work_order_id: str | None

    def __init__(self, ledger: LedgerPort, *, tier: str, work_order_id: str | None = None) -> None:
        if tier not in _VISIBLE:
            raise InvalidInputError(f"There is no tier {tier!r}.", next_step="Use hot, ho2 or ho1.")
        if isinstance(ledger, ScopedLedger) and ledger._work_order_id is None:
            # A tier's handle narrowed to one order of that tier; it never widens.
            if ledger._tier != tier:
                raise InvalidInputError(f"A {ledger._tier} handle cannot be narrowed to {tier}.")
            ledger = ledger._ledger
        self._ledger = ledger
        self._tier = tier
        self._work_order_id = work_order_id

    def __repr__(self) -> str:
        return f"ScopedLedger(tier={self._tier!r}, work_order_id={self._work_order_id!r})"

    def write(self, entry: LedgerEntry, *, subject_id: str | None = None) -> str:
        """Append an entry of this tier and fill its id, time and hashes; return the id after the
        commit.

        An entry without a tier or work order gets the handle's, in its metadata.

        Args:
            entry: the entry, whose fields are filled in place; its metadata may be replaced by a
                new dict.
            subject_id: the person that the content is about, stored for erasure; ``None`` for none.

        Raises:
            LedgerError: the entry belongs to another tier or work order, another part of Remit
                writes such entries, ``scope`` or ``provenance`` in the metadata is not an object,
                or the call is inside a transaction.
            InvalidInputError: the entry cannot be recorded.
            LedgerClosedError: the client is closed.
            LedgerWriteError: the store refused the entry. Nothing was written, unless a
                LedgerConnectionError says that the outcome is unknown.
        """
        return self._ledger.write(self._owned(entry), subject_id=subject_id)

    def submit(self, work: Iterable[Write]) -> asyncio.Future[list[Any]]:
        """Submit entries of this tier as :meth:`LedgerClient.submit` does; return the future of the
        results.

        Entries without a tier or work order get the handle's, in their metadata. Entries prepared
        by another handle were checked there. A function of the transaction has the rights of its
        maker. Prepared entries and functions are passed on unchecked, in their place between the
        entries.

        Args:
            work: entries, prepared entries, and functions of the transaction, in order.

        Raises:
            LedgerError: an entry may not be written by this handle, or the call is inside a
                transaction; nothing is submitted. A failure of the transaction is raised by the
                future.
            InvalidInputError: an entry cannot be recorded; nothing is submitted.
            LedgerClosedError: the client is closed.
            RuntimeError: no event loop is running.
        """
        return self._ledger.submit(
            [self._owned(write) if isinstance(write, LedgerEntry) else write for write in work]
        )

    def prepare(self, entry: LedgerEntry, *, subject_id: str | None = None) -> Prepared:
        """Check and encode an entry of this tier as :meth:`LedgerClient.prepare` does; write
        nothing.

        An entry without a tier or work order gets the handle's: its metadata is replaced by a new
        dict.

        Args:
            entry: the entry.
            subject_id: the person that the content is about; ``None`` for none.

        Raises:
            LedgerError: the entry may not be written by this handle, as for :meth:`write`.
            InvalidInputError: the entry cannot be recorded.
        """
        return self._ledger.prepare(self._owned(entry), subject_id=subject_id)

    def read(self, entry_id: str) -> LedgerEntry:
        """Return the entry with that id, with content, if this tier may see it.

        ``Erased`` stands for an erased value.

        Args:
            entry_id: id of the entry.

        Raises:
            EntryNotFoundError: there is no such entry, or this tier may not see it;
                EntryArchivedError if it was archived.
            LedgerError: the entry cannot be read.
        """
        entry = self._ledger.read(entry_id)
        if not self._sees(entry):
            raise EntryNotFoundError(f"Tier {self._tier} sees no entry {entry_id!r}.")
        return entry

    def exact(self, entry_id: str) -> dict[str, ExactText]:
        """Return the content of a visible entry as bytes, as :meth:`LedgerClient.exact` does.

        Args:
            entry_id: id of the entry.

        Raises:
            EntryNotFoundError: there is no such entry, or this tier may not see it;
                EntryArchivedError if it was archived.
            LedgerError: the entry cannot be read.
        """
        self.read(entry_id)
        return self._ledger.exact(entry_id)

    def has_left(self, session_id: str) -> bool:
        """Return True if entries of the session may be archived (:meth:`LedgerClient.has_left`).

        An unknown session counts as archived once the ledger has archived anything.

        Raise LedgerError if the ledger cannot be read.

        Args:
            session_id: the session, whether or not this tier may see it.
        """
        return self._ledger.has_left(session_id)

    def query(self, **filters: Any) -> Iterator[LedgerEntry]:
        """Yield matching visible entries; arguments as for :meth:`LedgerClient.query`.

        A ``ho1`` handle yields only entries of its own work order. Without an order, or if another
        tier or order is requested, the iterator is empty. ``limit`` counts the visible entries. The
        ledger is read, and errors are raised, while the result is iterated.

        Raises:
            InvalidInputError: an argument cannot be understood.
            TypeError: there is no such argument.
            LedgerError: the ledger cannot be read.
        """
        if self._tier == "ho1":
            if self._work_order_id is None:
                return iter(())
            for key, own in (("tier", "ho1"), ("work_order_id", self._work_order_id)):
                if filters.get(key) not in (None, own):
                    return iter(())
                filters[key] = own
        return self._visible(filters, filters.pop("limit", None))

    def _visible(self, filters: dict[str, Any], limit: int | None) -> Iterator[LedgerEntry]:
        """Yield at most ``limit`` visible entries; read no more at a time than are still needed."""
        left = limit
        while left is None or left > 0:
            last = None
            for entry in self._ledger.query(**filters, limit=left):
                last = entry.id
                if self._sees(entry):
                    yield entry
                    left = None if left is None else left - 1
            if last is None or left is None:
                return
            filters = {**filters, "after": last}

    def _sees(self, entry: LedgerEntry) -> bool:
        columns = columns_of(entry.metadata)
        if columns.tier not in _VISIBLE[self._tier]:
            return False
        return self._tier != "ho1" or columns.work_order_id == self._work_order_id

    def _owned(self, entry: LedgerEntry) -> LedgerEntry:
        if not may_write(self._tier, entry.event_type):
            raise LedgerError(
                f"A {self._tier} handle cannot write {entry.event_type} entries.",
                next_step="docs/events.md says which part of Remit writes them.",
            )
        columns = columns_of(entry.metadata)
        scope = _object(entry.metadata, "scope")
        named = columns.tier or ("" if "tier" in entry.metadata else None)
        if named is None:
            # A tier in the entry's provenance would precede that of the scope.
            if "tier" in _object(entry.metadata, "provenance"):
                raise LedgerError("The tier in the entry's provenance is not a text.")
            entry.metadata = {**entry.metadata, "scope": {**scope, "tier": self._tier}}
        elif named != self._tier:
            raise LedgerError(f"A {self._tier} handle cannot write an entry of {named!r}.")
        order = columns.work_order_id
        if self._work_order_id is None or order == self._work_order_id:
            return entry
        if order is not None or "work_order_id" in entry.metadata:
            raise LedgerError(
                f"A handle for {self._work_order_id} cannot write an entry of {order!r}."
            )
        provenance = _object(entry.metadata, "provenance")
        entry.metadata = {
            **entry.metadata,
            "provenance": {**provenance, "work_order_id": self._work_order_id},
        }
        return entry


def _object(metadata: dict[str, Any], name: str) -> dict[str, Any]:
    value = metadata.get(name, {})
    if not isinstance(value, dict):
        raise LedgerError(f"The entry's {name} is not an object.")
    return value
