"""Three of ADMIN's tools, which read the record, described for MCP clients."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from remit.agents import admin_tools
from remit.agents.tools import Tool
from remit.runtime import Runtime
from remit.server.mcp.tools import McpTool, object_schema, rights_of

_STATUS = {"const": "ok"}
_COUNT = {"type": "integer"}
_ENTRIES = {"type": "array", "items": {"type": "object"}}
_SESSION = {
    "description": "Id of a session, from list_sessions.",
    "examples": ["SES-7K2M4QX9"],
}
_ORDER = {"description": "Id of a work order.", "examples": ["WO-SES-7K2M4QX9-001"]}


_Published = tuple[str, str, Mapping[str, Mapping[str, Any]], Mapping[str, Any]]
"""Title, description, properties and form of the result of a tool, for MCP clients.

Those have no session, and ADMIN's other tools are missing.
"""

_PUBLISHED: dict[str, _Published] = {
    "query_ledger": (
        "Latest entries of the ledger",
        "Look up what happened: the latest entries of Remit's append-only ledger, newest first, "
        "one line each (id, event type, decision, reason, time, metadata names). Use it to see "
        "calls, decisions, refusals and approvals, and to find ids for trace_prompt_journey and "
        "router_explain. The result contains no prompts or answers.",
        {
            "max_entries": {"description": "Maximum number of items.", "examples": [10, 50]},
            "event_type": {"type": "string", "examples": ["EXCHANGE", "THOUGHT_RECORD"]},
            "session_id": {**_SESSION, "description": "Return only entries of this session."},
            "work_order_id": {**_ORDER, "description": "Return only entries of this work order."},
        },
        object_schema({"status": _STATUS, "count": _COUNT, "entries": _ENTRIES}),
    ),
    "list_sessions": (
        "Recorded conversations",
        "List the recorded conversations, latest first: id, agent, start, last use, number of "
        "turns, and whether the conversation has ended. Calls of router_route are sessions "
        "without turns. Use it to find the session_id for other tools.",
        {"max_sessions": {"description": "Maximum number of items.", "examples": [20]}},
        object_schema({"status": _STATUS, "count": _COUNT, "sessions": _ENTRIES}),
    ),
    "trace_prompt_journey": (
        "How a prompt became an answer",
        "Trace how a prompt became an answer: planned, dispatched, asked, answered, tools used, "
        "checked, delivered, with times, tokens, cost and entry ids. Pass one of session_id "
        "(all its turns, or the turn with the number turn), work_order_id or entry_id. Use it to "
        "explain or debug an answer. Long texts are cut, and a note says so.",
        {
            "session_id": {**_SESSION, "description": "Session whose turns are traced."},
            "work_order_id": _ORDER,
            "entry_id": {
                "description": "Id of any entry of the turn, from query_ledger.",
                "examples": ["LED-0000002a"],
            },
            "turn": {
                "description": "Number of one turn of the session, counted from 1.",
                "examples": [2],
            },
        },
        object_schema({"status": _STATUS, "turns": {"type": "array"}}),
    ),
}


def record_tools(runtime: Runtime) -> list[McpTool]:
    """Return the tools ``query_ledger``, ``list_sessions`` and ``trace_prompt_journey``.

    The tools only read; a key needs the permission ``read``.

    Args:
        runtime: the open root.
    """
    settings = runtime.loaded.settings
    tools = admin_tools(runtime.ledger, runtime.root.path, settings.tools, runtime.loaded)
    found = {tool.tool_id: tool for tool in tools}
    return [
        McpTool(
            tool=_described(found[name], text, properties, settings.mcp_server.timeout_s),
            title=title,
            output_schema=output,
            **rights_of(name),
        )
        for name, (title, text, properties, output) in _PUBLISHED.items()
    ]


def _described(
    tool: Tool, text: str, properties: Mapping[str, Mapping[str, Any]], timeout_s: float
) -> Tool:
    schema = copy.deepcopy(dict(tool.input_schema))
    for name, more in properties.items():
        schema["properties"][name] |= more
    return replace(
        tool,
        description=text,
        input_schema=schema,
        function=functools.partial(_run, tool.function),
        timeout_s=timeout_s,
    )


def _run(function: Callable[..., dict[str, Any]], **arguments: Any) -> dict[str, Any]:
    output = function(**arguments)
    if "query_ledger_full" in output.get("note", ""):  # a tool that is not offered here
        output["note"] = (
            "Texts are cut to fit; `remit ledger show ID` prints a full entry. Ask for one "
            "turn by its number with turn."
        )
    return output
