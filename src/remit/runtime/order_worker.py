"""A worker: executes orders, ticks of schedules and results of batches until drained."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from remit.agents.queue import (
    Row,
    Seats,
    cancel_attempt,
    complete_attempt,
    fail_attempt,
    new_seat,
    park_attempt,
    row_matches_ledger,
)
from remit.kernel.errors import RemitError
from remit.kernel.loops import repeat
from remit.runtime.agent import Agent
from remit.runtime.order_attempts import Done, run_turn
from remit.runtime.schedules import Schedule

if TYPE_CHECKING:
    from remit.runtime.runtime import Runtime

_log = logging.getLogger("remit.worker")

_POLL_S = 0.5  # Pause between checks for dead workers and cancelled orders.
_TICK_S = 1.0  # Pause between checks for due ticks.
_AWAY_S = 1.0  # Pause before a silent database is tried again.

Handler = Callable[[Row], Awaitable[Done]]
"""Makes one attempt at an order of a kind."""


class OrderWorker:
    """A worker that executes orders of its queues concurrently.

    Several workers can serve one root.

    :meth:`run` works until :meth:`drain` is called. An order whose row differs from the record
    fails without being tried. The other methods are for the engine of the
    queue, which hands orders out. All methods are called in the worker's event loop, and an
    instance runs once.

    Args:
        runtime: the root.
        agents: agents made by a program, in addition to those of packages.
        schedules: schedules whose ticks the worker runs.
        queues: queues to serve, in order of preference.
        at_once: largest number of concurrent orders; the configured one if left out.
        kinds: executors keyed by kind, in addition to ``turn`` and ``replay``, or in their place.
            Orders of an unknown kind fail, and may be tried again.

    Attributes:
        seat: name of the running worker, with its queues; empty before :meth:`run`.
        queues: queues that the worker serves, each once.
        at_once: largest number of concurrent orders.
        draining: True if the worker takes no more orders.
    """

    def __init__(
        self,
        runtime: Runtime,
        agents: Sequence[Agent[Any]] = (),
        schedules: Sequence[Schedule[Any]] = (),
        *,
        queues: Sequence[str] = ("default",),
        at_once: int | None = None,
        kinds: Mapping[str, Handler] | None = None,
    ) -> None:
        settings = runtime.loaded.settings.worker
        self._runtime = runtime
        self._ledger = runtime.ledger
        self.queues: Sequence[str] = tuple(dict.fromkeys(queues))
        self.at_once = at_once or settings.orders.at_once
        self._schedules = schedules
        self._settings = settings.orders
        self._seats = Seats(runtime.ledger, runtime.leases)
        turn = functools.partial(run_turn, runtime, {one.agent_id: one for one in agents})
        self._kinds: dict[str, Handler] = {
            "turn": turn, "replay": self._replay, **(kinds or {}),
        }  # fmt: skip
        self._tasks: set[asyncio.Task[None]] = set()  # A task for each running order.
        self._nudge = asyncio.Event()
        self.draining = False
        self.seat = ""

    def drain(self) -> None:
        """Take no more orders, and end after the running ones. Call it in the worker's loop.

        Returns at once; the running orders are not cancelled.
        """
        self.draining = True
        self._nudge.set()

    async def run(self, ready: Callable[[], None] = lambda: None) -> int:
        """Work until :meth:`drain`: execute orders, run ticks, and take over from dead workers.

        A lease holds the worker's seat meanwhile. Calls and batches of dead processes are settled
        too. Errors of orders, ticks and housekeeping are recorded or logged and do not end the
        worker. If the task is cancelled, the seat is released at once.

        Args:
            ready: called when the worker begins to take orders.

        Returns:
            The number of orders and ticks that still run after ``worker.orders.drain_s`` seconds
            of draining. Other workers take the orders over when this process has ended.

        Raises:
            RemitError: the seat cannot be taken, or a library of the queue's engine is missing. A
                queue that cannot be read is logged, and read again after a second.
        """
        self.seat = new_seat(tuple(self.queues))
        leases = self._runtime.leases
        async with leases.hold(self.seat, wait_s=0, on_stop=self.drain):
            helpers = [
                asyncio.create_task(
                    repeat(work, every_s, "the worker could not do its housekeeping")
                )
                for every_s, work in (
                    (_POLL_S, self._look),
                    (self._recover_s, self._recover),
                    (self._recover_s, self._runtime.gateway.batches.poll),
                )
            ]
            ticking = {asyncio.create_task(self._ticks(one)) for one in self._schedules}
            ready()
            try:
                await self._runtime.orders.engine.hand_out(self)
                if left := self._tasks | ticking:
                    await asyncio.wait(left, timeout=self._settings.drain_s)
            finally:
                for helper in helpers:
                    helper.cancel()
                await asyncio.gather(*helpers, return_exceptions=True)
        return sum(not task.done() for task in self._tasks | ticking)

    def room(self) -> int:
        """Return the number of further orders that the worker can take now.

        0 or less if it can take none.
        """
        return self.at_once - len(self._tasks)

    def begin(self, claim: Row) -> asyncio.Task[None]:
        """Start a task that makes an attempt at a claimed order and records the result.

        Call it in the worker's event loop. If the result cannot be recorded, that is tried again
        every second.

        Args:
            claim: the order, claimed by this worker.

        Returns:
            The task, which ends when the result is recorded.
        """
        task = asyncio.create_task(self._do(claim))
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def nudged(self, timeout_s: float | None) -> None:
        """Wait until an order ends, draining begins, or the time is over.

        The call returns at once if one of these happened since the last call.

        Args:
            timeout_s: longest wait, in seconds; ``None`` for no limit.
        """
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._nudge.wait(), timeout_s)
        self._nudge.clear()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._nudge.set()

    async def _do(self, claim: Row) -> None:
        """Make an attempt at an order and record the result."""
        try:
            handler = self._kinds.get(claim.kind)
            if not await asyncio.to_thread(row_matches_ledger, self._ledger, claim):
                said = (
                    "The order's row in the queue differs from the record: run `remit ledger "
                    "verify`."
                )
                done = Done(outcome="failed", code="row_edited", message=said)
            elif handler is None:
                said = f"This worker does not run orders of the kind {claim.kind}."
                done = Done(outcome="failed", code="unknown_kind", message=said, again=True)
            else:
                done = await handler(claim)
        except RemitError as error:
            done = _failed(error, error.message)
        except (Exception, asyncio.CancelledError) as error:
            # This order is set aside; others continue.
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise  # The worker was cancelled, not the order.
            _log.error("an order failed: %s", type(error).__name__)
            _log.debug("where it failed", exc_info=error)
            done = _failed(error, f"{type(error).__name__} in the worker")
        while True:  # This process holds the order until the result is recorded.
            try:
                await self._settle(claim, done)
                return
            except RemitError as error:
                _log.warning("the outcome of an order cannot be recorded: %s", error.message)
                await asyncio.sleep(_AWAY_S)

    async def _replay(self, claim: Row) -> Done:
        from remit.runtime.order_attempts import run_replay  # Few workers need the learning room.

        return await asyncio.to_thread(run_replay, self._runtime, claim)

    async def _settle(self, claim: Row, done: Done) -> None:
        ledger = self._ledger
        if done.outcome == "completed":
            await complete_attempt(ledger, claim, done.turn_entry_id, done.figures)
        elif done.outcome == "cancelled":
            await cancel_attempt(ledger, claim)
        elif done.outcome == "waiting":
            await park_attempt(ledger, claim, done.request_ids)
        else:
            await fail_attempt(
                ledger, self._settings, claim, done.code, done.message,
                again=done.again, new_session=done.new_session,
            )  # fmt: skip

    async def _look(self) -> None:
        """Cancel orders that must stop; take over orders of workers that died."""
        for order_id in await asyncio.to_thread(self._seats.stop_requests, self.seat):
            status = await asyncio.to_thread(self._runtime.orders.get, order_id)
            await asyncio.to_thread(
                self._runtime.leases.request_stop, f"session:{status.session_id}"
            )
        for worker in await asyncio.to_thread(self._seats.abandoned):
            await self._recover()  # Their calls end first.
            take = functools.partial(self._seats.take_over, worker=worker)
            if left := await self._ledger.submit(take):
                _log.warning("%d orders of a worker that is gone are taken over", len(left))
                self._nudge.set()

    @property
    def _recover_s(self) -> float:
        return self._runtime.loaded.settings.gateway.recover_every_s

    async def _recover(self) -> None:
        await asyncio.to_thread(self._runtime.gateway.recover)

    async def _ticks(self, schedule: Schedule[Any]) -> None:
        """Run the ticks of a schedule until draining."""
        while not self.draining:
            try:
                await schedule.adue()
            except RemitError as error:
                _log.warning("a tick failed: %s", error.message)
            except Exception as error:  # noqa: BLE001 - the next tick comes
                _log.error("a tick failed: %s", type(error).__name__)
                _log.debug("where it failed", exc_info=error)
            await asyncio.sleep(_TICK_S)


def _failed(error: BaseException, message: str) -> Done:
    return Done(outcome="failed", code=type(error).__name__, message=message, again=True)
