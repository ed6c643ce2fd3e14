"""Audit of budgets: accounts, holds and usage are compared with the ledger's entries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from remit.gateway.budget.account import Hold
from remit.gateway.budget.projection import HOLDS, MONEY, carried_marks, carried_of
from remit.ledger import (
    USAGE_TABLES,
    Finding,
    Folded,
    LedgerClient,
    LedgerFormatError,
    Progress,
    Select,
    Uncheckable,
    audit_tables,
    entry_id,
    fold_entries,
    readable,
)

_TABLES = (*MONEY, *USAGE_TABLES)
_ACCOUNTS = ("budgets", "raised_bounds")
_USAGE = tuple(one.table for one in USAGE_TABLES)


@dataclass(frozen=True, slots=True)
class Difference:
    """A figure of an account that differs between the tables and the ledger.

    Immutable.

    Attributes:
        scope: the account, or the model of a raised bound.
        field: the column; ``row`` if the whole row is missing or superfluous.
        live: the stored value; ``there`` or ``missing`` for a row.
        ledger: the value by the ledger's entries.
    """

    scope: str
    field: str
    live: int | str | None
    ledger: int | str | None


class UsageDifference(NamedTuple):
    """A figure of a table of usage that differs from the sum of the entries.

    Attributes:
        row: the table and the row's quarter hour and dimensions.
        field: as for :class:`Difference`, like the values that follow.
        live: the stored value.
        ledger: the value by the ledger's entries.
    """

    row: str
    field: str
    live: int | str | None
    ledger: int | str | None


@dataclass(frozen=True, slots=True)
class BudgetAudit:
    """The result of an audit of budgets.

    Immutable. ``calls`` does not count for :attr:`equal`.

    Attributes:
        scopes: number of accounts.
        differences: differences of budgets; empty if tables and ledger agree.
        held_tokens: tokens held by calls in flight and batches.
        held_calls: number of those holds.
        calls: problems in the rows of calls in flight, holds and conversations.
        usage: differences of the tables ``usage`` and ``usage_keys``.
        unread: entries and tables that could not be read or added up.
    """

    scopes: int
    differences: list[Difference]
    held_tokens: int
    held_calls: int
    calls: list[Finding] = field(default_factory=list)
    usage: list[UsageDifference] = field(default_factory=list)
    unread: list[Finding] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """True if everything could be read and tables and ledger agree."""
        return not (self.differences or self.usage or self.unread)


def audit_budgets(
    ledger: LedgerClient,
    *,
    repair: bool = False,
    since_mark: bool = False,
    progress: Progress | None = None,
) -> BudgetAudit:
    """Compare the tables of budgets, calls in flight and usage with the ledger. Blocks.

    Problems of calls and holds are reported, never repaired. A sound audit stores its sums as a
    mark.

    Args:
        ledger: the ledger.
        repair: replace wrong rows of budgets, raised bounds and usage by those of the ledger, in
            one transaction.
        since_mark: start from the sums of the latest audit instead of adding up all entries. Only
            :meth:`~remit.ledger.LedgerClient.verify` checks that those entries are unchanged.
        progress: called with ``(done, total)``, first with 0 done; None for no call.

    Returns:
        The differences, also if they were repaired.

    Raises:
        LedgerError: the ledger cannot be read or written.
    """
    audit = audit_tables(
        ledger, _TABLES, mark="accounts", since_mark=since_mark, repair=repair, progress=progress
    )
    differences, usage, calls = [], [], list(check_holds(ledger.select))
    for one in audit.differences:
        if one.table in _ACCOUNTS:
            name = "bound_percent" if one.column == "percent" else one.column
            differences.append(Difference(one.name, name, one.live, one.ledger))
        elif one.table in _USAGE:
            usage.append(
                UsageDifference(f"{one.table} {one.name}", one.column, one.live, one.ledger)
            )
        else:
            calls.append((one.seq, f"{one.table}: {one.column} of {one.name} is "
                                   f"{readable(one.live)}"))  # fmt: skip
    unread = [one for one in audit.findings if not isinstance(one[1], Uncheckable)]
    holds = [hold for (text,) in ledger.select(HOLDS) if (hold := Hold.read(text)) is not None]
    ((scopes,),) = ledger.select("SELECT count(*) FROM budgets")
    held = sum(hold.tokens for hold in holds)
    return BudgetAudit(scopes, differences, held, len(holds), calls, usage, unread)


def check_holds(select: Select) -> Iterator[Finding]:
    """Yield a finding for each row of ``holds`` that is not a hold, which no entry states.

    Args:
        select: runs a query on the ledger's database.
    """
    for name, text in select("SELECT reservation_id, hold FROM holds", ()):
        if Hold.read_exact(text) is None:
            yield None, f"holds: the hold of {readable(name)} cannot be read"


def carried_accounts(ledger: LedgerClient, end: int) -> dict[str, Any]:
    """Return the sums of the entries before ``end``, for the ``ARCHIVED`` entry of their removal.

    The form is that of :func:`~remit.gateway.budget.projection.carried_of`. Only accounts that
    changed since the previous archive are included. Nothing is written.

    Args:
        ledger: the ledger.
        end: sequence number of the first entry that is not counted.

    Raises:
        LedgerFormatError: an entry cannot be added up.
        LedgerError: the ledger cannot be read.
    """
    before = carried_marks(ledger).get("scopes", {})
    ranges = ledger.archived_ranges()
    with closing(Folded(MONEY, ledger.select)) as folded:
        archived = ranges[-1].end if ranges else 0
        starts = {one.table: archived for one in MONEY if one.begin is not None}
        for one in MONEY:
            if one.begin is not None:
                folded.findings += one.begin(ledger, folded, one.table)
        fold_entries(ledger.select, folded, MONEY, 0, end, starts=starts)
        if folded.findings:
            seq, said = folded.findings[0]
            raise LedgerFormatError(f"{entry_id(seq or 0)} cannot be archived: {said}.")
        mark = carried_of(folded.rows)
    scopes = {scope: one for scope, one in mark["scopes"].items() if one != before.get(scope)}
    return {**mark, "scopes": scopes}
