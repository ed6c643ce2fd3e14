"""``remit mcp gateway``: puts keys, rules, budgets and the record before other MCP servers."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from remit.cli.options import common
from remit.cli.output import note, say
from remit.cli.serve import DEV_MODE, flags_of, listening

_KEY = "REMIT_KEY"


@click.command()
@click.argument("name", required=False, default="")
@click.option("--http", is_flag=True, help="Serve streamable HTTP instead of stdio.")
@listening(4001, model=False)
@click.option("--dev", is_flag=True, help="With --http: require no key. Loopback only.")
@common
def gateway(root: Path | None, name: str, http: bool, dev: bool, **given: Any) -> None:
    """Serve the configured MCP servers; authorise, bill and record every call.

    Over stdio, serve the server NAME of [mcp.NAME]. The client that starts this command acts with
    the key in REMIT_KEY, else as the local operator. With --http, serve every server at /mcp/NAME;
    clients authenticate with a key of `remit key create`.
    """
    if http == bool(name):
        raise click.UsageError("Give the NAME of one MCP server, or serve all with --http.")
    place = served_root(root, http, dev, given)

    from remit.server.mcp import serve_http, serve_stdio

    if http:
        flags = flags_of("mcp_server", None, given)
        serve_http(place, dev=dev, flags=flags, ready=greeting(dev), gateway=True)
    else:
        serve_stdio(place, upstream=name, key=os.environ.pop(_KEY, ""))


def served_root(root: Path | None, http: bool, dev: bool, given: dict[str, Any]) -> Path:
    """Return the path of the root to serve.

    Args:
        root: the directory; None for the nearest root.
        http: True for a server over HTTP.
        dev: True if clients need no key, which only a server over HTTP can permit.
        given: host and port; None for values that were not given.

    Raises:
        click.UsageError: an option of ``--http`` was given without ``--http``.
        RemitError: the root does not exist.
    """
    from remit.kernel.root import find_root

    if not http and (dev or any(value is not None for value in given.values())):
        raise click.UsageError("--host, --port and --dev require --http.")
    return find_root(root).require().path.resolve()


def greeting(dev: bool) -> Callable[[str], None]:
    """Return a function that prints the server's URL and how clients authenticate."""

    def ready(url: str) -> None:
        say(f"Remit serves MCP at {url}")
        key = "  Clients send a key: Authorization: Bearer sk-remit-…  (`remit key create`)"
        note(DEV_MODE if dev else key)

    return ready
