"""Tools: callables under an id, with a schema, a time limit and an output limit (SPEC 8.3)."""

from remit.tools.dispatcher import ToolDispatcher, ToolResult
from remit.tools.tool import Tool, ToolError, UnknownToolError

__all__ = ["Tool", "ToolDispatcher", "ToolError", "ToolResult", "UnknownToolError"]
