"""One turn: scope, assemble, plan, dispatch, verify, deliver."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from remit.agents.sessions import SessionManager
from remit.agents.supervisor.degradation import (
    LOOP_FAILURES,
    LoopFailedError,
    as_loop_failure,
    direct_answer,
)
from remit.agents.supervisor.journal import SupervisorJournal
from remit.agents.supervisor.plan import Planner, PlanStep
from remit.agents.supervisor.planning import Planning
from remit.agents.supervisor.ports import ContextPort, Lease, LeasePort, WorkerPort
from remit.agents.supervisor.quality import QualityGate
from remit.agents.supervisor.review import Review
from remit.agents.supervisor.scheduler import Scheduler
from remit.agents.supervisor.turn import (
    TurnCancelledError,
    TurnInProgress,
    TurnPendingError,
    TurnResult,
)
from remit.agents.supervisor.unfinished import UnfinishedTurn, unfinished_turn
from remit.agents.workorders import (
    AnswerRejected,
    Degraded,
    EventSink,
    OrderRecordError,
    TurnResumed,
    WorkOrderState,
    WorkOrderType,
)
from remit.kernel.errors import InvalidInputError
from remit.kernel.exchange import GatewayPort
from remit.kernel.loops import run_blocking
from remit.kernel.settings import SupervisorSettings
from remit.ledger import LedgerEntry, LedgerError, LedgerPort

__all__ = ["HO2Supervisor"]

_T = TypeVar("_T")

_CLASSIFY = "PRC-CLASSIFY-001"

_HOPELESS = frozenset(
    {"budget_exhausted", "turn_limit_exceeded", "cancelled", "tool_outcome_unknown",
     "record_erased"}
)  # fmt: skip
"""Failures that another attempt cannot fix."""

_CANCELLED = "(The turn was cancelled before there was an answer.)"
_ABANDONED = "(The turn was interrupted before there was an answer.)"


class HO2Supervisor:
    """Answers the messages of one session. Every step is a work order of its own.

    Args:
        worker: executes the orders.
        ledger: a handle of tier ``ho2``.
        session: the conversation.
        config: how turns are planned and checked.
        leases: see to it that one process at a time works on the session.
        session_wait_s: how long a turn waits for another that is worked on.
        context: what the tier above pushes down; nothing when left out.
        fallback: the gateway's port, used for one direct call when the loop itself fails.
        answer: the step that answers, where there is no planner: contract, tools, limits.
        planner: makes the plan of each turn instead; its steps may use no other tools.
        model: provider and model of the agent, where they are not the root's default.
        repeatable: whether a tool may run twice; none may when left out.
        work_order_tokens: token budget of an order whose step names none; 0 for none.
        agent_id: who answers.
        agent_class: of what class.
        starting: waits for the write that begins the session, where it is still under way.
    """

    def __init__(
        self,
        worker: WorkerPort,
        ledger: LedgerPort,
        session: SessionManager,
        config: SupervisorSettings,
        leases: LeasePort,
        *,
        session_wait_s: float,
        answer: PlanStep,
        context: ContextPort | None = None,
        fallback: GatewayPort | None = None,
        planner: Planner | None = None,
        model: tuple[str, str] | None = None,
        repeatable: Callable[[str], bool] | None = None,
        work_order_tokens: int = 0,
        agent_id: str = "admin-001",
        agent_class: str = "ADMIN",
        starting: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._worker = worker
        self._ledger = ledger
        self._session = session
        self._config = config
        self._leases = leases
        self._wait_s = session_wait_s
        self._answer = answer
        self._fallback = fallback
        self._model = model
        self._starting = starting
        self._latest: LedgerEntry | None = None
        self._repeatable = repeatable or (lambda _: False)
        self._tokens = work_order_tokens
        self._agent_class = agent_class
        self._journal = SupervisorJournal(ledger, session.session_id, agent_id, agent_class)
        gate = QualityGate(config.error_markers, config.claim_patterns)
        self._gate = gate
        self._planning = Planning(ledger, session, config, answer, context, planner)
        self._review = Review(
            gate,
            self._journal,
            session,
            self._planning.known_threads,
            second_opinion=config.verify,
        )

    def handle_turn(self, user_message: str, *, on_event: EventSink | None = None) -> TurnResult:
        """:meth:`ahandle_turn` for callers without an event loop."""
        return run_blocking(self.ahandle_turn(user_message, on_event=on_event))

    async def ahandle_turn(
        self, user_message: str, *, on_event: EventSink | None = None
    ) -> TurnResult:
        """Answer one message and record the turn.

        A turn that another process left unfinished is closed first, as interrupted; one that
        waits for a person keeps the session until it is decided or cancelled.

        Args:
            user_message: what the user said.
            on_event: receives text, tools and rejections.

        Raises:
            InvalidInputError: the message is blank.
            TurnPendingError: the last turn waits for a person.
            TurnCancelledError: somebody asked the turn to stop.
            LeaseBusyError: another process works on the session for too long.
            LedgerError: the record could not be kept; nothing further was done.
        """
        if not user_message.strip():
            raise InvalidInputError("The message is blank.", next_step="Say something.")

        async def work(lease: Lease) -> TurnResult:
            before = self._unfinished()
            if before is not None:
                if before.waiting_for:
                    raise TurnPendingError(before.waiting_for)
                await self._abandon(before, lease, _ABANDONED, "abandoned")
            return await self._turn(user_message, None, lease, on_event)

        return await self._alone(work)

    async def aresume(self, *, on_event: EventSink | None = None) -> TurnResult | None:
        """Go on with the turn that was interrupted, or that waited for a person.

        What is on record is not done again (SPEC 8.3).

        Returns:
            The turn; ``None`` when the session has no unfinished one.

        Raises:
            OrderRecordError: what it began with was erased.
            TurnCancelledError: somebody asked the turn to stop.
            LeaseBusyError: another process works on the session.
            LedgerError: the record could not be kept.
        """

        async def work(lease: Lease) -> TurnResult | None:
            before = self._unfinished()
            if before is None:
                return None
            if before.erased:
                raise OrderRecordError(
                    "What the unfinished turn began with was erased; it cannot be resumed.",
                    next_step="Cancel the turn, or say something new.",
                )
            if on_event is not None:
                on_event(TurnResumed(before.message))
            if before.idle and before.requests:
                turn = TurnInProgress(
                    before.message, self._scheduler(before, lease), before, on_event
                )
                turn.restore(before)
                return turn.result(self._session.session_id, before.turn_number, "")
            return await self._turn(before.message, before, lease, on_event)

        return await self._alone(work)

    async def acancel(self) -> bool:
        """End the session's unfinished turn without an answer; whether there was one.

        Raises:
            LeaseBusyError: another process works on it: ask that one to stop.
        """

        async def work(lease: Lease) -> bool:
            before = self._unfinished()
            if before is None:
                return False
            await self._abandon(before, lease, _CANCELLED, "cancelled")
            return True

        return await self._alone(work)

    def unfinished(self) -> UnfinishedTurn | None:
        """The session's turn that has not ended, as it is on record now."""
        return unfinished_turn(self._ledger, self._session.session_id, self._session.turn_count)

    # -- the parts of a turn -----------------------------------------------------------------

    async def _alone(self, work: Callable[[Lease], Awaitable[_T]]) -> _T:
        """Do ``work`` while no other process works on the session."""
        task = asyncio.current_task()
        assert task is not None
        stop = functools.partial(_cancel, task)
        name = f"session:{self._session.session_id}"
        async with self._leases.hold(name, wait_s=self._wait_s, on_stop=stop) as lease:
            if self._starting is not None:
                await self._starting()  # the lease was taken behind it
            self._session.refresh()
            self._latest = self._journal.latest_plan()
            try:
                return await work(lease)
            except asyncio.CancelledError:
                if not lease.stop_requested:
                    raise
                task.uncancel()
                raise TurnCancelledError("The turn was asked to stop, and did.") from None

    def _unfinished(self) -> UnfinishedTurn | None:
        return unfinished_turn(
            self._ledger, self._session.session_id, self._session.turn_count, self._latest
        )

    async def _abandon(
        self, before: UnfinishedTurn, lease: Lease, response: str, outcome: str
    ) -> None:
        scheduler = self._scheduler(before, lease)
        scheduler.restore()
        await scheduler.end_all()
        lease.check()
        await self._session.aadd_turn(before.message, response, outcome=outcome)

    def _scheduler(self, before: UnfinishedTurn | None, lease: Lease) -> Scheduler:
        def guard() -> None:
            lease.check()
            self._journal.check()

        return Scheduler(
            self._worker,
            self._journal,
            self._session.turn_count + 1,
            self._tokens,
            guard,
            before,
            self._journal.last_number(self._latest),
            self._gate,
            self._answer,
        )

    async def _turn(
        self,
        message: str,
        before: UnfinishedTurn | None,
        lease: Lease,
        on_event: EventSink | None,
    ) -> TurnResult:
        self._journal.reset()
        turn = TurnInProgress(message, self._scheduler(before, lease), before, on_event)
        try:
            try:
                await self._loop(turn)
            except LedgerError:
                raise
            except Exception as error:  # noqa: BLE001 - the user still gets an answer, and why
                lease.check()  # unless the turn is another's now
                await self._degrade(turn, as_loop_failure(error))
            if not turn.waiting:
                await turn.scheduler.end_all()
        except asyncio.CancelledError:
            lease.check()
            await turn.scheduler.end_all()
            await self._session.aadd_turn(message, _CANCELLED, outcome="cancelled")
            raise
        entry_id = ""
        if not turn.waiting:
            entry_id = await self._recorded(turn, lease)
        number = self._session.turn_count + turn.waiting
        return turn.result(self._session.session_id, number, entry_id)

    async def _recorded(self, turn: TurnInProgress, lease: Lease) -> str:
        """Record the turn; a request to stop comes too late then."""
        await self._journal.flush()
        lease.check()
        recording = asyncio.ensure_future(
            self._session.aadd_turn(turn.message, turn.response, after=self._journal.take_held())
        )
        try:
            return await asyncio.shield(recording)
        except asyncio.CancelledError:
            entry_id = await recording
            task = asyncio.current_task()
            if not lease.stop_requested or task is None:
                raise
            task.uncancel()
            return entry_id

    async def _loop(self, turn: TurnInProgress) -> None:
        plan = turn.scheduler.recorded_plan()
        attention = None
        if self._config.classify:
            turn.classification = await self._classify(turn)
        if plan is None:
            attention = self._planning.attend()
            plan = await self._planning.plan(turn, attention)
        context = self._planning.input(turn, attention, plan)
        reasons: list[str] = []
        for attempt in range(1, self._config.max_retries + 2):
            if attempt == 1:
                order = await turn.scheduler.run_plan(
                    plan, context, listen=turn.listen,
                    attention=attention.record if attention else None,
                )  # fmt: skip
            else:
                again = {**context, "rejected_because": reasons}
                order = await turn.scheduler.retry(
                    plan.answering, order, again, self._repeatable,
                    attempt=attempt, listen=turn.listen,
                )  # fmt: skip
            requests = turn.scheduler.waiting_for()
            if requests and order.state is not WorkOrderState.FAILED:
                turn.park(requests)
                return
            code = (order.error or {}).get("code", "")
            if code in LOOP_FAILURES:
                raise LoopFailedError(code, (order.error or {}).get("message", ""))
            reasons = await self._review.check(turn, order, attempt)
            if not reasons:
                turn.deliver(order)
                return
            again_left = attempt <= self._config.max_retries and code not in _HOPELESS
            turn.listen(AnswerRejected(tuple(reasons), again_left))
            if not again_left:
                break
        last = turn.scheduler.ids()[-1]
        if turn.before is None or not self._journal.has("ESCALATION", last):
            await self._journal.write(
                "ESCALATION", last, reasons=reasons, work_order_ids=turn.scheduler.ids()
            )
        turn.response = f"I have no answer that passes my checks: {'; '.join(reasons)}."

    async def _classify(self, turn: TurnInProgress) -> Mapping[str, Any] | None:
        """What kind of message it is. A failure costs the label, not the turn."""
        step = PlanStep("scope", _CLASSIFY, WorkOrderType.CLASSIFY)
        order = await turn.scheduler.run(step, {"user_input": turn.message})
        return order.output_result if order.state is WorkOrderState.COMPLETED else None

    async def _degrade(self, turn: TurnInProgress, failed: LoopFailedError) -> None:
        """One direct call answers, and the record says why it had to."""
        turn.degraded = True
        if turn.before is not None and (known := self._journal.direct_answer(turn.before.first)):
            turn.response = known  # it was asked for and paid for before the turn was interrupted
            return
        ids = turn.scheduler.ids()
        await self._journal.write(
            "DEGRADATION",
            ids[-1] if ids else "",
            error_code=failed.code,
            error_message=failed.message,
        )
        turn.listen(Degraded(f"{failed.code}: {failed.message}"))
        turn.response = await direct_answer(
            self._fallback,
            failed,
            turn.message,
            self._planning.recent_turns(),
            self._journal,
            self._config.degraded_max_tokens,
            self._answer.contract_id,
            self._agent_class,
            self._model,
            turn.listen,
        )


def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
