"""``remit mcp``: Remit as an MCP server."""

from __future__ import annotations

from pathlib import Path

import click

from remit.cli.shared import common, note

__all__ = ["mcp"]


@click.command()
@click.option("--http", is_flag=True, help="Listen for streamable HTTP, instead of stdio.")
@click.option("--host", default=None, help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), default=None,
              help="Port; 0 takes one that is free.  [default: 4001]")  # fmt: skip
@click.option("--model", default=None, help="Which model answers by default.")
@click.option("--dev", is_flag=True, help="With --http: ask nobody for a key. On loopback only.")
@common
def mcp(
    root: Path | None,
    http: bool,
    host: str | None,
    port: int | None,
    model: str | None,
    dev: bool,
) -> None:
    """Offer thoughts, the router and the record to MCP clients.

    Over stdio for a client that starts it, which then acts as the local operator; with --http
    for clients that come with a key of `remit key create`.
    """
    from remit.kernel.root import find_root

    if not http and (dev or host is not None or port is not None):
        raise click.UsageError("--host, --port and --dev go with --http.")
    path = find_root(root).require().path.resolve()
    if not http:
        from remit.server.mcp import serve_stdio

        serve_stdio(path, model=model)
        return
    given = {"mcp_server.host": host, "mcp_server.port": port, "model.default": model}
    flags = {key: value for key, value in given.items() if value is not None}

    def ready(url: str) -> None:
        click.echo(f"Remit speaks MCP at {url}")
        if dev:
            note("  DEV MODE: nobody is asked for a key. Do not use it for anything real.")
        else:
            note("  Clients send a key: Authorization: Bearer sk-remit-…  (`remit key create`)")

    from remit.server.mcp import serve_http

    serve_http(path, dev=dev, flags=flags, ready=ready)
