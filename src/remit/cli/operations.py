"""Commands made from operations."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click

from remit.cli.options import FILE, FOLDER, INPUT, NumberRange, common, debuggable, with_json
from remit.cli.output import (
    LISTED,
    echo_json,
    end_bar,
    is_raw,
    note,
    print_json_list,
    progress,
    say,
    say_list,
    say_text,
    screen,
    show_step,
    table,
)
from remit.cli.roots import confirm, open_ledger, open_root, open_settings, whoami, write_file
from remit.operations import (
    Answer,
    Caller,
    Document,
    Drawn,
    Feed,
    Field,
    Note,
    Operation,
    Table,
    checked,
    shown,
)
from remit.runtime.operations import all_operations

_MOST = 2**62  # Larger numbers cannot be counted to by an iterator, nor bound in SQL.
_PATHS = {
    "file": FILE, "folder": FOLDER, "path": click.Path(path_type=Path), "input": INPUT,
    "input folder": click.Path(path_type=Path, exists=True, file_okay=False),
}  # fmt: skip
_GROUPS = {
    "key": "Manage virtual keys, which authenticate and limit callers.",
    "team": "Manage teams, with their keys, budgets and spending.",
    "user": "Manage users, with their keys, budgets and spending.",
    "organisation": "Manage organisations, with their keys, budgets and spending.",
    "deploy": "Write files for operators, such as units and manifests.",
    "bootstrap": "Build and install the bootstrap file of new roots.",
    "ledger": "Query, verify, prove, move to segments and erase the ledger.",
    "price": "Show and set prices of models, in USD per million tokens.",
    "order": "Submit and manage orders for workers (`remit worker`).",
    "budget": "Show and set budgets of keys, sessions and their owners.",
    "gate": "Run gates, which check packages, files, orders and ledger.",
    "config": "Show the settings.",
    "model": "List, download and add local models.",
    "trail": "Show, verify, export and import thoughts of agents.",
    "learn": "Review signals and proposals, and adopt proposals.",
    "route": "Explain which model answers a call, and why.",
    "tenant": "Manage tenants, each with its own ledger, keys and console.\n\n"
    "A tenant is a root. `remit COMMAND --root ROOT/tenants/NAME` runs a command for it.",
}


def __getattr__(name: str) -> click.Command:
    """Return the command ``name``, or the group of commands that begin with ``name``."""
    if name not in _GROUPS:
        for kind in all_operations(name):
            if kind.command == name:
                return _command(kind, name)
        raise AttributeError(name)
    globals()[name] = group = _Group(name, help=_GROUPS[name])
    return group


class _Group(click.Group):
    """A group whose commands are made when one of them is wanted."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        if not self.commands:
            add_commands(self)
        return super().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        self.list_commands(ctx)
        return super().get_command(ctx, cmd_name)


def add_commands(group: click.Group) -> None:
    """Add the commands of all operations that begin with the name of a group."""
    for kind in all_operations(str(group.name)):
        _, *groups, verb = kind.command.split(" ")
        inner = group
        for name in groups:
            inner = inner.commands[name]  # type: ignore[assignment]
        inner.add_command(_command(kind, verb))


def _command(kind: Operation, verb: str) -> click.Command:
    """Return the command of an operation."""

    def callback(root: Path | None = None, as_json: bool = False, **given: Any) -> None:
        from remit.runtime import OpenRoot

        by = given.pop("by", None) if kind.changes else None
        yes, out = given.pop("yes", False), given.pop("out", None)
        stated = {name: value for name, value in given.items() if value is not None}
        caller = Caller(by or whoami(), confirm=functools.partial(confirm, yes=yes, err=as_json))
        request = checked(kind, stated)
        if as_json and any(request.get(name) for name in kind.instead_of_json):
            raise click.UsageError("Choose either --json or another format.")

        def opened() -> Any:
            return open_ledger(root, signing=kind.does_write(port, request))

        parts: tuple[Callable[[], Any], ...] = functools.partial(open_settings, root), opened
        if kind.repairs:
            place, loaded, ledger = open_root(root)
            parts = lambda: (place, loaded), lambda: ledger
        shows: Any = {"path": root, "progress": progress, "note": note, "step": show_step,
                      "log_sender": _log_sender, "screen": screen()}  # fmt: skip
        with OpenRoot(*parts, **shows) as port:
            try:
                found = kind.run(port, caller, **request)
            finally:
                end_bar()
            _show(kind, request, found, as_json, out)

    function: Callable[..., Any] = (common if kind.has_root else debuggable)(callback)
    if not kind.media_type:
        function = with_json(function)
    for item in reversed(kind.fields("command")):
        function = _parameter(item)(function)
    return click.command(verb, help=kind.doc)(function)


def _log_sender(url: str, service_name: str) -> Callable[[Any], None]:
    from remit.server.telemetry import log_sender  # much to import, for one command

    return log_sender(url, service_name)


def _show(
    kind: Operation, values: dict[str, Any], found: Any, as_json: bool, out: Path | None
) -> None:
    """Print the result of an operation; exit with 1 if the result is a failure."""
    answer = found if isinstance(found, Answer) else Answer(found, None, kind.has_failed(found))
    value = answer.value
    if isinstance(value, str):
        _write_text(out, value)
    elif isinstance(value, Document):
        _write(value)
    elif isinstance(value, Feed) and (as_json or answer.lines is None):
        _show_list(kind, value, values.get("limit"), as_json)
    elif as_json:
        echo_json(value)
    else:
        say_lines(kind.lines_of(value) if answer.lines is None else answer.lines)
        if kind.then:
            note(kind.then.format_map(value))
    if answer.has_failed:
        sys.exit(1)


