"""Calls that are out: begun, kept, given up, whatever becomes of their process (SPEC 4.6)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from remit.gateway.budget import Hold, TokenBudgeter
from remit.gateway.budget.waiting import WaitingRoom
from remit.gateway.leases import Owner
from remit.gateway.recovery import Policy, Recovery
from remit.gateway.renewal import Renewal
from remit.gateway.steps import (
    Calls,
    Claim,
    FinishCall,
    FinishedCall,
    NameSession,
    ReleaseClaim,
    StartCall,
    Step,
)
from remit.gateway.tenancy import KnownOwners, Named
from remit.gateway.writes import CancelledAfterWriteError, finish_write
from remit.ledger import LedgerClient, Transaction

__all__ = ["InFlightCalls"]


class InFlightCalls:
    """The rows that say which dispatched calls still wait for their exchange.

    Args:
        ledger: in whose database they lie.
        budgeter: where reservations are settled.
        charging: whether calls that begin here are charged at all.
        wait_ms: longest wait for money that other calls only hold.
    """

    def __init__(
        self, ledger: LedgerClient, budgeter: TokenBudgeter, charging: bool, wait_ms: int = 0
    ) -> None:
        self._ledger = ledger
        self._budgeter = budgeter
        self.charging = charging
        self.owner = Owner.current().encode()
        self.waiting_room = WaitingRoom(wait_ms)
        self._known = KnownOwners()
        self._renewal = Renewal(ledger, self.owner)
        self._recovery = Recovery(ledger, budgeter, self.owner, self.waiting_room.freed)

    async def begin(self, step: StartCall) -> tuple[str, Hold | None]:
        """Do a :class:`StartCall`, also when the caller is cancelled meanwhile; wait for its turn
        where money is only held by other calls.

        Raises:
            NotYoursError, BudgetRefusedError, IdempotencyKeyUsedError: nothing is begun.
            CancelledAfterWriteError: cancelled, and the call is begun.
            CancelledError: cancelled, and it is not.
        """

        async def reserve(ahead: bool) -> tuple[str, Hold | None]:
            step.ahead = ahead
            try:
                begun: tuple[str, Hold | None] = await finish_write(
                    self._ledger.step(self.stage, step)
                )
            except CancelledAfterWriteError as late:
                self._renewal.began(late.result[0], step.lease_ms)
                raise
            self._renewal.began(begun[0], step.lease_ms)
            if step.named is not None:
                self._known.note(step.named)
            return begun

        if not (self.charging and step.enforce):
            return await reserve(False)
        return await self.waiting_room.admit(step.path, reserve)

    async def finish(self, step: FinishCall) -> FinishedCall:
        """Do a :class:`FinishCall`, also when the caller is cancelled meanwhile.

        Raises:
            LeaseLostError: the call is on record as an orphan.
            CancelledError: cancelled, whatever became of the step.
        """
        try:
            finished: FinishedCall = await finish_write(self._ledger.step(self.stage, step))
            return finished
        except CancelledAfterWriteError as late:
            raise asyncio.CancelledError from late

    def ended(self, dispatch_entry_id: str) -> None:
        """A call that was begun is on record, or given up: its lease is not renewed any more."""
        self._renewal.ended(dispatch_entry_id)

    def stage(self, tx: Transaction, steps: Sequence[Step]) -> Calls:
        """The stage of all steps, for :meth:`~remit.ledger.LedgerClient.step`."""
        return Calls(
            tx, steps, self._budgeter.accounts(tx), self.charging, self._known, self.owner,
            self.waiting_room.freed,
        )  # fmt: skip

    async def make_sure(self, named: Named) -> None:
        """Have a session be the caller's own, ahead of a call that begins with reading it.

        Raises:
            NotYoursError: it is another's.
        """
        if named.order or named not in self._known:  # an order may have been planned since
            await self._ledger.step(self.stage, NameSession(named))
            self._known.note(named)

    async def release_claim(self, claim: Claim) -> None:
        """Let an idempotency key be used again: its call has failed."""
        await self._ledger.step(self.stage, ReleaseClaim(claim))

    def count(self) -> int:
        """How many calls are out, of all processes."""
        return int(self._ledger.select("SELECT count(*) FROM in_flight")[0][0])

    def recover(self, policy: Policy) -> list[str]:
        """Settle every call whose process is dead, or that nobody is known to wait for any more.

        The lease decides only where it cannot be seen whether the process lives, and of calls
        that this process has given up.

        Returns the ``EXCHANGE_ORPHANED`` ids.
        """
        self._renewal.renew()
        return self._recovery.run(policy)
