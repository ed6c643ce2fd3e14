"""What the schemas inside a contract must be: schemas, closed in themselves, finite."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from remit.kernel.schemas import schema_problem

__all__ = ["unusable"]

_MAX_AT_ONCE = 10_000  # subschemas that one value may meet; two refs doubled 14 times are more


def unusable(schema: Mapping[str, Any]) -> str:
    """Why ``schema`` cannot hold inputs or outputs; empty when it can.

    Beside what JSON Schema 2020-12 asks: every reference leads to a place in the schema itself
    (nothing is ever fetched) and not in a circle, and every pattern is one.
    """
    if problem := schema_problem(schema):
        return problem
    try:
        return _problem(schema)
    except Unresolvable as error:
        return f"it refers to {error.ref!r}, which is not in it"
    except re.error as error:
        return f"{error.pattern!r} is not a pattern: {error}"
    except RecursionError:
        return "its references are nested too deeply"


def _problem(schema: Mapping[str, Any]) -> str:
    root = DRAFT202012.create_resource(schema)
    registry: Registry[Any] = Registry()
    left = [(root, registry.resolver_with_root(root))]
    applied: dict[int, list[Any]] = {}
    while left:
        resource, resolver = left.pop()
        inner = resource.contents
        if not isinstance(inner, Mapping):
            continue
        for pattern in [inner.get("pattern", ""), *inner.get("patternProperties", ())]:
            re.compile(pattern)
        targets = [
            resolver.lookup(inner[name]).contents
            for name in ("$ref", "$dynamicRef")
            if name in inner
        ]
        applied[id(inner)] = targets + _in_place(inner)
        left += [(sub, resolver.in_subresource(sub)) for sub in resource.subresources()]
    sizes: dict[int, int | None] = {}
    for inner in applied:
        if _size(inner, applied, sizes) > _MAX_AT_ONCE:
            return "its references lead round in a circle, or to too many places at once"
    return ""


def _in_place(schema: Mapping[str, Any]) -> list[Any]:
    """The subschemas that look at the same value as ``schema``."""
    found = [schema[name] for name in ("not", "if", "then", "else") if name in schema]
    for name in ("allOf", "anyOf", "oneOf"):
        found += schema.get(name, ())
    return found + list(schema.get("dependentSchemas", {}).values())


def _size(schema: int, applied: Mapping[int, list[Any]], sizes: dict[int, int | None]) -> int:
    """How many subschemas one value meets at ``schema``; too many where they go in a circle."""
    if schema in sizes:
        known = sizes[schema]
        return _MAX_AT_ONCE + 1 if known is None else known
    sizes[schema] = None  # being counted: a reference back to here is a circle
    total = 1 + sum(_size(id(inner), applied, sizes) for inner in applied.get(schema, ()))
    sizes[schema] = total
    return total
