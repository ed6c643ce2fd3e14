"""Work orders: the unit of delegated work, with one state machine.

This subpackage owns the states of an order and who may change them, its entries in the ledger, the
effects of its tools, the events that listeners receive, and the callers of sub-agents. It calls no
model and runs no tool: the worker does.

Invariants: an order changes state only by :meth:`WorkOrder.moved_to`; an order read back from the
ledger passes the same state machine; completed calls are read from the record, never repeated.

Start reading in ``order.py``, then ``history.py``.
"""

from remit.agents.workorders.entries import (
    Journal,
    WriteBuffer,
    moved_by,
    plan_of,
    recorded_order,
    replay,
    trace_hash,
    trace_hash_of,
)
from remit.agents.workorders.history import Answer, OrderHistory
from remit.agents.workorders.order import (
    NOBODY,
    Caller,
    OrderRecordError,
    Principal,
    WorkOrder,
    WorkOrderConstraints,
    WorkOrderCost,
    WorkOrderState,
    WorkOrderType,
    callers_of,
    start_of,
    sub_session_id,
    work_order_id,
)
from remit.agents.workorders.tool_effects import (
    Effect,
    action_of,
    decided_by,
    effects_text,
    latest,
    with_decision,
)
from remit.agents.workorders.turn_events import (
    AnswerRejected,
    ApprovalNeeded,
    Degraded,
    EventSink,
    PartialOutput,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    TurnEvent,
    TurnResumed,
)
from remit.agents.workorders.usage import Usage, session_usage, tools_usage
from remit.kernel.exchange import TextDelta

__all__ = [
    "NOBODY",
    "Answer",
    "AnswerRejected",
    "ApprovalNeeded",
    "Caller",
    "Degraded",
    "Effect",
    "EventSink",
    "IllegalTransitionError",
    "Journal",
    "OrderHistory",
    "OrderRecordError",
    "PartialOutput",
    "Principal",
    "TextDelta",
    "ToolEnded",
    "ToolProgress",
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
    "action_of",
    "callers_of",
    "decided_by",
    "effects_text",
    "latest",
    "moved_by",
    "plan_of",
    "recorded_order",
    "replay",
    "session_usage",
    "start_of",
    "sub_session_id",
    "tools_usage",
    "trace_hash",
    "trace_hash_of",
    "with_decision",
    "work_order_id",
]

IllegalTransitionError = OrderRecordError
"""The earlier name of the error, for programs that catch it; it ends with version 1.0."""
