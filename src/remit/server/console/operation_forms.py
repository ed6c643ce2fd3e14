"""Forms of operations: their fields for a template, and the operation that a sent form asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError

from remit.kernel.errors import InvalidInputError
from remit.operations import Field, Operation, request_model

_UNITS = {"usd": "US dollars", "rpm": "Calls per minute", "tpm": "Tokens per minute"}


def form_of(
    kind: Operation,
    title: str,
    *,
    fixed: tuple[str, ...] = (),
    shown: tuple[str, ...] = (),
    values: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return an operation as data of a form: its command, title, and fields.

    The result has ``command``, ``title``, ``needs`` (the permission), ``help`` and the lists
    ``fields`` and ``more``, whose items have the keys ``name``, ``label``, ``help``, ``kind``
    (``flag``, ``choice``, ``number`` or ``text``), ``choices``, ``least``, ``step``, ``required``
    and ``value``. ``fields`` are in the order of ``shown``.

    Args:
        kind: the operation.
        title: the text of the form's button.
        fixed: names of fields that the page sets, which the form leaves out.
        shown: names of fields that are always shown; all others are in ``more``. Empty shows all.
        values: present values, keyed by field; others begin with their defaults.
    """
    known = values or {}
    fields = [
        _described(item, known.get(item.name))
        for item in kind.fields("route")
        if item.name not in fixed
    ]
    first = [one for one in fields if not shown or one["name"] in shown]
    return {
        "command": kind.command,
        "title": title,
        "needs": kind.needs,
        "help": kind.doc.strip().partition("\n")[0],
        "fields": sorted(first, key=lambda one: shown.index(one["name"]) if shown else 0),
        "more": [one for one in fields if one not in first],
    }


def read_operation(kind: Operation, form: Mapping[str, str], **fixed: Any) -> dict[str, Any]:
    """Return the checked values of the operation that a form asks for.

    Empty fields keep their defaults. A list is a text with commas, a flag is set by ``on``, and a
    number may have commas. Fields that the operation lacks, and fixed ones, are ignored in the
    form. Fixed values that are part of the operation's path are not checked. Nothing is carried
    out.

    Args:
        kind: the operation.
        form: fields of the form.
        fixed: values that the page sets.

    Raises:
        InvalidInputError: a value cannot be used; the message names the field.
    """
    method, path = kind.route.split(" ")
    in_path = frozenset(re.findall(r"{(\w+)", path))
    model = request_model(kind, "route", but=in_path, is_query=method in {"GET", "DELETE"})
    given = {name: value for name, value in fixed.items() if name not in in_path}
    for item in kind.fields("route"):
        text = form.get(item.name, "").strip()
        if item.name not in fixed and text:
            given[item.name] = _value(item, text)
    try:
        checked = dict(model.model_validate(given))
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        why = str(first["msg"]).removeprefix("Value error, ")
        raise InvalidInputError(f"{_label(name)}: {why}.") from error
    return {**checked, **{name: fixed[name] for name in in_path}}


def _described(item: Field, value: Any) -> dict[str, Any]:
    value = item.default if value is None and not item.is_required else value
    inner, choices = item.inner, ()
    if inner is bool:
        kind = "flag"
    elif get_origin(inner) is Literal:
        kind, choices = "choice", get_args(inner)
    elif inner in (int, float):
        kind = "number"
    else:
        kind = "text"
    is_list = isinstance(value, list | tuple)
    return {
        "name": item.name,
        "label": _label(item.name),
        "help": item.help + (" Separate several by commas." if get_origin(inner) is list else ""),
        "kind": kind,
        "choices": choices if item.is_required or item.default is not None else ("", *choices),
        "least": item.least,
        "step": "any" if inner is float else "1",
        "required": item.is_required,
        "value": ", ".join(value) if is_list else "" if value is None else value,
    }


def _label(name: str) -> str:
    if name in _UNITS:
        return _UNITS[name]
    words = name.removeprefix("budget_").replace("_", " ")
    return _UNITS.get(words, words.replace("grace s", "grace period (seconds)").capitalize())


def _value(item: Field, text: str) -> Any:
    """Return the value of a field; a text that is no number stays a text, which no model takes."""
    inner = item.inner
    if inner is bool:
        return text == "on"
    if get_origin(inner) is list:
        return [part.strip() for part in text.split(",") if part.strip()]
    if inner in (int, float):
        try:
            return inner(text.replace(",", ""))
        except ValueError:
            return text
    return text
