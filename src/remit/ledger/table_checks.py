"""Checks of the tables next to the record, on a ledger that others may be writing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from remit.kernel.errors import RemitError, excerpt
from remit.ledger.entry_reader import info_number
from remit.ledger.schema import Column

if TYPE_CHECKING:
    from remit.ledger.client import LedgerClient
    from remit.ledger.store import Store

_T = TypeVar("_T")

Select = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]
"""Runs a portable query, inside a transaction or outside."""

Finding = tuple[int | None, str]
"""The sequence number of the entry that a problem shows at, if any, and a sentence."""

_MAX_ROWS = 50  # rows of one table


class Uncheckable(str):
    """A sentence about something that cannot be checked, because older versions recorded less."""

    __slots__ = ()


def until_failure(name: str, find: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Yield the findings of a check, and one more finding if the check raises an exception.

    Stored values are not trusted, so a check can fail in any way. The exception is not raised: it
    ends only this check, and the report is complete.

    Args:
        name: name of the check, for the finding about its failure, which names no entry.
        find: returns the findings.
    """
    try:
        yield from find()
    except Exception as error:  # noqa: BLE001 - the report has to be made, whatever is stored
        yield None, f"{name}: the check could not be finished: {reason_of(error)}"


def reason_of(error: Exception) -> str:
    """Return an unexpected error as the end of a sentence.

    A RemitError gives its message, without its next step; any other error its type and text.

    Args:
        error: the error.
    """
    return error.message if isinstance(error, RemitError) else f"{type(error).__name__}: {error}"


def locked(ledger: LedgerClient, look: Callable[[Select], _T]) -> _T:
    """Return the result of ``look`` while nobody else writes.

    A ledger that accepts no transaction (a read-only medium, or a damaged one) is read without the
    lock. If ``look`` raises an error, it is called again without the lock, and its error or result
    then counts.

    Args:
        ledger: the ledger.
        look: takes a function that runs queries; it must only read.
    """
    try:
        return ledger.transact(lambda tx: look(tx.execute))
    except Exception:  # noqa: BLE001 - an error of `look` itself is raised again by the next line
        return look(ledger.select)


def settled(ledger: LedgerClient, check: Callable[[Select], Iterable[Finding]]) -> list[Finding]:
    """Return the findings of a check, confirmed in a transaction.

    A check that finds anything, except something uncheckable, is repeated in a transaction (see
    :func:`locked`), because another process may have been writing. The second result counts. The
    check's errors are raised.

    Args:
        ledger: the ledger.
        check: takes a function that runs queries, and returns findings.
    """
    found = list(check(ledger.select))
    if any(not isinstance(said, Uncheckable) for _, said in found):
        return locked(ledger, lambda select: list(check(select)))
    return found


_STORED = {"bigint": "integer", "text": "text", "bytea": "blob"}


def of_other_types(
    ledger: LedgerClient | Store, tables: Mapping[str, Sequence[Column]]
) -> Iterator[Finding]:
    """Yield a finding for each row with a value of another type than its column's.

    Only SQLite stores such values; on PostgreSQL nothing is yielded. At most 50 rows of a table are
    yielded. A table that cannot be read is a finding. The findings name no entry.

    Args:
        ledger: the ledger, which is only read.
        tables: the columns of each table.
    """
    for table, columns in tables.items() if "://" not in ledger.location else ():
        yield from until_failure(table, lambda: _of_other_types(ledger, table, columns))  # noqa: B023


def _of_other_types(
    ledger: LedgerClient | Store, table: str, columns: Sequence[Column]
) -> Iterator[Finding]:
    kinds = [
        f"typeof({one.name}) NOT IN ('{_STORED[one.postgres_type]}', "
        f"'{'null' if one.nullable else one.other_type}')"
        for one in columns
    ]
    names = [one.name for one in columns if one.is_key] or [one.name for one in columns]
    for row in ledger.select(
        f"SELECT {', '.join([*kinds, *names])} FROM {table} "
        f"WHERE {' OR '.join(kinds)} LIMIT {_MAX_ROWS}"
    ):
        wrong = [one.name for one, is_wrong in zip(columns, row, strict=False) if is_wrong]
        key = ", ".join(map(readable, row[len(columns) :]))
        yield None, f"{table}: {' and '.join(wrong)} of the row {key} is not of the column's type"


def readable(value: Any) -> str:
    """Return the ``repr`` of a stored value for messages, cut after 200 characters.

    Args:
        value: any value.
    """
    return excerpt(repr(value))


def imported_size(select: Select) -> int:
    """Return the number of imported entries, the first of the ledger; 0 without an import.

    A recorded number that is not 1 to 18 digits counts as 0, without an error. An import brings no
    rows of state, so checks of state skip these entries.

    Args:
        select: runs a query on ``ledger_info``; its errors are raised.
    """
    return info_number(select, "imported")
