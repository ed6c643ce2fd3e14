"""Agents at work: orders, the worker (HO1), the supervisor (HO2), sessions, tools, approvals.

Public names are imported when they are first used: the worker must not load the supervisor.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remit.agents.sessions import SessionManager
    from remit.agents.supervisor import HO2Supervisor, TurnResult
    from remit.agents.tools import Tool, ToolDispatcher, ToolError, ToolResult, current_call, tool
    from remit.agents.worker import HO1Executor
    from remit.agents.workorders import WorkOrder, WorkOrderConstraints

__all__ = [
    "HO1Executor",
    "HO2Supervisor",
    "SessionManager",
    "Tool",
    "ToolDispatcher",
    "ToolError",
    "ToolResult",
    "TurnResult",
    "WorkOrder",
    "WorkOrderConstraints",
    "current_call",
    "tool",
]

_PLACES = {
    "SessionManager": "sessions",
    "HO2Supervisor": "supervisor",
    "TurnResult": "supervisor",
    "HO1Executor": "worker",
    "WorkOrder": "workorders",
    "WorkOrderConstraints": "workorders",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'remit.agents' has no attribute {name!r}")
    place = importlib.import_module(f"remit.agents.{_PLACES.get(name, 'tools')}")
    globals()[name] = value = getattr(place, name)
    return value
