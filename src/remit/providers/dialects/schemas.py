"""JSON Schemas in the forms that providers accept for structured output."""

from __future__ import annotations

import re
from typing import Any

from remit.providers.dialects.arguments import json_text
from remit.providers.dialects.model_call import ModelCall

__all__ = ["messages_schema", "named_schema", "tool_schema"]

_PLAIN_NAME = re.compile("[A-Za-z0-9_-]{1,64}")
_FORMATS = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid")
)
_KEPT = ("$ref", "type", "enum", "const", "title", "description", "default")
_GROUPS = ("anyOf", "allOf")
_TOP_GROUPS = ("anyOf", "oneOf", "allOf")
_DEFINITIONS = ("$defs", "definitions", "properties")


def named_schema(call: ModelCall) -> dict[str, Any] | None:
    """Return ``name``, ``schema`` and ``strict`` for OpenAI's dialects; None for any JSON.

    A schema of the Messages API is always strict, so it is sent as strict if OpenAI's rules allow
    it.
    """
    wanted = call.response_format
    if wanted is None or (wanted.schema is None and not wanted.name):
        return None
    plain = _PLAIN_NAME.fullmatch(wanted.name)
    held: dict[str, Any] = {"name": wanted.name if plain else "answer"}
    if wanted.schema is not None:
        held["schema"] = wanted.schema
    strict = wanted.strict
    if strict is None and wanted.schema is not None and call.endpoint == "anthropic.messages":
        strict = _is_strict(wanted.schema) or None
    if strict is not None:
        held["strict"] = strict
    if wanted.description:
        held["description"] = wanted.description
    return held


def _is_strict(schema: Any) -> bool:
    """Return True if OpenAI would enforce ``schema``: all objects closed, all keys required."""
    if isinstance(schema, list):
        return all(map(_is_strict, schema))
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object":
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if schema.get("additionalProperties") is not False:
            return False
        if not isinstance(properties, dict) or not isinstance(required, list):
            return False
        if any(key not in required for key in properties):
            return False
    return all(map(_is_strict, schema.values()))


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
        bounds = ", ".join(f"{key}: {json_text(value)}" for key, value in rest.items())
        said = wire.get("description")
        wire["description"] = f"{said}\n\n{{{bounds}}}" if said else f"{{{bounds}}}"
    return wire


def tool_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a tool's schema without ``anyOf``, ``oneOf`` and ``allOf`` at its top, which the
    Messages API refuses there.

    The properties of their branches become the tool's own, all of them optional, and the rules
    become a part of the description, where the model reads them.
    """
    groups = {key: schema[key] for key in _TOP_GROUPS if isinstance(schema.get(key), list)}
    flat = {key: value for key, value in schema.items() if key not in groups}
    flat["type"] = "object"
    if not groups:
        return schema if flat == schema else flat
    properties = flat.get("properties")
    properties = dict(properties) if isinstance(properties, dict) else {}
    for branches in groups.values():
        for branch in branches:
            inner = branch.get("properties") if isinstance(branch, dict) else None
            for name, value in inner.items() if isinstance(inner, dict) else ():
                properties.setdefault(name, value)
    flat["properties"] = properties
    rules = ", ".join(f"{key}: {json_text(value)}" for key, value in groups.items())
    said = flat.get("description")
    flat["description"] = f"{said}\n\n{{{rules}}}" if said else f"{{{rules}}}"
    return flat


def _inner(schema: Any) -> Any:
    return messages_schema(schema) if isinstance(schema, dict) else schema
