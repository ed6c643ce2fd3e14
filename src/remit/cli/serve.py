"""``remit serve``: the gateway as an HTTP server."""

from __future__ import annotations

from pathlib import Path

import click

from remit.cli.shared import common, note

__all__ = ["serve"]


@click.command()
@click.option("--host", default=None, help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), default=None,
              help="Port; 0 takes one that is free.  [default: 4000]")  # fmt: skip
@click.option("--workers", type=click.IntRange(1), default=None, help="Processes that answer.")
@click.option("--model", default=None, help="Which model answers by default.")
@click.option("--dev", is_flag=True, help="Ask nobody for a key. On loopback only.")
@common
def serve(
    root: Path | None,
    host: str | None,
    port: int | None,
    workers: int | None,
    model: str | None,
    dev: bool,
) -> None:
    """Answer OpenAI and Anthropic clients: every call authenticated, budgeted, on record.

    Point a client at http://HOST:PORT/v1 (OpenAI) or http://HOST:PORT (Anthropic), with a key
    of `remit key create`.
    """
    from remit.kernel.root import find_root
    from remit.server import serve as run

    place = find_root(root).require()
    given = {"server.host": host, "server.port": port, "server.workers": workers,
             "model.default": model}  # fmt: skip
    flags = {key: value for key, value in given.items() if value is not None}

    def ready(url: str) -> None:
        click.echo(f"Remit listens on {url}")
        note(f"  OpenAI clients: base_url={url}/v1   Anthropic clients: base_url={url}")
        if dev:
            note("  DEV MODE: nobody is asked for a key. Do not use it for anything real.")

    run(place.path.resolve(), dev=dev, flags=flags, ready=ready)
