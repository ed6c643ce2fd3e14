"""Forms that answers share: the error, and pages of a list."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
import re
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    create_model,
)

_DEFAULT_LIMIT = 50
_MAX_PAGE = 500


def _flag(value: object) -> object:
    if value in ("true", "false"):
        return value == "true"
    if isinstance(value, bool):
        return value
    raise ValueError("write true or false")


def _name(value: str) -> str:
    if not value.isprintable() or value != value.strip():
        raise ValueError("it contains a control character, or begins or ends with a space")
    return value


Flag = Annotated[bool, BeforeValidator(_flag)]
"""``true`` or ``false``, and nothing else."""

Printable = AfterValidator(_name)
"""Refuses a text with a control character, or with a space at its begin or end."""


class ErrorDetail(BaseModel):
    """A failure and its remedy.

    `code` is for programs, `message` and `next_step` for people; `param` names a field at fault.
    """

    code: str = Field(description="Error code for programs.")
    message: str = Field(description="Description of the failure and its cause, for people.")
    next_step: str | None = Field(None, description="Suggested next step.")
    param: str | None = Field(None, description="Name of the field at fault.")


class Error(BaseModel):
    """The answer to every request that fails.

    `error` holds the failure.
    """

    error: ErrorDetail


class Page(BaseModel):
    """The wanted part of a list.

    Unknown parameters are refused, so that a typo cannot select everything.

    `limit` is 1 to 500 items, 50 by default; `cursor` continues after the previous page.
    """

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(
        _DEFAULT_LIMIT, ge=1, le=_MAX_PAGE, description="Maximum number of items on the page."
    )
    cursor: Annotated[str | None, WithJsonSchema({"type": "string"})] = Field(
        None, description="`next_cursor` of the previous page."
    )


class Paged(BaseModel):
    """A page of a list.

    `next_cursor` is the `cursor` of the next request.
    """

    next_cursor: str | None = Field(description="Cursor of the next page; null on the last page.")


class Open(BaseModel):
    """An object with further members."""

    model_config = ConfigDict(extra="allow")


def form(
    name: str,
    doc: str,
    /,
    *,
    of: type[Any] | None = None,
    base: type[BaseModel] = BaseModel,
    **members: Any,
) -> type[BaseModel]:
    """Return the form of a JSON object, whose members are required unless a default is given.

    Args:
        name: name of the form in the OpenAPI document.
        doc: its description there.
        of: a dataclass whose attributes are members, with the descriptions of its docstring.
        base: the base of the form, such as :class:`Paged`.
        members: the type of each other member. A list with one type stands for a list of its
            items, and None omits an attribute of ``of``. A tuple contains a type, a description,
            and the default if the member may be absent.
    """
    told: dict[str, str] = {}
    if of is not None:
        hints = get_type_hints(of)
        own = {item.name: _in_json(hints[item.name]) for item in dataclasses.fields(of)}
        members, told = {**own, **members}, _told(of)
    fields: dict[str, Any] = {}
    for member, found in members.items():
        kind, text, *rest = found if isinstance(found, tuple) else (found, told.get(member))
        kind = list[kind[0]] if isinstance(kind, list) else kind  # type: ignore[valid-type]
        if kind is not None:
            fields[member] = kind, Field(*rest, description=text)
    return create_model(name, __base__=base, __doc__=doc, **fields)


def _told(kind: type[Any]) -> dict[str, str]:
    """Return the descriptions of a dataclass's attributes in its docstring, by name."""
    found = {}
    for each in reversed(kind.__mro__):
        attributes = inspect.cleandoc(each.__doc__ or "").partition("\nAttributes:\n")[2]
        for name, text in re.findall(r"^    (\w+): ((?:.|\n {8})+)", attributes, re.MULTILINE):
            plain = re.sub(r"\s+", " ", re.sub(r":\w+:`~?([\w.]+)`", r"`\1`", text))
            plain = re.sub(r"\bNone\b", "null", plain.replace("``", "`"))
            found[name] = plain[:1].upper() + plain[1:]
    return found


def _in_json(hint: Any) -> Any:
    """Return a type with forms instead of dataclasses."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _form(hint)
    origin = get_origin(hint)
    if origin is None or origin is Literal:
        return hint
    parts = [_in_json(part) for part in get_args(hint)]
    if origin in {Union, types.UnionType}:
        return functools.reduce(operator.or_, parts)
    return origin[tuple(parts)]


@functools.cache
def _form(kind: type[Any]) -> type[BaseModel]:
    return form(f"{kind.__name__}Shape", (kind.__doc__ or "").partition("\n")[0], of=kind)
