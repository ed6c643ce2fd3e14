"""JSON Schema 2020-12: compiled once, without fetching, and checked in a bounded number of steps.

Schemas and values come from models, clients and servers. A check remembers each verdict by its
part of the schema and of the value, so a recursive union costs as much as the value is long. A
check that uses up its steps ends without a verdict, and the value is refused.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

import jsonschema
import orjson
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from remit.kernel.errors import InvalidInputError, excerpt
from remit.kernel.installed_files import shipped_file
from remit.kernel.json_text import dump, load_exact, sound
from remit.kernel.metaschema import plainly_schema
from remit.kernel.schema_keywords import (
    MAX_COMPARED,
    CompiledSchema,
    LinearValidator,
    SchemaCheck,
    current_check,
    finder_of,
)

_MAX_COMPILED = 256
_STEPS, _STEPS_PER_VALUE = 5_000, 100
"""Steps of one check: for any value, and for each value in it; each keyword of the schema adds one.
A step is one keyword applied."""

_SCHEMAS = ("additionalProperties", "contains", "items", "propertyNames", "unevaluatedItems",
            "unevaluatedProperties", "contentSchema")  # fmt: skip
_SCHEMAS_OF_SAME = ("not", "if", "then", "else")
_LISTS_OF_SAME = ("allOf", "anyOf", "oneOf")
_NAMED = ("$defs", "definitions", "properties", "patternProperties")
"""Keywords that hold schemas: of parts of the value, or of the same value."""
_check_schema = functools.partial(
    jsonschema.Draft202012Validator.check_schema, format_checker=jsonschema.FormatChecker(())
)
"""Raises SchemaError for an invalid schema. Patterns are checked by the engine that runs them."""
_LONGEST_PLACE = 1_000  # characters


@functools.cache
def shipped_schema(name: str) -> dict[str, Any]:
    """Return a schema that comes with Remit in PKG-PHASE2-SCHEMAS-001.

    Each call with a name returns the same object, which must not be changed.

    Args:
        name: name of the file without ``.schema.json``.

    Raises:
        FileNotFoundError: there is no such schema.
    """
    data = shipped_file("PKG-PHASE2-SCHEMAS-001", f"HOT/schemas/{name}.schema.json")
    schema: dict[str, Any] = orjson.loads(data)
    return schema


def schema_problem(schema: Mapping[str, Any]) -> str:
    """Return why ``schema`` cannot be used; an empty text if it can.

    The text is a predicate: ``not a JSON Schema: …``, or ``a JSON Schema that cannot be used: …``.
    A reference to another document, which would have to be fetched, cannot be used. The usable
    schema is cached. No error is raised.

    Args:
        schema: the candidate.
    """
    try:
        _compiled(dump(dict(schema)))
    except SchemaError as error:
        return f"not a JSON Schema: {_place(error)}: {excerpt(error.message)}"
    except InvalidInputError as error:
        why = error.message.rstrip(".")
        return f"a JSON Schema that cannot be used: {why[:1].lower()}{why[1:]}"
    except (TypeError, ValueError, RecursionError) as error:
        why = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        return f"not a JSON Schema: {why.rstrip('.')}"
    return ""


def first_problem(schema: Mapping[str, Any], value: Any) -> str:
    """Return the most telling way in which ``value`` fails ``schema``; empty if it does not fail.

    The text begins with the place in the value (``a/0/b``, or ``value``), and may quote the value:
    a caller that records it records content. The problem is cut to its first 200 and last 100
    characters. If the schema cannot be used, or the check takes too many steps, the text says so
    instead.

    Args:
        schema: a JSON Schema of draft 2020-12.
        value: a JSON value.

    Raises:
        TypeError: the schema holds a type that JSON does not have.
        ValueError: the schema contains itself, or an integer of more digits than Python writes.
    """
    found, unusable = _errors(schema, value, MAX_COMPARED)
    error = best_match(found)
    if error is None:
        return unusable
    # A problem begins with the value, which may be long, and ends with the reason.
    return f"{_place(error)}: {excerpt(error.message, end=100)}"


def problems(schema: Mapping[str, Any], value: Any, most: int) -> list[str]:
    """Return up to ``most`` ways in which ``value`` fails ``schema``, without quoting the value.

    The list is empty if the value fits. Each text is a place in the value and the failed keyword. A
    schema that cannot be used, and a check that takes too many steps, give one problem.

    Args:
        schema: a JSON Schema of draft 2020-12.
        value: a JSON value.
        most: maximum number of problems.

    Raises:
        TypeError: the schema holds a type that JSON does not have.
        ValueError: the schema contains itself, or an integer of more digits than Python writes.
    """
    found, unusable = _errors(schema, value, most)
    if unusable:
        return [unusable]
    return [f"{_place(error)} fails {error.validator!r}" for error in found]


def _errors(schema: Mapping[str, Any], value: Any, most: int) -> tuple[list[ValidationError], str]:
    """Return where ``value`` fails ``schema``, or why that cannot be said."""
    check: SchemaCheck | None = None
    try:
        compiled = _compiled(dump(dict(schema)))
        if _fits(schema, value):
            return [], ""
        steps = compiled.keywords + _steps_for(value)
        check = SchemaCheck(steps, compiled)
        current_check.set(check)
        failed = next(compiled.validator.iter_errors(value), None)
        if failed is None:
            return [], ""
        check.describes = True
        found = _taken(compiled.validator.iter_errors(value), most)
        return found or [failed], ""
    except (SchemaError, InvalidInputError) as invalid:
        return [], f"the schema itself is invalid: {excerpt(invalid.message)}"
    except Unresolvable as invalid:
        return [], f"the schema refers to a missing definition: {excerpt(invalid)}"
    except RecursionError:
        return [], "it is nested too deeply to be checked, or the schema refers to itself"
    except TimeoutError:
        return (
            [],
            f"it cannot be checked in {steps:,} steps: the schema has too many alternatives",
        )


def _taken(errors: Iterator[ValidationError], most: int) -> list[ValidationError]:
    """Return up to ``most`` errors; fewer if describing them takes too many steps."""
    found: list[ValidationError] = []
    with contextlib.suppress(RecursionError, TimeoutError):
        found.extend(itertools.islice(errors, most))
    return found


def _steps_for(value: Any) -> int:
    """Return how many steps a check of ``value`` may take."""
    values, held = 0, [value]
    while held:
        values += 1
        one = held.pop()
        if type(one) is dict:
            held.extend(one.values())
        elif type(one) is list:
            held.extend(one)
    return _STEPS + _STEPS_PER_VALUE * values


def _fits(schema: Any, value: Any) -> bool:
    """Return True if ``value`` certainly fits a plain schema; False if ``jsonschema`` has to
    decide.

    The validator of ``jsonschema`` makes an object of each part of a schema for each part of a
    value, which costs more.
    """
    if type(schema) is not dict:
        return schema is True
    for keyword, stated in schema.items():
        if keyword == "type":
            for name in (stated,) if type(stated) is str else stated:
                if type(value) in _TYPES[name]:
                    break
            else:
                return False
        elif keyword in ("minLength", "minItems"):
            if type(value) is not (str if keyword == "minLength" else list) or len(value) < stated:
                return False
        elif keyword == "properties":
            if type(value) is dict:
                for name in stated if len(stated) <= len(value) else value:
                    if name in stated and name in value and not _fits(stated[name], value[name]):
                        return False
            elif type(value) not in _PLAIN:
                return False
        elif keyword == "items":
            if type(value) is list:
                for item in value:
                    if not _fits(stated, item):
                        return False
            elif type(value) not in _PLAIN:
                return False
        elif keyword == "required":
            if type(value) is not dict or not value.keys() >= set(stated):
                return False
        elif keyword == "additionalProperties":
            known = schema.get("properties", ())
            if stated is not True and (type(value) is not dict or not value.keys() <= set(known)):
                return False
        elif keyword == "enum":
            if type(value) is not str or value not in stated:
                return False
        elif keyword not in _ANNOTATIONS:
            return False
    return True


_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,),
    "null": (type(None),), "integer": (int,), "number": (int, float),
}  # fmt: skip
_PLAIN = frozenset(kind for kinds in _TYPES.values() for kind in kinds)
_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "$comment"})


def _place(error: ValidationError | SchemaError) -> str:
    return excerpt("/".join(map(str, error.absolute_path)), _LONGEST_PLACE) or "value"


@functools.lru_cache(maxsize=_MAX_COMPILED)
def _compiled(schema: bytes) -> CompiledSchema:
    """Return a schema, given as JSON text, ready for use.

    Raises:
        SchemaError: it is not a JSON Schema.
        InvalidInputError: a pattern cannot be checked in linear time; a part refers to itself
            without going to a part of the value; or a reference leads to nothing in the schema.
    """
    loaded = load_exact(schema)
    if b"\\u" in schema and sound(loaded) != loaded:
        raise InvalidInputError("a text in it holds half of a surrogate pair")
    if not plainly_schema(loaded):
        _check_schema(loaded)
    # An empty registry: a schema from outside must not make this process fetch anything.
    registry: Registry[Any] = Registry()
    validator = LinearValidator(loaded, registry=registry)
    after: dict[int, list[int]] = {}
    held, keywords = [(loaded, validator._resolver)], 0
    references: list[tuple[int, str, Any]] = []
    while held or references:
        if not held:
            start, wanted, resolver = references.pop()
            try:
                target = resolver.lookup(wanted)
            except Unresolvable as error:
                raise InvalidInputError(_unresolved(wanted)) from error
            after[start].append(id(target.contents))
            if id(target.contents) not in after:  # a place where no keyword has a schema
                _check_schema(target.contents)
                held.append((target.contents, target.resolver))
            continue
        part, resolver = held.pop()
        if type(part) is not dict or id(part) in after:
            continue
        if part is not loaded:
            resolver = resolver.in_subresource(DRAFT202012.create_resource(part))
        keywords += len(part)
        of_same, others = _parts(part)
        after[id(part)] = [*map(id, of_same)]
        held += [(each, resolver) for each in (*of_same, *others)]
        references += [(id(part), part[word], resolver) for word in ("$ref", "$dynamicRef")
                       if word in part]  # fmt: skip
        for pattern in (part.get("pattern"), *part.get("patternProperties", ())):
            if pattern is not None:
                finder_of(pattern)
    _require_end(after)
    # A dynamic reference means something else along another path.
    return CompiledSchema(validator, b'"$dynamicRef"' not in schema, keywords)


def _unresolved(reference: str) -> str:
    """Return why a reference cannot be followed."""
    shown = repr(excerpt(reference))
    if reference.startswith("#"):
        return f"the reference {shown} leads to nothing in the schema"
    return f"the reference {shown} leads to another document, and nothing is fetched"


def _parts(schema: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """Return the inner schemas for the same value, and the inner schemas for parts of the value."""
    same = [schema[word] for word in _SCHEMAS_OF_SAME if word in schema]
    same += [each for word in _LISTS_OF_SAME for each in schema.get(word, ())]
    same += schema.get("dependentSchemas", {}).values()
    others = [schema[word] for word in _SCHEMAS if word in schema]
    others += [each for word in _NAMED for each in schema.get(word, {}).values()]
    return same, others + list(schema.get("prefixItems", ()))


def _require_end(after: Mapping[int, Sequence[int]]) -> None:
    """Raise InvalidInputError if a part of a schema leads back to itself for the same value.

    Args:
        after: the parts that each part applies to the same value, all by their identity.
    """
    try:
        TopologicalSorter(after).prepare()
    except CycleError:
        raise InvalidInputError(
            "a '$ref' leads back to itself without going to a part of the value"
        ) from None
