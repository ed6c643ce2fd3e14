"""What pydantic found wrong, in words that quote nothing of a long value."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from remit.kernel.errors import InvalidInputError

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

_T = TypeVar("_T")
_SHOWN = 3


def first_error(error: ValidationError) -> tuple[str, str]:
    """The first error as its dotted key (empty for the document itself) and its message."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    message = first["msg"].removeprefix("Value error, ")
    return ".".join(str(part) for part in first["loc"]), message[:1].lower() + message[1:]


def all_errors(error: ValidationError) -> str:
    """What does not fit and where, in one line; of many problems the first three."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    shown = "; ".join(
        f"{'/'.join(map(str, problem['loc'])) or 'value'}: {problem['msg']}"
        for problem in found[:_SHOWN]
    )
    more = len(found) - _SHOWN
    return f"{shown}; and {more} more" if more > 0 else shown


def changed(value: _T, **changes: Any) -> _T:
    """A copy of a dataclass with slots, in which what is new needs no check: none is made."""
    kind = value.__class__
    copy = object.__new__(kind)
    put = object.__setattr__  # as of a frozen one
    for name in kind.__slots__:  # type: ignore[attr-defined]
        put(copy, name, changes[name] if name in changes else getattr(value, name))
    return copy


def check_fields(value: Any, what: str) -> dict[str, Any]:
    """Hold the fields of a dataclass against their types and constraints (pydantic's, strict).

    Args:
        value: the dataclass; it stays as it is.
        what: names it in the error.

    Returns:
        The fields as pydantic read them: plain texts of string enumerations, for instance.

    Raises:
        InvalidInputError: a field does not fit; it is named.
    """
    from pydantic import ValidationError

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
