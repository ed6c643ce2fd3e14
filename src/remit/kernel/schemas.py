"""JSON Schema 2020-12, in one place: compiled once, never fetching what a schema refers to."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Mapping
from typing import Any

import jsonschema
import orjson
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from referencing import Registry
from referencing.exceptions import Unresolvable

from remit.kernel.canonical import canonical_json
from remit.kernel.errors import InvalidInputError
from remit.kernel.installed import shipped_file

_STRICT = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
_MOST_VALID = 4096
_valid: set[bytes] = set()
# What was found to be valid, by hash: the worker and the gateway both check what an order is given,
# and the gateway does so again with each call of its tools.


@functools.cache
def shipped_schema(name: str) -> dict[str, Any]:
    """The schema called ``name`` of those that come with Remit, in PKG-PHASE2-SCHEMAS-001."""
    data = shipped_file("PKG-PHASE2-SCHEMAS-001", f"HOT/schemas/{name}.schema.json")
    schema: dict[str, Any] = orjson.loads(data)
    return schema


def schema_problem(schema: Mapping[str, Any]) -> str:
    """What makes ``schema`` unusable as a JSON Schema; empty when nothing."""
    try:
        _validator(canonical_json(dict(schema)))
    except (SchemaError, InvalidInputError) as error:
        return f"not a JSON Schema: {error.message}"
    return ""


def first_problem(schema: Mapping[str, Any], value: Any) -> str:
    """The most telling way in which ``value`` fails ``schema``; empty when it does not.

    The text may quote the value: whoever records it records content.
    """
    found, unusable = _errors(schema, value)
    error = best_match(found)
    return unusable or (f"{_place(error)}: {error.message}" if error is not None else "")


def problems(schema: Mapping[str, Any], value: Any, most: int) -> list[str]:
    """Up to ``most`` ways in which ``value`` fails ``schema``, quoting nothing of it."""
    found, unusable = _errors(schema, value, most)
    if unusable:
        return [unusable]
    return [f"{_place(error)} fails {error.validator!r}" for error in found]


def _errors(
    schema: Mapping[str, Any], value: Any, most: int | None = None
) -> tuple[list[ValidationError], str]:
    """Where ``value`` fails ``schema``, or why the schema cannot be used."""
    if not schema:
        return [], ""
    known = _key(schema, value)
    if known is not None and known in _valid:
        return [], ""
    try:
        found = list(itertools.islice(_compiled(schema).iter_errors(value), most))
        if known is not None and not found:
            if len(_valid) >= _MOST_VALID:
                _valid.clear()
            _valid.add(known)
        return found, ""
    except (SchemaError, InvalidInputError) as invalid:
        return [], f"the schema itself is invalid: {invalid.message}"
    except Unresolvable as invalid:
        return [], f"the schema refers to what is not there: {invalid}"


def _key(schema: Mapping[str, Any], value: Any) -> bytes | None:
    """A hash of both; ``None`` where their texts would not say all."""
    try:
        return hashlib.sha256(orjson.dumps([schema, value], option=_STRICT)).digest()
    except TypeError:
        return None


def _compiled(schema: Mapping[str, Any]) -> jsonschema.Draft202012Validator:
    return _validator(canonical_json(dict(schema)))


def _place(error: ValidationError) -> str:
    return "/".join(str(part) for part in error.absolute_path) or "value"


@functools.lru_cache(maxsize=256)
def _validator(schema: bytes) -> jsonschema.Draft202012Validator:
    loaded = orjson.loads(schema)
    jsonschema.Draft202012Validator.check_schema(loaded)
    # An empty registry: a schema from outside must not make this process fetch anything.
    registry: Registry[Any] = Registry()
    return jsonschema.Draft202012Validator(loaded, registry=registry)
