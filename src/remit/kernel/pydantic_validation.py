"""Checks by pydantic, in a bounded number of steps, with problems in words."""

from __future__ import annotations

import dataclasses
import functools
import operator
import types
from collections.abc import Callable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    NotRequired,
    Required,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from pydantic_core import ValidationError
from typing_extensions import TypedDict

from remit.kernel.errors import InvalidInputError, excerpt
from remit.kernel.json_text import sound_text
from remit.kernel.schemas import first_problem

if TYPE_CHECKING:
    from pydantic import BaseModel

_T = TypeVar("_T")
_SHOWN = 3
_FEW, _MANY = 5_000, 200_000
"""Steps of pydantic that need no look at the schema first; and the most that it may take."""


def readable_type(wanted: Any, outer: tuple[Any, ...] = ()) -> Any:
    """Return a type with each ``typing.TypedDict`` in the form that pydantic reads before 3.12.

    A TypedDict that contains itself is left as it is.

    Args:
        wanted: the type; it is not changed.
        outer: the TypedDicts around it.
    """
    if is_typeddict(wanted) and wanted not in outer:
        fields: dict[str, Any] = {}
        for name, hint in get_type_hints(wanted, include_extras=True).items():
            inner = readable_type(hint, (*outer, wanted))
            if get_origin(hint) not in (Required, NotRequired):
                inner = Required[inner] if name in wanted.__required_keys__ else NotRequired[inner]
            fields[name] = inner
        make: Any = TypedDict
        made = make(wanted.__name__, fields)
        made.__doc__ = wanted.__doc__
        return made
    arguments = get_args(wanted)
    inside = tuple(readable_type(one, outer) for one in arguments)
    if all(map(operator.is_, inside, arguments)):
        return wanted
    if isinstance(wanted, types.UnionType):
        return functools.reduce(operator.or_, inside)
    origin: Any = get_origin(wanted)
    return origin[inside[0] if len(inside) == 1 else inside]


def first_error(error: ValidationError) -> tuple[str, str]:
    """Return the first error: its dotted key (empty for the document) and its message.

    The key is cut to 200 characters. The message is pydantic's without ``Value error``, begins in
    lower case, may quote the value, and is cut likewise.

    Args:
        error: pydantic's error; further errors are ignored.
    """
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    message = first["msg"].removeprefix("Value error, ")
    return excerpt(".".join(map(str, first["loc"]))), excerpt(message[:1].lower() + message[1:])


def _all_errors(error: ValidationError) -> str:
    """Return the first three problems with their places, and the number of the others."""
    try:
        found = error.errors(include_url=False, include_context=False, include_input=False)
    except Exception as unreadable:  # noqa: BLE001 - the text of a validator's own error
        return f"a check of its type refused it, without a readable reason ({_said(unreadable)})"
    shown = "; ".join(
        f"{excerpt('/'.join(map(str, problem['loc']))) or 'value'}: {excerpt(problem['msg'])}"
        for problem in found[:_SHOWN]
    )
    more = len(found) - _SHOWN
    return f"{shown}; and {more} more" if more > 0 else shown


def changed(value: _T, **changes: Any) -> _T:
    """Return a copy of a slotted dataclass with some fields replaced, without validation or
    ``__post_init__``.

    Args:
        value: the dataclass, frozen or not, whose own class declares all its slots; it is not
            changed.
        changes: new values by field; names that are no field are ignored.
    """
    kind = value.__class__
    copy = object.__new__(kind)
    put = object.__setattr__  # The dataclass may be frozen.
    for name in kind.__slots__:  # type: ignore[attr-defined]
        put(copy, name, changes[name] if name in changes else getattr(value, name))
    return copy


def check_fields(value: Any, what: str) -> dict[str, Any]:
    """Check the fields of a dataclass against their types and constraints; return all by name.

    The check is strict: an ``int`` is no ``str``. The model is made once for each class.

    Args:
        value: the dataclass; it is not changed.
        what: name of the dataclass in the error.

    Returns:
        The fields as pydantic read them; a member of a string enumeration becomes its text.

    Raises:
        InvalidInputError: a field does not fit; the message names the first such field.
    """
    model = _model_of(value.__class__)
    try:
        read = model.model_validate({name: getattr(value, name) for name in model.model_fields})
    except ValidationError as error:
        key, problem = first_error(error)
        raise InvalidInputError(f"{key} of {what}: {problem}.") from error
    return dict(read.__dict__)


