"""Agents at work: orders, the worker (HO1), the supervisor (HO2), sessions, tools, approvals.

Public names are imported when they are first used: the worker must not load the supervisor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remit.kernel import lazy_names

if TYPE_CHECKING:
    from remit.agents.admin import RECALL, Redactor, admin_tools, cut_to_fit, plain_value
    from remit.agents.approvals import (
        Approval,
        ApprovalError,
        ApprovalQueue,
        Permit,
        arguments_hash,
    )
    from remit.agents.files import File, UserMessage, split_message
    from remit.agents.outputs import OutputT, OutputType
    from remit.agents.sessions import SessionManager
    from remit.agents.supervisor import HO2Supervisor, TurnResult
    from remit.agents.tools import Tool, ToolDispatcher, ToolError, ToolResult, current_call, tool
    from remit.agents.worker import (
        AttachedOrder,
        HO1Executor,
        WorkFailedError,
        WorkParkedError,
        result_text,
    )
    from remit.agents.workorders import WorkOrder, WorkOrderConstraints
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "admin": "RECALL Redactor admin_tools cut_to_fit plain_value",
            "approvals": "Approval ApprovalError ApprovalQueue Permit arguments_hash",
            "files": "File UserMessage split_message",
            "outputs": "OutputT OutputType",
            "sessions": "SessionManager",
            "supervisor": "HO2Supervisor TurnResult",
            "tools": "Tool ToolDispatcher ToolError ToolResult current_call tool",
            "worker": "AttachedOrder HO1Executor WorkFailedError WorkParkedError result_text",
            "workorders": "WorkOrder WorkOrderConstraints",
        },
    )

__all__ = [
    "RECALL",
    "Approval",
    "ApprovalError",
    "ApprovalQueue",
    "AttachedOrder",
    "File",
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
    "current_call",
    "cut_to_fit",
    "plain_value",
    "result_text",
    "split_message",
    "tool",
]
