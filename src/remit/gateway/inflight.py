"""Calls that are out: begun, kept, given up, whatever becomes of their process."""

from __future__ import annotations

import asyncio
import functools
import logging
import random
from collections.abc import Callable, Sequence
from typing import Any

from remit.gateway.budget import BudgetRefusedError, Hold, TokenBudgeter
from remit.gateway.budget.queue import WaitingRoom
from remit.gateway.leases import LeaseLostError, Owner
from remit.gateway.recovery import Policy, Recovery
from remit.gateway.renewal import Renewal
from remit.gateway.steps import (
    Beside,
    Calls,
    Claim,
    FinishCall,
    FinishedCall,
    IdempotencyKeyUsedError,
    NameSession,
    ReleaseClaim,
    StartCall,
    Step,
)
from remit.gateway.tenancy import KnownOwners, Named, NotYoursError
from remit.kernel.exchange import WritesAhead
from remit.kernel.loops import abandon
from remit.ledger import LedgerClient, LedgerUnavailableError, Transaction

__all__ = ["CancelledAfterWriteError", "InFlightCalls"]

_log = logging.getLogger("remit.gateway")

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 1.0
_REFUSALS = (NotYoursError, BudgetRefusedError, IdempotencyKeyUsedError)


class CancelledAfterWriteError(Exception):
    """The caller was cancelled while its call was begun; it is, with this id and hold."""

    def __init__(self, begun: tuple[str, Hold | None]) -> None:
        self.begun = begun


