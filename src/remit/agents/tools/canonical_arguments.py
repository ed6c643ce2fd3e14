"""The canonical form of a call's arguments: "7" for an integer 7, and defaults filled in."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from remit.kernel.canonical import exact_json

_AS_TEXT = (date, time, timedelta, UUID, PurePath)


def canonical_arguments(
    prepared: Mapping[str, Any],
    given: Mapping[str, Any],
    function: Callable[..., Any],
    schema: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the arguments of a call as JSON data, with defaults filled in.

    Prepared values take precedence over defaults of the signature, and these over defaults of the
    schema, which also fill nested objects. A value without a JSON form is replaced by the given
    one, or left out if none was given. Enums, dates, decimals, bytes, models, dataclasses and sets
    become plain values, whole floats integers and times with a zone UTC, so that equal arguments
    give equal data. A signature or value that cannot be read raises nothing.

    Args:
        prepared: the arguments as the function takes them.
        given: the arguments as the model gave them, used for values without a JSON form.
        function: the function, for the defaults of its signature.
        schema: JSON Schema of the arguments, for its defaults.
    """
    defaults = _filled({}, schema)
    with suppress(TypeError, ValueError):  # A builtin has no signature.
        for parameter in inspect.signature(function).parameters.values():
            if parameter.default is not parameter.empty:
                defaults[parameter.name] = parameter.default
    found = {}
    for name, value in {**defaults, **_filled(prepared, schema)}.items():
        try:
            found[name] = _plain(value)
        except TypeError:
            if name in given:
                found[name] = given[name]
    return found


def _filled(value: Any, schema: Any) -> Any:
    """Return JSON data with the defaults that its schema states for absent members."""
    if not isinstance(schema, Mapping):
        return value
    members = schema.get("properties")
    if isinstance(value, Mapping) and isinstance(members, Mapping):
        defaults = {
            name: member["default"]
            for name, member in members.items()
            if isinstance(member, Mapping) and "default" in member
        }
        return {
            name: _filled(each, members.get(name)) for name, each in {**defaults, **value}.items()
        }
    if isinstance(value, list):
        return [_filled(each, schema.get("items")) for each in value]
    return value


def _plain(value: Any) -> Any:
    """Return a value as JSON data, equal for equal values.

    Raises:
        TypeError: the value is of a type whose equality is not known.
    """
    if isinstance(value, Enum):
        return _plain(value.value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, Decimal):
        return format(value.normalize(), "f") if value.is_finite() else str(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).isoformat()
    if isinstance(value, _AS_TEXT):
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if isinstance(value, BaseModel):
        return {name: _plain(member) for name, member in value}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name))
                for field in dataclasses.fields(value)}  # fmt: skip
    if isinstance(value, Mapping):
        return {str(_plain(name)): _plain(member) for name, member in value.items()}
    if isinstance(value, Set):
        return sorted(map(_plain, value), key=exact_json)
    if isinstance(value, (list, tuple)):
        return [_plain(member) for member in value]
    raise TypeError(type(value).__name__)
