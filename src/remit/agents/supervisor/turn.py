"""A turn: in progress, and what it comes to."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remit.agents.supervisor.quality import answer_text
from remit.agents.supervisor.scheduler import Scheduler, total_cost
from remit.agents.supervisor.unfinished import UnfinishedTurn
from remit.agents.workorders import ApprovalNeeded, EventSink, TurnEvent, WorkOrder
from remit.kernel.errors import RemitError

__all__ = ["TurnCancelledError", "TurnInProgress", "TurnPendingError", "TurnResult"]

_log = logging.getLogger("remit.supervisor")


class TurnPendingError(RemitError):
    """The session's last turn waits for a person; a new one cannot begin before it ends.

    Attributes:
        request_ids: what it waits for.
    """

    def __init__(self, request_ids: tuple[str, ...]) -> None:
        super().__init__(
            f"The last turn of this session waits for {', '.join(request_ids)}.",
            next_step="Decide with `remit approve`, then resume the session; or cancel the turn.",
        )
        self.request_ids = request_ids


class TurnCancelledError(RemitError):
    """Somebody asked the turn to stop; what was done is on record."""


@dataclass(frozen=True, slots=True)
class TurnResult:
    """A turn that was delivered, or that waits for a person.

    Attributes:
        response: the text for the user: the model's, or a sentence that says why there is none.
        wo_chain_summary: per work order its id, type, state, error and cost.
        cost_summary: the sum of the orders' costs.
        quality_gate_passed: whether the answer passed the check.
        tool_results: results of tools in this turn, as data.
        classification: what the message was taken for, when it was classified.
        degraded: whether a direct call answered because the loop failed.
        turn_entry_id: id of the ``TURN_RECORDED``; empty while the turn waits.
        turn_number: counted from 1 in the session.
        output: the answering order's result, where its contract gives data.
        waiting_for: the tool calls that wait for a person; the turn goes on with
            ``resume()`` once they are decided, in this process or another.
    """

    response: str
    wo_chain_summary: tuple[Mapping[str, Any], ...]
    cost_summary: Mapping[str, Any]
    session_id: str
    quality_gate_passed: bool
    tool_results: tuple[Mapping[str, Any], ...] = ()
    classification: Mapping[str, Any] | None = None
    degraded: bool = False
    turn_entry_id: str = ""
    turn_number: int = 0
    output: Any = None
    waiting_for: tuple[ApprovalNeeded, ...] = ()

    @property
    def waiting(self) -> bool:
        """Whether the turn waits for a person."""
        return bool(self.waiting_for)


class TurnInProgress:
    """What a turn has come to so far.

    Args:
        message: what the user said.
        scheduler: runs its orders.
        before: what was on record of it when this process took it up.
        on_event: receives events.
    """

    def __init__(
        self,
        message: str,
        scheduler: Scheduler,
        before: UnfinishedTurn | None,
        on_event: EventSink | None,
    ) -> None:
        self.message = message
        self.scheduler = scheduler
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
        """Note an event and pass it on. A listener that fails cannot break the turn."""
        if isinstance(event, ApprovalNeeded):
            self._asked[event.request_id] = event
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except (Exception, SystemExit, KeyboardInterrupt):  # noqa: BLE001 - only a listener
            _log.exception("a listener to the events of a turn failed")

    def restore(self, before: UnfinishedTurn) -> None:
        """Leave the turn waiting as it was: nothing was decided."""
        self.scheduler.restore()
        for entry in before.requests:
            data = entry.metadata
            self.listen(
                ApprovalNeeded(
                    entry.id, entry.submission_id, data["tool_id"], data["arguments"], data["kind"]
                )
            )
        self.park(before.waiting_for)

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
        """Results of tools of the order whose answer counts."""
        orders = self.scheduler.orders
        last = self._answered or (orders[-1] if orders else None)
        result = last.output_result if last is not None else None
        return list(result.get("tool_results", ())) if isinstance(result, Mapping) else []

    def result(self, session_id: str, turn_number: int, entry_id: str) -> TurnResult:
        """The turn for the caller."""
        orders = self.scheduler.orders
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
                for request in (self.scheduler.waiting_for() if self.waiting else ())
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
