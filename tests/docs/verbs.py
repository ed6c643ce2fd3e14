"""``docs/verbs.md``: every verb and its doors, written from the operations.

``python -m tests.docs.verbs`` writes it again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click

from remit.cli.main import _remit
from remit.runtime.operations import all_operations
from tests.snapshots.refresh import FILES

PAGE = Path("docs/verbs.md")
_HEAD = """\
# Verbs and doors

An operation declares a verb once: its fields, result, permission and effect. The command and the
HTTP route are made from it, so both have one validation and one description. `remit VERB --help`
shows the fields, and `/api/openapi.json` the forms. [The HTTP API](api.md) names the permission of
each route; the command line acts as the operator.

The console shows or changes the same on the named page. The named tools of the agent ADMIN and of
MCP clients answer the same question. An empty cell means that the verb has no such door.

| Command | Route | Effect | Console | Tools |
|---|---|---|---|---|
"""
_PAGES = {
    "/keys": "/console/keys", "/users": "/console/keys", "/teams": "/console/keys",
    "/organisations": "/console/keys", "/budgets": "/console/keys", "/usage": "/console/spend",
    "/ledger/entries": "/console/calls", "/ledger/checkpoint": "/console/verify",
    "/approvals": "/console/approvals", "/learn/proposals": "/console/proposals",
}  # fmt: skip
_CONSOLE = Path("src/remit/server/console")


def page() -> str:
    """Return the whole page, in plain Markdown."""
    rows = [
        (_cell(f"remit {one.command}" if one.command else ""),
         _cell(_shown(one.route) if one.route else ""),
         "changes" if one.changes else "reads", _cell(_page_of(one.route)),
         ", ".join(map(_cell, one.tools)))
        for one in all_operations()
    ]  # fmt: skip
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    commands = sorted(set(_commands(_remit, "")) - {one.command for one in all_operations()})
    assert set(_routes()) == {_shown(one.route) for one in all_operations() if one.route}
    return (
        f"{_HEAD}{table}\n## Declared by hand\n\n"
        f"Every route under `/api` has an operation. These {len(commands)} commands have none.\n\n"
        f"{', '.join(f'`{name}`' for name in commands)}.\n"
    )


def _cell(name: str | None) -> str:
    return f"`{name}`" if name else ""


def _page_of(route: str) -> str | None:
    """Return the console's page of a route, if the console has that page."""
    path = route.partition(" ")[2]
    found = next((page for begin, page in _PAGES.items() if path.startswith(begin)), None)
    pages = "".join(file.read_text("utf-8") for file in _CONSOLE.glob("*.py"))
    return found if f'"{found}"' in pages else None


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
