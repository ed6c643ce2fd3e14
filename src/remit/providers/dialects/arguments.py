"""A tool call's input: a JSON object in neutral form, a text in OpenAI's dialects."""

from __future__ import annotations

from typing import Any

import orjson

from remit.kernel.json_text import JsonTextError, dump, load_unique, sound_text

_MAX_DEPTH = 100

__all__ = ["arguments_text", "free_text", "input_of", "json_text", "read_arguments"]


def json_text(value: Any) -> str:
    """Return a value as JSON text."""
    try:
        return orjson.dumps(value).decode()
    except (TypeError, ValueError):  # lone surrogates, great whole numbers
        return dump(value).decode()


def read_arguments(text: str) -> dict[str, Any]:
    """Return the arguments of a call as an object.

    A blank text gives ``{}``. A text that is not a JSON object gives ``{"_unparsed": text}``.
    Unpaired surrogates are replaced, in names and values too.
    """
    text = sound_text(text)
    if not text.strip():
        return {}
    try:
        value = load_unique(text, repair=True)
    except JsonTextError:
        return {"_unparsed": text}
    # A text that has the form of a kept text would be taken for one: keep it entire too.
    if type(value) is dict and "_unparsed" not in value and _is_shallow(value, _MAX_DEPTH):
        return value
    return {"_unparsed": text}


def _is_shallow(value: Any, depth: int) -> bool:
    """Return False if objects and lists are nested in more levels than ``depth``."""
    kind = type(value)
    if kind is dict or kind is list:
        items = value.values() if kind is dict else value
        return depth > 0 and all(_is_shallow(item, depth - 1) for item in items)
    return True


def input_of(given: Any) -> dict[str, Any]:
    """Return the input of a call from its arguments, an object or a text.

    Absent arguments give ``{}``. Some servers write an object where the API has its text; any
    other value becomes ``_unparsed``.
    """
    if given is None:
        return {}
    if type(given) is dict and "_unparsed" not in given and _is_shallow(given, _MAX_DEPTH):
        return given
    return read_arguments(given if type(given) is str else json_text(given))


def arguments_text(value: Any) -> str:
    """Return a call's input as JSON text; an unparsed input as its original text."""
    if isinstance(value, dict) and len(value) == 1 and isinstance(value.get("_unparsed"), str):
        return str(value["_unparsed"])
    return json_text(value)


def free_text(value: Any) -> str:
    """Return the input text of a call of a tool with free text input."""
    if isinstance(value, dict):
        text = value.get("input")
        if isinstance(text, str) and len(value) == 1:
            return text
    return arguments_text(value)
