"""Checks of the tables in the ledger's database that are not entries."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from remit.agents.queue import ORDERS
from remit.gateway import OWNERSHIP, check_batches
from remit.gateway.auth import KEYS, check_epoch
from remit.gateway.budget import MONEY, audit_budgets, carried_accounts, check_holds
from remit.ledger import (
    STATE_TABLES,
    USAGE_TABLES,
    Finding,
    LedgerClient,
    check_indexes,
    check_tables,
    of_other_types,
    settled,
    until_failure,
)
from remit.ledger.log_of_logs import check_heads
from remit.routing.trail import check_trail, prepare_table

PROJECTIONS = (KEYS, ORDERS, *MONEY, *OWNERSHIP, *USAGE_TABLES)
"""The tables whose rows follow from entries, in the order in which entries are applied to them."""

NOT_DERIVED = ("breakers", "holds", "leases", "order_starts")
"""The tables of state that no entry gives: reservations, holders, and times that pass."""

_CHECKS: dict[str, Callable[[LedgerClient, bool], Iterable[Finding]]] = {
    "types": lambda ledger, since_mark: of_other_types(ledger, STATE_TABLES),
    "derived tables": lambda ledger, since_mark: check_tables(
        ledger, PROJECTIONS, mark="state", since_mark=since_mark
    ),
    "holds": lambda ledger, since_mark: settled(ledger, check_holds),
    "key_epoch": lambda ledger, since_mark: settled(ledger, check_epoch),
    "batches": lambda ledger, since_mark: settled(ledger, functools.partial(check_batches, ledger)),
    "thoughts": check_trail,
    "tenants": check_heads,
    "indexes": check_indexes,
}


def check_state(ledger: LedgerClient, since_mark: bool) -> Iterator[Finding]:
    """Yield the findings of every check, as a :data:`~remit.ledger.StateCheck`.

    A check that fails does not keep the others from running; its failure is a finding. No table is
    repaired; marks, from which later checks continue, may be written.

    Args:
        ledger: the ledger whose tables are compared with its entries.
        since_mark: True to check only from the last verified entry on, if a check can.
    """
    for name, check in _CHECKS.items():
        yield from until_failure(name, functools.partial(check, ledger, since_mark))


def carried_state(ledger: LedgerClient, end: int) -> dict[str, Any]:
    """Return the state that an ``ARCHIVED`` entry states in place of the entries it archives.

    :func:`check_state` needs it to check derived tables without these entries. The only key is
    ``accounts``, the state of the budgets' accounts.

    Args:
        ledger: the ledger.
        end: sequence number; the state is that of all entries before it.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    return {"accounts": carried_accounts(ledger, end)}


def rebuild_state(ledger: LedgerClient) -> None:
    """Rebuild budgets and the index of thoughts from the entries of an imported record.

    The rows of these tables are written. An import brings no keys, sessions or other
    authorisations. If it is interrupted, it can be repeated.

    Args:
        ledger: the ledger that received the import.

    Raises:
        LedgerError: the ledger cannot be read or written.
    """
    audit_budgets(ledger, repair=True)
    ledger.transact(lambda tx: prepare_table(tx, ledger))
