"""Tools: callables under an id, with a schema, a time limit and an output limit.

``@tool`` makes one of a function; ``remit.agents.tools.mcp`` brings those of MCP servers; installed
distributions offer theirs as entry points of the group ``remit.tools``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from remit.agents.tools.installed import TOOL_GROUP
from remit.agents.tools.pin import Pin, PinnedTool
from remit.agents.tools.pins import Pins
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
    __getattr__ = lazy_names(
        __name__,
        {
            "mcp": "MCP_LISTS McpSecrets McpServer PinnedTexts"
            " mcp_origin mcp_schema mcp_tool_id mcp_transport",
        },
    )
from remit.kernel.errors import ConflictError

__all__ = [
    "MCP_LISTS",
    "TOOL_GROUP",
    "Context",
    "McpSecrets",
    "McpServer",
    "OnUnknown",
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
    "is_tool_id",
    "mcp_origin",
    "mcp_schema",
    "mcp_tool_id",
    "mcp_transport",
    "tool",
    "tool_id_of",
]

# Earlier names, for programs that catch them; they end with version 1.0.
PinError = ConflictError
