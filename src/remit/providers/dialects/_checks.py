"""Checks of request bodies that all dialects share. No message quotes the client's text."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from remit.providers.dialects.errors import DialectError

_MAX_DEPTH = 100
_MAX_TOKENS = 10**9
_WARMEST = 2
_MODEL = re.compile("[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,512}")
_PLAIN_KEY = re.compile("[A-Za-z0-9_-]{1,64}")

_KINDS: dict[type, str] = {
    bool: "a boolean", dict: "an object", int: "a whole number", list: "a list", str: "a text",
}  # fmt: skip
_T = TypeVar("_T")
Payloads = Mapping[str, tuple[str, ...]]
"""For each type of an object, the member with its payload, or the members of which one is given."""

SKIPPED = object()
"""Stands in a list of blocks or tools for an element that readers skip."""


def refuse(what: str, param: str | None) -> DialectError:
    """Return the error for the value at ``param``; ``what`` completes the sentence."""
    return DialectError(f"{param or 'The request body'} {what}.", param=param)


def checked_body(body: Any) -> dict[str, Any]:
    """Return ``body`` if it is a JSON object of finite numbers that is not nested too deep.

    Raises:
        DialectError: the body is anything else.
    """
    if not isinstance(body, dict):
        raise refuse("is not a JSON object", None)
    for name, value in body.items():
        if problem := _problem(value):
            raise refuse(problem, name if _PLAIN_KEY.fullmatch(name) else None)
    return body


def _problem(value: Any) -> str:
    """Return the fault of a member of a body; empty if there is none."""
    level: list[Any] = [[value]]
    for _ in range(_MAX_DEPTH):
        inner = [each for one in level for each in (one.values() if type(one) is dict else one)]
        if any(type(each) is float and each - each != 0.0 for each in inner):
            return "holds an infinite number"
        level = [each for each in inner if type(each) is dict or type(each) is list]
        if not level:
            return ""
    return f"is nested more than {_MAX_DEPTH} deep"


def model_name(body: dict[str, Any]) -> str:
    """Return the model that a body names.

    Raises:
        DialectError: ``model`` is not a text of 1 to 512 printable characters.
    """
    value = body.get("model")
    if type(value) is not str or _MODEL.fullmatch(value) is None:
        raise refuse("is not a text of 1 to 512 characters without control characters", "model")
    return value


def max_tokens(body: dict[str, Any], key: str) -> int | None:
    """Return an output limit; None without one. Raise DialectError if it is out of range."""
    value = body.get(key)
    if value is None:
        return None
    if type(value) is not int or not 1 <= value <= _MAX_TOKENS:
        raise refuse(f"is not a whole number from 1 to {_MAX_TOKENS}", key)
    return value


def optional(holder: dict[str, Any], key: str, kind: type[_T], where: str = "") -> _T | None:
    """Return the value at ``key``; None if missing or null.

    Args:
        holder: the object.
        key: the member.
        kind: ``bool``, ``dict``, ``int``, ``list`` or ``str``.
        where: the object's place in the body; empty for the body itself.

    Raises:
        DialectError: the value is of another type.
    """
    value = holder.get(key)
    if value is not None and type(value) is not kind:
        raise refuse(f"is not {_KINDS[kind]}", f"{where}.{key}" if where else key)
    return value


def check_kind(holder: dict[str, Any], where: str, kinds: Collection[str] | None = None) -> None:
    """Raise DialectError if an object has more than one kind.

    Args:
        holder: the object, whose kind is the name of its one member that is not null.
        where: its place in the body.
        kinds: names of the members that are kinds; None for all.
    """
    named = [name for name, value in holder.items()
             if value is not None and (kinds is None or name in kinds)]  # fmt: skip
    if len(named) > 1:
        raise refuse("has more than one kind", where)


def check_payload(holder: dict[str, Any], kind: Any, where: str, payloads: Payloads) -> None:
    """Raise DialectError if an object has, next to its own payload, that of another type.

    Args:
        holder: the object.
        kind: its type. Objects of a type that ``payloads`` lacks are not checked.
        where: its place in the body.
        payloads: for each type, the member with its payload, or the members of which one may be
            given.
    """
    if (own := payloads.get(kind) if isinstance(kind, str) else None) is None:
        return
    given = {name for names in payloads.values() for name in names
             if holder.get(name) not in (None, "", [], {})}  # fmt: skip
    if given - set(own) or len(given) > 1:
        raise refuse("has more than one kind", where)


def required(holder: dict[str, Any], key: str, kind: type[_T], where: str) -> _T:
    """Return the value at ``key``; raise DialectError if it is missing or of another type.

    The arguments are those of :func:`optional`.
    """
    value = optional(holder, key, kind, where)
    if value is None:
        raise refuse(f"is not {_KINDS[kind]}", f"{where}.{key}")
    return value


def read_common(
    body: dict[str, Any], endpoint: str, known: Mapping[str, frozenset[str]]
) -> dict[str, Any]:
    """Return the fields of a :class:`ModelCall` that all dialects spell alike.

    These are ``endpoint``, ``model``, ``temperature``, ``top_p``, ``stream``, ``other`` (members
    that are not known) and ``dropped`` (unread members of known objects).

    Args:
        body: the checked body.
        endpoint: its endpoint.
        known: as for :func:`unread`, with the names of the body's own members at the place ``""``.

    Raises:
        DialectError: a field is malformed.
    """
    own, warmth = known[""], number(body, "temperature", _WARMEST)
    inner = {place: names for place, names in known.items() if place}
    return {
        "endpoint": endpoint,
        "model": model_name(body),
        "temperature": None if warmth is None else float(warmth),
        "top_p": number(body, "top_p", 1),
        "stream": optional(body, "stream", bool) or False,
        "other": {key: value for key, value in body.items() if key not in own},
        "dropped": unread(body, inner),
    }


def content(
    value: Any,
    where: str,
    read: Callable[[dict[str, Any], str, str], dict[str, Any]],
    payloads: Payloads = MappingProxyType({}),
) -> str | list[dict[str, Any]]:
    """Return a message's content: a text, or its parts as ``read`` returns them.

    Args:
        value: the client's value; items that are ``SKIPPED`` are left out.
        where: its place, for errors.
        read: reads one part, given the part, its type and its place.
        payloads: as for :func:`check_payload`.

    Raises:
        DialectError: the content is neither a text nor a list of objects with a type, or a part has
            the payload of another type.
    """
    if type(value) is str:
        return value
    if type(value) is not list:
        raise refuse("is neither a text nor a list of parts", where)
    parts = []
    for part, at in objects(value, where):
        kind = text(part, "type", at)
        check_payload(part, kind, at, payloads)
        parts.append(read(part, kind, at))
    return parts


def objects(values: Iterable[Any], where: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each object of a list with its place, without :data:`SKIPPED` elements.

    Args:
        values: the list.
        where: its place, for errors.

    Raises:
        DialectError: an element is not an object.
    """
    for index, value in enumerate(values):
        if value is not SKIPPED:
            yield checked_object(value, at := f"{where}[{index}]"), at


