"""The tools of MCP clients that are made of operations."""

from __future__ import annotations

from dataclasses import replace

from remit import operations
from remit.agents import Redactor
from remit.runtime import OpenRoot, Runtime
from remit.runtime.operations import all_operations
from remit.server.mcp.callers import current_caller
from remit.server.mcp.tools import McpTool, bounded, object_schema, rights_of


def record_tools(runtime: Runtime) -> list[McpTool]:
    """Return the tools of operations that have a title. They run in the caller's name.

    The tools only read; a key needs the permission of the operation. ``[mcp_server]`` limits the
    time of each, and the length of text arguments.

    Args:
        runtime: the open root.
    """
    loaded, ledger = runtime.loaded, runtime.ledger
    root = OpenRoot(lambda: (runtime.root, loaded), lambda: ledger, runtime=runtime)
    settings, own = loaded.settings.tools, loaded.settings.mcp_server

    def caller() -> operations.Caller:
        found = current_caller.get()
        return operations.Caller(found.identity, found.subject_id)

    made = operations.make_tools(all_operations(), root, caller, settings, Redactor.of(loaded))
    return [
        McpTool(
            tool=replace(bounded(tool, own), timeout_s=own.timeout_s),
            title=stated.title,
            output_schema=object_schema(stated.returns),
            **rights_of(stated.name),
        )
        for stated, tool in made
        if stated.title
    ]
