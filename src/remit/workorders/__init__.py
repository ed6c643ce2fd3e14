"""Work orders: the unit of delegated work, and its one state machine (SPEC 8.2)."""

from remit.workorders.order import (
    IllegalTransitionError,
    WorkOrder,
    WorkOrderConstraints,
    WorkOrderCost,
    WorkOrderState,
    WorkOrderType,
    work_order_id,
)

__all__ = [
    "IllegalTransitionError",
    "WorkOrder",
    "WorkOrderConstraints",
    "WorkOrderCost",
    "WorkOrderState",
    "WorkOrderType",
    "work_order_id",
]
