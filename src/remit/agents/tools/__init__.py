"""Tools: functions with an id, a schema, a time limit and an output limit.

Owns tool definitions, their execution (:class:`ToolDispatcher`) and the pins of definitions that
MCP servers offer (:class:`Pins`). Does not decide whether a call is allowed, and records no calls
(``remit.agents.worker`` does). ``@tool`` makes a tool of a function, ``remit.agents.tools.mcp``
provides the tools of MCP servers, and installed distributions offer tools as entry points of the
group ``remit.tools``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remit.agents.tools.decorator import tool as tool
from remit.agents.tools.definition import (
    Context as Context,
    OnUnknown as OnUnknown,
    Tool as Tool,
    ToolError as ToolError,
    ToolUnavailableError as ToolUnavailableError,
    ToolWaitingError as ToolWaitingError,
    UnknownToolError as UnknownToolError,
    current_call as current_call,
    given_deps as given_deps,
    giving as giving,
    is_tool_id as is_tool_id,
    refuse_inner_turn as refuse_inner_turn,
    tool_id_of as tool_id_of,
)
from remit.agents.tools.dispatcher import (
    TOOL_GROUP as TOOL_GROUP,
    ToolDispatcher as ToolDispatcher,
    ToolResult as ToolResult,
)
from remit.agents.tools.pins import Pin as Pin, PinnedTool as PinnedTool, Pins as Pins
from remit.kernel import lazy_names

if TYPE_CHECKING:
    from remit.agents.tools.mcp import (
        MCP_LISTS as MCP_LISTS,
        McpSecrets as McpSecrets,
        McpServer as McpServer,
        PinnedTexts as PinnedTexts,
        mcp_origin as mcp_origin,
        mcp_schema as mcp_schema,
        mcp_tool_id as mcp_tool_id,
        mcp_transport as mcp_transport,
    )
else:
    __getattr__ = lazy_names(__name__)
from remit.kernel.errors import ConflictError

# Programs may catch this earlier name until version 1.0.
PinError = ConflictError
