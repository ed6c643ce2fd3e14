"""JSON Schema 2020-12, in one place: compiled once, never fetching what a schema refers to."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

import jsonschema
import orjson
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.validators import extend
from pydantic_core import SchemaError as PatternError
from pydantic_core import SchemaValidator, core_schema
from referencing import Registry
from referencing.exceptions import Unresolvable

from remit.kernel.canonical import canonical_json
from remit.kernel.errors import InvalidInputError
from remit.kernel.installed import shipped_file
from remit.kernel.metaschema import plainly_schema

_MOST_COMPILED = 256
_MOST_REFERENCES = 100_000  # followed for one value: a few can stand for any number
_left: ContextVar[list[int]] = ContextVar("remit_schema_references_left")
_by_text: dict[bytes, Any] = {}


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

    The text may quote the value: a caller that records it records content.
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
    try:
        compiled = _compiled(schema)
        if _fits(schema, value):
            return [], ""
        _left.set([_MOST_REFERENCES])
        return list(itertools.islice(compiled.iter_errors(value), most)), ""
    except (SchemaError, InvalidInputError) as invalid:
        return [], f"the schema itself is invalid: {invalid.message}"
    except Unresolvable as invalid:
        return [], f"the schema refers to what is not there: {invalid}"
    except RecursionError:
        return [], "it is nested too deep to be checked, or the schema refers to itself"


def _fits(schema: Any, value: Any) -> bool:
    """Whether ``value`` fits a schema of the plain kind; where not, ``jsonschema`` has the word.

    Its own validator makes an object of each part of a schema for each part of a value.
    """
    if type(schema) is not dict:
        return schema is True
    for keyword, stated in schema.items():
        if keyword == "type":
            names = (stated,) if type(stated) is str else stated
            if not any(type(value) in _TYPES[name] for name in names):
                return False
        elif keyword in ("minLength", "minItems"):
            if type(value) is not (str if keyword == "minLength" else list) or len(value) < stated:
                return False
        elif keyword == "properties":
            if type(value) is dict:
                for name, inner in stated.items():
                    if name in value and not _fits(inner, value[name]):
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


def _compiled(schema: Mapping[str, Any]) -> Any:
    """The validator; by the text of the schema, which is quicker made than its canonical form."""
    try:
        text = orjson.dumps(schema, option=orjson.OPT_PASSTHROUGH_DATACLASS)
    except TypeError:
        return _validator(canonical_json(dict(schema)))
    compiled = _by_text.get(text)
    if compiled is None:
        if len(_by_text) >= _MOST_COMPILED:
            _by_text.clear()
        compiled = _by_text[text] = _validator(canonical_json(dict(schema)))
    return compiled


def _place(error: ValidationError) -> str:
    return "/".join(str(part) for part in error.absolute_path) or "value"


@functools.lru_cache(maxsize=_MOST_COMPILED)
def _validator(schema: bytes) -> Any:
    loaded = orjson.loads(schema)
    if not plainly_schema(loaded):
        jsonschema.Draft202012Validator.check_schema(loaded)
    # An empty registry: a schema from outside must not make this process fetch anything.
    registry: Registry[Any] = Registry()
    return _Linear(loaded, registry=registry)


@functools.lru_cache(maxsize=_MOST_COMPILED)
def _finder(pattern: str) -> Callable[[str], Any]:
    """Whether a text holds a pattern, in linear time where the pattern has no look-around."""
    try:
        # Rust reads these as operations on sets of characters.
        if any(mark in pattern for mark in ("&&", "--", "~~")):
            return re.compile(pattern).search
        return SchemaValidator(core_schema.str_schema(pattern=pattern)).isinstance_python
    except PatternError:
        return re.compile(pattern).search


def _pattern(validator: Any, pattern: str, value: Any, _: Any) -> Iterator[ValidationError]:
    if type(value) is str and not _finder(pattern)(value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _unique_items(validator: Any, wanted: bool, value: Any, schema: Any) -> Any:
    """Likewise: as a set of texts, not each item beside each other."""
    try:
        if type(value) is list and len({canonical_json(item) for item in value}) == len(value):
            return
    except InvalidInputError:
        pass
    yield from _KEYWORDS["uniqueItems"](validator, wanted, value, schema)


def _reference(validator: Any, wanted: str, value: Any, schema: Any) -> Any:
    left = _left.get()
    left[0] -= 1
    if left[0] < 0:
        raise RecursionError
    yield from _KEYWORDS["$ref"](validator, wanted, value, schema)


_KEYWORDS = jsonschema.Draft202012Validator.VALIDATORS
# What is checked comes from models, clients and servers: no text of theirs may hold up the process.
_Linear = extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft202012Validator,
    {"$ref": _reference, "pattern": _pattern, "uniqueItems": _unique_items},
)
