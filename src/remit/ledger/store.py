"""What a store must do, whatever engine it is written for (SPEC 3.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from remit.ledger.content import StoredValue
from remit.ledger.entry import LedgerEntry
from remit.ledger.record import Prepared

__all__ = [
    "EntryRow",
    "Filter",
    "RawContent",
    "RawEntry",
    "RawStep",
    "Store",
    "Transaction",
    "Unit",
]


class Transaction(Protocol):
    """One atomic change of the ledger's database, as :meth:`LedgerClient.transact` hands it out.

    What is appended and executed commits together or not at all.
    """

    def append(self, entry: LedgerEntry | Prepared) -> str:
        """Append one entry, prepared beforehand or not; returns its id."""
        ...

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one portable SQL statement with ``?`` placeholders; returns its rows."""
        ...


@dataclass(slots=True)
class Unit:
    """A piece of work for the writer.

    Exactly one of ``prepared`` (entries, ready) and ``call`` (anything) is set.
    """

    prepared: Sequence[Prepared] = ()
    call: Callable[[Transaction], Any] | None = None


@dataclass(frozen=True, slots=True)
class EntryRow:
    """A stored entry as it lies there."""

    seq: int
    id: str
    entry_hash: str
    timestamp: str
    event_type: str
    submission_id: str
    columns: Mapping[str, str | None]
    record: bytes


@dataclass(frozen=True, slots=True)
class RawEntry:
    """A stored entry as bytes, for a reader that trusts nothing.

    Attributes:
        columns: every column but ``seq`` and ``record``; ``None`` for NULL.
        problem: what makes the row unreadable; empty when nothing.
    """

    seq: int
    record: bytes
    columns: Mapping[str, bytes | None]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RawContent:
    """A stored content value with all that should prove it."""

    commitment: str
    digest: bytes = b""
    nonce: bytes = b""
    length: int = 0
    codec: str = ""
    value: bytes = b""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RawStep:
    """A message step with what stands around it; ``None`` where that is not there."""

    step: str
    parent: str
    commitment: str
    position: int
    parent_position: int | None
    scope: str | None
    parent_scope: str | None
    erased_seq: int | None


@dataclass(frozen=True, slots=True)
class Filter:
    """A query. Equalities by column, bounds by time, a cursor by sequence number."""

    equals: Mapping[str, str] = field(default_factory=dict)
    since: str | None = None
    until: str | None = None
    after: int | None = None
    descending: bool = False


class Store(Protocol):
    """One database that holds one ledger.

    ``run`` is called from one thread only; the readers may be called from any.
    """

    def run(self, units: Sequence[Unit]) -> list[Any]:
        """Do all units in one durable transaction.

        Returns, per unit, its result (the sealed records of prepared entries) or the exception
        that undid this unit alone. Raises when the transaction as a whole failed: then nothing
        of it is on record.
        """
        ...

    def get(self, seq: int) -> EntryRow | None:
        """The row at a sequence number."""
        ...

    def page(self, where: Filter, limit: int) -> list[EntryRow]:
        """At most ``limit`` rows, in the filter's order."""
        ...

    def head(self) -> tuple[int, str] | None:
        """``(seq, entry_hash)`` of the last entry."""
        ...

    def count_by_event(self) -> dict[str, int]:
        """How many entries there are of each event type."""
        ...

    def contents(self, commitments: Iterable[str]) -> dict[str, StoredValue]:
        """The values behind commitments, as far as they are there."""
        ...

    def erasures(self, commitments: Iterable[str]) -> dict[str, int]:
        """By commitment, the sequence number of the entry under which it was erased."""
        ...

    def message_commitments(self, head: str) -> list[str]:
        """The commitments of a message list, oldest first, found from its last step."""
        ...

    def select(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one portable read-only statement outside any transaction."""
        ...

    def scan_entries(self) -> Iterator[RawEntry]:
        """Every entry row, by ``seq``, however damaged."""
        ...

    def scan_contents(self) -> Iterator[RawContent]:
        """Every content row, however damaged."""
        ...

    def scan_steps(self) -> Iterator[RawStep]:
        """Every message step."""
        ...

    def step(self, step: str) -> RawStep | None:
        """One message step."""
        ...

    def content_facts(self, commitments: Iterable[str]) -> dict[str, tuple[str, int]]:
        """``(scope, bytes)`` of the values behind commitments, as far as they are there."""
        ...

    def erasure_seqs(self) -> list[int]:
        """The sequence numbers under which something was erased."""
        ...

    def erased_under(self, seq: int) -> list[str]:
        """The commitments erased under one entry."""
        ...

    def integrity_problem(self) -> str:
        """What is wrong with the file, its indexes or its layout; empty when nothing."""
        ...

    def close(self) -> None:
        """Let go of the database."""
        ...
