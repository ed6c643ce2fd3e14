"""What verification holds against the record besides the ledger's own tables."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from remit.agents.queue.audit import check_orders
from remit.gateway.auth.audit import check_keys
from remit.gateway.batches.audit import check_batches
from remit.gateway.budget.audit import audit_budgets, carried_accounts, check_budgets
from remit.gateway.ownership import check_owners
from remit.ledger import Finding, LedgerClient, of_other_types, settled
from remit.ledger.log_of_logs import check_heads
from remit.routing.trail.chains import prepare_table
from remit.routing.trail.verification import check_trail


def check_state(ledger: LedgerClient, since_mark: bool) -> Iterator[Finding]:
    """A :data:`~remit.ledger.StateCheck` of all that other parts keep in the ledger's database."""
    if wrong := of_other_types(ledger):  # the others could not read them
        yield from wrong
        return
    yield from settled(ledger, check_keys)
    yield from settled(ledger, check_orders)
    for check in (check_owners, check_batches):
        yield from settled(ledger, functools.partial(check, ledger))
    yield from check_budgets(ledger, since_mark)
    yield from check_trail(ledger, since_mark)
    yield from check_heads(ledger, since_mark)


def carried_state(ledger: LedgerClient, end: int) -> dict[str, Any]:
    """What an archive carries of the entries before ``end``, for :func:`check_state` to go on
    from."""
    return {"accounts": carried_accounts(ledger, end)}


def rebuild_state(ledger: LedgerClient) -> None:
    """Put budgets and places of thoughts beside a record that was imported. Keys, sessions and
    what else authorises anybody do not come with an import."""
    audit_budgets(ledger, repair=True)
    ledger.transact(lambda tx: prepare_table(tx, ledger))
