"""Checks of what is kept beside the record, on a ledger that others may write to meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from remit.ledger.errors import LedgerWriteError
from remit.ledger.schema import STATE_TABLES

if TYPE_CHECKING:
    from remit.ledger.client import LedgerClient

__all__ = ["Finding", "Select", "Uncheckable", "imported_size", "of_other_types", "settled"]

Select = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]
"""Runs a portable query, inside a transaction or outside."""

Finding = tuple[int | None, str]
"""The sequence number of the entry that it shows at, if any, and a sentence."""


class Uncheckable(str):
    """A sentence about what cannot be held against the record, as older versions recorded less."""

    __slots__ = ()


def settled(ledger: LedgerClient, check: Callable[[Select], Iterable[Finding]]) -> list[Finding]:
    """What a check finds. Where it finds anything, it looks again in a transaction: what another
    process was just writing is none."""
    found = list(check(ledger.select))
    if not any(not isinstance(said, Uncheckable) for _, said in found):
        return found
    try:
        return ledger.transact(lambda tx: list(check(tx.execute)))
    except LedgerWriteError:  # a read-only medium has no other writers
        return found


_STORED = {"bigint": "integer", "text": "text", "bytea": "blob"}


def of_other_types(ledger: LedgerClient) -> list[Finding]:
    """Values in tables of state that are not of their column's type, which SQLite takes."""
    if "://" in ledger.location:
        return []
    found: list[Finding] = []
    for table, columns in STATE_TABLES.items():
        counts = ", ".join(
            f"total(typeof({name}) NOT IN ('{_STORED[kind]}', '{'null' if nullable else ''}'))"
            for name, kind, nullable, _ in columns
        )
        [row] = ledger.select(f"SELECT {counts} FROM {table}")
        for column, number in zip(columns, row, strict=True):
            if number:
                said = f"values of {column.name} that are not {column.postgres_type}"
                found.append((None, f"{table}: there are {int(number)} {said}"))
    return found


def imported_size(select: Select) -> int:
    """How many entries came with an import: what other tables had of them did not."""
    rows = select("SELECT value FROM ledger_info WHERE name = 'imported'", ())
    return int(rows[0][0]) if rows and str(rows[0][0]).isdecimal() else 0
