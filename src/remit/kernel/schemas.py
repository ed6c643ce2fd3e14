"""JSON Schema 2020-12: compiled once, without fetching, and checked in a bounded number of steps.

Schemas and values come from models, clients and servers. A check remembers each verdict by its
part of the schema and of the value, so a recursive union costs as much as the value is long. A
check that uses up its steps ends without a verdict, and the value is refused.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any

import jsonschema
import orjson
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.validators import extend
from pydantic_core import SchemaError as PatternError
from pydantic_core import SchemaValidator, core_schema
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from remit.kernel.errors import InvalidInputError, excerpt
from remit.kernel.installation import shipped_file
from remit.kernel.json_text import dump, load_exact, sound
from remit.kernel.metaschema import plainly_schema

_MAX_SCHEMAS = 256
_STEPS, _STEPS_PER_VALUE = 5_000, 100
"""Steps of one check: for any value, and for each value in it; each keyword of the schema adds one.
A step is one keyword applied."""

_SIZE_OF_STEP = 64  # entries of a keyword's list or object that cost a further step
_INDEXED = frozenset({"anyOf", "oneOf", "enum", "properties"})  # found by the value, not in turn
_FEW_BRANCHES = 8  # tried in turn without an index
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
_COMPARED = 20  # The most telling of so many problems is shown.


@functools.cache
def shipped_schema(name: str) -> dict[str, Any]:
    """The schema called ``name`` of those that come with Remit, in PKG-PHASE2-SCHEMAS-001."""
    data = shipped_file("PKG-PHASE2-SCHEMAS-001", f"HOT/schemas/{name}.schema.json")
    schema: dict[str, Any] = orjson.loads(data)
    return schema


def schema_problem(schema: Mapping[str, Any]) -> str:
    """Return why ``schema`` cannot be used; an empty text if it can.

    The text is a predicate: ``not a JSON Schema: …``, or ``a JSON Schema that cannot be used: …``.
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

    The text may quote the value: a caller that records it records content.
    """
    found, unusable = _errors(schema, value, _COMPARED)
    error = best_match(found)
    if error is None:
        return unusable
    # A problem begins with the value, which may be long, and ends with the reason.
    return f"{_place(error)}: {excerpt(error.message, end=100)}"


def problems(schema: Mapping[str, Any], value: Any, most: int) -> list[str]:
    """Return up to ``most`` ways in which ``value`` fails ``schema``, quoting nothing of it."""
    found, unusable = _errors(schema, value, most)
    if unusable:
        return [unusable]
    return [f"{_place(error)} fails {error.validator!r}" for error in found]


def _errors(schema: Mapping[str, Any], value: Any, most: int) -> tuple[list[ValidationError], str]:
    """Return where ``value`` fails ``schema``, or why that cannot be said."""
    check: _Check | None = None
    try:
        compiled = _compiled(dump(dict(schema)))
        if _fits(schema, value):
            return [], ""
        steps = compiled.keywords + _steps_for(value)
        check = _Check(steps, compiled)
        _check.set(check)
        failed = next(compiled.validator.iter_errors(value), None)
        if failed is None:
            return [], ""
        check.describes = True
        found = _taken(compiled.validator.iter_errors(value), most)
        return found or [failed], ""
    except (SchemaError, InvalidInputError) as invalid:
        return [], f"the schema itself is invalid: {excerpt(invalid.message)}"
    except Unresolvable as invalid:
        return [], f"the schema refers to what is not there: {excerpt(invalid)}"
    except RecursionError:
        if check is not None and check.steps < 0:
            why = f"it cannot be checked in {steps:,} steps: the schema has too many alternatives"
        else:
            why = "it is nested too deep to be checked, or the schema refers to itself"
        return [], why


def _taken(errors: Iterator[ValidationError], most: int) -> list[ValidationError]:
    """Return up to ``most`` errors; fewer if describing them takes too many steps."""
    found: list[ValidationError] = []
    with contextlib.suppress(RecursionError):
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


@dataclass(slots=True)
class _Compiled:
    """A schema that can be used.

    Attributes:
        validator: checks values against it.
        remembers: whether a verdict holds wherever the same part meets the same value.
        keywords: how many its parts have in all.
        indexes: of its long lists of branches and values, by their identity.
    """

    validator: Any
    remembers: bool
    keywords: int
    indexes: dict[int, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Check:
    """A check of a value against a schema.

    Attributes:
        steps: remaining steps.
        schema: the compiled schema.
        verdicts: results for pairs of a part of the value and a part of the schema, keyed by
            their object ids; both parts live as long as the check.
        describes: whether errors will be shown. If not, the first one ends the check.
    """

    steps: int
    schema: _Compiled
    verdicts: dict[tuple[int, int], bool] = field(default_factory=dict)
    describes: bool = False

    def spend(self, steps: int) -> None:
        self.steps -= steps
        if self.steps < 0:
            raise RecursionError("the check has used up its steps")


_check: ContextVar[_Check] = ContextVar("remit_schema_check")


def _place(error: ValidationError | SchemaError) -> str:
    return excerpt("/".join(map(str, error.absolute_path)), _LONGEST_PLACE) or "value"


@functools.lru_cache(maxsize=_MAX_SCHEMAS)
def _compiled(schema: bytes) -> _Compiled:
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
    validator = _Linear(loaded, registry=registry)
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
                _finder(pattern)
    _require_end(after)
    # A dynamic reference means something else along another path.
    return _Compiled(validator, b'"$dynamicRef"' not in schema, keywords)


def _unresolved(reference: str) -> str:
    """Return why a reference cannot be followed."""
    shown = repr(excerpt(reference))
    if reference.startswith("#"):
        return f"the reference {shown} leads to nothing in the schema"
    return f"the reference {shown} leads to another document, and nothing is fetched"


def _parts(schema: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """Return the schemas in a schema: those for the same value, and those for parts of it."""
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


@functools.lru_cache(maxsize=_MAX_SCHEMAS)
def _finder(pattern: str) -> Callable[[str], Any]:
    """Return a function that says whether a text holds ``pattern``, in linear time.

    Raises:
        InvalidInputError: the pattern has look-around, a back-reference or another construct
            that no engine of linear time has.
    """
    # Rust reads these marks as operations on sets of characters; ECMA-262 does not.
    for mark in ("&", "-", "~"):
        pattern = pattern.replace(mark * 2, f"{mark}\\{mark}")
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern)).isinstance_python
    except PatternError as error:
        raise InvalidInputError(
            f"The pattern {excerpt(pattern)!r} is not a regular expression, or cannot "
            "be checked in linear time.",
            next_step="Leave out look-around and back-references.",
        ) from error


def _holds(validator: Any, schema: Any, value: Any) -> bool:
    """Return whether ``value`` fits a part of the schema; each pair is checked once."""
    check = _check.get()
    pair = (id(schema), id(value))
    verdict = check.verdicts.get(pair)
    if verdict is None:
        described, check.describes = check.describes, False
        try:
            verdict = next(validator.descend(value, schema), None) is None
        finally:
            check.describes = described
        if check.schema.remembers:
            check.verdicts[pair] = verdict
    return verdict


def _reference(validator: Any, wanted: str, value: Any, schema: Any) -> Iterator[ValidationError]:
    """Follow a reference: at most once for each value, until an error is to be shown."""
    check = _check.get()
    pair = (id(wanted), id(value))
    verdict = check.verdicts.get(pair)
    if verdict is False and not check.describes:
        yield ValidationError("it does not fit")
    elif not verdict:
        verdict = True
        for error in validator._validate_reference(ref=wanted, instance=value):
            verdict = False
            if check.schema.remembers:
                check.verdicts[pair] = False
            yield error
        if check.schema.remembers:
            check.verdicts[pair] = verdict


def _any_of(validator: Any, branches: list[Any], value: Any, _: Any) -> Iterator[ValidationError]:
    if not any(_holds(validator, one, value) for one in _possible(validator, branches, value)):
        yield from _closest(validator, branches, value)


def _one_of(validator: Any, branches: list[Any], value: Any, _: Any) -> Iterator[ValidationError]:
    possible = _possible(validator, branches, value)
    fitting = (branch for branch in possible if _holds(validator, branch, value))
    if next(fitting, _NONE) is _NONE:
        yield from _closest(validator, branches, value)
    elif next(fitting, _NONE) is not _NONE:
        yield ValidationError(f"{_quoted(value)} fits more than one of the given schemas")


def _possible(validator: Any, branches: list[Any], value: Any) -> Iterable[Any]:
    """Return the branches that ``value`` may fit: of a long list, found by its constants.

    A branch that lists plain values fits none but these. A branch for objects that requires a
    member, and lists plain values of it, fits no object with another value there.
    """
    if len(branches) <= _FEW_BRANCHES:
        return branches
    indexes = _check.get().schema.indexes
    if (index := indexes.get(id(branches))) is None:
        index = indexes[id(branches)] = _index(validator, branches)
    numbers = list(index.get((), ()))
    if type(value) in _SCALARS:
        numbers += index.get(("", _form(value)), ())
    elif type(value) is dict:
        for name, member in value.items():
            if type(member) in _SCALARS:
                numbers += index.get((name, _form(member), "member"), ())
    return [branches[number] for number in sorted(numbers)]


def _index(validator: Any, branches: list[Any]) -> dict[Any, list[int]]:
    """Return the numbers of branches by the values that they list; under ``()`` all others."""
    index: dict[Any, list[int]] = {}
    for number, given in enumerate(branches):
        branch = _resolved(validator, given)
        keys: Iterable[Any] = [()]
        for name, values in _tags({"properties": {"": branch}}).items():
            if _SCALARS.issuperset(map(type, values)):
                keys = {(name, _form(each)) for each in values}
        if type(branch) is dict and branch.get("type") == "object":
            for name, values in _tags(branch).items():
                if name in branch.get("required", ()) and _SCALARS.issuperset(map(type, values)):
                    keys = {(name, _form(each), "member") for each in values}
                    break
        for key in keys:
            index.setdefault(key, []).append(number)
    return index


def _not(validator: Any, refused: Any, value: Any, _: Any) -> Iterator[ValidationError]:
    if _holds(validator, refused, value):
        yield ValidationError(f"{_quoted(value)} should not be valid under {_quoted(refused)}")


def _if(validator: Any, condition: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    then = "then" if _holds(validator, condition, value) else "else"
    if then in schema:
        yield from validator.descend(value, schema[then], schema_path=then)


def _closest(validator: Any, branches: list[Any], value: Any) -> Iterator[ValidationError]:
    """Yield the errors of the one branch that ``value`` was meant for, if one can be told.

    A branch is meant if it alone takes values of this type, or alone takes the tag of an object:
    a member whose values the branches list.
    """
    if not _check.get().describes:
        yield ValidationError("it fits none of the given schemas")
        return
    shown = [(number, _resolved(validator, branch)) for number, branch in enumerate(branches)]
    typed = [(number, branch) for number, branch in shown if _takes_type(validator, branch, value)]
    if not typed and all(type(branch) is dict and "type" in branch for _, branch in shown):
        kinds = {kind: None for _, branch in shown for kind in _listed(branch["type"])}
        yield ValidationError(f"{_quoted(value)} is not of type {', '.join(map(repr, kinds))}")
        return
    meant = [(number, _tags(branch)) for number, branch in typed]
    names = {name: None for _, tags in meant for name in tags if _is_member(name, value)}
    for name in itertools.islice(names, _COMPARED):
        taken = [(n, tags) for n, tags in meant if value[name] in tags.get(name, ())]
        if not taken and all(name in tags for _, tags in meant):
            listed = [tag for _, tags in meant for tag in tags[name]]
            error = ValidationError(f"{_quoted(value[name])} is not one of {_quoted(listed)}")
            error.path.appendleft(name)
            yield error
            return
        meant = taken or meant
    if len(meant) == 1:
        number = meant[0][0]
        yield from validator.descend(value, branches[number], schema_path=number)
    else:
        yield ValidationError(f"{_quoted(value)} is not valid under any of the given schemas")


def _resolved(validator: Any, branch: Any) -> Any:
    """Return the schema that a branch refers to, or the branch itself."""
    for _ in range(8):
        if type(branch) is not dict or type(wanted := branch.get("$ref")) is not str:
            break
        branch = validator._resolver.lookup(wanted).contents
    return branch


def _takes_type(validator: Any, branch: Any, value: Any) -> bool:
    if type(branch) is not dict or "type" not in branch:
        return branch is not False
    return any(validator.is_type(value, kind) for kind in _listed(branch["type"]))


def _tags(branch: Any) -> dict[str, list[Any]]:
    """Return the members of an object whose values a branch lists, with these values."""
    members = branch.get("properties") if type(branch) is dict else None
    found = {}
    for name, member in members.items() if type(members) is dict else ():
        if type(member) is dict and "const" in member:
            found[name] = [member["const"]]
        elif type(member) is dict and type(member.get("enum")) is list:
            found[name] = member["enum"]
    return found


def _is_member(name: str, value: Any) -> bool:
    return type(value) is dict and name in value


def _listed(value: Any) -> list[Any]:
    return value if type(value) is list else [value]


def _type(validator: Any, kinds: Any, value: Any, _: Any) -> Iterator[ValidationError]:
    if not any(validator.is_type(value, kind) for kind in _listed(kinds)):
        shown = ", ".join(map(repr, _listed(kinds)))
        yield ValidationError(f"{_quoted(value)} is not of type {shown}")


def _enum(validator: Any, values: list[Any], value: Any, schema: Any) -> Iterator[ValidationError]:
    if type(value) in _SCALARS:
        indexes = _check.get().schema.indexes
        if (known := indexes.get(id(values))) is None:
            plain = (_form(each) for each in values if type(each) in _SCALARS)
            known = indexes[id(values)] = frozenset(plain)
        fits = _form(value) in known
    else:
        _check.get().spend(len(values) // _SIZE_OF_STEP)
        fits = next(_KEYWORDS["enum"](validator, values, value, schema), None) is None
    if not fits:
        yield ValidationError(f"{_quoted(value)} is not one of {_quoted(values)}")


def _properties(
    validator: Any, properties: dict[str, Any], value: Any, _: Any
) -> Iterator[ValidationError]:
    if type(value) is dict:
        for name in properties if len(properties) <= len(value) else value:
            if name in properties and name in value:
                yield from validator.descend(
                    value[name], properties[name], path=name, schema_path=name
                )


def _pattern(_: Any, pattern: str, value: Any, __: Any) -> Iterator[ValidationError]:
    if type(value) is str and not _finder(pattern)(value):
        yield ValidationError(f"{_quoted(value)} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: dict[str, Any], value: Any, _: Any
) -> Iterator[ValidationError]:
    if type(value) is not dict:
        return
    for pattern, schema in patterns.items():
        find = _finder(pattern)
        for name, member in value.items():
            if find(name):
                yield from validator.descend(member, schema, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, wanted: Any, value: Any, schema: Any
) -> Iterator[ValidationError]:
    if type(value) is not dict:
        return
    known = schema.get("properties", ())
    finders = [_finder(pattern) for pattern in schema.get("patternProperties", ())]
    more = [name for name in value
            if name not in known and not any(find(name) for find in finders)]  # fmt: skip
    if wanted is False and more:
        shown, were = ", ".join(map(repr, more[:_COMPARED])), "was" if len(more) == 1 else "were"
        yield ValidationError(f"Additional properties are not allowed ({shown} {were} unexpected)")
    elif wanted is not False:
        for name in more:
            yield from validator.descend(value[name], wanted, path=name)


def _unevaluated_properties(
    validator: Any, wanted: Any, value: Any, schema: Any
) -> Iterator[ValidationError]:
    if type(value) is not dict:
        return
    known = _evaluated(validator, value, {**schema, "unevaluatedProperties": False})
    more = [name for name, member in value.items()
            if name not in known and not _holds(validator, wanted, member)]  # fmt: skip
    if more:
        shown, were = ", ".join(map(repr, more[:_COMPARED])), "was" if len(more) == 1 else "were"
        yield ValidationError(f"Unevaluated properties are not allowed ({shown} {were} unexpected)")


def _evaluated(validator: Any, value: dict[str, Any], schema: Any) -> set[str]:
    """Return the names of the members that a schema, with the parts that hold, speaks of."""
    if type(schema) is not dict:
        return set()
    _check.get().spend(1)
    known = {name for name in schema.get("properties", ()) if name in value}
    for pattern in schema.get("patternProperties", ()):
        known.update(filter(_finder(pattern), value))
    if "additionalProperties" in schema or schema.get("unevaluatedProperties", False) is not False:
        return set(value)
    parts = [one for word in ("allOf", "anyOf", "oneOf") for one in schema.get(word, ())]
    parts += [one for name, one in schema.get("dependentSchemas", {}).items() if name in value]
    if "if" in schema:
        holds = _holds(validator, schema["if"], value)
        parts += [schema["if"]] * holds + [schema.get("then" if holds else "else", True)]
    for part in parts:
        if _holds(validator, part, value):
            known |= _evaluated(validator, value, part)
    for word in ("$ref", "$dynamicRef"):
        if word in schema:
            found = validator._resolver.lookup(schema[word])
            inner = validator.evolve(schema=found.contents, _resolver=found.resolver)
            known |= _evaluated(inner, value, found.contents)
    return known


def _unique_items(_: Any, wanted: bool, value: Any, __: Any) -> Iterator[ValidationError]:
    if wanted and type(value) is list and len(set(map(_form, value))) < len(value):
        yield ValidationError(f"{_quoted(value)} has non-unique elements")


def _form(value: Any) -> Any:
    """Return a hashable form that is equal exactly if the JSON values are equal."""
    if type(value) is dict:
        return frozenset((name, _form(item)) for name, item in value.items())
    if type(value) is list:
        return (list, *map(_form, value))
    return (type(value), value) if type(value) is bool else value


def _quoted(value: Any) -> str:
    """Return the text of a value in a message, cut if it is long."""
    return _short.repr(value) if _check.get().describes else "the value"


_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 300
_short.maxlist = _short.maxdict = _short.maxtuple = 50
_short.maxlevel = 4
_NONE = object()
_SCALARS = frozenset({str, int, float, bool, type(None)})


def _counted(word: str, keyword: Callable[..., Any]) -> Callable[..., Iterator[ValidationError]]:
    """Return a keyword that spends a step each time it is applied; more if it lists much."""

    def apply(validator: Any, stated: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
        sized = type(stated) in (list, dict) and word not in _INDEXED
        _check.get().spend(1 + len(stated) // _SIZE_OF_STEP if sized else 1)
        yield from keyword(validator, stated, value, schema) or ()

    return apply


_KEYWORDS = jsonschema.Draft202012Validator.VALIDATORS
_OWN: Mapping[str, Callable[..., Any]] = {
    "$ref": _reference, "$dynamicRef": _reference, "anyOf": _any_of, "oneOf": _one_of, "not": _not,
    "if": _if, "type": _type, "enum": _enum, "pattern": _pattern,
    "patternProperties": _pattern_properties, "additionalProperties": _additional_properties,
    "unevaluatedProperties": _unevaluated_properties, "uniqueItems": _unique_items,
    "properties": _properties,
}  # fmt: skip
_Linear = extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft202012Validator,
    {name: _counted(name, _OWN.get(name, keyword)) for name, keyword in _KEYWORDS.items()},
)
