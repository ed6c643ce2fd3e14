"""Requirements of schemas and acceptance criteria, and their statement in the words of a prompt."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_DEEPEST = 8  # levels of a schema that are read
_WORD = re.compile(r"[^\W_]+|[€$£%°]")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

# Words that name one unit: a prompt states it by any of them.
_UNITS = tuple(
    tuple(names.split())
    for names in (
        "eur euro euros €", "usd dollar dollars $", "gbp sterling £", "chf franken", "jpy yen",
        "cents cent", "percent percentage % pct", "milliseconds millisecond ms",
        "seconds second sec s", "minutes minute min", "hours hour h", "days day", "weeks week",
        "months month", "years year", "kg kilograms kilogram kilo kilos", "grams gram g",
        "pounds pound lb lbs", "tonnes tonne t", "ounces ounce oz", "km kilometres kilometers",
        "metres meters metre meter m", "cm centimetres centimeters", "mm millimetres millimeters",
        "miles mile", "inches inch", "feet foot ft", "celsius centigrade", "fahrenheit", "kelvin",
        "litres liters litre liter l", "ml millilitres milliliters", "bytes byte", "kb kilobytes",
        "mb megabytes", "gb gigabytes", "kwh", "watts watt", "utc",
    )
)  # fmt: skip
_UNIT_OF = {name: unit for unit in _UNITS for name in unit}
# In a description these are mostly other words: the second item, the day of the order.
_AMBIGUOUS = frozenset({
    "second", "minute", "hour", "day", "week", "month", "year", "pound", "meter", "metre", "foot",
    "feet", "mile", "inch", "sec", "min", "s", "h", "g", "t", "m", "l", "oz",
})  # fmt: skip

# How a prompt states a format of JSON Schema, beside its own name.
_FORMATS: Mapping[str, tuple[str, ...]] = {
    "date": ("yyyy mm dd", "iso 8601", "rfc 3339", "iso date"),
    "date-time": ("iso 8601", "rfc 3339", "iso date", "yyyy mm dd"),
    "time": ("iso 8601", "rfc 3339", "hh mm"), "duration": ("iso 8601",),
    "email": ("e mail", "mail address"), "uri": ("url", "link"), "uuid": ("guid",),
    "ipv4": ("ip address",), "ipv6": ("ip address",),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement that an answer must meet.

    Attributes:
        kind: `field`, `unit`, `format`, `value`, `text`, `length` or `tool`.
        name: the field, unit, format, permitted value, text, number of characters or tool.
        of: origin of the requirement: a place in a schema, or a criterion.
        phrases: phrases of consecutive words, any of which states the requirement.
    """

    kind: str
    name: str
    of: str
    phrases: tuple[tuple[str, ...], ...]


def words(text: str) -> tuple[str, ...]:
    """Return the words of a text, case-folded; `_`, camel case and punctuation separate words."""
    return tuple(word.casefold() for word in _WORD.findall(_CAMEL.sub(" ", text)))


def unstated(requirements: Iterable[Requirement], prompt: str) -> list[Requirement]:
    """Return the requirements that a prompt does not state, in their order.

    A prompt states a requirement if it contains one of its phrases as consecutive whole words, as
    in :func:`words`.
    """
    said = f" {' '.join(words(prompt))} "
    return [
        one
        for one in requirements
        if not any(f" {' '.join(phrase)} " in said for phrase in one.phrases)
    ]


def schema_requirements(schema: Mapping[str, Any], of: str) -> list[Requirement]:
    """Return the requirements of a JSON Schema for the required fields of an answer, each once.

    They are names, units given by names, titles and descriptions, texts in `enum` and `const`, and
    `format`; also of fields within required fields, `items` and `allOf`. Optional fields,
    `pattern`, `anyOf`, `oneOf`, other values than texts, and schemas behind `$ref` add none.

    Args:
        schema: schema of the answer.
        of: name of the schema's owner, with which the requirements state their origin.
    """
    return list(dict.fromkeys(_of_schema(schema, of, names=True)))


