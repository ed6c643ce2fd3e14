"""JSON Schemas in the forms that providers accept for structured output."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remit.providers.dialects.model_call import ModelCall
from remit.providers.dialects.tool_calls import json_text

_MAX_DEPTH = 100
_PLAIN_NAME = re.compile("[A-Za-z0-9_-]{1,64}")
_FORMATS = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid")
)
_KEPT = ("$ref", "type", "enum", "const", "title", "description", "default")
_GROUPS = ("anyOf", "allOf")
_TOP_GROUPS = ("anyOf", "oneOf", "allOf", "not", "enum")
_NOT_STRICT = frozenset(
    ("allOf", "oneOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas",
     "patternProperties", "propertyNames", "unevaluatedProperties", "default", "uniqueItems",
     "contains", "minContains", "maxContains", "minProperties", "maxProperties")
)  # fmt: skip
"""Keywords that OpenAI refuses in a strict schema."""
_DEFINITIONS = ("$defs", "definitions", "properties")


@dataclass(frozen=True, slots=True)
class SchemaRules:
    """A provider's rules for the schemas of tools.

    Attributes:
        refused: keywords of JSON Schema that a schema must not have.
        items: the schema that each array without ``items`` gets; None if arrays need none.
        only_texts: an ``enum`` must list texts.
        flat: ``anyOf`` and similar words must not stand at the top of a schema.
    """

    refused: frozenset[str] = frozenset()
    items: Mapping[str, Any] | None = None
    only_texts: bool = False
    flat: bool = False


_GOOGLE_REFUSES = frozenset(
    ("$schema", "$id", "$comment", "const", "exclusiveMinimum", "exclusiveMaximum", "propertyNames",
     "patternProperties", "if", "then", "else", "not", "dependentRequired", "dependentSchemas",
     "unevaluatedProperties", "unevaluatedItems", "contentEncoding", "contentMediaType",
     "deprecated", "readOnly", "writeOnly", "examples", "contains", "multipleOf")
)  # fmt: skip
SCHEMA_RULES = {
    "": SchemaRules(),
    "anthropic": SchemaRules(flat=True),
    "google": SchemaRules(_GOOGLE_REFUSES, {"type": "string"}, only_texts=True),
    "openai": SchemaRules(items={}, flat=True),
}
"""The rules by provider; those of any other under the empty name."""


def named_schema(call: ModelCall) -> dict[str, Any] | None:
    """Return ``name``, ``schema`` and ``strict`` for OpenAI's dialects; None for any JSON.

    The name is ``answer`` if the client's is unusable. A schema of the Messages API is always
    strict, so it is sent as strict if OpenAI's rules allow it; the loss is noted in ``dropped``.
    """
    wanted = call.response_format
    if wanted is None or (wanted.schema is None and not wanted.name):
        return None
    plain = _PLAIN_NAME.fullmatch(wanted.name)
    held: dict[str, Any] = {"name": wanted.name if plain else "answer"}
    if wanted.schema is not None:
        held["schema"] = wanted.schema
    strict = wanted.strict
    if wanted.schema is not None and call.endpoint == "anthropic.messages":
        strict = _is_strict(wanted.schema) or None
        if strict is None:
            call.drop("output_config.format.strict")
    if strict is not None:
        held["strict"] = strict
    if wanted.description:
        held["description"] = wanted.description
    return held


def _is_strict(schema: Any) -> bool:
    """Return True if OpenAI would enforce ``schema``: all objects closed, all keys required, and
    no keyword that it refuses.
    """
    if isinstance(schema, list):
        return all(map(_is_strict, schema))
    if not isinstance(schema, dict):
        return True
    for key, value in schema.items():
        if key in ("properties", "$defs", "definitions"):
            if not isinstance(value, dict) or not all(map(_is_strict, value.values())):
                return False
        elif key in _NOT_STRICT or (key == "format" and value not in _FORMATS - {"uri"}):
            return False
    if schema.get("type") == "object":
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if schema.get("additionalProperties") is not False:
            return False
        if not isinstance(properties, dict) or not isinstance(required, list):
            return False
        if any(key not in required for key in properties):
            return False
    return all(
        _is_strict(value)
        for key, value in schema.items()
        if key not in ("properties", "$defs", "definitions", "enum", "const")
    )


def function_schema(call: ModelCall, tool: dict[str, Any], schema: Any) -> dict[str, Any]:
    """Return ``parameters`` and ``strict`` of a function for OpenAI's dialects.

    The schema is that of :func:`flat_schema`. One that is no object is returned alone. A strict
    tool of the Messages API stays strict only if OpenAI would accept the schema as strict.

    Args:
        call: the request, whose ``dropped`` names ``strict`` if that is lost.
        tool: the neutral tool.
        schema: its schema.
    """
    if not isinstance(schema, dict):
        return {"parameters": schema}
    fields: dict[str, Any] = {"parameters": flat_schema(schema)}
    strict = tool.get("strict")
    anthropic = call.endpoint == "anthropic.messages"
    if strict is True and anthropic and not _is_strict(fields["parameters"]):
        call.drop("tools[].strict")
        strict = None
    if strict is not None:
        fields["strict"] = strict
    return fields


def tool_schema(schema: dict[str, Any], rules: SchemaRules) -> dict[str, Any]:
    """Return a tool's schema as a provider accepts it; equal to it if it needs no change.

    The removed keywords move to the description, where the model reads them. ``const`` becomes an
    ``enum`` of one value. Levels below the 100th stay as they are.
    """
    if rules.refused or (rules.items is not None and _has_bare_array(schema)):
        schema = _ruled(schema, rules, _MAX_DEPTH)
    if rules.flat and not schema.keys().isdisjoint(_TOP_GROUPS):
        schema = flat_schema(schema)
    return schema


def _ruled(schema: Any, rules: SchemaRules, depth: int) -> Any:
    """Return a part of a schema as a provider accepts it, with ``depth`` more levels changed."""
    if depth == 0:
        return schema  # No provider accepts a schema as deep as that.
    depth -= 1
    if isinstance(schema, list):
        return [_ruled(part, rules, depth) for part in schema]
    if not isinstance(schema, dict):
        return schema
    wire: dict[str, Any] = {}
    said: dict[str, Any] = {}
    for key, value in schema.items():
        if key in rules.refused and key == "const" and _are_texts([value], rules):
            wire["enum"] = [value]
        elif key in rules.refused or (key == "enum" and not _are_texts(value, rules)):
            if not key.startswith("$"):
                said[key] = value
        elif key in _DEFINITIONS and isinstance(value, dict):
            wire[key] = {name: _ruled(part, rules, depth) for name, part in value.items()}
        elif key in ("enum", "default", "examples"):
            wire[key] = value
        else:
            wire[key] = _ruled(value, rules, depth)
    if rules.items is not None and _is_bare_array(wire):
        wire["items"] = rules.items
    if said:
        _describe(wire, said)
    return wire


def _has_bare_array(schema: dict[str, Any]) -> bool:
    """Return True if an array in a schema may lack ``items``; copies nothing, as most have them."""
    left: list[Any] = [schema]
    while left:
        part = left.pop()
        if type(part) is dict:
            if _is_bare_array(part):
                return True
            part = part.values()
        left += [inner for inner in part if type(inner) is dict or type(inner) is list]
    return False


def _is_bare_array(schema: dict[str, Any]) -> bool:
    kind = schema.get("type")
    if kind != "array" and (type(kind) is not list or "array" not in kind):
        return False
    return "items" not in schema and "prefixItems" not in schema


def _are_texts(values: Any, rules: SchemaRules) -> bool:
    """Return True if a provider accepts the values of an ``enum``."""
    if not rules.only_texts or not isinstance(values, list):
        return True
    return all(isinstance(value, str) for value in values)


def _describe(schema: dict[str, Any], rules: dict[str, Any]) -> None:
    """Add rules in words to a schema's description."""
    text = ", ".join(f"{key}: {json_text(value)}" for key, value in rules.items())
    said = schema.get("description")
    schema["description"] = f"{said}\n\n{{{text}}}" if said else f"{{{text}}}"


