"""Tools and the choice among them in the Messages API."""

from __future__ import annotations

from typing import Any

from remit.providers.dialects.model_call import ModelCall
from remit.providers.dialects.names import ToolNames
from remit.providers.dialects.refusals import cannot
from remit.providers.dialects.schemas import messages_schema, tool_schema
from remit.providers.dialects.tool_choice import custom_schema

__all__ = ["tool_fields"]

_SEARCH = {"type": "web_search_20250305", "name": "web_search"}
_SEARCH_KEYS = ("allowed_domains", "blocked_domains", "user_location", "max_uses")


def tool_fields(call: ModelCall, names: ToolNames, *, own: bool, native: bool) -> dict[str, Any]:
    """Return ``tools`` and ``tool_choice``; empty without tools, as the API accepts no choice
    alone.

    Args:
        call: the request.
        names: names of its tools.
        own: True if the client speaks this API.
        native: True if unknown tools may be the API's own.

    Raises:
        DialectError: only another provider has such a tool.
    """
    tools = call.tools
    choice = call.tool_choice
    if choice is not None and choice["type"] == "allowed":
        # The API has no such choice: what is not offered is not called either.
        tools = tuple(tool for tool in tools if tool.get("name") in choice["names"])
        choice = {"type": choice["mode"]}
    wire = [
        written
        for index, tool in enumerate(tools)
        if (written := _tool(tool, f"tools[{index}]", names, own, native)) is not None
    ]
    if not wire:
        return {}
    fields: dict[str, Any] = {"tools": wire}
    if choice is not None:
        if choice["type"] == "other":
            choice = _hosted_choice(choice)
        elif choice["type"] == "tool":
            choice = {"type": "tool", "name": names.sent(choice["name"])}
        else:
            choice = {"type": choice["type"]}
    if call.parallel_tools is not None and (own or call.parallel_tools is False):
        choice = choice or {"type": "auto"}
        if choice["type"] != "none":
            choice["disable_parallel_tool_use"] = not call.parallel_tools
    if choice is not None:
        fields["tool_choice"] = choice
    return fields


def _hosted_choice(choice: dict[str, Any]) -> dict[str, Any]:
    value = choice["value"]
    if str(value.get("type", "")).startswith("web_search"):
        return {"type": "tool", "name": _SEARCH["name"]}
    raise cannot("tool_choice", "a tool that only its own provider has")


def _tool(
    tool: dict[str, Any], where: str, names: ToolNames, own: bool, native: bool
) -> dict[str, Any] | None:
    kind, where = tool.get("type"), str(tool.get("at", where))
    if own and kind == "other":
        return dict(tool["value"])
    if kind == "web_search":
        if tool.get("external_web_access") is False:
            return None  # no search of the web is wanted, and none is made
        return {**_SEARCH, **{key: tool[key] for key in _SEARCH_KEYS if key in tool}}
    if tool.get("custom") is True:
        description, schema = custom_schema(tool)
    elif "input_schema" in tool:
        description, schema = tool.get("description", ""), tool["input_schema"]
    elif native and kind != "other":
        return dict(tool)
    else:
        raise cannot(where, "a tool that only its own provider has")
    if not own:
        if tool.get("strict") is True:
            schema = messages_schema(schema)
        schema = tool_schema(schema)
    wire: dict[str, Any] = {"name": names.sent(tool["name"])}
    if description:
        wire["description"] = description
    wire["input_schema"] = schema
    if "strict" in tool and (own or tool["strict"] is True):
        wire["strict"] = tool["strict"]
    if "cache_control" in tool:
        wire["cache_control"] = tool["cache_control"]
    return wire
