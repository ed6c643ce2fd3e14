"""Tools of Responses that the client runs, as functions for models of other providers.

Shell, local shell and patch tools have item types of their own. A search of tools that the client
runs loads further tools into the conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.providers.dialects.arguments import json_text, read_arguments

__all__ = ["LOADED", "as_function", "item_fields", "read_call", "read_output"]

LOADED = ("tool_search_output", "additional_tools")
"""Input items that bring further tools."""

_TEXTS = {"type": "array", "items": {"type": "string"}}
_NUMBER = {"type": "integer"}
_TOOLS: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "shell": (
        "Run shell commands on the user's machine; each command is a text.",
        {"commands": _TEXTS, "timeout_ms": _NUMBER, "max_output_length": _NUMBER},
        ("commands",),
    ),
    "local_shell": (
        "Run a program on the user's machine.",
        {
            "command": {**_TEXTS, "description": "The program and its arguments."},
            "working_directory": {"type": "string"},
            "timeout_ms": _NUMBER,
        },
        ("command",),
    ),
    "apply_patch": (
        "Change one file of the user's workspace by a V4A diff.",
        {
            "type": {"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
            "path": {"type": "string"},
            "diff": {"type": "string", "description": "The diff; none to delete."},
        },
        ("type", "path"),
    ),
}


def as_function(tool: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a tool that the client runs as a neutral tool; None for any other tool.

    Args:
        tool: the client's tool, such as ``{"type": "local_shell"}``.
    """
    kind = tool.get("type")
    if kind == "tool_search" and tool.get("execution") == "client":
        schema = tool.get("parameters")
        description = tool.get("description") or "Search for further tools."
        if not isinstance(schema, dict):
            schema = {"type": "object", "properties": {"query": {"type": "string"}}}
    elif isinstance(kind, str) and kind in _TOOLS and _is_local(tool):
        description, properties, required = _TOOLS[kind]
        schema = {"type": "object", "properties": properties, "required": [*required]}
    else:
        return None
    return {"name": kind, "description": description, "input_schema": schema, "kind": kind,
            "group": tool}  # fmt: skip


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
    if tool == kind or not (tool in _TOOLS or tool == "tool_search"):
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
    if not kind.endswith("_output") or not (tool in _TOOLS or tool == "tool_search"):
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
