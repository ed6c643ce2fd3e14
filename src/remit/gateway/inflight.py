"""Calls in flight: begun, finished, abandoned and recovered, over all processes of a ledger."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import random
import time
from collections.abc import Callable
from typing import Any

from remit.gateway.budget import BudgetRefusedError, Hold, TokenBudgeter
from remit.gateway.budget.wait_queue import WaitingRoom
from remit.gateway.call_transactions import (
    CallStages,
    CircuitChangedError,
    FinishCall,
    FinishedCall,
    IdempotencyKeyUsedError,
    StartCall,
    Step,
)
from remit.gateway.cancellation import KEY_ENDED
from remit.gateway.erasures import ErasedMeanwhileError, check_erasures, newest_entry
from remit.gateway.leases import LeaseLostError, Owner
from remit.gateway.leases.recovery import Policy, Recovery
from remit.gateway.leases.renewal import Renewal
from remit.gateway.session_owners import NotYoursError, Ownership, note_owned
from remit.gateway.values import Call, Claim
from remit.kernel.errors import RemitError
from remit.kernel.exchange import WritesAhead
from remit.ledger import (
    LedgerClient,
    LedgerError,
    LedgerUnavailableError,
    LedgerWriteError,
    Transaction,
)

_log = logging.getLogger("remit.gateway")

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 1.0
_FIND_ANSWER = (
    "SELECT exchange_entry_id FROM idempotency "
    "WHERE caller = ? AND idempotency_key = ? AND until_ms >= ?"
)
_REFUSALS = (
    NotYoursError, BudgetRefusedError, IdempotencyKeyUsedError, CircuitChangedError,
    ErasedMeanwhileError,
)  # fmt: skip


class InFlightCalls:
    """The rows of calls that were dispatched and wait for their exchange.

    :meth:`begin` and :meth:`finish` frame a call; leases of this process's calls are renewed in
    between. :meth:`recover` settles calls whose processes are dead.

    Args:
        ledger: the ledger whose database contains the rows.
        budgeter: settles reservations.
        charging: whether calls that begin here are charged.
        wait_ms: longest wait for money that other calls have reserved.
        refresh: called in each transaction in which calls begin or end; None for no call.

    Attributes:
        ended: called with the dispatch id of a call that is recorded or abandoned; its lease is
            then no longer renewed.
        known: owners of sessions and orders that need not be read, because they never change.
        stages: the stages of the calls that begin or end here.
        submit: submits a step once and returns its future; :meth:`begin` or :meth:`finish`
            continues if the future fails.
        waiting_room: the queue of calls that wait for money.
    """

    def __init__(
        self,
        ledger: LedgerClient,
        budgeter: TokenBudgeter,
        charging: bool,
        wait_ms: int = 0,
        refresh: Callable[[Transaction], None] | None = None,
    ) -> None:
        self._ledger = ledger
        self.charging = charging
        owner = Owner.current().encode()
        self.waiting_room = WaitingRoom(wait_ms)
        self._renewal = Renewal(ledger, owner)
        self.stages = CallStages(
            budgeter.allow_unpriced, charging, self._renewal, owner, self.waiting_room, refresh
        )
        self.known = self.stages.known
        self.submit: Callable[[Step], asyncio.Future[Any]] = functools.partial(
            ledger.step, self.stages.open
        )
        self.ended = self._renewal.ended
        self._recovery = Recovery(ledger, budgeter, owner, self.waiting_room.freed)

    async def begin(
        self,
        step: StartCall,
        ahead: WritesAhead | None = None,
        tried: tuple[asyncio.Future[Any], BaseException] | None = None,
    ) -> tuple[str, Hold | None, asyncio.CancelledError | None]:
        """Run a :class:`StartCall`: append its ``DISPATCH``, reserve, and insert the call's row.

        If only other calls' reservations are in the way, wait for them.

        Args:
            step: the call.
            ahead: writes that are committed in the same transaction before the call, also if the
                call is refused; None for none.
            tried: the future of :meth:`submit` and the error of the wait for it; None to submit the
                step here, in turn with calls that wait for money.

        Returns:
            The id of the ``DISPATCH``, the reservation (None if nothing is charged), and the
            cancellation of the caller if it came after the call was begun; else None.

        Raises:
            NotYoursError, BudgetRefusedError, IdempotencyKeyUsedError: the call is not begun.
            CircuitChangedError: the circuit was opened in the meantime; the call is not begun.
            ErasedMeanwhileError: an erasure may reach the call's content; the call is not begun.
            LedgerError: the write failed. Recovery settles the call if it was begun.
            CancelledError: the caller was cancelled and the call is not begun.
        """

        if tried is None:
            return await self._begin_in_turn(step, ahead)
        write, error = tried
        try:
            if isinstance(error, asyncio.CancelledError):
                return *await self._begun_by(step, write, error), error
            if isinstance(error, BudgetRefusedError) and error.busy:
                step.since = step.since or step.busy_at
                return await self._begin_in_turn(step, ahead)
            if not isinstance(error, BudgetRefusedError):
                self._let_go(step)
            raise error
        finally:
            # Break the reference cycle: the traceback refers to this frame.
            del error, tried

    async def _begin_in_turn(
        self, step: StartCall, ahead: WritesAhead | None
    ) -> tuple[str, Hold | None, asyncio.CancelledError | None]:
        """Do as :meth:`begin` if other writes come first or other calls wait for money."""

        async def reserve(
            others_first: bool,
        ) -> tuple[str, Hold | None, asyncio.CancelledError | None]:
            step.queue_behind = others_first
            writes = [] if ahead is None else await ahead.take()
            write: asyncio.Future[Any]
            if ahead is None or not writes:
                write = self.submit(step)
            else:
                write = self._ledger.submit([*writes, functools.partial(self._start_last, step)])
                ahead.follow(write)
            try:
                begun = _outcome(await write)
            except asyncio.CancelledError as error:
                return *await self._begun_by(step, write, error), error
            except _REFUSALS:  # The step may succeed after other calls release their holds.
                step.since = step.since or step.busy_at
                raise
            except BaseException:
                self._let_go(step)
                raise
            self.note_begun(step)
            return *begun, None

        if not (self.charging and step.enforce):
            return await reserve(False)
        return await self.waiting_room.admit(step.path, reserve, step.waits)

    def _let_go(self, step: StartCall) -> None:
        """Abandon the call: stop renewing its lease so that recovery settles it."""
        step.lease_ms = 0
        self.ended(step.out)

    def note_begun(self, step: StartCall) -> None:
        """Remember the owners of the session and order of a call that was begun.

        Keeps them in memory, at most 4,096; nothing is written.
        """
        if step.ownership is not None:
            note_owned(self.known, step.ownership)

    async def _begun_by(
        self, step: StartCall, write: asyncio.Future[Any], error: asyncio.CancelledError
    ) -> tuple[str, Hold | None]:
        """Return dispatch id and hold if a call was begun although its caller was cancelled.

        Raises:
            CancelledError: the call was not begun, or that is unknown; it is then abandoned.
        """
        if error.args == (KEY_ENDED,):  # It is recorded, so the outcome must be known.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([write])
        if not write.done() or write.exception() is not None:
            if not write.done() or not isinstance(write.exception(), _REFUSALS):
                self._let_go(step)
            raise error
        try:
            begun = _outcome(write.result())
        except _REFUSALS:
            raise error from None
        self.note_begun(step)
        return begun

    def _start_last(self, step: StartCall, tx: Transaction) -> Any:
        """Run a step after other writes of a transaction; a refusal is returned, so the writes
        stay.
        """
        stage = self.stages.open(tx, [step])
        try:
            begun: Any = stage.do(step)
        except _REFUSALS as refused:
            begun = refused
        stage.write()
        return begun

    async def finish(
        self,
        step: FinishCall,
        tried: tuple[asyncio.Future[FinishedCall], BaseException] | None = None,
    ) -> tuple[FinishedCall, asyncio.CancelledError | None]:
        """Run a :class:`FinishCall`: append the ``EXCHANGE``, settle, and delete the call's row.

        Retries without end while the ledger is unavailable. An answer is paid for, so it is kept as
        long as the process lives. The memory is bounded, because no call is begun while nothing can
        be written.

        Args:
            step: the call.
            tried: the future of :meth:`submit` and the error of the wait for it; None to submit the
                step here.

        Returns:
            The result, and the cancellation of the caller; None if it was not cancelled.

        Raises:
            LeaseLostError: the call was settled as an orphan.
            LedgerWriteError: the ledger refused the answer (``was_sent`` is True); the call is left
                to recovery.
            CancelledError: the caller was cancelled and the answer is not recorded.
        """
        gone: asyncio.CancelledError | None = None
        wait_s = 0.0
        while True:
            finishing = self.submit(step) if tried is None else tried[0]
            try:
                if tried is not None:
                    _, error = tried
                    tried = None
                    raise error
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
                if isinstance(failure, LedgerError):
                    refused = LedgerWriteError(failure.message, next_step=failure.next_step)
                    refused.was_sent = True
                    raise refused from failure
                raise failure
            if not wait_s:
                _log.warning(
                    "the answer to %s cannot be recorded now, and is kept in memory: %s",
                    step.dispatch_entry_id, failure.message,
                )  # fmt: skip
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S) or _FIRST_WAIT_S
            try:
                await asyncio.sleep(random.uniform(0.5, 1.0) * wait_s)  # noqa: S311
            except asyncio.CancelledError as error:
                gone = error

    def _answer_to(self, dispatch_entry_id: str) -> FinishedCall | None:
        """Return the recorded result of a dispatch; None if it has no ``EXCHANGE``. Blocks."""
        for entry in self._ledger.query(
            event_type="EXCHANGE", after=dispatch_entry_id, with_content=False
        ):
            if entry.metadata.get("dispatch_entry_id") == dispatch_entry_id:
                return FinishedCall(entry.id, entry.timestamp, None)
        return None

    async def make_sure(self, named: Ownership) -> None:
        """Claim a session for the caller before a call that reads the session.

        Inserts the rows of ownership unless they are known to exist, and remembers them.

        Args:
            named: the session and work order that must be the caller's.

        Raises:
            NotYoursError: the session or work order belongs to another caller.
            LedgerError: the ledger cannot be written.
        """
        if named.order or named.session not in self.known:  # an order may have been planned since
            await self.submit(named)
            note_owned(self.known, named)

    async def newest_entry(self) -> str:
        """Return the id of the ledger's newest entry; empty for an empty ledger.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        return await asyncio.to_thread(newest_entry, self._ledger.select)

    async def is_erased(self, call: Call) -> bool:
        """Return True if an erasure may reach a call, or the ledger cannot tell.

        False for a call without ``since``, the entry after which erasures count.
        """
        session_id, since = call.request.session_id, call.since
        if not since:
            return False
        try:
            await self._ledger.submit(lambda tx: check_erasures(tx, session_id, since, ""))
        except (ErasedMeanwhileError, LedgerError):
            return True
        return False

    async def answered(self, claim: Claim | None) -> str:
        """Return the id of the ``EXCHANGE`` that answered an idempotency key; empty if none did."""
        if claim is None:
            return ""
        now_ms = round(time.time() * 1000)
        found = await asyncio.to_thread(self._ledger.select, _FIND_ANSWER, (*claim[:2], now_ms))
        return str(found[0][0]) if found else ""

    async def release_claim(self, claim: Claim) -> None:
        """Release the idempotency key of a failed call. A failure to do so is logged."""
        try:
            await self.submit(claim)
        except RemitError as error:
            _log.warning("an idempotency key was not released: %s", error.message)

    def count(self) -> int:
        """Return the number of calls in flight in all processes. Blocks."""
        return int(self._ledger.select("SELECT count(*) FROM in_flight")[0][0])

    def recover(self, policy: Policy, lease_ms: int = 0) -> list[str]:
        """Settle every call whose process is dead, or that no process is known to wait for. Blocks.

        Renews the leases of this process first. Each settled call gets one ``EXCHANGE_ORPHANED``
        entry. An expired lease counts only if the process cannot be observed, or if this process
        has abandoned the call. After an outage of the store a holder has ``lease_ms`` to renew its
        lease.

        Args:
            policy: whether reservations are charged or released.
            lease_ms: milliseconds for renewals after an outage.

        Returns:
            The ids of the ``EXCHANGE_ORPHANED`` entries.

        Raises:
            LedgerError: the ledger cannot be read or written.
        """
        self._renewal.renew()
        return self._recovery.run(policy, lease_ms)


def _outcome(done: Any) -> tuple[str, Hold | None]:
    """Return the result of a :class:`StartCall`, or raise its refusal.

    Args:
        done: the step's result, or the results of several writes of which it is the last.
    """
    begun: tuple[str, Hold | None] | Exception = done[-1] if isinstance(done, list) else done
    if isinstance(begun, Exception):
        raise begun
    return begun
