"""Anthropic's tools that the client runs, as functions for models of other providers.

The Messages API gives these tools by type alone; their schemas are part of Claude's training. The
inputs are those that Anthropic's documentation of each tool lists.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["as_function", "is_tool_search"]

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


def _schema(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def _command(*names: str) -> dict[str, Any]:
    return {"command": {"type": "string", "enum": list(names)}}


_EDITOR = _schema(
    {**_command("view", "create", "str_replace", "insert"), **_PATH, **_VIEW, **_EDITS},
    "command",
    "path",
)
_TOOLS: dict[str, tuple[str, dict[str, Any]]] = {
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


def as_function(tool: dict[str, Any]) -> dict[str, Any] | None:
    """Return one of Anthropic's tools that the client runs as a neutral tool; None for others.

    Args:
        tool: the client's tool, such as ``{"type": "bash_20250124", "name": "bash"}``.
    """
    found = _TYPE.fullmatch(str(tool.get("type")))
    if found is None:
        return None
    kind = found[1]
    description, schema = _TOOLS[kind]
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
