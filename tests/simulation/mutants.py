"""Faults that are planted in the product, each of which the simulation must find."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from remit.agents.queue import TableEngine, attempts, rows
from remit.gateway.budget import Accounts
from remit.gateway.call_transactions import Calls
from remit.gateway.leases import Lease, LeaseManager, manager
from remit.ledger.postgres.store import PostgresStore

__all__ = ["MUTANTS"]


def _unchecked_lease() -> AbstractContextManager[Any]:
    """A holder never doubts its lease."""
    return mock.patch.object(Lease, "check", return_value=None)


def _late_lease() -> AbstractContextManager[Any]:
    """A lease counts from when the answer came."""

    def extended(self: Lease, asked_at: float) -> None:
        self._until = manager.boot_time_s() + self._lasts_s

    return mock.patch.object(Lease, "extended", extended)


def _stolen_lease() -> AbstractContextManager[Any]:
    """A lease is taken whoever has it."""
    return mock.patch.object(LeaseManager, "_is_free", return_value=True)


def _old_reservation() -> AbstractContextManager[Any]:
    """Accounts are read before the transaction, and stay known."""
    real = Accounts.load
    seen: dict[tuple[Any, str], Any] = {}

    def load(self: Accounts, scopes: Any, bounds: Any = ()) -> None:
        real(self, scopes, bounds)
        for name, account in self._accounts.items():
            if account is None:
                continue
            before = seen.get((scopes_of(self), name))
            seen[scopes_of(self), name] = (account.reserved_tokens, account.spent_tokens)
            if before is not None:
                account.reserved_tokens, account.spent_tokens = before

    def scopes_of(self: Accounts) -> Any:
        return id(getattr(self._clock, "_connection", None))

    return mock.patch.object(Accounts, "load", load)


def _lost_answer() -> AbstractContextManager[Any]:
    """A commit whose answer was lost is taken for one that did not take place."""
    return mock.patch.object(PostgresStore, "_was_committed", return_value=False)


def _old_attempt() -> AbstractContextManager[Any]:
    """An attempt settles its order, whoever has it by now."""

    def claimed_row(tx: Any, claim: Any) -> Any:
        return rows.read_row(tx, claim.order_id) or claim

    return mock.patch.object(attempts.rows, "claimed_row", claimed_row)


def _forgotten_claim() -> AbstractContextManager[Any]:
    """A worker does not look for what it took in a commit whose answer was lost."""
    return mock.patch.object(TableEngine, "_taken", return_value=[])


def _finished_orphan() -> AbstractContextManager[Any]:
    """An answer is put on record though its call was settled as an orphan."""
    real = Calls._finish

    def finish(self: Calls, step: Any) -> Any:
        self._there.add((step.dispatch_entry_id,))
        return real(self, step)

    return mock.patch.object(Calls, "_finish", finish)


MUTANTS: dict[str, tuple[Callable[[], AbstractContextManager[Any]], int]] = {
    "a lease that is not checked": (_unchecked_lease, 0),
    "a lease that counts from its answer": (_late_lease, 5),
    "a lease that is taken from its holder": (_stolen_lease, 0),
    "a reservation on what was read before the transaction": (_old_reservation, 0),
    "a lost answer taken for no commit": (_lost_answer, 26),
    "an order settled by an old attempt": (_old_attempt, 9),
    "a worker that forgets what it took": (_forgotten_claim, 30),
    "an answer on record beside its orphan": (_finished_orphan, 0),
}
"""By name: what applies it, and a seed that finds it, to be tried first."""
