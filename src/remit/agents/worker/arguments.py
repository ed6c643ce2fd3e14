"""Arguments that a message holds as they stand: ids, event types, paths, numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from remit.agents.worker.english import stem
from remit.kernel.schemas import first_problem

NAME = re.compile(r"(?!\d+$)\S*[\d_/.]\S*|[A-Z]{2,}-\S+|[A-Z][A-Z-]{2,}")
"""A word that is an id, an event type, a path or a setting: not one of a sentence."""
_PATH = re.compile(r"\S*/\S*|\S+\.[A-Za-z][A-Za-z0-9]{0,4}")
_WHOLE_NUMBER = re.compile(r"(?<![\w.-])\d+(?!\w|\.\d)")


def named(schemas: Mapping[str, Mapping[str, Any]], message: str) -> list[str]:
    """The classes whose schema takes a name that the message holds as it stands.

    Names are ids, event types, paths: a person who types one means a tool that takes it. All
    classes, where none takes one.
    """
    names = [word for word in bare_words(message) if NAME.fullmatch(word)]
    taking = [
        class_
        for class_, schema in schemas.items()
        if any(_takes(prop, name) for prop in _properties(schema) for name in names)
    ]
    return taking or list(schemas)


def narrowed_schema(schema: Mapping[str, Any], message: str) -> dict[str, Any]:
    """An arguments schema that leaves only values the message itself contains.

    A text becomes one of the message's words, an integer one of its numbers, an enum those of
    its values that are mentioned. What the message does not mention is left out, or stays as it
    was where it is required.
    """
    words = bare_words(message)
    stems = {stem(word) for word in words}
    names = [word for word in words if NAME.fullmatch(word)]
    of_others = {  # what a stricter property takes is not meant for a free text beside it
        word
        for name, prop in schema.get("properties", {}).items()
        for word in names
        if _takes(prop, word)
        and ({"enum", "pattern"} & {*prop} or name in schema.get("required", ()))
    }
    properties: dict[str, Any] = {}
    for name, prop in schema.get("properties", {}).items():
        required = name in schema.get("required", ())
        found: list[Any] = []
        if "enum" in prop:
            # A value typed as it stands is the one that is meant.
            found = [value for value in prop["enum"] if value in words] or [
                value
                for value in prop["enum"]
                if all(stem(part) in stems for part in re.split(r"[_\s-]", str(value)))
            ]
        elif prop.get("type") == "integer":
            numbers = map(int, _WHOLE_NUMBER.findall(message))
            low, high = prop.get("minimum", -math.inf), prop.get("maximum", math.inf)
            found = [number for number in dict.fromkeys(numbers) if low <= number <= high]
        elif prop.get("type") == "string":
            found = [word for word in names if not first_problem(prop, word)]
            if not required and "pattern" not in prop:
                found = [word for word in found if word not in of_others]
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
    """The one object that fits a schema of :func:`narrowed_schema`; ``None`` where several do."""
    values = {name: prop.get("enum", ()) for name, prop in schema["properties"].items()}
    if any(len(allowed) != 1 for allowed in values.values()):
        return None
    return {name: allowed[0] for name, allowed in values.items()}


def _properties(schema: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    properties: Mapping[str, Mapping[str, Any]] = schema.get("properties", {})
    return properties.values()


def _takes(prop: Mapping[str, Any], name: str) -> bool:
    """Whether a property's value can be this name: what it lists, its pattern, or a path."""
    if "enum" in prop:
        return name in prop["enum"]
    if prop.get("type") != "string":
        return False
    return not first_problem(prop, name) if "pattern" in prop else bool(_PATH.fullmatch(name))


def names(message: str) -> list[str]:
    """The words of a message that name one thing, such as an id, a path or a setting."""
    found = (word for word in bare_words(message) if NAME.fullmatch(word))
    return [word for word in found if not word.isalpha()]


def taken(schema: Mapping[str, Any], message: str) -> set[str]:
    """The names, numbers and listed values of a message that arguments take."""
    properties = narrowed_schema(schema, message)["properties"]
    return {
        str(value)
        for name, prop in properties.items()
        for value in prop.get("enum", ())
        if "enum" in schema["properties"][name] or isinstance(value, int) or NAME.fullmatch(value)
    }


def takes_free_text(schema: Mapping[str, Any]) -> bool:
    """Whether an argument that must be given can be any words of a message."""
    properties = schema.get("properties", {})
    return any(
        properties[name].get("type") == "string" and not {"enum", "pattern"} & {*properties[name]}
        for name in schema.get("required", ())
        if name in properties
    )


def bare_words(message: str) -> list[str]:
    """The words of a message, each once, without what stands around them."""
    return list(dict.fromkeys(filter(None, map(_bare, message.split()))))


def _bare(word: str) -> str:
    return word.strip("\"'`?!,;:()").rstrip(".")
