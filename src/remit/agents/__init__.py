"""Agents at work: orders, worker (HO1), supervisor (HO2), sessions, tools and approvals.

The room owns the turn of an agent: plan, execution, verification, delivery, and the record of each.
It does not own the way to a model: worker and supervisor call ports, which the runtime fills.

Invariants: every step is recorded before its effect; an action that needs approval runs only with
the exact arguments that a person saw; the worker never loads the supervisor, so all names here are
imported on first use.

Start reading in :mod:`remit.agents.supervisor` and :mod:`remit.agents.workorders`. Doors: ``queue``
gives orders to workers; ``sessions``, ``supervisor``, ``tools``, ``workorders``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remit.kernel import lazy_names

if TYPE_CHECKING:
    from remit.agents.admin import (
        HIDDEN,
        RECALL,
        Fitted,
        Redactor,
        admin_tools,
        caller_session,
        cut_to_fit,
        plain_value,
    )
    from remit.agents.approvals import (
        Approval,
        ApprovalError,
        ApprovalQueue,
        Permit,
        arguments_hash,
    )
    from remit.agents.attachments import File, UserMessage, split_message
    from remit.agents.output_type import OutputT, OutputType
    from remit.agents.sessions import SessionManager
    from remit.agents.supervisor import HO2Supervisor, TurnResult
    from remit.agents.tools import Tool, ToolDispatcher, ToolError, ToolResult, current_call, tool
    from remit.agents.worker import (
        IGNORABLE,
        AttachedOrder,
        HO1Executor,
        WorkFailedError,
        WorkParkedError,
        result_text,
        visible,
    )
    from remit.agents.workorders import WorkOrder, WorkOrderConstraints
else:
    __getattr__ = lazy_names(__name__)

__all__ = [
    "HIDDEN",
    "IGNORABLE",
    "RECALL",
    "Approval",
    "ApprovalError",
    "ApprovalQueue",
    "AttachedOrder",
    "File",
    "Fitted",
    "HO1Executor",
    "HO2Supervisor",
    "OutputT",
    "OutputType",
    "Permit",
    "Redactor",
    "SessionManager",
    "Tool",
    "ToolDispatcher",
    "ToolError",
    "ToolResult",
    "TurnResult",
    "UserMessage",
    "WorkFailedError",
    "WorkOrder",
    "WorkOrderConstraints",
    "WorkParkedError",
    "admin_tools",
    "arguments_hash",
    "caller_session",
    "current_call",
    "cut_to_fit",
    "plain_value",
    "result_text",
    "split_message",
    "tool",
    "visible",
]
