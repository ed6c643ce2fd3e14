"""One turn while it is worked on."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from remit.agents.supervisor.desk import OrderDesk, total_cost
from remit.agents.supervisor.quality import answer_text
from remit.agents.supervisor.turn import TurnResult
from remit.agents.supervisor.unfinished import UnfinishedTurn
from remit.agents.workorders import ApprovalNeeded, EventSink, TurnEvent, WorkOrder

__all__ = ["TurnInProgress"]

_log = logging.getLogger("remit.supervisor")


class TurnInProgress:
    """What a turn has come to so far.

    Args:
        message: what the user said.
        desk: has its orders worked on.
        before: what was on record of it when this process took it up.
        on_event: hears what happens.
    """

    def __init__(
        self,
        message: str,
        desk: OrderDesk,
        before: UnfinishedTurn | None,
        on_event: EventSink | None,
    ) -> None:
        self.message = message
        self.desk = desk
        self.before = before
        self._on_event = on_event
        self._asked: dict[str, ApprovalNeeded] = {}
        self.classification: Mapping[str, Any] | None = None
        self.response = ""
        self.output: Any = None
        self.passed = False
        self.degraded = False
        self.waiting = False
        self._answered: WorkOrder | None = None

    def listen(self, event: TurnEvent) -> None:
        """Hear of something, and pass it on. Whoever listens cannot break the turn."""
        if isinstance(event, ApprovalNeeded):
            self._asked[event.request_id] = event
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except (Exception, SystemExit, KeyboardInterrupt):  # noqa: BLE001 - it is only told
            _log.exception("a listener to the events of a turn failed")

    def park(self, requests: Sequence[str]) -> None:
        """Leave the turn as it is."""
        self.waiting = True
        self.response = f"Waiting for a person to decide: {', '.join(requests)}."

    def deliver(self, order: WorkOrder) -> None:
        """Take an order's result as the answer."""
        self.passed = True
        self.response = answer_text(order)
        self.output = order.output_result
        self._answered = order

    def tool_results(self) -> list[Mapping[str, Any]]:
        """What tools gave back to the order whose answer counts."""
        orders = self.desk.orders
        last = self._answered or (orders[-1] if orders else None)
        result = last.output_result if last is not None else None
        return list(result.get("tool_results", ())) if isinstance(result, Mapping) else []

    def result(self, session_id: str, turn_number: int, entry_id: str) -> TurnResult:
        """The turn as it is given to the caller."""
        orders = self.desk.orders
        return TurnResult(
            response=self.response,
            wo_chain_summary=tuple(_summary(order) for order in orders),
            cost_summary=total_cost(orders),
            session_id=session_id,
            quality_gate_passed=self.passed,
            tool_results=tuple(self.tool_results()),
            classification=self.classification,
            degraded=self.degraded,
            turn_entry_id=entry_id,
            turn_number=turn_number,
            output=self.output,
            waiting_for=tuple(
                self._asked[request]
                for request in (self.desk.waiting_for() if self.waiting else ())
                if request in self._asked
            ),
        )


def _summary(order: WorkOrder) -> dict[str, Any]:
    return {
        "wo_id": order.wo_id,
        "wo_type": str(order.wo_type),
        "state": str(order.state),
        "error": dict(order.error) if order.error else None,
        "llm_calls": order.cost.llm_calls,
        "tool_calls": order.cost.tool_calls,
        "total_tokens": order.cost.total_tokens,
        "cost_usd": order.cost.cost_usd,
        "elapsed_ms": order.cost.elapsed_ms,
    }
