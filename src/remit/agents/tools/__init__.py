"""Tools: callables under an id, with a schema, a time limit and an output limit.

``@tool`` makes one of a function; ``remit.agents.tools.mcp`` brings those of MCP servers; installed
distributions offer theirs as entry points of the group ``remit.tools``.
"""

from remit.agents.tools.decorator import tool
from remit.agents.tools.definition import (
    Context,
    OnUnknown,
    Tool,
    ToolError,
    ToolUnavailableError,
    ToolWaitingError,
    UnknownToolError,
    current_call,
    given_deps,
    is_tool_id,
    tool_id_of,
)
from remit.agents.tools.dispatcher import ToolDispatcher, ToolResult
from remit.agents.tools.pin import Pin, PinnedTool
from remit.agents.tools.pins import PinError, Pins

__all__ = [
    "Context",
    "OnUnknown",
    "Pin",
    "PinError",
    "PinnedTool",
    "Pins",
    "Tool",
    "ToolDispatcher",
    "ToolError",
    "ToolResult",
    "ToolUnavailableError",
    "ToolWaitingError",
    "UnknownToolError",
    "current_call",
    "given_deps",
    "is_tool_id",
    "tool",
    "tool_id_of",
]
