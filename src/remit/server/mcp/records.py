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
from remit.server.mcp.tools import McpTool, object_schema

_STATUS = {"const": "ok"}
_COUNT = {"type": "integer"}
_ENTRIES = {"type": "array", "items": {"type": "object"}}
_SESSION = {
    "description": "a session's id, as list_sessions shows it",
    "examples": ["SES-7K2M4QX9"],
}
_ORDER = {"description": "a work order's id", "examples": ["WO-SES-7K2M4QX9-001"]}


_Published = tuple[str, str, Mapping[str, Mapping[str, Any]], Mapping[str, Any]]
"""Title, description, properties and form of the result of a tool, for MCP clients.

Those have no session, and ADMIN's other tools are missing.
"""

_PUBLISHED: dict[str, _Published] = {
    "query_ledger": (
        "Latest entries of the ledger",
        "Look up what happened: the latest entries of Remit's append-only ledger, newest first, a "
        "line each (id, event type, decision, reason, time, names of the metadata). Use it to "
        "see what was called, decided, refused or approved, and to find the ids that "
        "trace_prompt_journey and router_explain take. It shows no prompts or answers.",
        {
            "max_entries": {"description": "how many at most", "examples": [10, 50]},
            "event_type": {"type": "string", "examples": ["EXCHANGE", "THOUGHT_RECORD"]},
            "session_id": {**_SESSION, "description": "only entries of this session"},
            "work_order_id": {**_ORDER, "description": "only entries of this work order"},
        },
        object_schema({"status": _STATUS, "count": _COUNT, "entries": _ENTRIES}),
    ),
    "list_sessions": (
        "Conversations on record",
        "List the conversations on record, the latest first: id, agent, when each began and was "
        "last used, number of turns, and whether it has ended. Calls of router_route are sessions "
        "without turns. Use it to find the session_id that the other tools take.",
        {"max_sessions": {"description": "how many at most", "examples": [20]}},
        object_schema({"status": _STATUS, "count": _COUNT, "sessions": _ENTRIES}),
    ),
    "trace_prompt_journey": (
        "How a prompt became an answer",
        "Trace how a prompt became an answer: planned, dispatched, asked, answered, tools used, "
        "checked, delivered, with times, tokens, cost and the ids of what is on record. Name one "
        "of session_id (its turns, or the one that turn says), work_order_id or entry_id. Use "
        "it to explain or debug an answer. Long texts are cut, and a note says so.",
        {
            "session_id": {**_SESSION, "description": "the session whose turn is traced"},
            "work_order_id": _ORDER,
            "entry_id": {
                "description": "any entry of the turn, as query_ledger shows it",
                "examples": ["LED-0000002a"],
            },
            "turn": {"description": "only this turn of the session, from 1 on", "examples": [2]},
        },
        object_schema({"status": _STATUS, "turns": {"type": "array"}}),
    ),
}


def record_tools(runtime: Runtime) -> list[McpTool]:
    """Return the tools ``query_ledger``, ``list_sessions`` and ``trace_prompt_journey``."""
    settings = runtime.loaded.settings
    tools = admin_tools(runtime.ledger, runtime.root.path, settings.tools, runtime.loaded)
    found = {tool.tool_id: tool for tool in tools}
    return [
        McpTool(
            tool=_described(found[name], text, properties, settings.mcp_server.timeout_s),
            title=title,
            needs=("read",),
            output_schema=output,
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
