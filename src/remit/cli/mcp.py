"""``remit mcp``: serves Remit over MCP, and manages the pinned tools of MCP servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from remit.cli.mcp_gateway import gateway, greeting, served_root
from remit.cli.mcp_wrap import wrap
from remit.cli.operations import add_commands
from remit.cli.options import common
from remit.cli.serve import flags_of, listening


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
