"""``remit mcp``: serves Remit over MCP, and manages the pinned tools of MCP servers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remit.cli.mcp_gateway import gateway, greeting, served_root
from remit.cli.mcp_wrap import wrap
from remit.cli.operations import add_commands
from remit.cli.serve import flags_of, listening
from remit.cli.shared import (
    common,
    confirm,
    decides,
    echo_json,
    note,
    open_ledger,
    open_settings,
    reads,
    say,
    whoami,
)

if TYPE_CHECKING:
    from remit.agents.tools import PinnedTool


@click.group(invoke_without_command=True)
@click.option("--http", is_flag=True, help="Serve streamable HTTP instead of stdio.")
@listening(4001)
@click.option("--dev", is_flag=True, help="With --http: require no key. Loopback only.")
@common
@click.pass_context
def mcp(
    context: click.Context,
    /,
    root: Path | None,
    http: bool,
    dev: bool,
    model: str | None,
    **given: Any,
) -> None:
    """Serve the trail, the router and the ledger to MCP clients.

    Over stdio, the client that starts this command acts as the local operator. With --http,
    clients authenticate with a key of `remit key create`. The subcommands manage the MCP
    servers that agents use.
    """
    if context.invoked_subcommand is not None:
        if any((root, http, dev, model, *given.values())):
            raise click.UsageError(f"Options go after `{context.invoked_subcommand}`.")
        return
    place = served_root(root, http, dev, given)

    from remit.server.mcp import serve_http, serve_stdio

    if http:
        flags = flags_of("mcp_server", model, given)
        serve_http(place, dev=dev, flags=flags, ready=greeting(dev))
    else:
        serve_stdio(place, model=model)


mcp.add_command(gateway)
mcp.add_command(wrap)
add_commands(mcp)


@mcp.command()
@click.argument("server")
@reads
def diff(root: Path | None, as_json: bool, server: str) -> None:
    """List the tools of a server that differ from their pins; exit 1 if any do.

    The command starts the server as an agent would, and pins tools that are new.
    """
    from remit.agents.tools import McpServer, Pins
    from remit.packages import Registry

    settings = open_settings(root)[1].settings
    with open_ledger(root, signing=True) as client:
        own = Pins(client, Registry.from_ledger(client).permitted_tools)
        with McpServer.configured(server, settings.mcp, own) as running:
            refused = running.refused()
        changed = [tool for tool in own.tools(server) if tool.tool_id in refused]
    if as_json:
        echo_json({"changed": [tool.to_dict() for tool in changed]})
    elif not changed:
        say(f"The tools of {server} match their pins.")
    else:
        _print_changes(changed)
        note(f"\nAccept the changes with `remit mcp accept {server} [TOOL]`.")
    raise SystemExit(1 if changed else 0)


@mcp.command()
@click.argument("server")
@click.argument("tool", required=False, default="")
@decides
def accept(
    root: Path | None, as_json: bool, server: str, tool: str, by: str | None, yes: bool
) -> None:
    """Show and accept changed tools of a server, or one changed TOOL."""
    from remit.agents.tools import Pins

    with open_ledger(root, signing=True) as client:
        own = Pins(client)
        changed = own.changed(server, tool)
        if not as_json:
            _print_changes(changed)
        confirm("Accept these changes?", yes=yes, err=as_json)
        own.accept(changed, by=by or whoami())
    if as_json:
        echo_json({"accepted": [found.to_dict() for found in changed]})
    else:
        for found in changed:
            say(f"accepted {found.tool_id}")


def _print_changes(changed: list[PinnedTool]) -> None:
    for tool in changed:
        say(tool.tool_id)
        for line in tool.diff():
            say(f"  {line}")
