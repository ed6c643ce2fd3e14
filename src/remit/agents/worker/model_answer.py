"""The boundary between a model's answer and an agent: arguments are read or refused here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.kernel.json_text import JsonTextError, load_exact, sound, sound_text

_SHOWN = 200  # characters of refused arguments that the model is shown
_KINDS = {type(None): "null", bool: "true or false", str: "a text", list: "a list"}


def tool_arguments(given: Any, schema: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the arguments of a tool call, and why the tool cannot be run with them.

    The reason is empty if it can. Blank and absent arguments are ``{}``; ``null`` is too, for a
    tool without parameters.

    Args:
        given: the ``input`` of a model's ``tool_use`` block: an object, or ``{"_unparsed": text}``
            for a text that the dialect could not read as one. Providers in Python may give the
            text itself.
        schema: JSON Schema of the tool's arguments.
    """
    text = given if isinstance(given, str) else unparsed_text(given)
    if isinstance(given, dict) and text is None:
        return given, ""
    value = given
    if text is not None:
        text = sound_text(text)
        try:
            value = load_exact(text.encode()) if text.strip() else {}
        except JsonTextError as error:
            why = error.message.removeprefix("The text is not JSON: ").rstrip(".")
            return {"_unparsed": text}, f"The arguments are not JSON ({why}): {_shown(text)}."
    if value is None and not (schema.get("properties") or schema.get("required")):
        return {}, ""
    if isinstance(value, dict) and isinstance(given, str):
        return sound(value), ""
    text = str(value) if text is None else text
    if isinstance(value, dict):
        why = "they are nested too deep, hold an infinite number, or a member '_unparsed'"
        return {"_unparsed": text}, f"The arguments are JSON that cannot be used: {why}."
    kind = _KINDS.get(type(value), "a number")
    problem = f"The arguments are not a JSON object but {kind}: {_shown(text)}."
    return {"_unparsed": text}, problem


def unparsed_text(given: Any) -> str | None:
    """Return the text of arguments that are not a JSON object; ``None`` for all others."""
    if isinstance(given, dict) and len(given) == 1:
        text = given.get("_unparsed")
        return text if isinstance(text, str) else None
    return None


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")
