"""A tool call's input: a JSON object here, a text on OpenAI's wires."""

from __future__ import annotations

import json
from typing import Any

import orjson

from remit.providers.dialects import _checks as checks

__all__ = ["arguments_text", "free_text", "json_text", "read_arguments"]


def json_text(value: Any) -> str:
    """The JSON text of a value."""
    try:
        return orjson.dumps(value).decode()
    except (TypeError, ValueError):  # lone surrogates, great whole numbers
        return json.dumps(value, separators=(",", ":"))


def read_arguments(text: str) -> dict[str, Any]:
    """A call's arguments; what is no JSON object is kept under ``_unparsed``."""
    try:
        value = orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        value = None
    # A text that has the form of a kept text would be taken for one: keep it entire too.
    if type(value) is dict and "_unparsed" not in value and checks.is_sound(value):
        return value
    return {"_unparsed": text}


def arguments_text(value: Any) -> str:
    """The JSON text of a call's input; what was kept as text, as it was."""
    if isinstance(value, dict) and len(value) == 1 and isinstance(value.get("_unparsed"), str):
        return str(value["_unparsed"])
    return json_text(value)


def free_text(value: Any) -> str:
    """The text of a call of a tool with free text input."""
    if isinstance(value, dict):
        text = value.get("input")
        if isinstance(text, str) and len(value) == 1:
            return text
    return arguments_text(value)
