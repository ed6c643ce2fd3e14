"""Additions that state requirements which the prompt leaves unstated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.learning.meta.requirements import Requirement, schema_requirements, unstated

__all__ = ["rules_of"]

_FORMATS = {"date": "YYYY-MM-DD", "date-time": "an RFC 3339 date and time", "uri": "a URL"}


def rules_of(schema: Any, prompt: str) -> list[str]:
    """Return an addition for each requirement of an answer schema that the prompt leaves unstated.

    Args:
        schema: the schema that answers are graded by; anything but an object requires nothing.
    """
    if not isinstance(schema, Mapping):
        return []
    found = []
    if schema.get("type") == "object" and "json object" not in prompt.casefold():
        found.append("Answer with one JSON object and nothing else.")
    demanded = schema_requirements(schema, "the answer")
    return [*found, *(_rule(one) for one in unstated(demanded, prompt))]


def _rule(one: Requirement) -> str:
    place = one.of.removeprefix("the answer").removeprefix(": ") or "the answer"
    return {
        "field": f"The answer's JSON has the field {one.name}.",
        "unit": f"Give {place} in {one.phrases[-1][0] if len(one.name) < 2 else one.name}.",
        "format": f"Write {place} as {_FORMATS.get(one.name, one.name)}.",
        "value": f"{one.name} is one of the permitted values of {place}: write it so.",
    }[one.kind]