def _show_list(kind: Operation, found: Feed, limit: int | None, as_json: bool) -> None:
    """Print the items of a list as JSON, or as lines with a note."""
    limit = limit and min(limit, _MOST)
    if as_json:
        items = (item for _, item in found.read(None, limit))
        if found.is_endless:
            for item in items:
                echo_json(item, indent=False)
        else:
            print_json_list(kind.command_member or kind.member, items, found.rest)
        return
    is_limited = "limit" in kind.declared
    most = (limit or LISTED) if is_limited else sys.maxsize
    # One more item shows that others exist.
    read = (found.shown(item) for _, item in found.read(None, most + 1 if is_limited else None))
    lines = _lines(kind, read)
    if kind.columns:  # The head is no item.
        say(next(lines))
    say_list(lines, most)
    if said := found.note if isinstance(found.note, str) else found.note():
        note(said)


def say_lines(lines: Iterable[str | Table], before: str = "") -> None:
    """Print the lines of a result for people; a table fits the terminal.

    A table with a ``limit`` is cut after so many lines, with a note.

    Args:
        lines: the lines; a :class:`Note` goes to standard error, a :class:`Drawn` is printed
            unchanged.
        before: the beginning of each line on standard output.
    """
    for line in lines:
        if isinstance(line, Table):
            start = before + " " * line.indent
            rows = table(line.heads, line.rows, indent=len(start))
            say_list((start + row for row in rows), line.limit or sys.maxsize)
        elif isinstance(line, Note):
            note(line)
        elif isinstance(line, Drawn):
            click.echo(line)
        else:
            say(before + line)


def _write_text(out: Path | None, text: str) -> None:
    """Write a text to a file, with a note; or print it if ``out`` is None.

    Raises:
        RemitError: the file cannot be written.
    """
    if out is None:
        say_text(text, nl=False)
        return
    with write_file(out) as file:
        file.write(text.encode())
    if str(out) != "-":
        note(f"Written to {out}.")


def _write(found: Document) -> None:
    """Write a document.

    On standard output, bytes of JSON in a pipe or a file, and all bytes with ``--raw``, are written
    exactly. Other content is written as printable text.
    """
    content = found.content
    if callable(content):
        with write_file(found.out or Path("-")) as file:
            content(file)
    elif isinstance(content, str):
        _write_text(found.out, content)
    elif is_raw() or (not sys.stdout.isatty() and _is_json(content)):
        click.echo(content, nl=False)
    else:
        say_text(content.decode("utf-8", "replace"), nl=False)
    if found.note:
        note(found.note)


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return False
    return True


def _lines(kind: Operation, items: Iterable[Any]) -> Iterator[str]:
    """Yield the lines of a list: a table of the columns, or else a line for each item."""
    if not kind.columns:
        item = None
        for item in items:
            yield kind.line(item)
        if item is None and kind.nothing:
            yield kind.nothing
        return
    columns = [(one, itemgetter(one)) if isinstance(one, str) else one for one in kind.columns]
    rows = [[shown(cell(one)) for _, cell in columns] for one in items]
    if rows or not kind.nothing:
        yield from table([head for head, _ in columns], rows)
    else:
        yield kind.nothing


def _parameter(item: Field) -> Callable[[Any], Any]:
    """Return the decorator that adds the option or argument of a field."""
    traits: dict[str, Any] = {"metavar": item.metavar, "required": item.is_required}
    inner = item.inner
    if item.read is not None:
        read = item.read
        traits["callback"] = lambda ctx, param, value: value if value is None else read(value)
    elif get_origin(inner) is Literal:
        traits["type"] = click.Choice(get_args(inner))
    elif get_origin(inner) is list and item.separator:
        traits["callback"] = _names
    elif get_origin(inner) is list:
        (each,) = get_args(inner)
        traits["type"] = _PATHS[item.place] if each is Path else None
        if get_origin(each) is tuple:
            traits["nargs"] = len(get_args(each))
        traits["nargs" if item.flag == "" else "multiple"] = -1 if item.flag == "" else True
        traits["callback"] = lambda ctx, param, value: list(value)
    elif get_origin(inner) is tuple:
        traits["nargs"] = len(get_args(inner))
    elif inner is int:
        least, most = (None if end is None else int(end) for end in (item.least, item.most))
        traits["type"] = click.INT if least is most else click.IntRange(least, most)
    elif inner is float:
        ends = item.least, item.most
        is_open = [item.is_open and end is not None for end in ends]
        is_bounded = any(end is not None for end in ends)
        traits["type"] = NumberRange(*ends, *is_open) if is_bounded else click.FLOAT
    elif inner is datetime:
        traits["type"] = click.DateTime(["%Y-%m-%d"])
    elif inner is Path:
        traits["type"] = _PATHS[item.place]
    if item.flag == "":
        return click.argument(item.name, **{**traits, "metavar": item.option})
    names = item.option.split()
    traits |= {"help": item.flag_help or item.help, "hidden": item.is_hidden}
    if item.type is bool:
        return click.option(
            *names, item.name, is_flag=True, default=item.default, help=traits["help"]
        )
    if item.flag_default is not None:
        traits |= {"default": item.flag_default, "show_default": False}
    elif item.default and isinstance(item.default, str | int | float):
        traits |= {"default": item.default, "show_default": True}
    return click.option(*names, item.name, **traits)


def _names(ctx: click.Context, param: click.Parameter, value: str | None) -> list[str]:
    """Return the names of a comma-separated list; none if the option is absent.

    Raises:
        click.BadParameter: the list contains an empty name.
    """
    names = [] if value is None else [name.strip() for name in value.split(",")]
    if not all(names):
        raise click.BadParameter("The list contains an empty name.")
    return names
