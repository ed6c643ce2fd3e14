"""Handles of a ledger: a handle restricted to a tier, and a writer that keeps order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from remit.kernel.errors import InvalidInputError
from remit.ledger.contents import ExactText
from remit.ledger.entry import LedgerEntry
from remit.ledger.errors import EntryNotFoundError, LedgerError
from remit.ledger.events import may_write
from remit.ledger.preparation import Prepared
from remit.ledger.record import columns_of
from remit.ledger.store import Write

_VISIBLE = {
    "hot": frozenset({"hot", "ho2", "ho1", None}),
    "ho2": frozenset({"ho2", "ho1"}),
    "ho1": frozenset({"ho1"}),
}


class LedgerReader(Protocol):
    """The part of a ledger that learners work with: it reads, and has nothing to write
    with."""

    def read(self, entry_id: str) -> LedgerEntry:
        """The entry with that id, its content in place."""
        ...

    def read_many(self, entry_ids: Iterable[str]) -> Iterator[LedgerEntry]:
        """Yield the existing entries among these ids, in ledger order."""
        ...

    def select(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of one portable SQL statement, over a connection that only reads."""
        ...

    @property
    def query(self) -> Callable[..., Iterator[LedgerEntry]]:
        """Streams entries; the arguments of :meth:`LedgerClient.query`."""
        ...


class LedgerPort(Protocol):
    """The part of the ledger that agents work with: the client and a scoped handle have it."""

    def write(self, entry: LedgerEntry, *, subject_id: str | None = None) -> str:
        """Append one entry; returns its id."""
        ...

    def submit(self, work: Iterable[Write]) -> asyncio.Future[list[Any]]:
        """Do all of this work in one transaction, before anything written later."""
        ...

    def prepare(self, entry: LedgerEntry, *, subject_id: str | None = None) -> Prepared:
        """Check an entry ahead of the :meth:`submit` that appends it."""
        ...

    def read(self, entry_id: str) -> LedgerEntry:
        """The entry with that id."""
        ...

    def exact(self, entry_id: str) -> dict[str, ExactText]:
        """The entry's content as bytes, by metadata key."""
        ...

    def has_left(self, session_id: str) -> bool:
        """Return True if the session is archived."""
        ...

    @property
    def query(self) -> Callable[..., Iterator[LedgerEntry]]:
        """Streams entries; the arguments of :meth:`LedgerClient.query`."""
        ...


class ScopedLedger:
    """Writes only ``tier``; reads only what that tier may see.

    ``hot`` sees all, ``ho2`` sees ``ho2`` and ``ho1``, ``ho1`` the ``ho1`` entries of its own
    work order.

    Args:
        ledger: the ledger behind it.
        tier: ``hot``, ``ho2`` or ``ho1``.
        work_order_id: whose entries these are; required for ``ho1`` to read anything.

    Raises:
        InvalidInputError: there is no such tier.
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
        """Append an entry of this tier; an entry that names none is given it.

        Raises:
            LedgerError: the entry belongs to another tier or work order, or such entries are
                written by another part of Remit.
        """
        return self._ledger.write(self._owned(entry), subject_id=subject_id)

    def submit(self, work: Iterable[Write]) -> asyncio.Future[list[Any]]:
        """:meth:`LedgerClient.submit` of entries of this tier.

        What another handle has prepared was checked there, and a function of the transaction has
        the rights of its maker: both pass, in their place between the entries.
        """
        return self._ledger.submit(
            [self._owned(write) if isinstance(write, LedgerEntry) else write for write in work]
        )

    def prepare(self, entry: LedgerEntry, *, subject_id: str | None = None) -> Prepared:
        """:meth:`LedgerClient.prepare` of an entry of this tier."""
        return self._ledger.prepare(self._owned(entry), subject_id=subject_id)

    def read(self, entry_id: str) -> LedgerEntry:
        """The entry with that id, when this tier may see it.

        Raises:
            EntryNotFoundError: there is none that this tier may see.
        """
        entry = self._ledger.read(entry_id)
        if not self._sees(entry):
            raise EntryNotFoundError(f"Tier {self._tier} sees no entry {entry_id!r}.")
        return entry

    def exact(self, entry_id: str) -> dict[str, ExactText]:
        """:meth:`LedgerClient.exact` of an entry that this tier may see.

        Raises:
            EntryNotFoundError: there is none that this tier may see.
        """
        self.read(entry_id)
        return self._ledger.exact(entry_id)

    def has_left(self, session_id: str) -> bool:
        """:meth:`LedgerClient.has_left`."""
        return self._ledger.has_left(session_id)

    def query(self, **filters: Any) -> Iterator[LedgerEntry]:
        """:meth:`LedgerClient.query` over what this tier may see."""
        if self._tier == "ho1":
            if self._work_order_id is None:
                return iter(())
            for key, own in (("tier", "ho1"), ("work_order_id", self._work_order_id)):
                if filters.get(key) not in (None, own):
                    return iter(())
                filters[key] = own
        return self._visible(filters, filters.pop("limit", None))

    def _visible(self, filters: dict[str, Any], limit: int | None) -> Iterator[LedgerEntry]:
        """Yield visible entries, reading no more of them than ``limit`` still allows."""
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
                raise LedgerError("The tier in the entry's provenance is no text.")
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
