"""Remit as an MCP server: thoughts, the router and the record for MCP clients.

Needs the extra ``mcp``; nothing imports this until it is used. In this package ``mcp`` is always
the official SDK: all imports are absolute. What Remit uses of
other MCP servers is in :mod:`remit.agents.tools.mcp`.
"""

from __future__ import annotations

import logging

from remit.kernel.errors import RemitError

try:
    import mcp  # noqa: F401 - the SDK, imported by name, so that its absence is said plainly
except ImportError as error:
    raise RemitError(
        "`remit mcp` needs the extra 'mcp', which is not installed.",
        next_step="pip install 'remit[mcp]'.",
    ) from error

from remit.server.mcp.http import serve_http
from remit.server.mcp.stdio import serve_stdio

__all__ = ["serve_http", "serve_stdio"]

# The SDK logs what clients send, and the ids of their sessions: both may be secret.
for _name in ("mcp", "sse_starlette"):
    if logging.getLogger(_name).level == logging.NOTSET:
        logging.getLogger(_name).setLevel(logging.CRITICAL)
