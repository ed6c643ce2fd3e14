"""Remit as an MCP server: thoughts, the router and the record for MCP clients.

The package owns the tools, the transports over HTTP and stdio with their limits, and the gateway to
upstream MCP servers. The client of MCP servers is in :mod:`remit.agents.tools.mcp`.

Invariants: each caller acts with its own key and sees only its own tasks; a message that breaks the
protocol gets an answer that says why; no caller can use up the server's memory or its call slots.

The package needs the extra ``mcp`` and is imported only on use. ``mcp`` without a prefix is the
official SDK. Start reading in :mod:`remit.server.mcp.server`.
"""

from __future__ import annotations

import logging

from remit.kernel.errors import RemitError

try:
    import mcp  # noqa: F401 - the SDK, imported by name, so that its absence is said plainly
except ImportError as error:
    raise RemitError(
        "`remit mcp` requires the extra 'mcp', which is not installed.",
        next_step="Run `pip install 'remit[mcp]'`.",
    ) from error

from remit.server.mcp.http import serve_http
from remit.server.mcp.stdio import serve_stdio

__all__ = ["serve_http", "serve_stdio"]

# The SDK logs what clients send, and the ids of their sessions: both may be secret.
for _name in ("mcp", "sse_starlette"):
    if logging.getLogger(_name).level == logging.NOTSET:
        logging.getLogger(_name).setLevel(logging.CRITICAL)
