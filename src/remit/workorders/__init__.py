"""Work orders: the unit of delegated work, and its one state machine (SPEC 8.2)."""

from remit.workorders.events import (
    AnswerRejected,
    Degraded,
    EventSink,
    TextDelta,
    ToolEnded,
    ToolStarted,
    TurnEvent,
)
from remit.workorders.order import (
    IllegalTransitionError,
    WorkOrder,
    WorkOrderConstraints,
    WorkOrderCost,
    WorkOrderState,
    WorkOrderType,
    work_order_id,
)
from remit.workorders.trace import trace_hash

__all__ = [
    "AnswerRejected",
    "Degraded",
    "EventSink",
    "IllegalTransitionError",
    "TextDelta",
    "ToolEnded",
    "ToolStarted",
    "TurnEvent",
    "WorkOrder",
    "WorkOrderConstraints",
    "WorkOrderCost",
    "WorkOrderState",
    "WorkOrderType",
    "trace_hash",
    "work_order_id",
]
