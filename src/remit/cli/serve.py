"""``remit serve`` and ``remit mcp``: Remit as a server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from remit.cli.shared import common, note, whoami

_DEV_MODE = "  DEV MODE: no key is needed. Do not use it for anything real."


def _listening(port: int) -> Callable[[Any], Any]:
    """The options of a command that listens, at ``port`` by default."""

    def decorate(function: Any) -> Any:
        for option in (
            click.option("--model", help="Which model answers by default."),
            click.option("--port", type=click.IntRange(0, 65535),
                         help=f"Port; 0 takes one that is free.  [default: {port}]"),
            click.option("--host", help="Address to listen on.  [default: 127.0.0.1]"),
        ):  # fmt: skip
            function = option(function)
        return function

    return decorate


@click.command()
@_listening(4000)
@click.option("--workers", type=click.IntRange(1), help="Processes that answer.")
@click.option("--dev", is_flag=True, help="Need no key. On loopback only.")
@common
def serve(root: Path | None, dev: bool, model: str | None, **given: Any) -> None:
    """Answer OpenAI and Anthropic clients: every call authenticated, budgeted, on record.

    Point a client at http://HOST:PORT/v1 (OpenAI) or http://HOST:PORT (Anthropic), with a key
    of `remit key create`.
    """
    from remit.kernel.root import find_root
    from remit.server import serve as run

    def ready(url: str) -> None:
        click.echo(f"Remit listens on {url}")
        note(f"  OpenAI clients: base_url={url}/v1   Anthropic clients: base_url={url}")
        if dev:
            note(_DEV_MODE)

    place = find_root(root).require().path.resolve()
    run(place, dev=dev, flags=_flags("server", model, given), ready=ready, by=whoami())


@click.command()
@click.option("--http", is_flag=True, help="Listen for streamable HTTP, instead of stdio.")
@_listening(4001)
@click.option("--dev", is_flag=True, help="With --http: need no key. On loopback only.")
@common
def mcp(root: Path | None, http: bool, dev: bool, model: str | None, **given: Any) -> None:
    """Offer thoughts, the router and the record to MCP clients.

    Over stdio for a client that starts it, which then acts as the local operator; with --http
    for clients that come with a key of `remit key create`.
    """
    from remit.kernel.root import find_root

    flags = _flags("mcp_server", model, given)
    if not http and (dev or flags.keys() - {"model.default"}):
        raise click.UsageError("--host, --port and --dev go with --http.")
    place = find_root(root).require().path.resolve()

    from remit.server.mcp import serve_http, serve_stdio

    def ready(url: str) -> None:
        click.echo(f"Remit speaks MCP at {url}")
        key = "  Clients send a key: Authorization: Bearer sk-remit-…  (`remit key create`)"
        note(_DEV_MODE if dev else key)

    if http:
        serve_http(place, dev=dev, flags=flags, ready=ready)
    else:
        serve_stdio(place, model=model)


def _flags(section: str, model: str | None, given: dict[str, Any]) -> dict[str, Any]:
    """Options that were given, as settings by dotted key."""
    flags = {"model.default": model} | {f"{section}.{name}": given[name] for name in given}
    return {name: value for name, value in flags.items() if value is not None}
