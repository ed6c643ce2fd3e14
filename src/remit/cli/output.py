"""Output of commands: JSON, lines, tables, notes and progress."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

import click
import orjson

from remit.kernel.json_text import dump
from remit.kernel.message_text import cut

LISTED = 50
"""Number of lines of a list without ``--limit``."""
_ESTIMATE_AFTER_S = 2
_NARROWEST = 8  # columns of a table that still tell something
_VALUE = re.compile(r"(?=.*\d|-?$).{0,24}$")  # a cell that is not cut
_has_open_bar = False  # whether the last line is a progress bar that has not ended
_raw = False  # whether the running command was given --raw


def echo_json(value: Any, *, indent: bool = True) -> None:
    """Print a JSON document on standard output, indented or on one line."""
    click.echo(_json(value, indent=indent))


def print_json_list(key: str, items: Iterable[Any], rest: Mapping[str, Any] | None = None) -> None:
    """Print a JSON object with a list, item by item, in constant memory.

    Args:
        key: member that holds the items.
        items: the items; errors of reading them are raised after the first are printed.
        rest: the other members, which come first.
    """
    click.echo("{", nl=False)
    for name, value in (rest or {}).items():
        click.echo(f'"{name}": {_json(value, indent=False)},')
    click.echo(f'"{key}": [', nl=False)
    separator = "\n"
    for item in items:
        click.echo(separator + _json(item, indent=False), nl=False)
        separator = ",\n"
    click.echo("\n]}")


def emit(as_json: bool, value: Any, lines: Iterable[str]) -> None:
    """Print ``value`` as a JSON document if ``as_json``, or else the lines for people."""
    if as_json:
        echo_json(value)
        return
    for line in lines:
        say(line)


def say_list(lines: Iterable[str], most: int) -> None:
    """Print at most ``most`` lines, and a note if more exist."""
    left = iter(lines)
    for line in itertools.islice(left, most):
        say(line)
    if next(left, None) is not None:
        note(f"Only the first {most} are shown; raise --limit to see more.")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, indent: int = 0) -> Iterator[str]:
    """Yield the lines of a table, with columns as wide as their content.

    A line and its ``indent`` fit into :func:`line_width`: the widest texts after the first are
    cut, and the last columns are left out if even short ones need more room. A line below the
    table names these. A pipe or a file receives every text whole, on one line.

    Args:
        heads: heads of the columns; the widths are those of all rows, which are read first.
        rows: the cells of each row, as many as heads.
        indent: columns that the caller prints before each line.
    """
    lines = [heads, *(list(map(one_line, row)) for row in rows)]
    room = line_width(sys.stdout) - indent
    widths = _fitted([*zip(*lines, strict=True)], room)
    for line in lines:
        cells = (
            cell if len(cell) <= width else f"{cell[: width - 1]}…"
            for cell, width in zip(line, widths, strict=False)
        )
        yield "  ".join(map(str.ljust, cells, widths)).rstrip()
    if left_out := [head for head in heads[len(widths) :] if head]:
        yield cut(f"(--json also shows {', '.join(left_out)})", room)


def _fitted(columns: list[Sequence[str]], room: int) -> list[int]:
    """Return the widths of the first columns that fit into a line of ``room`` characters.

    Short cells that all have a digit, such as ids, amounts and times, are not cut.
    """
    found, narrow = [], []
    for head, *cells in columns:
        values = max(map(len, cells), default=0)
        is_text = not all(map(_VALUE.match, cells))
        found.append(max(len(head), values))
        least = _NARROWEST if is_text else max(values, min(len(head), _NARROWEST))
        narrow.append(min(found[-1], least) if found[1:] else found[0])
    while len(narrow) > 1 and sum(narrow) + 2 * (len(narrow) - 1) > room:
        narrow.pop()
    del found[len(narrow) :]
    while sum(found) + 2 * (len(found) - 1) > room:
        places = enumerate(zip(found, narrow, strict=True))
        *_, place = max((at > 0, wide > least, wide, at) for at, (wide, least) in places)
        found[place] -= 1
    return found


def line_width(stream: IO[str]) -> int:
    """Return the columns of a terminal, which ``COLUMNS`` replaces; a pipe or file has no bound."""
    return shutil.get_terminal_size().columns if stream.isatty() else sys.maxsize


def _wrapped(text: str, stream: IO[str]) -> str:
    """Return a text whose long lines are wrapped to an output, with the rest indented."""
    width, lines = line_width(stream), text.split("\n")
    if is_raw() or max(map(len, lines)) <= width:
        return text
    from textwrap import fill

    return "\n".join(
        fill(line, max(width, _NARROWEST), expand_tabs=False, replace_whitespace=False,
             break_long_words=False, break_on_hyphens=False,
             subsequent_indent=" " * (len(line) - len(line.lstrip(" ")) + 4))
        for line in lines
    )  # fmt: skip


def one_line(text: str) -> str:
    """Return a text without line ends, so that no recorded text looks like a line of its own."""
    return text if text.isprintable() else " ".join(text.splitlines())


def printable(text: str) -> str:
    """Return a text as commands print it; tabs and line ends stay.

    Control characters, text direction and unpaired surrogates are written out, such as ``\\x1b``
    (:func:`remit.views.wording.visible`). With ``--raw`` the text stays as it is.
    """
    if text.isprintable() or is_raw():  # most texts are, and need no import
        return text
    from remit.views.wording import visible

    return visible(text, lines=True)


def is_raw() -> bool:
    """Return True if the running command was given ``--raw``."""
    return _raw


def set_raw(raw: bool) -> None:
    """Print recorded text unchanged from now on, or no longer.

    Args:
        raw: True if the running command was given ``--raw``.
    """
    global _raw
    _raw = raw


def say(line: str) -> None:
    """Print one line on standard output, wrapped on a terminal; line ends become spaces."""
    say_text(line if is_raw() else _wrapped(printable(one_line(line)), sys.stdout))


def say_text(text: str, *, nl: bool = True) -> None:
    """Print a text of several lines on standard output, such as a model's answer."""
    click.echo(printable(text), nl=nl, color=True)


