"""Tools: functions with an id, a schema, a time limit and an output limit.

Owns tool definitions, their execution (:class:`ToolDispatcher`) and the pins of definitions that
MCP servers offer (:class:`Pins`). Does not decide whether a call is allowed, and records no calls
(``remit.agents.worker`` does). ``@tool`` makes a tool of a function, ``remit.agents.tools.mcp``
provides the tools of MCP servers, and installed distributions offer tools as entry points of the
group ``remit.tools``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remit.agents.tools.decorator import tool
from remit.agents.tools.definition import (
    Context,
    Tool,
    ToolError,
    ToolUnavailableError,
    ToolWaitingError,
    UnknownToolError,
    current_call,
    given_deps,
    giving,
    is_tool_id,
    refuse_inner_turn,
    tool_id_of,
)
from remit.agents.tools.dispatcher import TOOL_GROUP, ToolDispatcher, ToolResult
from remit.agents.tools.pins import Pin, PinnedTool, Pins
from remit.kernel import lazy_names

if TYPE_CHECKING:
    from remit.agents.tools.mcp import (
        MCP_LISTS,
        McpSecrets,
        McpServer,
        PinnedTexts,
        mcp_origin,
        mcp_schema,
        mcp_tool_id,
        mcp_transport,
    )
else:
    __getattr__ = lazy_names(__name__)
from remit.kernel.errors import ConflictError

__all__ = [
    "MCP_LISTS",
    "TOOL_GROUP",
    "Context",
    "McpSecrets",
    "McpServer",
    "Pin",
    "PinnedTexts",
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
    "giving",
    "is_tool_id",
    "mcp_origin",
    "mcp_schema",
    "mcp_tool_id",
    "mcp_transport",
    "refuse_inner_turn",
    "tool",
    "tool_id_of",
]

# Programs may catch this earlier name until version 1.0.
PinError = ConflictError
