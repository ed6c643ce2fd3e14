"""Commands made from operations."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click

from remit.cli.shared import (
    NumberRange,
    emit,
    limited,
    note,
    open_ledger,
    progress,
    reads,
    say,
    say_list,
    settings_of,
    table,
    whoami,
)
from remit.operations import OPERATIONS, Caller, Field, Listing, Note, Operation, checked

_GROUPS = {
    "key": "Manage virtual keys, which authenticate callers and limit what they may do.",
    "team": "Manage teams, with their keys, budgets and spending.",
    "user": "Manage users, with their keys, budgets and spending.",
    "organisation": "Manage organisations, with their keys, budgets and spending.",
    "budget": "Show and set budgets of sessions, keys, users, teams and organisations.",
}


def __getattr__(name: str) -> click.Group:
    """Return the group of commands that begin with ``name``, such as ``key``."""
    if name not in _GROUPS:
        raise AttributeError(name)
    group = click.Group(name, help=_GROUPS[name])
    add_commands(group)
    globals()[name] = group
    return group


def add_commands(group: click.Group) -> None:
    """Add the commands of all operations that begin with the name of a group."""
    for kind in OPERATIONS:
        first, _, verb = kind.command.partition(" ")
        if first == group.name:
            group.add_command(_command(kind, verb))


def _command(kind: type[Operation], verb: str) -> click.Command:
    """Return the command of an operation."""

    def callback(root: Path | None, as_json: bool, limit: int | None = None, **given: Any) -> None:
        fields = {item.name: item for item in kind.fields("command")}
        if limit is not None and "limit" in fields:
            given["limit"] = limit
        request = checked(kind, {name: value for name, value in given.items() if value is not None})
        _run(request, root, as_json, limit)

    function: Callable[..., Any] = reads(callback)
    if kind.is_limited:
        function = limited(function)
    for item in reversed(kind.fields("command")):
        function = _parameter(item)(function)
    return click.command(verb, help=kind.__doc__)(function)


def _run(request: Operation, root: Path | None, as_json: bool, limit: int | None) -> None:
    """Carry out an operation and print its result; exit with 1 if the result is a failure."""
    from remit.gateway.auth import Identity
    from remit.runtime import OpenRoot

    caller = Caller(Identity(whoami(), "operator", pass_through=("*",)), is_local=True)
    ledger = functools.partial(open_ledger, root, signing=request.writes())
    with OpenRoot(ledger, lambda: settings_of(root), progress=progress) as port:
        found = request.run(port, caller)
        if isinstance(found, Listing):
            shown = list(found.describe([item for item in found.items if found.is_shown(item)]))
            member = request.command_member or request.member
            if as_json:
                emit(True, {member: shown[:limit]}, ())
            else:
                rows = [[cell(one) for _, cell in request.columns] for one in shown]
                lines = table([head for head, _ in request.columns], rows)
                say_list(lines, limit if request.is_limited else sys.maxsize)
            return
    if as_json:
        emit(True, found, ())
    else:
        for line in request.lines(found):
            (note if isinstance(line, Note) else say)(line)
    if request.has_failed(found):
        sys.exit(1)


def _parameter(item: Field) -> Callable[[Any], Any]:
    """Return the decorator that adds the option or argument of a field."""
    if item.flag == "":
        return click.argument(item.name, metavar=item.option)
    text = item.flag_help or item.help
    if item.type is bool:
        return click.option(item.option, item.name, is_flag=True, help=text)
    traits: dict[str, Any] = {
        "help": text, "metavar": item.metavar, "required": item.is_required,
    }  # fmt: skip
    inner = item.inner
    if item.read is not None:
        read = item.read
        traits |= {"default": item.flag_default, "show_default": False,
                   "callback": lambda ctx, param, value: read(value)}  # fmt: skip
    elif get_origin(inner) is Literal:
        traits["type"] = click.Choice(get_args(inner))
    elif get_origin(inner) is list and item.separator:
        traits["callback"] = _names
    elif get_origin(inner) is list:
        traits["multiple"] = True
        traits["callback"] = lambda ctx, param, value: list(value)
    elif inner is int:
        traits["type"] = click.INT if item.least is None else click.IntRange(int(item.least))
    elif inner is float:
        traits["type"] = NumberRange(item.least)
    if item.read is None and isinstance(item.default, str) and item.default:
        traits |= {"default": item.default, "show_default": True}
    return click.option(item.option, item.name, **traits)


def _names(ctx: click.Context, param: click.Parameter, value: str | None) -> list[str]:
    """Return the names of a comma-separated list; none if the option is absent.

    Raises:
        click.BadParameter: the list contains an empty name.
    """
    names = [] if value is None else [name.strip() for name in value.split(",")]
    if not all(names):
        raise click.BadParameter("The list contains an empty name.")
    return names
