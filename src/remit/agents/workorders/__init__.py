"""Work orders: the unit of delegated work, with one state machine.

This subpackage owns the states of an order and who may change them, its entries in the ledger, the
effects of its tools, the events that listeners receive, and the callers of sub-agents. It calls no
model and runs no tool: the worker does.

Invariants: an order changes state only by :meth:`WorkOrder.moved_to`; an order read back from the
ledger passes the same state machine; completed calls are read from the record, never repeated.

Start reading in ``order.py``, then ``history.py``.
"""

from remit.agents.workorders.entries import (
    Journal as Journal,
    WriteBuffer as WriteBuffer,
    moved_by as moved_by,
    plan_of as plan_of,
    recorded_order as recorded_order,
    replay as replay,
    trace_hash as trace_hash,
    trace_hash_of as trace_hash_of,
)
from remit.agents.workorders.history import Answer as Answer, OrderHistory as OrderHistory
from remit.agents.workorders.order import (
    NOBODY as NOBODY,
    Caller as Caller,
    OrderRecordError as OrderRecordError,
    Principal as Principal,
    WorkOrder as WorkOrder,
    WorkOrderConstraints as WorkOrderConstraints,
    WorkOrderCost as WorkOrderCost,
    WorkOrderState as WorkOrderState,
    WorkOrderType as WorkOrderType,
    callers_of as callers_of,
    start_of as start_of,
    sub_session_id as sub_session_id,
    work_order_id as work_order_id,
)
from remit.agents.workorders.tool_effects import (
    Effect as Effect,
    action_of as action_of,
    decided_by as decided_by,
    effects_text as effects_text,
    latest as latest,
    with_decision as with_decision,
)
from remit.agents.workorders.turn_events import (
    AnswerRejected as AnswerRejected,
    ApprovalNeeded as ApprovalNeeded,
    Degraded as Degraded,
    EventSink as EventSink,
    PartialOutput as PartialOutput,
    ToolEnded as ToolEnded,
    ToolProgress as ToolProgress,
    ToolStarted as ToolStarted,
    TurnEvent as TurnEvent,
    TurnResumed as TurnResumed,
)
from remit.agents.workorders.usage import (
    Usage as Usage,
    session_usage as session_usage,
    tools_usage as tools_usage,
)
from remit.kernel.exchange import TextDelta as TextDelta

IllegalTransitionError = OrderRecordError
"""The earlier name of the error, for programs that catch it; it ends with version 1.0."""