class InFlightCalls:
    """The rows that say which dispatched calls still wait for their exchange.

    Args:
        ledger: in whose database they lie.
        budgeter: where reservations are settled.
        charging: whether calls that begin here are charged at all.
        wait_ms: longest wait for money that other calls only hold.
        beside: what else is done in the transactions in which calls begin and end.

    Attributes:
        ended: to be called with the dispatch of a call that is on record, or given up: its lease
            is not renewed any more.
    """

    def __init__(
        self,
        ledger: LedgerClient,
        budgeter: TokenBudgeter,
        charging: bool,
        wait_ms: int = 0,
        beside: Callable[[Transaction], None] | None = None,
    ) -> None:
        self._ledger = ledger
        self._budgeter = budgeter
        self._beside = beside
        self.charging = charging
        self.owner = Owner.current().encode()
        self.waiting_room = WaitingRoom(wait_ms)
        self._known = KnownOwners()
        self._renewal = Renewal(ledger, self.owner)
        self.ended = self._renewal.ended
        self._recovery = Recovery(ledger, budgeter, self.owner, self.waiting_room.freed)

    async def begin(
        self, step: StartCall, ahead: WritesAhead | None = None
    ) -> tuple[str, Hold | None]:
        """Do a :class:`StartCall`, also when the caller is cancelled meanwhile; wait for its turn
        where money is only held by other calls.

        Args:
            step: the call.
            ahead: goes on record before it, in its transaction; also where the call is refused.

        Raises:
            NotYoursError, BudgetRefusedError, IdempotencyKeyUsedError: nothing is begun.
            CancelledAfterWriteError: cancelled, and the call is begun.
            CancelledError: cancelled, and it is not.
        """

        if ahead is not None or not self.waiting_room.is_empty:
            return await self._begin_in_turn(step, ahead)
        write = self._ledger.step(self.stage, step)
        try:
            begun: tuple[str, Hold | None] = await write
        except asyncio.CancelledError:
            raise self._cancelled(step, write) from None
        except BudgetRefusedError as refused:
            if not refused.busy:
                raise
            return await self._begin_in_turn(step, ahead)
        except BaseException:
            self._let_go(step)
            raise
        self._begun(step)
        return begun

    async def _begin_in_turn(
        self, step: StartCall, ahead: WritesAhead | None
    ) -> tuple[str, Hold | None]:
        """:meth:`begin` where something else is to be written, or others wait for money."""

        async def reserve(others_first: bool) -> tuple[str, Hold | None]:
            step.ahead = others_first
            writes = [] if ahead is None else await ahead.take()
            write: asyncio.Future[Any]
            if ahead is None or not writes:
                write = self._ledger.step(self.stage, step)
            else:
                write = self._ledger.submit([*writes, functools.partial(self._start_last, step)])
                ahead.follow(write)
            try:
                begun = _outcome(await write)
            except asyncio.CancelledError:
                raise self._cancelled(step, write) from None
            except _REFUSALS:  # The step may succeed after other calls release their holds.
                raise
            except BaseException:
                self._let_go(step)
                raise
            self._begun(step)
            return begun

        if not (self.charging and step.enforce):
            return await reserve(False)
        return await self.waiting_room.admit(step.path, reserve)

    def _let_go(self, step: StartCall) -> None:
        """The caller is gone. If the call is on record all the same, its lease runs out."""
        step.lease_ms = 0
        self.ended(step.out)

    def _begun(self, step: StartCall) -> None:
        if step.named is not None and not self._known.issuperset(step.named.owned):
            self._known.note(step.named)

    def _cancelled(self, step: StartCall, write: asyncio.Future[Any]) -> BaseException:
        """What is raised to a caller that was cancelled while its call was begun."""
        if not write.done() or write.exception() is not None:
            self._let_go(step)
            return asyncio.CancelledError()
        try:
            begun = _outcome(write.result())
        except _REFUSALS:
            return asyncio.CancelledError()
        self._begun(step)
        return CancelledAfterWriteError(begun)

    def _start_last(self, step: StartCall, tx: Transaction) -> Any:
        """The step after other writes of a transaction, which stand also where it is refused."""
        stage = self.stage(tx, [step])
        try:
            begun: Any = stage.do(step)
        except _REFUSALS as refused:
            begun = refused
        stage.write()
        return begun

    async def finish(
        self, step: FinishCall, beside: Beside | None = None
    ) -> tuple[FinishedCall, asyncio.CancelledError | None]:
        """Do a :class:`FinishCall`: while the ledger cannot be written, again and again.

        An answer is paid for, so it is kept for as long as the process lives. What waits here is
        bounded: where nothing can be written, nothing is begun. Who is cancelled meanwhile learns
        it when that is done.

        Args:
            step: the call.
            beside: goes on record right after it.

        Returns:
            What it came to, and how the caller was cancelled, if it was.

        Raises:
            LeaseLostError: the call is on record as an orphan.
            CancelledError: cancelled, and it is not on record.
        """
        gone: asyncio.CancelledError | None = None
        wait_s = 0.0
        while True:
            finishing = self._submit(step, beside)
            try:
                return await finishing, gone
            except asyncio.CancelledError as error:
                gone = error
                if not finishing.done():
                    raise
                failure = finishing.exception()
            except Exception as error:  # noqa: BLE001 - raised below, or tried again
                failure = error
            if failure is None:
                return finishing.result(), gone
            if wait_s and isinstance(failure, LeaseLostError):
                # A commit that broke off may have taken place.
                found = await asyncio.to_thread(self._answer_to, step.dispatch_entry_id)
                if found is not None:
                    return found, gone
            if not isinstance(failure, LedgerUnavailableError):
                self._recovery.give_up(step.dispatch_entry_id, failure)
                if gone is not None:
                    raise gone from failure
                raise failure
            if not wait_s:
                _log.warning(
                    "the answer to %s cannot be put on record just now, and is kept: %s",
                    step.dispatch_entry_id, failure.message,
                )  # fmt: skip
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S) or _FIRST_WAIT_S
            try:
                await asyncio.sleep(random.uniform(0.5, 1.0) * wait_s)  # noqa: S311
            except asyncio.CancelledError as error:
                gone = error

    def _submit(self, step: FinishCall, beside: Beside | None) -> asyncio.Future[FinishedCall]:
        if beside is None:
            return self._ledger.step(self.stage, step)
        if beside.done is not None:  # An earlier attempt failed.
            abandon(beside.done)
        finishing, beside.done = self._ledger.step_both(
            (self.stage, step), (beside.opener, beside.step)
        )
        return finishing

    def _answer_to(self, dispatch_entry_id: str) -> FinishedCall | None:
        """The ``EXCHANGE`` of a dispatch; ``None`` where there is none."""
        for entry in self._ledger.query(
            event_type="EXCHANGE", after=dispatch_entry_id, with_content=False
        ):
            if entry.metadata.get("dispatch_entry_id") == dispatch_entry_id:
                return FinishedCall(entry.id, entry.timestamp, None)
        return None

    def stage(self, tx: Transaction, steps: Sequence[Step]) -> Calls:
        """The stage of all steps, for :meth:`~remit.ledger.LedgerClient.step`."""
        if self._beside is not None:
            self._beside(tx)
        return Calls(
            tx, steps, self._budgeter.accounts(tx), self.charging, self._known, self._renewal,
            self.owner, self.waiting_room.freed,
        )  # fmt: skip

    async def make_sure(self, named: Named) -> None:
        """Have a session be the caller's own, ahead of a call that begins with reading it.

        Raises:
            NotYoursError: it is another's.
        """
        if named.order or named.session not in self._known:  # an order may have been planned since
            await self._ledger.step(self.stage, NameSession(named))
            self._known.note(named)

    async def release_claim(self, claim: Claim) -> None:
        """Let an idempotency key be used again: its call has failed."""
        await self._ledger.step(self.stage, ReleaseClaim(claim))

    def count(self) -> int:
        """How many calls are out, of all processes."""
        return int(self._ledger.select("SELECT count(*) FROM in_flight")[0][0])

    def recover(self, policy: Policy, lease_ms: int = 0) -> list[str]:
        """Settle every call whose process is dead, or for which no process is known to wait.

        The lease decides only where it cannot be seen whether the process lives, and of calls
        that this process has given up. A holder that could not renew one while the store was away
        has ``lease_ms`` to do so once the store is back.

        Returns the ``EXCHANGE_ORPHANED`` ids.
        """
        self._renewal.renew()
        return self._recovery.run(policy, lease_ms)


def _outcome(done: Any) -> tuple[str, Hold | None]:
    """What a :class:`StartCall` came to, by itself or as the last of several writes."""
    begun: tuple[str, Hold | None] | Exception = done[-1] if isinstance(done, list) else done
    if isinstance(begun, Exception):
        raise begun
    return begun
