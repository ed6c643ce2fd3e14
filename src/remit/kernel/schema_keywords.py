"""Keywords of JSON Schema 2020-12 whose work is counted in steps.

:data:`LinearValidator` is the validator of :mod:`jsonschema` with these keywords. A check of one
value has a :class:`SchemaCheck`, set in :data:`current_check`, which remembers verdicts and limits
the steps.
"""

from __future__ import annotations

import functools
import itertools
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import jsonschema
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend
from pydantic_core import SchemaError as PatternError, SchemaValidator, core_schema

from remit.kernel.errors import InvalidInputError, excerpt

_MAX_PATTERNS = 256
_SIZE_OF_STEP = 64  # Each 64 entries of a keyword's list or object cost a further step.
_INDEXED = frozenset({"anyOf", "oneOf", "enum", "properties"})
"""Keywords that find their entries by the value, so that their length costs nothing."""
_FEW_BRANCHES = 8
"""Most branches that are tried in turn without an index."""
MAX_COMPARED = 20
"""Most problems of which the most telling is shown."""


@dataclass(slots=True)
class CompiledSchema:
    """A schema that can be used; cached, and shared by all checks against it.

    Attributes:
        validator: checks values against the schema.
        remembers: True if a verdict on a part and a value holds for every way to the part; False if
            the schema contains ``$dynamicRef``.
        keywords: number of keywords in all its parts; each allows a check one step more.
        indexes: indexes of long lists of branches and values, keyed by the list's object id; filled
            as checks need them.
    """

    validator: Any
    remembers: bool
    keywords: int
    indexes: dict[int, Any] = field(default_factory=dict)


@dataclass(slots=True)
class SchemaCheck:
    """A check of one value against a schema, the :data:`current_check` while it runs.

    Attributes:
        steps: remaining steps.
        schema: the compiled schema.
        verdicts: results for pairs of a part of the value and a part of the schema, keyed by their
            object ids; both parts live as long as the check.
        describes: True if errors will be shown. Otherwise the first one ends the check.
    """

    steps: int
    schema: CompiledSchema
    verdicts: dict[tuple[int, int], bool] = field(default_factory=dict)
    describes: bool = False

    def spend(self, steps: int) -> None:
        """Use up steps of the check's budget; raise TimeoutError if none remain.

        Args:
            steps: number of steps, which are used up in either case.
        """
        self.steps -= steps
        if self.steps < 0:
            raise TimeoutError


current_check: ContextVar[SchemaCheck] = ContextVar("remit_schema_check")


@functools.lru_cache(maxsize=_MAX_PATTERNS)
def finder_of(pattern: str) -> Callable[[str], Any]:
    """Return a function that says whether a text holds a match of ``pattern``, in linear time.

    The function returns False for values that are no text. The last 256 functions are cached.

    Args:
        pattern: a regular expression of ECMA-262.

    Raises:
        InvalidInputError: the pattern is no regular expression, or has look-around, a
            back-reference or another construct that no engine of linear time has.
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
    check = current_check.get()
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
    check = current_check.get()
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
    indexes = current_check.get().schema.indexes
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
    """Return the numbers of branches by their listed values; under ``()`` all other branches."""
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
    if not current_check.get().describes:
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
    for name in itertools.islice(names, MAX_COMPARED):
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
        indexes = current_check.get().schema.indexes
        if (known := indexes.get(id(values))) is None:
            plain = (_form(each) for each in values if type(each) in _SCALARS)
            known = indexes[id(values)] = frozenset(plain)
        fits = _form(value) in known
    else:
        current_check.get().spend(len(values) // _SIZE_OF_STEP)
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
    if type(value) is str and not finder_of(pattern)(value):
        yield ValidationError(f"{_quoted(value)} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: dict[str, Any], value: Any, _: Any
) -> Iterator[ValidationError]:
    if type(value) is not dict:
        return
    for pattern, schema in patterns.items():
        find = finder_of(pattern)
        for name, member in value.items():
            if find(name):
                yield from validator.descend(member, schema, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, wanted: Any, value: Any, schema: Any
) -> Iterator[ValidationError]:
    if type(value) is not dict:
        return
    known = schema.get("properties", ())
    finders = [finder_of(pattern) for pattern in schema.get("patternProperties", ())]
    more = [name for name in value
            if name not in known and not any(find(name) for find in finders)]  # fmt: skip
    if wanted is False and more:
        shown, were = ", ".join(map(repr, more[:MAX_COMPARED])), "was" if len(more) == 1 else "were"
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
        shown, were = ", ".join(map(repr, more[:MAX_COMPARED])), "was" if len(more) == 1 else "were"
        yield ValidationError(f"Unevaluated properties are not allowed ({shown} {were} unexpected)")


def _evaluated(validator: Any, value: dict[str, Any], schema: Any) -> set[str]:
    """Return the names of the members that a schema, with the parts that hold, speaks of."""
    if type(schema) is not dict:
        return set()
    current_check.get().spend(1)
    known = {name for name in schema.get("properties", ()) if name in value}
    for pattern in schema.get("patternProperties", ()):
        known.update(filter(finder_of(pattern), value))
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
    return _short.repr(value) if current_check.get().describes else "the value"


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
        current_check.get().spend(1 + len(stated) // _SIZE_OF_STEP if sized else 1)
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
LinearValidator = extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft202012Validator,
    {name: _counted(name, _OWN.get(name, keyword)) for name, keyword in _KEYWORDS.items()},
)
