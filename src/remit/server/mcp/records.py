"""The tools that read the record, for MCP clients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from remit import operations
from remit.agents import Redactor
from remit.runtime import OpenRoot, Runtime
from remit.runtime.operations import all_operations
from remit.server.mcp.callers import current_caller
from remit.server.mcp.tools import McpTool, bounded, object_schema, rights_of

_LIST = {"status": {"const": "ok"}, "count": {"type": "integer"}}
_ROWS = {"type": "array", "items": {"type": "object"}}
_PUBLISHED: dict[str, tuple[str, dict[str, Any]]] = {
    "query_ledger": ("Latest entries of the ledger", {**_LIST, "entries": _ROWS}),
    "list_sessions": ("Recorded conversations", {**_LIST, "sessions": _ROWS}),
    "trace_prompt_journey": (
        "How a prompt became an answer", {"status": _LIST["status"], "turns": {"type": "array"}}
    ),
}  # fmt: skip
"""Title and members of the result of each tool."""


def record_tools(runtime: Runtime) -> list[McpTool]:
    """Return the tools ``query_ledger``, ``list_sessions`` and ``trace_prompt_journey``.

    The tools only read; a key needs the permission ``read``. Operations run in the caller's name.

    Args:
        runtime: the open root.
    """
    loaded, ledger = runtime.loaded, runtime.ledger
    root = OpenRoot(lambda: (runtime.root, loaded), lambda: ledger)
    settings, own = loaded.settings.tools, loaded.settings.mcp_server

    def caller() -> operations.Caller:
        found = current_caller.get()
        return operations.Caller(found.identity, found.subject_id)

    made = operations.make_tools(all_operations(), root, caller, settings, Redactor.of(loaded))
    tools = {tool.tool_id: bounded(tool, own) for tool in made}
    return [
        McpTool(
            tool=replace(tools[name], timeout_s=own.timeout_s),
            title=title,
            output_schema=object_schema(members),
            **rights_of(name),
        )
        for name, (title, members) in _PUBLISHED.items()
    ]
