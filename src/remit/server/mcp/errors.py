"""What keeps the MCP server from beginning."""

from __future__ import annotations

from remit.kernel.errors import RemitError

__all__ = ["McpError"]


class McpError(RemitError):
    """The MCP server cannot begin."""