def messages_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return ``schema`` in the subset of JSON Schema that the Messages API accepts.

    Objects are closed. Other keywords move to the description, where the model reads them.
    """
    wire: dict[str, Any] = {key: schema[key] for key in _KEPT if key in schema}
    rest = {key: value for key, value in schema.items() if key not in _KEPT and key != "$schema"}
    for key in _DEFINITIONS:
        if isinstance(rest.get(key), dict):
            wire[key] = {name: _inner(value) for name, value in rest.pop(key).items()}
    if isinstance(rest.get("oneOf"), list) and "anyOf" not in rest:
        rest["anyOf"] = rest.pop("oneOf")
    for key in _GROUPS:
        if isinstance(rest.get(key), list):
            wire[key] = [_inner(value) for value in rest.pop(key)]
    if isinstance(rest.get("items"), dict):
        wire["items"] = _inner(rest.pop("items"))
    if isinstance(rest.get("required"), list):
        wire["required"] = rest.pop("required")
    if rest.get("minItems") in (0, 1) and not isinstance(rest["minItems"], bool):
        wire["minItems"] = rest.pop("minItems")
    if isinstance(rest.get("format"), str) and rest["format"] in _FORMATS:
        wire["format"] = rest.pop("format")
    if wire.get("type") == "object" or "properties" in wire:
        rest.pop("additionalProperties", None)
        wire["additionalProperties"] = False
    if rest:
        _describe(wire, rest)
    return wire


def flat_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a tool's schema without the words at its top that OpenAI and Anthropic refuse there.

    The words are ``anyOf``, ``oneOf``, ``allOf``, ``not`` and ``enum``. The type becomes
    ``object``. The properties of branches become the tool's own, all of them optional, and the
    rules become a part of the description, where the model reads them.
    """
    groups = {key: schema[key] for key in _TOP_GROUPS if key in schema}
    flat = {key: value for key, value in schema.items() if key not in groups}
    flat["type"] = "object"
    if not groups:
        return flat
    properties = flat.get("properties")
    properties = dict(properties) if isinstance(properties, dict) else {}
    for key, branches in groups.items():
        for branch in branches if key in _TOP_GROUPS[:3] and isinstance(branches, list) else ():
            inner = branch.get("properties") if isinstance(branch, dict) else None
            for name, value in inner.items() if isinstance(inner, dict) else ():
                properties.setdefault(name, value)
    flat["properties"] = properties
    _describe(flat, groups)
    return flat


def _inner(schema: Any) -> Any:
    return messages_schema(schema) if isinstance(schema, dict) else schema