def other(endpoint: str, value: Any, where: str) -> dict[str, Any]:
    """Return the neutral block of a part that only its own ``endpoint`` knows.

    Args:
        endpoint: the client's endpoint.
        value: the part.
        where: its place in the body.
    """
    return {"type": "other", "endpoint": endpoint, "value": value, "at": where}


def checked_object(value: Any, where: str) -> dict[str, Any]:
    """Return a value if it is an object; raise DialectError if it is anything else."""
    if type(value) is not dict:
        raise refuse("is not an object", where)
    return value


def role_of(message: dict[str, Any], roles: Collection[Any], where: str) -> Any:
    """Return a message's role; raise DialectError if it is none of ``roles``."""
    role = message.get("role")
    if not isinstance(role, str | None) or role not in roles:
        raise refuse("is none of the roles of the API", f"{where}.role")
    return role


def with_hint(neutral: dict[str, Any], *holders: dict[str, Any]) -> dict[str, Any]:
    """Return ``neutral`` with the ``cache_control`` of the last holder that has an object there.

    ``neutral`` is changed.
    """
    for holder in holders:
        if isinstance(hint := holder.get("cache_control"), dict):
            neutral["cache_control"] = hint
    return neutral


def text(holder: dict[str, Any], key: str, where: str, *, empty: bool = False) -> str:
    """Return a text; raise DialectError for another type, or an empty one unless ``empty`` is
    True.
    """
    value = holder.get(key)
    if type(value) is not str or not (value or empty):
        raise refuse("is not a text" if empty else "is not a non-empty text", f"{where}.{key}")
    return value


def number(holder: dict[str, Any], key: str, most: float = _MAX_TOKENS) -> float | None:
    """Return a number, None if missing; raise DialectError for another type, or unless it is 0 to
    ``most``.
    """
    value = holder.get(key)
    if value is None:
        return None
    if type(value) is not float and type(value) is not int:
        raise refuse("is not a number", key)
    if not 0 <= value <= most:
        raise refuse(f"is not a number from 0 to {most:g}", key)
    return value


def unread(body: Any, known: Mapping[str, frozenset[str]]) -> list[str]:
    """Return the names of members that a reader ignores, such as ``messages[].name``.

    Members that are null, false or empty are left out.

    Args:
        body: the checked body.
        known: names of the members that the reader knows, keyed by place. ``[]`` stands for each
            element of a list, as in ``messages[].content[]``.
    """
    found: dict[str, None] = {}
    for place, names in known.items():
        for holder in _holders(body, place.split(".")):
            for name in holder.keys() - names:
                if holder[name] not in (None, False, "", [], {}):
                    found[f"{place}.{name}"] = None
    return sorted(found)


def _holders(value: Any, steps: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the objects at a place."""
    if not steps:
        if type(value) is dict:
            yield value
        return
    name = steps[0].removesuffix("[]")
    inner = value.get(name) if type(value) is dict else None
    if name == steps[0]:
        yield from _holders(inner, steps[1:])
    elif type(inner) is list:
        for each in inner:
            yield from _holders(each, steps[1:])
