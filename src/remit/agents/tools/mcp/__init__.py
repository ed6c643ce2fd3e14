"""The tools of MCP servers. Needs the extra ``mcp``; imported only when a server is used."""

from __future__ import annotations

import logging

from remit.agents.tools.definition import ToolError

try:
    import mcp  # noqa: F401 - a missing package is reported below
except ImportError as error:
    raise ToolError(
        "MCP servers need the extra 'mcp', which is not installed.",
        next_step="Run `pip install 'remit[mcp]'`.",
    ) from error

from remit.agents.tools.mcp.conversion import mcp_schema, mcp_tool_id
from remit.agents.tools.mcp.server import McpServer
from remit.agents.tools.mcp.text_pins import MCP_LISTS, PinnedTexts
from remit.agents.tools.mcp.transports import McpSecrets, mcp_origin, mcp_transport

__all__ = [
    "MCP_LISTS",
    "McpSecrets",
    "McpServer",
    "PinnedTexts",
    "mcp_origin",
    "mcp_schema",
    "mcp_tool_id",
    "mcp_transport",
]

# The SDK logs texts of servers and the HTTP client logs full addresses; both may be secret.
for _name, _level in (("mcp", logging.CRITICAL), ("httpx2", logging.WARNING)):
    if logging.getLogger(_name).level == logging.NOTSET:
        logging.getLogger(_name).setLevel(_level)
