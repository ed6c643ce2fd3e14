"""A session as a program talks to it."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from typing_extensions import override

from remit.agents.files import UserMessage, split
from remit.agents.outputs import OutputT, OutputType
from remit.agents.supervisor import (
    HO2Supervisor,
    Services,
    TurnResult,
    UnfinishedTurn,
)
from remit.agents.tools import Tool, ToolError, ToolWaitingError, current_call, given_deps
from remit.agents.worker import AttachedOrder
from remit.agents.workorders import EventSink, TurnEvent, WorkOrder, WorkOrderState
from remit.kernel.errors import InvalidInputError
from remit.kernel.json_text import sound
from remit.kernel.loops import (
    Closeable,
    abandon,
    blocking,
    cancel_background,
    run_blocking,
    start_background,
)
from remit.ledger import LedgerClient, LedgerClosedError

if TYPE_CHECKING:
    from remit.learning import Feedback

_Asked = TypeVar("_Asked")


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The last event of a streamed turn."""

    result: TurnResult[Any]


class Conversation(Closeable, Generic[OutputT]):
    """One session with an agent: say something, get a turn.

    A context manager: leaving the block writes ``SESSION_END``. A session can be resumed after
    that, and by any process that opens the root.
    """

    def __init__(self, services: Services, tools: Sequence[Tool], ledger: LedgerClient) -> None:
        self._ledger = ledger
        self._tools = tools
        self._session = services.session
        self._supervisor = HO2Supervisor(services)
        self._step = services.agent.answer
        self._output = services.output
        self._leases = services.leases
        self._agent_id = services.agent.agent_id
        self._ended = False

    @override
    def close(self) -> None:
        self.end()

    @property
    def session_id(self) -> str:
        """The session's id: resume with it."""
        return self._session.session_id

    @property
    def agent_id(self) -> str:
        """Whose session it is."""
        return self._agent_id

    @property
    def turn_count(self) -> int:
        """Turns recorded so far."""
        return self._session.turn_count

    # -- turns -------------------------------------------------------------------------------

    @overload
    async def aturn(
        self,
        message: UserMessage,
        *,
        output_type: None = None,
        on_event: EventSink | None = None,
        deps: Any = None,
    ) -> TurnResult[OutputT]: ...

    @overload
    async def aturn(
        self,
        message: UserMessage,
        *,
        output_type: type[_Asked],
        on_event: EventSink | None = None,
        deps: Any = None,
    ) -> TurnResult[_Asked]: ...

    @overload
    async def aturn(
        self,
        message: UserMessage,
        *,
        output_type: Any,
        on_event: EventSink | None = None,
        deps: Any = None,
    ) -> TurnResult[Any]: ...

    async def aturn(
        self,
        message: UserMessage,
        *,
        output_type: Any = None,
        on_event: EventSink | None = None,
        deps: Any = None,
    ) -> TurnResult[Any]:
        """Answer one message.

        Args:
            message: a text, or a list of texts and :class:`remit.File` values.
            output_type: the type of ``result.output``: a Pydantic model, dataclass, TypedDict,
                list, union or scalar; ``str`` for text. The agent's own when left out.
            on_event: receives text, partial outputs, tools and rejections as they come.
            deps: what tools are given as the ``deps`` of their :class:`remit.Context`; it is not
                recorded, and a turn that is resumed is given it again.

        Raises:
            InvalidInputError: the message is blank, the type cannot be described by JSON Schema,
                or ``deps`` are not what a tool takes.
            RemitError: what :meth:`remit.agents.supervisor.HO2Supervisor.ahandle_turn` raises.
        """
        self._refuse_inner_turn()
        text, files = split(message)
        with self._given(deps):
            return await self._supervisor.ahandle_turn(
                text, files=files, output=_output(output_type), on_event=on_event
            )

    turn = blocking(aturn)

    async def astream(
        self, message: UserMessage, *, output_type: Any = None, deps: Any = None
    ) -> AsyncIterator[TurnEvent | TurnEnded]:
        """A turn as its events, as they come; the last one is :class:`TurnEnded`.

        Closing the iterator before that cancels the turn.
        """
        events: asyncio.Queue[TurnEvent | None] = asyncio.Queue()

        async def work() -> TurnResult[Any]:
            try:
                result: TurnResult[Any] = await self.aturn(
                    message, output_type=output_type, on_event=events.put_nowait, deps=deps
                )
                return result
            except LedgerClosedError:
                # Cancelled as its loop ends, it has nowhere to record that.
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise asyncio.CancelledError from None
                raise

        task = asyncio.create_task(work())
        task.add_done_callback(lambda _: events.put_nowait(None))
        # A turn whose iterator nobody reads to its end has nobody to raise its error to.
        abandon(task)
        try:
            while (event := await events.get()) is not None:
                yield event
            yield TurnEnded(await task)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])

    def stream(
        self, message: UserMessage, *, output_type: Any = None, deps: Any = None
    ) -> Iterator[TurnEvent | TurnEnded]:
        """:meth:`astream` for callers without an event loop."""
        events: queue.SimpleQueue[TurnEvent | None] = queue.SimpleQueue()
        future = start_background(
            self.aturn(message, output_type=output_type, on_event=events.put, deps=deps)
        )
        future.add_done_callback(lambda _: events.put(None))
        try:
            while (event := events.get()) is not None:
                yield event
            yield TurnEnded(future.result())
        finally:
            cancel_background(future)

    async def aanswer(self, message: str, *, deps: Any = None) -> str:
        """The answer to the only message of a sub-agent's session, whichever process began it.

        Raises:
            ToolWaitingError: its turn waits for a person.
            ToolError: the turn ended without an answer.
        """
        result = None
        if self.unfinished() is not None:
            result = await self.aresume(deps=deps)
        elif not self.turn_count:
            result = await self.aturn(message, deps=deps)
        if result is not None and result.waiting:
            raise ToolWaitingError(result.waiting_for)
        if not self._session.has_ended():
            await asyncio.to_thread(self.end)
        response, reasons = self._session.answer()
        if reasons:
            raise ToolError(f"There is no answer: {'; '.join(reasons)}")
        return response

    def unfinished(self) -> UnfinishedTurn | None:
        """The turn that was interrupted or waits for a person, if there is one."""
        return self._supervisor.unfinished()

    async def aresume(
        self, *, output_type: Any = None, on_event: EventSink | None = None, deps: Any = None
    ) -> TurnResult[OutputT] | None:
        """Go on with the unfinished turn; ``None`` when there is none.

        What is on record is not done again: answers of models and results of tools are read back.

        Args:
            output_type: the one that :meth:`turn` was given, where it is not the agent's own.
            on_event: as of :meth:`turn`.
            deps: as of :meth:`turn`.

        Raises:
            InvalidInputError: the turn began with another output type.
        """
        self._refuse_inner_turn()
        with self._given(deps):
            return await self._supervisor.aresume(output=_output(output_type), on_event=on_event)

    resume = blocking(aresume)

    async def acancel(self) -> bool:
        """End the turn that runs, here or in another process, or that waits.

        Returns whether there was one. A running turn ends within a moment.
        """
        if self._leases.request_stop(f"session:{self.session_id}"):
            return True
        return await self._supervisor.acancel()

    cancel = blocking(acancel)

    # -- work that is no turn ----------------------------------------------------------------

    async def awork(
        self,
        task: str | Mapping[str, Any],
        *,
        key: str | None = None,
        contract: str | None = None,
        output_type: Any = None,
        retry_failed: bool = False,
        on_event: EventSink | None = None,
        deps: Any = None,
    ) -> WorkOrder:
        """Have one order worked on, outside the conversation; many may run at once.

        Args:
            task: what is to be done: a text, or the variables of the contract's template.
            key: names the order within the session, for work that must not be done twice: an
                order with that key that has ended is given back as it ended, in any later
                process; one that was interrupted is gone on with.
            contract: instead of the agent's own.
            output_type: the type of ``output_result``; the agent's own when neither this nor a
                contract is given.
            retry_failed: where the order of that key has failed, make another attempt. Nothing
                is paid twice: an order that timed out, or a tool of which may have taken effect,
                is given back as it ended; a tool that must not run twice and has run is not
                offered again, and what it returned is shown.
            on_event: hears text and tools as they come.
            deps: as of :meth:`turn`.

        Returns:
            The order: its ``state``, ``output_result``, ``error`` and ``cost``.
        """
        context = sound({"user_input": task} if isinstance(task, str) else dict(task))
        step = self._step if contract is None else replace(self._step, contract_id=contract)
        output = _output(output_type) or (self._output if contract is None else None)
        schema = None if output is None else output.schema
        with self._given(deps):
            order = await self._supervisor.orders.arun(
                replace(step, output_schema=schema), context, key=key, on_event=on_event,
                retry_failed=retry_failed, check=output.problem if output is not None else None,
            )  # fmt: skip
        if output is None or schema is None or order.state is not WorkOrderState.COMPLETED:
            return order
        return replace(order, output_result=output.value(order.output_result["output"]))

    work = blocking(awork)

    async def aresume_work(
        self, wo_id: str, *, on_event: EventSink | None = None, deps: Any = None
    ) -> WorkOrder:
        """Go on with an order by itself that was interrupted, or waited for a person."""
        with self._given(deps):
            return await self._supervisor.orders.aresume(wo_id, self._step, on_event=on_event)

    resume_work = blocking(aresume_work)

    def cancel_work(self, wo_id: str) -> WorkOrder:
        """End an order by itself that will not be continued."""
        return run_blocking(self._supervisor.orders.acancel(wo_id))

    def attached(
        self, task: str, *, key: str | None = None
    ) -> AbstractAsyncContextManager[AttachedOrder]:
        """One order that a program outside works on, such as another framework's agent.

        It may use the agent's tools, within its limits; see the distribution ``remit-interop``.

        Args:
            task: what is to be done, for the record.
            key: names the order within the session; see :meth:`awork`.
        """
        step = replace(self._step, name="attached", contract_id="", input={}, output_schema=None)
        return self._supervisor.orders.attached(step, {"user_input": task}, key=key)

    async def afeedback(
        self,
        score: float | None = None,
        *,
        label: str = "",
        reason: str = "",
        turn: int | None = None,
        by: str = "local operator",
    ) -> Feedback:
        """Say how good a turn was; what the same person said of it before no longer counts.

        Args:
            score: 0 (bad) to 1 (good).
            label: a word for counting, such as ``wrong_unit``.
            reason: content of the session, erased with it.
            turn: its number, from 1; the latest turn when left out.
            by: who says it, for the record; no erasure reaches it.

        Raises:
            InvalidInputError: a value cannot be used; neither score nor label is given.
            RemitError: there is no such turn, or its content was erased.
        """
        from remit.learning import give_feedback  # not on the way of a turn

        target = self.session_id if turn is None else f"{self.session_id}/{turn}"
        return await asyncio.to_thread(
            give_feedback, self._ledger, target, score=score, label=label, reason=reason, by=by
        )

    feedback = blocking(afeedback)

    def cost(self) -> dict[str, Any]:
        """What the session has used, from the ledger."""
        return self._session.total_cost()

    def end(self) -> None:
        """Write ``SESSION_END``. Ending twice is harmless.

        Where ``[supervisor] consolidate`` says so, what the session leaves open is found first.
        """
        if not self._ended:
            self._ended = True
            self._session.refresh()
            run_blocking(self._supervisor.aconsolidate())
            self._session.end()

    @contextmanager
    def _given(self, deps: Any) -> Iterator[None]:
        """Have tools find ``deps`` while the block runs.

        Raises:
            InvalidInputError: they are not what one of the agent's tools takes.
        """
        for tool in self._tools:
            if problem := tool.lacks(deps):
                raise InvalidInputError(problem, next_step="Give the turn deps=….")
        token = given_deps.set(deps)
        try:
            yield
        finally:
            given_deps.reset(token)

    def _refuse_inner_turn(self) -> None:
        call = current_call()
        if call is not None and call.session_id == self.session_id:
            raise InvalidInputError(
                f"The tool {call.tool_id} may not start a turn in the session that it serves.",
                next_step="Let it give back what it found, or use a session of its own.",
            )


def _output(wanted: Any) -> OutputType[Any] | None:
    return None if wanted is None else OutputType(wanted)
