"""Tools of Anthropic's and OpenAI's APIs that the client runs, as functions for other models.

The Messages API gives its tools by type alone; their schemas are part of Claude's training. The
inputs are those that Anthropic's documentation of each tool lists. In Responses the shell, local
shell and patch tools have item types of their own; a search of tools that the client runs loads
further tools into the conversation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from remit.providers.dialects.tool_calls import json_text, read_arguments

_FUNCTIONS = orjson.loads(Path(__file__).with_suffix(".json").read_bytes())
_ANTHROPIC, _OPENAI = _FUNCTIONS["anthropic"], _FUNCTIONS["openai"]
"""Description and input of each tool, keyed by its type."""

_SEARCH: dict[str, Any] = {
    "description": "Search for further tools.",
    "input_schema": {"type": "object", "properties": {"query": {"type": "string"}}},
}

LOADED = ("tool_search_output", "additional_tools")
"""Input items that bring further tools."""

_TYPE = re.compile(r"(bash|text_editor|memory|computer)_\d{8}")
_NAMES = {"text_editor": "str_replace_based_edit_tool"}


def anthropic_function(tool: dict[str, Any]) -> dict[str, Any] | None:
    """Return one of Anthropic's tools that the client runs as a neutral tool; None for others.

    Args:
        tool: the client's tool, such as ``{"type": "bash_20250124", "name": "bash"}``.
    """
    found = _TYPE.fullmatch(str(tool.get("type")))
    if found is None:
        return None
    kind = found[1]
    function = _ANTHROPIC[kind]
    width, height = tool.get("display_width_px"), tool.get("display_height_px")
    if kind == "computer" and type(width) is int and type(height) is int:
        screen = f"{function['description']} The screen has {width} x {height} pixels."
        function = {**function, "description": screen}
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        name = _NAMES.get(kind, kind)
    return {"name": name, **function}


def is_tool_search(kind: str) -> bool:
    """Return True for a provider's search of deferred tools, which is idle if all are offered."""
    return kind.startswith("tool_search_tool")


def openai_function(tool: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a tool that the client runs as a neutral tool; None for any other tool.

    Args:
        tool: the client's tool, such as ``{"type": "local_shell"}``.
    """
    kind = tool.get("type")
    if kind == "tool_search" and tool.get("execution") == "client":
        function = dict(_SEARCH)
        if isinstance(schema := tool.get("parameters"), dict):
            function["input_schema"] = schema
        if description := tool.get("description"):
            function["description"] = description
    elif isinstance(kind, str) and kind in _OPENAI and _is_local(tool):
        function = _OPENAI[kind]
    else:
        return None
    return {"name": kind, **function, "kind": kind, "group": tool}


def _is_local(tool: Mapping[str, Any]) -> bool:
    """Return True unless the tool runs in a container of the provider."""
    environment = tool.get("environment")
    return not isinstance(environment, dict) or environment.get("type") == "local"


def read_call(item: Mapping[str, Any], kind: str) -> dict[str, Any] | None:
    """Return the call in an item such as ``shell_call`` as a neutral block; None for other items.

    Args:
        item: the item.
        kind: its type.
    """
    tool = kind.removesuffix("_call")
    if tool == kind or not (tool in _OPENAI or tool == "tool_search"):
        return None
    given = item.get({"apply_patch": "operation", "tool_search": "arguments"}.get(tool, "action"))
    value = read_arguments(given) if isinstance(given, str) else given
    value = dict(value) if isinstance(value, dict) else {}
    if tool == "local_shell":
        value = {name: each for name, each in value.items() if name not in ("type", "env") and each}
    identity = str(item.get("call_id") or item.get("id") or tool)
    return {"type": "tool_use", "id": identity, "name": tool, "input": value}


def read_output(item: Mapping[str, Any], kind: str) -> dict[str, Any] | None:
    """Return the result in an item such as ``shell_call_output`` as a neutral block; None for
    other items.

    Args:
        item: the item.
        kind: its type.
    """
    tool = kind.removesuffix("_output").removesuffix("_call")
    if not kind.endswith("_output") or not (tool in _OPENAI or tool == "tool_search"):
        return None
    output = item.get("output")
    if tool == "tool_search":
        tools = item.get("tools")
        names = [str(each.get("name")) for each in tools or () if isinstance(each, dict)]
        output = f"These tools are available now: {', '.join(names) or 'none'}."
    elif not isinstance(output, str):
        output = json_text(output) if output is not None else str(item.get("status") or "")
    identity = str(item.get("call_id") or item.get("id") or tool)
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": identity, "content": output}
    return {**block, "is_error": True} if item.get("status") == "failed" else block


def item_fields(kind: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a call's item that hold its input.

    Args:
        kind: the tool, such as ``shell``.
        value: the input; empty while it is not known.
    """
    if kind == "tool_search":
        return {"execution": "client", "arguments": dict(value)}
    if kind == "apply_patch":
        return {"operation": dict(value)}
    if kind == "local_shell":
        return {"action": {"type": "exec", "env": {}, "command": [], **value}}
    return {"action": {"commands": [], "timeout_ms": None, "max_output_length": None, **value}}
