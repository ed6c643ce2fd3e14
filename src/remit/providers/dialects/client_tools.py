"""Tools of Anthropic's and OpenAI's APIs that the client runs, as functions for other models.

The Messages API gives its tools by type alone; their schemas are part of Claude's training. The
inputs are those that Anthropic's documentation of each tool lists. In Responses the shell, local
shell and patch tools have item types of their own; a search of tools that the client runs loads
further tools into the conversation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from remit.providers.dialects.tool_calls import json_text, read_arguments

_TEXT = {"type": "string"}
_POINT = {"type": "array", "items": {"type": "integer"}}
_PATH = {"path": {**_TEXT, "description": "Absolute path of the file or directory."}}
_VIEW = {"view_range": {**_POINT, "description": "First and last line to show; -1 for the end."}}
_EDITS = {
    "old_str": {**_TEXT, "description": "The text to replace, which must occur exactly once."},
    "new_str": {**_TEXT, "description": "The new text."},
    "insert_line": {"type": "integer", "description": "The line after which to insert; 0: first."},
    "insert_text": {**_TEXT, "description": "The text to insert."},
    "file_text": {**_TEXT, "description": "The content of the new file."},
}
LOADED = ("tool_search_output", "additional_tools")
"""Input items that bring further tools."""

_TEXTS = {"type": "array", "items": {"type": "string"}}
_NUMBER = {"type": "integer"}
_OPENAI: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
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


def _schema(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def _command(*names: str) -> dict[str, Any]:
    return {"command": {"type": "string", "enum": list(names)}}


_EDITOR = _schema(
    {**_command("view", "create", "str_replace", "insert"), **_PATH, **_VIEW, **_EDITS},
    "command",
    "path",
)
_ANTHROPIC: dict[str, tuple[str, dict[str, Any]]] = {
    "bash": (
        "Run a command in a persistent bash session of the user's machine.",
        _schema(
            {
                "command": {**_TEXT, "description": "The command to run."},
                "restart": {"type": "boolean", "description": "True to restart the session."},
            }
        ),
    ),
    "text_editor": ("View, create and edit text files on the user's machine.", _EDITOR),
    "memory": (
        "Read and change files under /memories, which persist between conversations. Look there "
        "before a task, and note what is worth keeping.",
        _schema(
            {
                **_command("view", "create", "str_replace", "insert", "delete", "rename"),
                "path": {**_TEXT, "description": "A path under /memories."},
                **_VIEW,
                **_EDITS,
                "old_path": {**_TEXT, "description": "For rename: the present path."},
                "new_path": {**_TEXT, "description": "For rename: the new path."},
            },
            "command",
        ),
    ),
    "computer": (
        "Use the mouse and keyboard of the user's computer, and take screenshots.",
        _schema(
            {
                "action": {
                    "type": "string",
                    "enum": [
                        "screenshot", "left_click", "right_click", "middle_click", "double_click",
                        "triple_click", "mouse_move", "left_click_drag", "left_mouse_down",
                        "left_mouse_up", "cursor_position", "key", "hold_key", "type", "scroll",
                        "wait", "zoom",
                    ],
                },
                "coordinate": {**_POINT, "description": "x and y in pixels."},
                "start_coordinate": {**_POINT, "description": "Where a drag begins."},
                "text": {**_TEXT, "description": "The text to type, or the keys to press."},
                "scroll_direction": {"type": "string", "enum": ["up", "down", "left", "right"]},
                "scroll_amount": {"type": "integer"},
                "duration": {"type": "number", "description": "Seconds."},
                "region": {**_POINT, "description": "x0, y0, x1, y1 for zoom."},
            },
            "action",
        ),
    ),
}  # fmt: skip
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
    description, schema = _ANTHROPIC[kind]
    width, height = tool.get("display_width_px"), tool.get("display_height_px")
    if kind == "computer" and type(width) is int and type(height) is int:
        description = f"{description} The screen has {width} x {height} pixels."
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        name = _NAMES.get(kind, kind)
    return {"name": name, "description": description, "input_schema": schema}


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
        schema = tool.get("parameters")
        description = tool.get("description") or "Search for further tools."
        if not isinstance(schema, dict):
            schema = {"type": "object", "properties": {"query": {"type": "string"}}}
    elif isinstance(kind, str) and kind in _OPENAI and _is_local(tool):
        description, properties, required = _OPENAI[kind]
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
