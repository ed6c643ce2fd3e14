"""``docs/verbs.md``: every verb and its doors, written from the operations.

``python -m tests.docs.verbs`` writes it again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click

from remit.cli.main import _remit
from remit.operations import operations
from tests.snapshots.refresh import FILES

PAGE = Path("docs/verbs.md")
_HEAD = """\
# Verbs and doors

An operation declares a verb once: its fields, result, permission and effect. The command and the
HTTP route are made from it, so both have one validation and one description. `remit VERB --help`
shows the fields, and `/api/openapi.json` the forms. A permission applies to the route; the command
line acts as the operator.

| Command | Route | Permission | Effect |
|---|---|---|---|
"""


def page() -> str:
    """Return the whole page, in plain Markdown."""
    rows = [
        (f"`remit {one.command}`" if one.command else "-",
         f"`{_shown(one.route)}`" if one.route else "-",
         f"`{one.needs}`" if one.route else "-", "changes" if one.changes else "reads")
        for one in operations()
    ]  # fmt: skip
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    commands = sorted(set(_commands(_remit, "")) - {one.command for one in operations()})
    routes = sorted(set(_routes()) - {_shown(one.route) for one in operations()})
    return (
        f"{_HEAD}{table}\n## Declared by hand\n\n"
        f"These {len(commands)} commands and {len(routes)} routes have no operation.\n\n"
        f"Commands: {', '.join(f'`{name}`' for name in commands)}.\n\n"
        f"Routes: {', '.join(f'`{name}`' for name in routes)}.\n"
    )


def _shown(route: str) -> str:
    return route.replace(" /", " /api/").replace(":path}", "}")


def _commands(group: click.Group, before: str) -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}"


def _routes() -> Iterator[str]:
    for path, methods in json.loads((FILES / "openapi.json").read_text())["paths"].items():
        for method in methods:
            if path.startswith("/api/"):
                yield f"{method.upper()} {path}"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
