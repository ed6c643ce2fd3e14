"""A session from a program's point of view: turns, streams, orders, feedback and the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from typing_extensions import override

from remit.agents import AttachedOrder, OutputT, OutputType, UserMessage, split_message
from remit.agents.supervisor import (
    HO2Supervisor,
    Services,
    TurnEnded,
    TurnResult,
    UnfinishedTurn,
)
from remit.agents.tools import Tool, ToolError, ToolWaitingError, giving, refuse_inner_turn
from remit.agents.workorders import EventSink, TurnEvent, WorkOrder, WorkOrderState
from remit.kernel.json_text import sound
from remit.kernel.loops import Closeable, blocking, run_blocking
from remit.ledger import LedgerClient
from remit.runtime.turn_streams import blocking_turn_events, turn_events

if TYPE_CHECKING:
    from remit.learning import Feedback

_Asked = TypeVar("_Asked")


class Conversation(Closeable, Generic[OutputT]):
    """A session with an agent; made by :meth:`remit.runtime.Agent.session`.

    A context manager: leaving the block writes ``SESSION_END``. Any process that opens the root can
    resume the session afterwards. Turns come one after another: :meth:`turn` and :meth:`stream`
    begin one, :meth:`resume` continues an unfinished one, and :meth:`cancel` ends one from another
    task or process. Orders of :meth:`work` are outside the turns and may run at once.

    Methods whose names begin with ``a`` are for an event loop. Their forms without it block; they
    raise InvalidInputError in a running event loop.

    Args:
        services: the parts with which the supervisor runs the session.
        tools: tools of the agent that take ``deps``.
        ledger: ledger of the root.
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
        """End the session, as :meth:`end` does."""
        self.end()

    @property
    def session_id(self) -> str:
        """Id of the session; any process can resume the session with it."""
        return self._session.session_id

    @property
    def agent_id(self) -> str:
        """Id of the agent that the session belongs to."""
        return self._agent_id

    @property
    def turn_count(self) -> int:
        """Number of recorded turns; a turn in progress does not count."""
        return self._session.turn_count

    # -- turns -------------------------------------------------------------------------------

    @overload
    async def aturn(
        self, message: UserMessage, *, output_type: None = None,
        on_event: EventSink | None = None, deps: Any = None,
    ) -> TurnResult[OutputT]: ...  # fmt: skip

    @overload
    async def aturn(
        self, message: UserMessage, *, output_type: type[_Asked],
        on_event: EventSink | None = None, deps: Any = None,
    ) -> TurnResult[_Asked]: ...  # fmt: skip

    @overload
    async def aturn(
        self, message: UserMessage, *, output_type: Any, on_event: EventSink | None = None,
        deps: Any = None,
    ) -> TurnResult[Any]: ...  # fmt: skip

    async def aturn(
        self,
        message: UserMessage,
        *,
        output_type: Any = None,
        on_event: EventSink | None = None,
        deps: Any = None,
    ) -> TurnResult[Any]:
        """Answer a message.

        The turn, its model calls and tool calls are recorded. The turn holds the session's lease,
        so other turns of the session wait. An earlier interrupted turn is closed first.

        Args:
            message: a text, or a list of texts and :class:`remit.File` values.
            output_type: the type of ``result.output``: a Pydantic model, dataclass, TypedDict,
                list, union or scalar; ``str`` for text. The agent's own type if left out.
            on_event: called with text, partial outputs, tool calls and rejections as they arrive.
            deps: given to tools as ``deps`` of their :class:`remit.Context`; never recorded, so a
                turn that is resumed must be given them again.

        Returns:
            The turn. A failure is not raised: the turn then has ``error_code``. A turn with tool
            calls that a person must approve has them in ``waiting_for``.

        Raises:
            InvalidInputError: the message is blank, JSON Schema cannot describe the type, ``deps``
                have a type that a tool does not take, or a tool of this session calls this.
            TurnPendingError: the last turn waits for a person.
            TurnCancelledError: somebody cancelled the turn.
            LeaseBusyError: another process works on the session for too long.
            RemitError: another error of :meth:`remit.agents.supervisor.HO2Supervisor.ahandle_turn`.
        """
        refuse_inner_turn(self.session_id)
        text, files = split_message(message)
        with giving(self._tools, deps):
            return await self._supervisor.ahandle_turn(
                text, files=files, output=_output(output_type), on_event=on_event
            )

    turn = blocking(aturn)

    def astream(
        self, message: UserMessage, *, output_type: Any = None, deps: Any = None
    ) -> AsyncIterator[TurnEvent | TurnEnded]:
        """Yield the events of a turn as each arrives; the last is :class:`TurnEnded`.

        The turn begins with the first event that is asked for. Closing the iterator before the end
        cancels the turn, and waits until its end is recorded.

        Args:
            message: see :meth:`turn`.
            output_type: see :meth:`turn`.
            deps: see :meth:`turn`.

        Raises:
            RemitError: an error of :meth:`aturn`.
            CancelledError: the turn was cancelled while the runtime was closed.
        """
        return turn_events(
            lambda sink: self.aturn(message, output_type=output_type, on_event=sink, deps=deps)
        )

    def stream(
        self, message: UserMessage, *, output_type: Any = None, deps: Any = None
    ) -> Iterator[TurnEvent | TurnEnded]:
        """Yield the events of :meth:`astream`, for callers without an event loop.

        The turn runs in a background thread's event loop, and begins with the first event that is
        asked for. If the iterator is closed early, the turn is cancelled; its record is waited for
        at most ten seconds.

        Args:
            message: see :meth:`turn`.
            output_type: see :meth:`turn`.
            deps: see :meth:`turn`.

        Raises:
            RemitError: an error of :meth:`aturn`.
        """
        return blocking_turn_events(
            lambda sink: self.aturn(message, output_type=output_type, on_event=sink, deps=deps)
        )

    async def aanswer(self, message: str, *, deps: Any = None) -> str:
        """Return the answer to the only message of a sub-agent's session; end the session.

        The turn may have begun in another process: then it is resumed or its recorded answer
        returned. The session is ended also without an answer, but not while its turn waits.

        Args:
            message: the message.
            deps: see :meth:`turn`.

        Raises:
            ToolWaitingError: the turn waits for a person.
            ToolError: the turn ended without an answer.
            RemitError: an error of :meth:`aturn` or :meth:`aresume`.
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
            raise ToolError(f"No answer was delivered: {'; '.join(reasons)}")
        return response

    def unfinished(self) -> UnfinishedTurn | None:
        """Return the turn that was interrupted or waits for a person; None if there is none.

        A turn that runs in another process also counts as unfinished.

        Raises:
            LedgerError: the ledger cannot be read.
            OrderRecordError: the entries of the turn do not form orders.
        """
        return self._supervisor.unfinished()

    async def aresume(
        self, *, output_type: Any = None, on_event: EventSink | None = None, deps: Any = None
    ) -> TurnResult[OutputT] | None:
        """Continue the unfinished turn; return None if there is none.

        Recorded answers of models and recorded tool results are reused; nothing is done twice.

        Args:
            output_type: the type that :meth:`turn` was given, unless it is the agent's own.
            on_event: see :meth:`turn`.
            deps: see :meth:`turn`.

        Returns:
            The turn. ``waiting`` is True if a person's decision is still missing.

        Raises:
            InvalidInputError: the turn began with another output type, ``deps`` have a type that a
                tool does not take, or a tool of this session calls this.
            RemitError: an error of :meth:`turn`.
        """
        refuse_inner_turn(self.session_id)
        with giving(self._tools, deps):
            return await self._supervisor.aresume(output=_output(output_type), on_event=on_event)

    resume = blocking(aresume)

    async def acancel(self) -> bool:
        """Cancel the turn that runs in any process, waits for people, or was interrupted.

        A running turn is only asked to stop, and ends within a moment after the return. Another
        one is ended at once. The end of the turn is recorded.

        Returns:
            True if there was a turn to cancel; False if the last turn has ended.

        Raises:
            LeaseBusyError: another process has begun to work on the session.
            OrderRecordError: the entries of the waiting turn do not form orders.
            LedgerError: the ledger cannot be read or written.
            LeaseLostError: another process took the session over in the meantime.
            TurnCancelledError: somebody else cancelled the waiting turn at the same time.
        """
        if self._leases.request_stop(f"session:{self.session_id}"):
            return True
        return await self._supervisor.acancel()

    cancel = blocking(acancel)

    # -- orders outside turns ----------------------------------------------------------------

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
        """Execute an order outside the conversation; many orders may run at once.

        The order is recorded in the session and is no turn: later turns do not see it.

        Args:
            task: a text, or the variables of the contract's template.
            key: idempotency key within the session, for the same task, contract and type. An order
                that ended under it is returned unchanged, in any later process; an interrupted or
                waiting one continues. The key is part of the order's id, which no erasure removes.
                A new order if left out.
            contract: id of a contract that replaces the agent's.
            output_type: the type of ``output_result``; the agent's own if neither this nor
                ``contract`` is given.
            retry_failed: make another attempt if the order of ``key`` failed. Nothing is paid
                twice: an order that timed out, whose answer was rejected, or whose tool may have
                taken effect, is returned unchanged. A tool that must not run twice and has run is
                not offered again; its result is shown.
            on_event: called with text and tool calls as they arrive.
            deps: see :meth:`turn`.

        Returns:
            The order, ended or waiting for a person: its ``state``, ``output_result``, ``error``
            and ``cost``. A failure is a state, not an exception.

        Raises:
            InvalidInputError: ``key`` is invalid or belongs to other work, ``deps`` have a type
                that a tool does not take, or JSON Schema cannot describe the type.
            RemitError: the order cannot be begun or recorded, or another process works on it.
        """
        context = sound({"user_input": task} if isinstance(task, str) else dict(task))
        step = self._step if contract is None else replace(self._step, contract_id=contract)
        output = _output(output_type) or (self._output if contract is None else None)
        schema = None if output is None else output.schema
        with giving(self._tools, deps):
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
        """Continue an interrupted or waiting order outside the conversation; return the order.

        The returned order has ended, perhaps failed, or waits again. One that had ended before is
        returned as it ended. ``output_result`` is the recorded JSON data, not converted to the
        output type as by :meth:`work`.

        Args:
            wo_id: id of the order.
            on_event: called with text and tool calls as they arrive.
            deps: see :meth:`turn`.

        Raises:
            InvalidInputError: the session has no such order, or a tool takes other ``deps``.
            LeaseBusyError: another process works on the order.
            LedgerError: the ledger cannot be read or written.
            OrderRecordError: the input was erased, or the entries of the order do not describe it.
            LeaseLostError: another process took the order over in the meantime.
        """
        with giving(self._tools, deps):
            return await self._supervisor.orders.aresume(wo_id, self._step, on_event=on_event)

    resume_work = blocking(aresume_work)

    def cancel_work(self, wo_id: str) -> WorkOrder:
        """End an order outside the conversation as failed with ``cancelled``; return the order.

        The end is recorded. An ended order is returned unchanged.

        Args:
            wo_id: id of the order.

        Raises:
            InvalidInputError: the session has no such order.
            LeaseBusyError: another process works on the order.
            LedgerError: the ledger cannot be read or written.
            OrderRecordError: the entries of the order do not describe it.
        """
        return run_blocking(self._supervisor.orders.acancel(wo_id))

    def attached(
        self, task: str, *, key: str | None = None
    ) -> AbstractAsyncContextManager[AttachedOrder]:
        """Return a context manager for an order that another program works on.

        The other program is, for example, another framework's agent. Entering the context records
        the order. An order that the block does not end can be continued under the same key. The
        program may use the agent's tools, within its limits; see the distribution
        ``remit-interop``. An error in the block is let through, and leaves the order open.

        Args:
            task: a description of the work, for the record.
            key: idempotency key within the session; see :meth:`awork`.

        Raises:
            InvalidInputError: on entry, if the key is invalid, belongs to other work, or its order
                has ended.
            LeaseBusyError: on entry, if another process works on the order.
            LedgerError: the ledger cannot be read or written.
            LeaseLostError: on entry, if another process took the order over in the meantime.
            OrderRecordError: on entry, if the input of the order was erased, or the entries of the
                order do not describe it.
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
        """Record how good a turn was; the same person's earlier feedback on the turn is replaced.

        Args:
            score: 0 (bad) to 1 (good); ``None`` for a label alone.
            label: a word for counting, such as ``wrong_unit``; empty for a score alone.
            reason: free text; content of the session, erased with it.
            turn: number of the turn, from 1; the latest if left out, so there must be one.
            by: the person's name, for the record; it cannot be erased.

        Returns:
            The feedback as recorded.

        Raises:
            InvalidInputError: a value is invalid, or neither score nor label is given.
            EntryNotFoundError: there is no such turn.
            ConflictError: the turn was erased, or this person rated it 100 times already.
            LedgerError: the ledger cannot be read or written.
        """
        from remit.learning import give_feedback  # No turn needs the learning room.

        target = self.session_id if turn is None else f"{self.session_id}/{turn}"
        return await asyncio.to_thread(
            give_feedback, self._ledger, target, score=score, label=label, reason=reason, by=by
        )

    feedback = blocking(afeedback)

    def cost(self) -> dict[str, Any]:
        """Return ``llm_calls``, ``input_tokens``, ``output_tokens``, ``total_tokens`` and
        ``cost_usd`` of the session, summed from the ledger; 0 without calls.

        ``cost_usd`` contains the prices of tool calls too, also without a model call. It is None if
        a price is unknown. Sub-agents of the session are included.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        return self._session.total_cost()

    def end(self) -> None:
        """End the session by writing ``SESSION_END``; a repeated call has no effect.

        An unfinished turn stays so, and a later turn makes the session open again.
        With ``[supervisor] consolidate``, a model first finds the topics that the session leaves
        open, which costs a model call. After an error the session stays open: open it again by its
        id to end it.

        Raises:
            LeaseBusyError: another process looks for the open topics.
            LedgerError: an entry cannot be written.
            InvalidInputError: called on the background loop, where it would wait for itself.
            LeaseLostError: another process took the session over in the meantime.
            OrderRecordError: the entries of an order of the session do not describe it.
        """
        if not self._ended:
            self._ended = True
            self._session.refresh()
            run_blocking(self._supervisor.aconsolidate())
            self._session.end()


def _output(wanted: Any) -> OutputType[Any] | None:
    return None if wanted is None else OutputType(wanted)
