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

A verb is one action of Remit, such as `key create`. A door is a way to call a verb: a command, an
HTTP route, a form of the console, or a tool. [The HTTP API](api.md) lists each route's permission;
the command line acts as the operator.

A verb with the effect `changes` can write to the ledger; other verbs only read. The ADMIN agent
and MCP clients use the tools. The *Console* column names the page of [the console](console.md).

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
    everything = list(all_operations())
    rows = [
        (_cell(f"remit {one.command}" if one.command else ""),
         _cell(_shown(one.route) if one.route else ""),
         "changes" if one.changes else "", _cell(_page_of(one.route)),
         ", ".join(map(_cell, one.tools)))
        for one in everything if one.tools or (one.route and (one.command or _page_of(one.route)))
    ]  # fmt: skip
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    alone = [one for one in everything if not one.route and not one.tools]
    changing = [one.command for one in alone if one.changes]
    reading = [one.command for one in alone if not one.changes]
    routes = [_shown(one.route) for one in everything
              if one.route and not (one.command or one.tools or _page_of(one.route))]  # fmt: skip
    commands = sorted(set(_commands(_remit, "")) - {one.command for one in everything})
    assert set(_routes()) == {_shown(one.route) for one in everything if one.route}
    return (
        f"{_HEAD}{table}\n## Other verbs\n\n"
        f"These commands write nothing to the ledger:\n\n{_listed(_grouped(reading))}\n"
        f"These commands can write to the ledger:\n\n{_listed(_grouped(changing))}\n"
        f"These routes have no command of their own:\n\n{_listed(routes)}\n"
        "## Commands without an operation\n\n"
        f"Every route under `/api` has an operation. These {len(commands)} commands have "
        f"no operation:\n\n{_listed(_grouped(commands))}"
    )


def _listed(lines: list[str]) -> str:
    return "\n".join(["```text", *lines, "```", ""])


def _grouped(commands: list[str]) -> list[str]:
    """Return the commands; commands that share all words but the last share a line."""
    groups: dict[str, list[str]] = {}
    for command in commands:
        begin, _, last = command.rpartition(" ")
        groups.setdefault(begin, []).append(last)
    return [f"{begin} {'|'.join(names)}".lstrip() for begin, names in groups.items()]


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
        elif command is not None and not command.hidden:
            yield f"{before}{name}"


def _routes() -> Iterator[str]:
    for path, methods in json.loads((FILES / "openapi.json").read_text())["paths"].items():
        for method in methods:
            if path.startswith("/api/"):
                yield f"{method.upper()} {path}"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