def note(text: str, colour: str = "") -> None:
    """Print a message for people on standard error.

    Lines after the first are indented: no quoted text looks like a message of its own.

    Args:
        text: the message.
        colour: a colour of :func:`click.style`, used on a terminal unless people want none.
    """
    end_bar()
    first = len(text) - len(text.lstrip("\n"))
    text = text[:first] + text[first:].replace("\n", "\n    ")
    text = _wrapped(printable(text), sys.stderr)
    if colour and sys.stderr.isatty() and not no_colour():
        text = click.style(text, fg=colour)
    click.echo(text, err=True)


def no_colour() -> bool:
    """Return True if the user (https://no-color.org) or the terminal rules out colours."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def screen() -> tuple[int, bool]:
    """Return the columns of standard output, 120 without a terminal, and True if it has colours."""
    colour = sys.stdout.isatty() and not no_colour()
    return shutil.get_terminal_size((120, 24)).columns, colour


def progress(label: str) -> Callable[[int, int], None]:
    """Show a progress bar on standard error, and return the function that updates the bar.

    The function takes the number of done and of all items, and also shows the remaining time. If
    all are done, the line ends; else :func:`end_bar` ends it. Nothing is shown without a terminal.
    """
    if not sys.stderr.isatty():
        return lambda done, total: None
    began, shown = time.monotonic(), ""

    def show(done: int, total: int) -> None:
        nonlocal shown
        global _has_open_bar
        percent = 100 * done // total if total else 100
        line = f"{label} [{'#' * (percent * 30 // 100):<30}] {percent:3}%"
        passed = time.monotonic() - began
        if passed > _ESTIMATE_AFTER_S and 0 < done < total:
            line += f", about {passed * (total - done) / done:.0f} s left"
        if line != shown:
            shown = line
            _has_open_bar = done < total
            end = "" if _has_open_bar else "\n"
            click.echo(f"\r\x1b[K{printable(line)}{end}", nl=False, err=True)

    show(0, 1)
    return show


def end_bar() -> None:
    """End the line of a progress bar whose work ended early, such as by a budget or an error."""
    global _has_open_bar
    if _has_open_bar:
        _has_open_bar = False
        click.echo(err=True)


def show_step(name: str) -> None:
    """Show the running step on standard error, if on a terminal; ``close`` clears the line."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{printable(name[:76]) if name != 'close' else ''}", nl=False, err=True)


def _json(value: Any, *, indent: bool) -> str:
    text = _dump(value, indent=indent)
    if is_raw() or (text.isascii() and "\x7f" not in text):
        return text
    from remit.views.wording import visible_json

    return visible_json(text)


def _dump(value: Any, *, indent: bool) -> str:
    from remit.operations import json_data  # much to import, for commands that print no JSON

    option = orjson.OPT_PASSTHROUGH_DATACLASS | (orjson.OPT_INDENT_2 if indent else 0)
    return dump(value, json_data, option).decode()
