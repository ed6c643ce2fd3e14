"""Upstream MCP servers behind Remit: per key rules, budgets, approvals, and all on record.

Tool calls are held against rules and pins, paid for, and put on record before and after. All other
messages pass as they are, in the version of the protocol that client and server agree on.
"""

from remit.server.mcp.gateway.endpoint import WebEndpoint, serve_stream, served_by

__all__ = ["WebEndpoint", "serve_stream", "served_by"]