@functools.cache
def _model_of(kind: type) -> type[BaseModel]:
    from pydantic import ConfigDict, create_model

    hints = get_type_hints(kind, include_extras=True)
    fields: Any = {field.name: (hints[field.name], ...) for field in dataclasses.fields(kind)}
    config = ConfigDict(strict=True, arbitrary_types_allowed=True)
    return create_model(kind.__name__, __config__=config, **fields)


def validated(schema: Mapping[str, Any], value: Any, validate: Callable[[], _T]) -> _T:
    """Return pydantic's result for ``value``, computed in a bounded number of steps.

    pydantic checks each branch of a union without a discriminator anew, so a recursive union can
    take twice as long for each level of the value. Nothing can interrupt pydantic, so the steps are
    counted first. Above 5,000 steps the value is first checked by the schema, and above 200,000
    refused.

    Args:
        schema: the JSON Schema that pydantic has made of the type.
        value: a JSON value.
        validate: has pydantic validate ``value`` and returns the result.

    Raises:
        ValueError: the value does not fit, is nested too deep, or needs too many steps; or a check
            in the type's own code raised any Exception or SystemExit. The message states up to
            three problems, and may quote the value.
    """
    try:
        steps = _Steps(schema).of(schema, value)
    except RecursionError:
        raise ValueError("it is nested too deeply to be checked") from None
    if steps > _FEW and (problem := first_problem(schema, value)):
        raise ValueError(problem)
    if steps > _MANY:
        raise ValueError(
            f"it cannot be checked in {_MANY:,} steps: its type has too many alternatives"
        )
    try:
        return validate()
    except ValidationError as error:
        problem = first_problem(schema, value) if error.error_count() > _SHOWN else ""
        raise ValueError(problem or _all_errors(error)) from error
    except (Exception, SystemExit) as error:  # A validator of the type raised it.
        raise ValueError(f"a check of its type raised {_said(error)}") from error


def _said(error: BaseException) -> str:
    """Return the class and the beginning of the text of an error of foreign code."""
    try:
        return f"{type(error).__name__}: {excerpt(sound_text(str(error)))}"
    except Exception:  # noqa: BLE001 - str() runs code of the type
        return type(error).__name__


class _Steps:
    """A counter of pydantic's steps: each pair of a schema's part and a value's part counts once.

    Args:
        schema: contains the definitions that its parts refer to.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._definitions: Mapping[str, Any] = schema.get("$defs", {})
        self._known: dict[tuple[int, int], int] = {}

    def of(self, schema: Any, value: Any) -> int:
        """Return the steps for a value under a part of the schema."""
        if type(schema) is not dict:
            return 1
        pair = (id(schema), id(value))
        if (known := self._known.get(pair)) is not None:
            return known
        self._known[pair] = 1  # a reference to itself ends here
        steps = 1
        if "$ref" in schema:
            steps += self.of(self._definition(schema["$ref"]), value)
        for word in ("allOf", "anyOf", "oneOf"):
            for branch in self._branches(schema, word, value):
                steps += self.of(branch, value)
        if type(value) is dict:
            properties, others = schema.get("properties", {}), schema.get("additionalProperties")
            for name, member in value.items():
                steps += self.of(properties.get(name, others), member)
        elif type(value) is list:
            first, others = schema.get("prefixItems", ()), schema.get("items")
            for number, item in enumerate(value):
                steps += self.of(first[number] if number < len(first) else others, item)
        self._known[pair] = steps
        return steps

    def _branches(self, schema: Mapping[str, Any], word: str, value: Any) -> Sequence[Any]:
        """Return the branches that pydantic tries; in a tagged union, the branch with the tag."""
        tagged = schema.get("discriminator")
        if word == "oneOf" and type(tagged) is dict and "mapping" in tagged:
            tag = value.get(tagged["propertyName"]) if type(value) is dict else None
            known = tagged["mapping"].get(tag) if isinstance(tag, str) else None
            return [] if known is None else [self._definition(known)]
        branches: Sequence[Any] = schema.get(word, ())
        return branches

    def _definition(self, reference: str) -> Any:
        return self._definitions.get(reference.removeprefix("#/$defs/"))
