"""Tools and the choice among them in the Messages API."""

from __future__ import annotations

from typing import Any

from remit.providers.dialects.model_call import ModelCall
from remit.providers.dialects.names import ToolNames
from remit.providers.dialects.refusals import cannot
from remit.providers.dialects.schemas import flat_schema, messages_schema
from remit.providers.dialects.tool_choice import described

__all__ = ["tool_fields"]

_SEARCH = {"type": "web_search_20250305", "name": "web_search"}
_SEARCH_KEYS = ("allowed_domains", "blocked_domains", "user_location", "max_uses")


def tool_fields(call: ModelCall, names: ToolNames, *, native: bool) -> dict[str, Any]:
    """Return ``tools`` and ``tool_choice``; empty without tools, as the API accepts no choice
    alone.

    Args:
        call: the request.
        names: names of its tools.
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
        if (written := _tool(call, tool, f"tools[{index}]", names, native)) is not None
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
    if call.parallel_tools is False:
        choice = choice or {"type": "auto"}
        if choice["type"] != "none":
            choice["disable_parallel_tool_use"] = True
    if choice is not None:
        fields["tool_choice"] = choice
    return fields


def _hosted_choice(choice: dict[str, Any]) -> dict[str, Any]:
    value = choice["value"]
    if str(value.get("type", "")).startswith("web_search"):
        return {"type": "tool", "name": _SEARCH["name"]}
    raise cannot("tool_choice", "a tool that only its own provider has")


def _tool(
    call: ModelCall, tool: dict[str, Any], where: str, names: ToolNames, native: bool
) -> dict[str, Any] | None:
    kind, where = tool.get("type"), str(tool.get("at", where))
    if kind == "web_search":
        if tool.get("external_web_access") is False:
            call.drop("tools[].web_search")
            return None  # no search of the web is wanted, and none is made
        if "search_context_size" in tool:
            call.drop("tools[].search_context_size")
        search = {**_SEARCH, **{key: tool[key] for key in _SEARCH_KEYS if key in tool}}
        if type(uses := call.other.get("max_tool_calls")) is int and uses > 0:
            search.setdefault("max_uses", uses)
        return search
    if native and kind != "other" and "input_schema" not in tool and "custom" not in tool:
        return dict(tool)
    description, schema = described(tool, where)
    if tool.get("strict") is True:
        schema = messages_schema(schema)
    wire: dict[str, Any] = {"name": names.sent(tool["name"])}
    if description:
        wire["description"] = description
    wire["input_schema"] = flat_schema(schema)
    if tool.get("strict") is True:
        wire["strict"] = True
    if "cache_control" in tool:
        wire["cache_control"] = tool["cache_control"]
    return wire
