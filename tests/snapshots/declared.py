"""The interfaces that the code declares: commands, endpoints, events, errors, settings."""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

import remit
from remit.cli.main import _remit
from remit.kernel.errors import InvalidInputError, RemitError
from remit.kernel.settings import describe
from remit.ledger import EVENTS
from tests.support.commands import run_remit
from tests.support.roots import new_root
from tools.site.document import document

__all__ = ["as_json", "commands", "declared"]

SOURCE = Path(remit.__file__).parent
WIDTH = 100  # of a help text, as a terminal's own width would change it, and of a line of JSON


def declared(place: Path) -> dict[str, str]:
    """Return the snapshots of what is declared, by file name; a root is made below ``place``."""
    return {
        **_help_texts(),
        "openapi.json": as_json(json.loads(document())),
        "events.json": as_json(
            {
                event.name: {"always": sorted(event.keys), "sometimes": sorted(event.optional)}
                for event in EVENTS.values()
            }
        ),
        "errors.json": as_json({"exit codes": _exit_codes(), "HTTP": _http_codes()}),
        "settings.txt": _settings(place),
    }


def as_json(value: Any, margin: str = "") -> str:
    """Return JSON text that a person can compare: what fits on a line stands on one."""
    line = json.dumps(value, sort_keys=True, ensure_ascii=False)
    if not isinstance(value, dict | list) or len(margin) + len(line) < WIDTH:
        return line if margin else f"{line}\n"
    inner = f"{margin} "
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {as_json(value[key], inner)}" for key in sorted(value)]
    else:
        parts = [as_json(each, inner) for each in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    text = f"{opening}\n{inner}" + f",\n{inner}".join(parts) + f"\n{margin}{closing}"
    return text if margin else f"{text}\n"


def commands(
    command: click.Command = _remit, path: tuple[str, ...] = ("remit",)
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command, groups included, with its path."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None, name
            yield from commands(found, (*path, name))


def _help_texts() -> dict[str, str]:
    """Return a file for ``remit`` and for each command below it, subcommands included."""
    files: dict[str, str] = {}
    for path, command in commands():
        context = None
        for at, name in enumerate(path):
            more = _remit.context_settings if at == 0 else {}
            options: Any = {"max_content_width": WIDTH, "terminal_width": WIDTH, **more}
            here = command if at == len(path) - 1 else click.Group()  # a group has no arguments
            context = click.Context(here, parent=context, info_name=name, **options)
        assert context is not None
        lines = [line.rstrip() for line in command.get_help(context).splitlines()]
        name = f"help/{path[1] if len(path) > 1 else 'remit'}.txt"
        files[name] = files.get(name, "") + "\n".join([f"# {' '.join(path)} --help", *lines, "\n"])
    return files


def _exit_codes() -> dict[str, int]:
    """Return the exit code of the command line for each class of error."""
    for module in pkgutil.walk_packages([str(SOURCE)], "remit."):
        if not module.name.startswith("remit.assets") and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    classes: list[type[RemitError]] = [RemitError]
    for each in classes:
        classes += [one for one in each.__subclasses__() if one not in classes]
    return {
        each.__name__: 2 if issubclass(each, InvalidInputError) else 1
        for each in classes
        if each.__module__.startswith("remit.")
    }


def _http_codes() -> dict[str, list[int]]:
    """Return the statuses with which the server answers each code, as its source states them."""
    found: dict[str, set[int]] = {}
    for path in (SOURCE / "server").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            pairs: list[Any] = []
            if isinstance(node, ast.Call):  # HttpError(404, "not_found", …)
                pairs = [tuple(node.args[1::-1])]
            elif isinstance(node, ast.Dict):  # {"NOT_FOUND": 404}
                pairs = list(zip(node.keys, node.values, strict=True))
            for pair in pairs:
                match pair:
                    case (ast.Constant(value=str(code)), ast.Constant(value=int(status))):
                        if 400 <= status < 600:
                            found.setdefault(code, set()).add(status)
    return {code: sorted(statuses) for code, statuses in found.items()}


def _settings(place: Path) -> str:
    """Return each setting of a new root with its default and its meaning."""
    root = new_root(place / "settings")
    (root / "remit.toml").write_text("")
    shown = run_remit("config", "show", "--root", root, "--json")
    values = {row["key"]: row["value"] for row in json.loads(shown.stdout)["settings"]}
    meanings = describe()
    lines = []
    for key in sorted({*values, *meanings}):
        default = f" = {json.dumps(values[key])}" if key in values else ""
        lines += [key + default.replace(str(root), "<root>"), f"    {meanings.get(key, '')}"]
    return "\n".join(line for line in lines if line.strip()) + "\n"
