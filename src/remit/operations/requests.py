"""The validation of requests, by models of pydantic that are made at first use."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from remit.kernel.errors import InvalidInputError, excerpt
from remit.kernel.json_text import sound_text
from remit.operations.operation import Field, Operation

if TYPE_CHECKING:
    from pydantic import BaseModel


_MODELS: dict[tuple[str, str], type[BaseModel]] = {}


def request_model(
    kind: Operation, door: str, *, but: frozenset[str] = frozenset(), is_query: bool = False
) -> type[BaseModel]:
    """Return the model of an operation's request, which refuses unknown fields.

    Operations that one function declares share one model, and so one form in the OpenAPI document.
    A model is made once for each door: later calls ignore ``but`` and ``is_query``. The query of a
    list also has ``limit`` and ``cursor``.

    Args:
        kind: the operation.
        door: ``command`` or ``route``.
        but: names of fields that are not in the model, such as those of the path.
        is_query: True for parameters of a URL, whose texts are converted; other values must have
            their exact type.
    """
    from pydantic import ConfigDict, Field as Described, create_model

    from remit.operations.results.page import Page

    own = kind.function.__name__
    name = kind.form or "".join(map(str.capitalize, own.split("_")))
    place = f"{kind.function.__module__}.{own}", door
    if place in _MODELS:
        return _MODELS[place]
    fields: dict[str, Any] = {
        item.name: (
            _annotated(item, is_query),
            Described(... if item.is_required else item.default, description=item.help),
        )
        for item in kind.fields(door)
        if item.name not in but
    }
    base = Page if is_query and kind.member else None
    config = None if base else ConfigDict(extra="forbid", strict=not is_query)
    text = kind.form_doc or kind.doc
    _MODELS[place] = create_model(name, __base__=base, __config__=config, __doc__=text, **fields)
    return _MODELS[place]


def checked(kind: Operation, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a command's options, as the operation takes them.

    Raises:
        InvalidInputError: a value is not text in UTF-8, cannot be used, or is required and missing;
            the message names the first such option.
    """
    fields = {item.name: item for item in kind.fields("command")}
    for name, value in values.items():
        if isinstance(value, str) and sound_text(value) is not value:
            raise InvalidInputError(f"{fields[name].option} {value!r} is not text in UTF-8.")
    # The import of pydantic would take longer than most commands.
    if all(_is_plain(fields[name], value) for name, value in values.items()) and all(
        item.name in values for item in fields.values() if item.is_required
    ):
        return dict(values)

    from pydantic import ValidationError

    try:
        model = request_model(kind, "command").model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        item = fields[name]
        why = str(first["msg"]).removeprefix("Value error, ")
        given = excerpt(first["input"], 60)
        raise InvalidInputError(f"{item.option} {given!r}: {why}.") from error
    return dict(model)


def _is_plain(item: Field, value: Any) -> bool:
    """Return True if a value is surely valid; False if the model has to decide."""
    inner, least, most = item.inner, item.least, item.most
    if value == item.default and type(value) is type(item.default):
        return True
    if item.is_name or item.pattern or item.is_open:
        return False
    if get_origin(inner) is Literal:
        return value in get_args(inner)
    if get_origin(inner) is list:
        (each,) = get_args(inner)
        return isinstance(each, type) and all(isinstance(one, each) for one in value)
    size = len(value) if isinstance(value, str) else value
    return (
        isinstance(value, get_origin(inner) or inner)
        and (least is None or size >= least)
        and (most is None or size <= most)
        and (inner is not float or math.isfinite(value))
    )


def result_form(name: str) -> type[BaseModel]:
    """Return the form of a result.

    Args:
        name: its name in the OpenAPI document, as in :attr:`Operation.result`.

    Raises:
        KeyError: no form has the name.
    """
    from remit.operations.results import (
        budgets,
        decisions,
        installation,
        learning,
        parties,
        record,
    )

    for module in (budgets, parties, record, decisions, learning, installation):
        if name in vars(module):
            found: type[BaseModel] = vars(module)[name]
            return found
    raise KeyError(name)


def argument_type(item: Field) -> Any:
    """Return the type of a tool's argument, with its limits, examples and values known now.

    Unknown values are not refused. Only a field whose default is None takes None, which the schema
    does not show. Default and help are not in the type.
    """
    from pydantic import Field as Described
    from pydantic.json_schema import SkipJsonSchema

    known: Any = {"enum": list(item.known())} if item.known else None
    more = Described(examples=list(item.examples) or None, json_schema_extra=known)
    kind: Any = Annotated[_annotated(replace(item, type=item.inner), False), more]
    nothing: Any = SkipJsonSchema[None]  # type: ignore[misc]
    return kind | nothing if item.default is None else kind


def _annotated(item: Field, is_query: bool) -> Any:
    from pydantic import Field as Limits, TypeAdapter, WithJsonSchema

    from remit.kernel.exchange import MAX_ID_CHARS
    from remit.operations.results.page import Flag, Printable

    inner = item.inner
    limits: dict[str, Any] = {}
    if item.is_name:
        limits = {"min_length": 1, "max_length": MAX_ID_CHARS}
    elif inner in {int, float}:
        ends = ("gt", "lt") if item.is_open else ("ge", "le")
        limits = dict(zip(ends, (item.least, item.most), strict=True))
        limits |= {"allow_inf_nan": False} if inner is float else {}
    elif inner is str:
        limits = {"min_length": item.least, "max_length": item.most, "pattern": item.pattern}
    kind: Any = Annotated[inner, Limits(**limits)]
    if item.is_name:
        kind = Annotated[kind, Printable]
    if is_query and inner is bool:
        return Flag
    if inner is item.type:
        return kind
    if is_query:  # A URL has no null: a value is given or left out.
        shown = TypeAdapter(kind).json_schema()
        return Annotated[kind | None, WithJsonSchema(shown)]
    return kind | None
