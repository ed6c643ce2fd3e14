"""A handle of a submitted order, for the program that waits for its result."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Generic

from remit.agents import OutputT, OutputType
from remit.agents.queue import OrderQueue, OrderStatus
from remit.agents.sessions import SessionManager
from remit.agents.supervisor import TurnCancelledError, TurnResult
from remit.kernel.loops import blocking
from remit.ledger import Erased, LedgerClient


class OrderHandle(Generic[OutputT]):
    """A handle of a submitted order; made by :meth:`remit.runtime.Agent.submit`.

    :meth:`result` waits for the answer, :meth:`wait` for the end only, and :meth:`cancel` ends the
    order. The handle has no state: the order is in the ledger. Each method reads the order anew, so
    handles of one order can be used in several threads and processes. The runtime must stay open.

    Args:
        order_id: id of the order.
        orders: orders of the root.
        ledger: ledger of the root.
        output: type of the answer; ``None`` for text.

    Attributes:
        order_id: id by which any program of the root finds the order.
    """

    def __init__(
        self,
        order_id: str,
        orders: OrderQueue,
        ledger: LedgerClient,
        output: OutputType[Any] | None,
    ) -> None:
        self.order_id = order_id
        self._orders = orders
        self._ledger = ledger
        self._output = output

    def __repr__(self) -> str:
        return f"OrderHandle({self.order_id!r})"

    def status(self) -> OrderStatus:
        """Return the present state of the order, read from the ledger's database.

        Raises:
            NotFoundError: there is no such order.
            LedgerError: the ledger cannot be read.
        """
        return self._orders.get(self.order_id)

    async def await_(self, timeout_s: float | None = None) -> OrderStatus:
        """Wait until the order is done, set aside or cancelled, and return its state.

        An order that waits for a person is not done. The database is read repeatedly.

        Args:
            timeout_s: longest wait, in seconds; ``None`` for no limit. The order continues after
                it.

        Raises:
            TimeoutError: the order takes longer.
            NotFoundError: there is no such order.
            LedgerError: the ledger cannot be read.
        """
        return await self._orders.ended(self.order_id, timeout_s)

    wait = blocking(await_)

    async def aresult(self, timeout_s: float | None = None) -> TurnResult[OutputT]:
        """Wait for the end of the order and return its recorded turn.

        The turn of an order that was set aside states the cause (``failed``, ``error_code``). An
        erased answer is an empty text. ``cost_summary`` is that of the session, and
        ``wo_chain_summary`` is empty.

        Args:
            timeout_s: longest wait, in seconds; ``None`` for no limit. The order continues after
                it.

        Raises:
            TimeoutError: the order takes longer than ``timeout_s`` seconds.
            TurnCancelledError: the order was cancelled.
            NotFoundError: there is no such order.
            LedgerError: the ledger cannot be read.
        """
        status = await self.await_(timeout_s)
        if status.state == "cancelled":
            raise TurnCancelledError(f"The order {self.order_id} was cancelled.")
        return await asyncio.to_thread(self._turn, status)

    result = blocking(aresult)

    def cancel(self, *, by: str = "local operator") -> OrderStatus:
        """Cancel the order and return its state.

        An order that has not begun, or was set aside, ends at once. A running or waiting one is
        requested to stop and ends soon after. The cancellation is recorded with the name. Nothing
        changes if an earlier call requested the stop.

        Args:
            by: name of the person, for the record.

        Raises:
            ConflictError: the order is completed or cancelled already.
            NotFoundError: there is no such order.
            LedgerError: the ledger cannot be read or written.
        """
        return self._orders.cancel(self.order_id, by=by)

    def _turn(self, status: OrderStatus) -> TurnResult[OutputT]:
        turn, detail = None, ""
        if status.turn_entry_id:
            turn = self._ledger.read(status.turn_entry_id)
        elif status.ended_entry_id:
            end = self._ledger.read(status.ended_entry_id)
            detail = str(end.metadata.get("error_message", ""))
        ledger = self._ledger.scoped(tier="ho2")
        session = SessionManager(ledger, status.session_id, agent_id=status.agent_id)
        output = None
        response = "" if turn is None else turn.metadata["response"]
        outcome = "" if turn is None else str(turn.metadata.get("outcome", ""))
        if status.state == "completed":
            output = self._value(status.session_id, response)
        return TurnResult(
            response="" if isinstance(response, Erased) else response,
            wo_chain_summary=(),
            cost_summary=session.total_cost(),
            session_id=status.session_id,
            quality_gate_passed=status.state == "completed" and not outcome,
            degraded=outcome == "degraded",
            turn_entry_id=status.turn_entry_id,
            turn_number=0 if turn is None else turn.metadata["turn_number"],
            error_code=status.error_code,
            error_detail=detail,
            _output=output,
        )

    def _value(self, session_id: str, response: Any) -> Any:
        """Return the answer in the agent's output type; the text if the agent has none."""
        if self._output is None or self._output.schema is None:
            return response
        query = self._ledger.query
        for gate in query(
            session_id=session_id, event_type="WO_QUALITY_GATE", order="desc", limit=1,
            with_content=False,
        ):  # fmt: skip
            for done in query(submission_id=gate.submission_id, event_type="WO_COMPLETED", limit=1):
                result = done.metadata["output_result"]
                if isinstance(result, Mapping) and "output" in result:
                    return self._output.value(result["output"])
        return response
