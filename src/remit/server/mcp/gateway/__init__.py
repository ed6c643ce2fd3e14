"""Upstream MCP servers behind Remit: rules for each key, budgets, approvals, and records.

The package owns the relay between one client and one upstream server. Tool calls are checked
against rules and pins, charged, and recorded before and after. All other messages pass unchanged,
in the version of the protocol that client and server negotiate.

Invariants: a tool runs only after its ``TOOL_INTENT`` is durable; a tool whose definition differs
from its pin is not called.

Start reading in :mod:`remit.server.mcp.gateway.relay`.
"""

from remit.server.mcp.gateway.endpoint import WebEndpoint, serve_stream, served_by

__all__ = ["WebEndpoint", "serve_stream", "served_by"]
