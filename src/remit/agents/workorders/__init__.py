"""Work orders: the unit of delegated work, and its one state machine (SPEC 8.2)."""

from remit.agents.workorders.events import (
    AnswerRejected,
    ApprovalNeeded,
    Degraded,
    EventSink,
    TextDelta,
    ToolEnded,
    ToolStarted,
    TurnEvent,
    TurnResumed,
)
from remit.agents.workorders.history import Answer, OrderHistory, Usage
from remit.agents.workorders.journal import Journal, WriteBuffer
from remit.agents.workorders.order import (
    Actor,
    IllegalTransitionError,
    WorkOrder,
    WorkOrderConstraints,
    WorkOrderCost,
    WorkOrderState,
    WorkOrderType,
    work_order_id,
)
from remit.agents.workorders.recorded import (
    OrderRecordError,
    constraints_of,
    moved_by,
    plan_of,
    recorded_order,
    replay,
    trace_hash,
    trace_hash_of,
)

__all__ = [
    "Actor",
    "Answer",
    "AnswerRejected",
    "ApprovalNeeded",
    "Degraded",
    "EventSink",
    "IllegalTransitionError",
    "Journal",
    "OrderHistory",
    "OrderRecordError",
    "TextDelta",
    "ToolEnded",
    "ToolStarted",
    "TurnEvent",
    "TurnResumed",
    "Usage",
    "WorkOrder",
    "WorkOrderConstraints",
    "WorkOrderCost",
    "WorkOrderState",
    "WorkOrderType",
    "WriteBuffer",
    "constraints_of",
    "moved_by",
    "plan_of",
    "recorded_order",
    "replay",
    "trace_hash",
    "trace_hash_of",
    "work_order_id",
]
