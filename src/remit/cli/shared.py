"""What all commands share: options, output, opening a root."""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import orjson

if TYPE_CHECKING:
    from remit.kernel.root import Root
    from remit.kernel.settings import LoadedSettings
    from remit.ledger import LedgerClient

__all__ = [
    "common",
    "echo_json",
    "echo_json_line",
    "note",
    "open_ledger",
    "open_root",
    "open_settings",
    "print_json_list",
    "progress",
    "reads",
    "say",
]

_F = TypeVar("_F", bound=Callable[..., Any])


def common(function: _F) -> _F:
    """``--root`` and ``--debug``."""

    @click.option(
        "--root",
        type=click.Path(path_type=Path, file_okay=False),
        help="The root (default: REMIT_ROOT, else the nearest .remit upwards).",
    )
    @click.option("--debug", is_flag=True, help="Show a traceback when something fails.")
    @functools.wraps(function)
    def wrapper(*args: Any, debug: bool, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception:
            if debug:
                traceback.print_exc()
            raise

    return wrapper  # type: ignore[return-value]


def reads(function: _F) -> _F:
    """``--json`` on top of :func:`common`: for commands that show something."""
    option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    return option(common(function))


def echo_json(value: Any) -> None:
    """One JSON document on standard output."""
    click.echo(_json(value, indent=True))


def echo_json_line(value: Any) -> None:
    """One JSON document on one line."""
    click.echo(_json(value, indent=False))


def print_json_list(key: str, items: Iterable[Any]) -> None:
    """``{"key": [...]}``, written as the items come: memory does not grow with them."""
    click.echo(f'{{"{key}": [', nl=False)
    separator = "\n"
    for item in items:
        click.echo(separator + _json(item, indent=False), nl=False)
        separator = ",\n"
    click.echo("\n]}")


def say(text: str, *, nl: bool = True) -> None:
    """Text of the record, a model, a tool or a user, on standard output.

    A terminal shows it and never obeys it (:func:`remit.views.wording.visible`); what reads
    from a pipe or a file gets it as it is.
    """
    click.echo(_shown(text) if sys.stdout.isatty() else text, nl=nl, color=True)


def note(text: str) -> None:
    """A line for people, on standard error: shown, never obeyed."""
    click.echo(_shown(text), err=True)


def progress(label: str) -> Callable[[int, int], None]:
    """A progress bar on standard error, only where that is a terminal."""
    if not sys.stderr.isatty():
        return lambda done, total: None

    def show(done: int, total: int) -> None:
        share = done / total if total else 1.0
        bar = "#" * int(share * 30)
        end = "\n" if done >= total else ""
        click.echo(f"\r{label} [{bar:<30}] {share:4.0%}{end}", nl=False, err=True)

    return show


def open_settings(root: Path | None) -> tuple[Root, LoadedSettings]:
    """The root that a command means, and its settings."""
    from remit.kernel.root import RootError, find_root
    from remit.kernel.settings import load_settings

    place = find_root(root)
    if not place.exists():
        raise RootError(
            f"There is no root at {place.path}.",
            next_step="Run `remit init`, or name one with --root.",
        )
    return place, load_settings(place.config)


def open_root(root: Path | None) -> tuple[Root, LoadedSettings, LedgerClient]:
    """A root, its settings and its ledger, to mend it: where the installed defaults were changed,
    those that come with Remit are in force."""
    from remit.kernel.installed import ChangedFileError
    from remit.kernel.root import find_root
    from remit.kernel.settings import load_settings
    from remit.ledger import open_root_ledger

    try:
        place, loaded = open_settings(root)
    except ChangedFileError as error:
        place = find_root(root)
        loaded = load_settings(place.config, installed=False)
        note(f"{error.message} Those that come with Remit are used instead.")
    return place, loaded, open_root_ledger(place, loaded.settings.ledger)


def open_ledger(root: Path | None, *, signing: bool = False) -> LedgerClient:
    """The ledger of a root; ``signing`` for commands that write to it."""
    from remit.ledger import open_root_ledger

    place, loaded = open_settings(root)
    return open_root_ledger(place, loaded.settings.ledger, signing=signing)


def _shown(text: str) -> str:
    if text.isprintable():  # most is, and the words' own module is not loaded for it
        return text
    from remit.views.wording import visible

    return visible(text, lines=True)


def _json(value: Any, *, indent: bool) -> str:
    text = _dump(value, indent=indent)
    if not sys.stdout.isatty():
        return text
    from remit.views.wording import visible_json

    return visible_json(text)


def _dump(value: Any, *, indent: bool) -> str:
    option = orjson.OPT_PASSTHROUGH_DATACLASS | (orjson.OPT_INDENT_2 if indent else 0)
    return orjson.dumps(value, default=_plain, option=option).decode()


def _plain(value: Any) -> Any:
    from remit.ledger import Erased, LedgerEntry

    if isinstance(value, Erased):
        return {"$erased": value.erasure_id}
    if isinstance(value, LedgerEntry):
        return value.to_dict()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Path):
        return str(value)
    raise TypeError(type(value).__name__)
