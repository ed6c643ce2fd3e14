"""Arguments that a message contains literally: ids, event types, paths and numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from remit.agents.worker.english import stem
from remit.kernel.schemas import first_problem

NAME = re.compile(r"(?!\d+$)\S*[\d_/.]\S*|[A-Z]{2,}-\S+|[A-Z][A-Z-]{2,}")
"""A word that is an id, an event type, a path or a setting: not one of a sentence."""
_PATH = re.compile(r"\S*/\S*|\S+\.[A-Za-z][A-Za-z0-9]{0,4}")
_INTEGER = re.compile(r"(?<![\w.-])\d+(?!\w|\.\d)")


def schemas_for_names(schemas: Mapping[str, Mapping[str, Any]], message: str) -> list[str]:
    """Return the keys of the schemas that take a name in the message; all keys if none does.

    Names are ids, event types and paths. A person who types a name means a tool that takes it.

    Args:
        schemas: JSON Schemas of arguments, keyed by tool id.
        message: the message.
    """
    found = [word for word in bare_words(message) if NAME.fullmatch(word)]
    taking = [
        id_
        for id_, schema in schemas.items()
        if any(_takes(prop, name) for prop in _properties(schema).values() for name in found)
    ]
    return taking or list(schemas)


def narrow_schema(schema: Mapping[str, Any], message: str) -> dict[str, Any]:
    """Return an arguments schema that allows only values contained in the message.

    A string becomes one of the message's words, an integer one of its numbers, an enum its
    mentioned values; a required string that no word fits becomes the whole message. Any other
    property without such a value is omitted, or unchanged if it is required; so are properties of
    other types.

    Args:
        schema: schema of an object; it is not changed.
        message: the text that holds the values.

    Returns:
        A schema that requires all its properties and permits no others.
    """
    words = bare_words(message)
    stems = {stem(word) for word in words}
    names = [word for word in words if NAME.fullmatch(word)]
    # Words that a stricter property takes are not meant for a free text.
    reserved = {
        word
        for name, prop in _properties(schema).items()
        for word in names
        if _takes(prop, word)
        and ({"enum", "pattern"} & {*prop} or name in schema.get("required", ()))
    }
    properties: dict[str, Any] = {}
    for name, prop in _properties(schema).items():
        required = name in schema.get("required", ())
        found: list[Any] = []
        if "enum" in prop:
            # A value in its exact spelling is the intended one.
            found = [value for value in prop["enum"] if value in words] or [
                value
                for value in prop["enum"]
                if all(stem(part) in stems for part in re.split(r"[_\s-]", str(value)))
            ]
        elif prop.get("type") == "integer":
            numbers = map(int, _INTEGER.findall(message))
            low, high = prop.get("minimum", -math.inf), prop.get("maximum", math.inf)
            found = [number for number in dict.fromkeys(numbers) if low <= number <= high]
        elif prop.get("type") == "string":
            found = [word for word in names if not first_problem(prop, word)]
            if not required and "pattern" not in prop:
                found = [word for word in found if word not in reserved]
            if required and not found:
                found = [word for word in words if not first_problem(prop, word)] or [message]
        if found:
            properties[name] = {"enum": found}
        elif required:
            properties[name] = dict(prop)
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def only_value(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the single object that fits a narrowed schema; None if several or none do.

    A schema without properties gives an empty object.

    Args:
        schema: a result of :func:`narrow_schema`.
    """
    values = {name: prop.get("enum", ()) for name, prop in schema["properties"].items()}
    if any(len(allowed) != 1 for allowed in values.values()):
        return None
    return {name: allowed[0] for name, allowed in values.items()}


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    properties: Mapping[str, Mapping[str, Any]] = schema.get("properties", {})
    return properties


def _takes(prop: Mapping[str, Any], name: str) -> bool:
    """Return True if a property takes a name: by its enum, its pattern, or as a path."""
    if "enum" in prop:
        return name in prop["enum"]
    if prop.get("type") != "string":
        return False
    return not first_problem(prop, name) if "pattern" in prop else bool(_PATH.fullmatch(name))


def names(message: str) -> list[str]:
    """Return the words of a message that are ids, paths or settings.

    Words of letters alone are left out.

    Args:
        message: the user's message.
    """
    found = (word for word in bare_words(message) if NAME.fullmatch(word))
    return [word for word in found if not word.isalpha()]


def taken_values(schema: Mapping[str, Any], message: str) -> set[str]:
    """Return the names, numbers and enum values of a message that arguments take, as texts.

    Words that only free-text arguments could take are left out.

    Args:
        schema: JSON Schema of the arguments.
        message: the message.
    """
    properties = narrow_schema(schema, message)["properties"]
    return {
        str(value)
        for name, prop in properties.items()
        for value in prop.get("enum", ())
        if "enum" in schema["properties"][name] or isinstance(value, int) or NAME.fullmatch(value)
    }


def takes_free_text(schema: Mapping[str, Any]) -> bool:
    """Return True if a required argument can be any text.

    A text argument with an ``enum`` or a ``pattern`` is not free.

    Args:
        schema: JSON Schema of the arguments.
    """
    properties = _properties(schema)
    return any(
        properties[name].get("type") == "string" and not {"enum", "pattern"} & {*properties[name]}
        for name in schema.get("required", ())
        if name in properties
    )


def bare_words(message: str) -> list[str]:
    """Return the distinct words of a message, without surrounding punctuation.

    Order is that of the message.

    Args:
        message: the user's message.
    """
    return list(dict.fromkeys(filter(None, map(_bare, message.split()))))


def _bare(word: str) -> str:
    return word.strip("\"'`?!,;:()").rstrip(".")
