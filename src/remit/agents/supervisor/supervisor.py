"""The turns of one session, one at a time: started, resumed, cancelled, recorded.

Start reading at :meth:`HO2Supervisor.ahandle_turn`; :mod:`remit.agents.supervisor.turn` has
the steps of a turn.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from remit.agents.output_type import OutputType
from remit.agents.sessions import latest_of
from remit.agents.supervisor.attention import Candidate
from remit.agents.supervisor.carried_effects import unused_grants
from remit.agents.supervisor.entries import (
    UnfinishedTurn,
    handed_to,
    unfinished_turn,
)
from remit.agents.supervisor.scheduler import Scheduler
from remit.agents.supervisor.services import Services
from remit.agents.supervisor.standalone_orders import StandaloneOrders
from remit.agents.supervisor.threads import consolidate, known_threads
from remit.agents.supervisor.turn import TurnRun
from remit.agents.supervisor.turn_result import TurnCancelledError, TurnPendingError, TurnResult
from remit.agents.workorders import EventSink, OrderRecordError, TurnResumed
from remit.kernel.errors import InvalidInputError
from remit.kernel.json_text import sound_text
from remit.kernel.loops import run_blocking
from remit.ledger import LedgerClosedError, LedgerEntry, LedgerError

if TYPE_CHECKING:
    from remit.gateway.leases import Lease

_CANCELLED = "(The turn was cancelled before there was an answer.)"
_ABANDONED = "(The turn was interrupted before there was an answer.)"


class HO2Supervisor:
    """The supervisor of one session.

    Every step of its turns is a work order.

    :meth:`ahandle_turn`, :meth:`aresume` and :meth:`acancel` hold the session's lease, so that one
    turn runs at a time over all processes. What the supervisor knows of the session is read again
    if another process has changed it.

    Args:
        services: the collaborators of the session.

    Attributes:
        orders: work of the session outside turns.

    Raises:
        InvalidInputError: a claim pattern of the settings is no regular expression.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._session = services.session
        self._journal = services.journal
        self._latest: LedgerEntry | None = None
        self._handed: tuple[str, ...] = ()
        self._number: int | None = None  # The number of the last order; None if unknown.
        self._threads: Sequence[Candidate] = ()
        self._threads_seen: Sequence[int | None] | None = None
        self.orders = StandaloneOrders(services)
        _ = services.gate

    def handle_turn(self, user_message: str) -> TurnResult:
        """Run :meth:`ahandle_turn` for callers without an event loop; block until the turn ends.

        Args:
            user_message: the user's message.

        Raises:
            InvalidInputError: the message is blank, or the caller is the background loop itself.
            RemitError: another error of :meth:`ahandle_turn`.
        """
        return run_blocking(self.ahandle_turn(user_message))

    async def ahandle_turn(
        self,
        user_message: str,
        *,
        files: Sequence[Mapping[str, Any]] = (),
        output: OutputType[Any] | None = None,
        on_event: EventSink | None = None,
    ) -> TurnResult:
        """Answer a message and record the turn.

        Holds the session's lease meanwhile. An unfinished turn is closed first, as ``abandoned``,
        also if its requests were decided but it was not resumed; its recorded response then names
        each granted call that did not run. While one of them is undecided, the message is refused.
        ``TURN_RECORDED`` is appended unless the turn waits. A failure of a model or of the loop
        raises nothing: the result is a notice or a degraded answer. If the task is cancelled or a
        stop requested, the turn is recorded as ``cancelled`` before the error is raised; with a
        closed ledger it remains unfinished.

        Args:
            user_message: the user's message.
            files: content blocks of its images and documents.
            output: type of the answer; by default the agent's own.
            on_event: receives text, tool events and rejections; its errors are logged and ignored.
                None for no listener.

        Raises:
            InvalidInputError: the message is blank.
            TurnPendingError: the last turn waits for a person.
            TurnCancelledError: somebody requested a stop.
            LeaseBusyError: another process works on the session for too long.
            LedgerError: the ledger cannot be read or written; nothing further was done.
            LeaseLostError: another process may have taken over the session in the meantime.
            OrderRecordError: the entries of the unfinished turn do not form orders.
            NotFoundError: the session never began, belongs to another agent, or was archived.
        """
        user_message = sound_text(user_message)
        if not user_message.strip():
            raise InvalidInputError("The message is blank.", next_step="Pass a text.")

        async with self._held() as lease:
            before = self._unfinished()
            if before is not None:
                if before.waiting_for:
                    raise TurnPendingError(before.waiting_for)
                self._services.exclusions.observe(before.orders[-1].order.wo_id)
                await self._abandon(before, lease, _ABANDONED, "abandoned")
            turn = self._turn(user_message, files, None, lease, output, on_event)
            async with self._ending(turn, lease):
                await turn.run()
            return turn.result()

    async def aresume(
        self, *, output: OutputType[Any] | None = None, on_event: EventSink | None = None
    ) -> TurnResult | None:
        """Continue the turn that was interrupted, or that waited for a person.

        Recorded steps are not repeated. Holds the session's lease meanwhile. The turn is recorded
        unless it waits again; if nobody has decided, nothing is written. Failures and cancellation
        have the results of :meth:`ahandle_turn`.

        Args:
            output: type with which the turn began; by default the agent's own.
            on_event: receives text, tool events and rejections; None for no listener.

        Returns:
            The turn; None if the session has no unfinished turn.

        Raises:
            OrderRecordError: the input of the turn was erased, or its entries do not form orders.
            InvalidInputError: the turn began with another output type.
            TurnCancelledError: somebody requested a stop.
            LeaseBusyError: another process works on the session.
            LedgerError: an entry could not be written.
            LeaseLostError: another process may have taken over the session in the meantime.
            NotFoundError: the session belongs to another agent, or was archived.
        """

        async with self._held() as lease:
            before = self._unfinished()
            if before is None:
                return None
            if before.erased:
                raise OrderRecordError(
                    "The unfinished turn cannot be resumed, because its input was erased.",
                    next_step="Cancel the turn, or send a new message.",
                )
            turn = self._turn(before.message, before.files, before, lease, output, on_event)
            turn.listen(TurnResumed(before.message))
            if before.idle and before.requests:
                turn.restore(before)
                return turn.result()
            async with self._ending(turn, lease):
                await turn.run()
            return turn.result()

    async def acancel(self) -> bool:
        """End the session's unfinished turn without an answer; return False if there is none.

        Ends its orders and appends ``TURN_RECORDED`` with the outcome ``cancelled``, and with a
        response that names each granted call that did not run.

        Raises:
            LeaseBusyError: another process works on the session; request a stop there.
            LedgerError: an entry could not be written.
            LeaseLostError: another process may have taken over the session in the meantime.
            OrderRecordError: the entries of the unfinished turn do not form orders.
            TurnCancelledError: somebody requested a stop meanwhile.
            NotFoundError: the session belongs to another agent, or was archived.
        """

        async with self._held() as lease:
            before = self._unfinished()
            if before is None:
                return False
            await self._abandon(before, lease, _CANCELLED, "cancelled")
            return True

    async def aconsolidate(self) -> None:
        """Have a model read the latest turns; record opened and closed threads.

        Does nothing unless ``[supervisor] consolidate`` is set. Repeated without a new turn, the
        call asks no model again. See :func:`remit.agents.supervisor.threads.consolidate`.

        Raises:
            LedgerError: the ledger cannot be read or written.
            LeaseBusyError: another process works on the same order.
            LeaseLostError: another process took the order over.
            OrderRecordError: the interrupted order's input was erased, or its entries form none.
        """
        if self._services.config.consolidate:
            await consolidate(self._services, self.orders)

    def unfinished(self) -> UnfinishedTurn | None:
        """Return the session's unfinished turn as recorded now; None if there is none.

        The number of recorded turns may be cached, see :class:`SessionManager`.

        Raises:
            OrderRecordError: the entries of an order are not valid.
            LedgerError: the ledger cannot be read.
        """
        ledger = self._services.ledger
        return unfinished_turn(ledger, self._session.session_id, self._session.turn_count)

    @contextlib.asynccontextmanager
    async def _held(self) -> AsyncIterator[Lease]:
        """Hold the session's lease while the block runs, and read what others have changed.

        Raises:
            TurnCancelledError: somebody requested the block to stop.
        """
        task = asyncio.current_task()
        assert task is not None

        def stop() -> None:
            task.cancel()

        name = f"session:{self._session.session_id}"
        session = self._session
        async with self._services.alone(name, stop, session.read_marks) as lease:
            self._journal.buffer.clear()
            if lease.read is not None:
                self._services.exclusions.refresh(lease.read)
            if not session.refresh(lease.read):
                self._number = None
            if self._number is None:
                ledger = self._services.ledger
                self._latest = latest_of(ledger, session.session_id, "WO_PLANNED")
                if self._services.agent.handoffs:
                    self._handed = handed_to(ledger, session.session_id, self._latest)
            try:
                yield lease
            except asyncio.CancelledError:
                if not lease.stop_requested:
                    raise
                task.uncancel()
                raise TurnCancelledError("The turn was stopped on request.") from None

    def _open_threads(self) -> Sequence[Candidate]:
        """Return the open threads that the session knows; read again only after a change."""
        seen = self._session.threads_seen
        if seen is None or seen != self._threads_seen:
            has_none = seen is not None and seen[0] is None
            own = self._services.config.threads
            self._threads = () if has_none else known_threads(self._services, own=own)
            self._threads_seen = seen
        return self._threads

    def _unfinished(self) -> UnfinishedTurn | None:
        session = self._session
        if self._number is not None:
            return None  # This process recorded the latest turn.
        return unfinished_turn(
            self._services.ledger, session.session_id, session.turn_count, self._latest
        )

    async def _abandon(
        self, before: UnfinishedTurn, lease: Lease, response: str, outcome: str
    ) -> None:
        scheduler = self._scheduler(before, lease)
        for recorded in before.orders:
            order = recorded.order
            for grant in unused_grants(self._services.ledger, order.wo_id, order.session_id):
                who, tool = grant.metadata["decided_by"], grant.metadata["tool_id"]
                response += f" ({who} approved {tool}, but it did not run: {grant.submission_id}.)"
        scheduler.restore()
        await scheduler.end_all()
        lease.check()
        effects = scheduler.remaining_effects(answered=False)
        await self._session.aadd_turn(before.message, response, outcome=outcome, effects=effects)

    def _scheduler(
        self, before: UnfinishedTurn | None, lease: Lease, output: OutputType[Any] | None = None
    ) -> Scheduler:
        number, self._number = self._number, None
        if number is None:
            number = self._journal.last_number(self._latest)
        check = None if output is None else output.problem
        return Scheduler(self._services, lease.check, before, number, check)

    def _turn(
        self,
        message: str,
        files: Sequence[Mapping[str, Any]],
        before: UnfinishedTurn | None,
        lease: Lease,
        output: OutputType[Any] | None,
        on_event: EventSink | None,
    ) -> TurnRun:
        output = _agreed(before, output, self._services.output)
        scheduler = self._scheduler(before, lease, output)
        handed = self._handed
        if before is not None:  # The turn continues with the agent that began it.
            handed = tuple(before.orders[0].planned.metadata.get("handed_to", ()))
        scheduler.hand_over(handed)
        if before is not None:  # The interrupted process may not have observed its failures.
            self._services.exclusions.observe(before.orders[-1].order.wo_id)
        return TurnRun(
            self._services, self._open_threads, message, files, scheduler, before, output, on_event
        )

    @contextlib.asynccontextmanager
    async def _ending(self, turn: TurnRun, lease: Lease) -> AsyncIterator[None]:
        """Run the block, which takes a turn's steps; record the turn unless it waits for a person.

        After an error of the block, the agent answers directly. A cancelled turn is recorded, too.
        """
        try:
            try:
                yield
            except LedgerError:
                raise
            except Exception as error:  # noqa: BLE001 - the user still gets an answer, and why
                lease.check()  # Another process may own the turn.
                await turn.degrade(error)
            if not turn.waiting:
                turn.scheduler.restore()  # Orders that were not continued must end, too.
                await turn.scheduler.end_all()
        except asyncio.CancelledError:
            with contextlib.suppress(
                LedgerClosedError
            ):  # With a closed ledger the turn remains resumable.
                lease.check()
                await turn.scheduler.end_all()
                await self._journal.flush()
                effects = turn.scheduler.remaining_effects(answered=False)
                await self._session.aadd_turn(
                    turn.message, _CANCELLED, outcome="cancelled", effects=effects
                )
            raise
        if not turn.waiting:
            await self._record(turn, lease)

    async def _record(self, turn: TurnRun, lease: Lease) -> None:
        """Record the turn; a later request to stop has no effect."""
        buffer = self._journal.buffer
        await buffer.settle()
        lease.check()
        effects = turn.scheduler.remaining_effects(answered=not turn.outcome)

        async def record() -> None:
            turn.entry_id = await self._session.aadd_turn(
                turn.message, turn.response, outcome=turn.outcome, effects=effects,
                after=buffer.take_held(), then=[lease.release_in],
            )  # fmt: skip
            # No other task gets the session before these fields are current.
            lease.released, self._number = True, turn.scheduler.last_number
            self._handed = turn.scheduler.handed

        recording = asyncio.ensure_future(record())
        try:
            await asyncio.shield(recording)
        except asyncio.CancelledError:
            await recording
            task = asyncio.current_task()
            if not lease.stop_requested or task is None:
                raise
            task.uncancel()


def _agreed(
    before: UnfinishedTurn | None, asked: OutputType[Any] | None, own: OutputType[Any] | None
) -> OutputType[Any] | None:
    """Return the type of a turn's answer: the requested one, else the agent's own.

    Raises:
        InvalidInputError: the continued turn began with another type.
    """
    wanted = asked or own
    began = before and next((o for o in before.orders if o.planned.metadata.get("answering")), None)
    if not began:
        return wanted
    schema = began.order.constraints.output_schema
    if (wanted.schema if wanted else None) == schema:
        return wanted
    if asked is None and (own is None or schema is None):
        return None  # The answer is plain data, or text.
    raise InvalidInputError(
        "The unfinished turn began with another output type.",
        next_step="Pass the original type as output_type, or cancel the turn.",
    )