def tool_requirements(tools: Any, called: Iterable[str]) -> list[Requirement]:
    """Return the units and formats that called tools require of their arguments, each once.

    Names and permitted values are left out, because the provider shows these to the model. Tools of
    an unknown form are skipped.

    Args:
        tools: tools as in an ``EXCHANGE``.
        called: names of the called tools.
    """
    names = set(called)
    found: list[Requirement] = []
    for tool in tools if isinstance(tools, list) else []:
        inner = tool.get("function", tool) if isinstance(tool, dict) else {}
        schema = inner.get("input_schema") or inner.get("parameters")
        if inner.get("name") in names and isinstance(schema, dict):
            found += _of_schema(schema, f"tool {inner['name']}", names=False)
    return list(dict.fromkeys(found))


def criteria_requirements(criteria: Mapping[str, Any]) -> list[Requirement]:
    """Return the requirements that acceptance criteria state.

    They come from ``must_contain``, ``must_not_contain``, ``tools_used``, ``min_chars``,
    ``max_chars`` and ``output_schema``, in this order. Other criteria, and texts without a word,
    add none.
    """
    found: list[Requirement] = []
    for name in ("must_contain", "must_not_contain"):
        found += (
            Requirement("text", text, name, (words(text),)) for text in _texts(criteria, name)
        )
    for tool in _texts(criteria, "tools_used"):
        found.append(Requirement("tool", tool, "tools_used", (words(tool),)))
    for name in ("min_chars", "max_chars"):
        if isinstance(number := criteria.get(name), int):
            found.append(Requirement("length", str(number), name, (words(str(number)),)))
    if isinstance(schema := criteria.get("output_schema"), dict):
        found += schema_requirements(schema, "acceptance output_schema")
    return found


def _texts(criteria: Mapping[str, Any], name: str) -> list[str]:
    found = criteria.get(name)
    return [one for one in found if isinstance(one, str) and words(one)] if (
        isinstance(found, list | tuple)
    ) else []  # fmt: skip


def _of_schema(
    schema: Mapping[str, Any], of: str, *, names: bool, depth: int = 0
) -> Iterator[Requirement]:
    if depth > _DEEPEST:
        return
    for name in ("allOf", "items"):
        inner = schema.get(name)
        for one in inner if isinstance(inner, list) else [inner]:
            if isinstance(one, dict):
                yield from _of_schema(one, of, names=names, depth=depth + 1)
    yield from _of_value(schema, of, names=names)
    fields = schema.get("properties")
    required = schema.get("required")
    for name in required if isinstance(required, list) else ():
        inner = fields.get(name) if isinstance(fields, dict) else None
        inner = inner if isinstance(inner, dict) else {}
        place = f"{of}: {name}"
        own = words(str(name))
        unit = _UNIT_OF.get(own[-1]) if len(own) > 1 else None
        rest = own[:-1] if unit else own
        if names and rest:
            yield Requirement("field", str(name), of, (rest,))
        in_text = f"{inner.get('title', '')} {inner.get('description', '')}"
        said = [_UNIT_OF.get(word) for word in words(in_text) if word not in _AMBIGUOUS]
        for one in dict.fromkeys(found for found in (unit, *said) if found):
            yield Requirement("unit", one[0], place, tuple((alias,) for alias in one))
        yield from _of_schema(inner, place, names=names, depth=depth + 1)


def _of_value(schema: Mapping[str, Any], of: str, *, names: bool) -> Iterator[Requirement]:
    values = schema.get("enum")
    values = values if isinstance(values, list) else []
    for value in [*values, schema.get("const")] if names else ():
        if isinstance(value, str) and (own := words(value)):
            yield Requirement("value", value, of, (own,))
    if isinstance(name := schema.get("format"), str) and words(name):
        phrases = (words(name), *(tuple(one.split()) for one in _FORMATS.get(name, ())))
        if name == "date":  # every prompt that asks for a date says the word, not the format
            phrases = phrases[1:]
        yield Requirement("format", name, of, phrases)


def prompt_text(value: Any) -> str:
    """Return all texts of a recorded prompt, in any form, joined by line ends.

    Texts of nested lists and objects count; other values give no text.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return "\n".join(filter(None, map(prompt_text, value)))
    return ""
