"""The command ``remit serve``, and options shared with ``remit mcp``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from remit.cli.options import common
from remit.cli.output import note, say
from remit.cli.roots import whoami

DEV_MODE = "  DEV MODE: requests need no key. Do not use this mode in production."


def listening(port: int, *, model: bool = True) -> Callable[[Any], Any]:
    """Return a decorator that adds ``--host`` and ``--port`` to a command; None if not given.

    Args:
        port: the default port, as the help names it.
        model: True to add ``--model``.
    """

    def decorate(function: Any) -> Any:
        if model:
            function = click.option("--model", help="Default model.")(function)
        for option in (
            click.option("--port", type=click.IntRange(0, 65535),
                         help=f"Port; 0 chooses a free one.  [default: {port}]"),
            click.option("--host", help="Address to listen on.  [default: 127.0.0.1]"),
        ):  # fmt: skip
            function = option(function)
        return function

    return decorate


@click.command()
@listening(4000)
@click.option("--workers", type=click.IntRange(1), help="Number of server processes.")
@click.option("--dev", is_flag=True, help="Require no key. Loopback only.")
@common
def serve(root: Path | None, dev: bool, model: str | None, **given: Any) -> None:
    """Serve OpenAI and Anthropic clients.

    The server authenticates, budgets and records every call. Point a client at
    http://HOST:PORT/v1 (OpenAI) or http://HOST:PORT (Anthropic), with a key of
    `remit key create`.
    """
    from remit.kernel.root import find_root
    from remit.server import serve as run

    def ready(url: str) -> None:
        say(f"Remit listens on {url}")
        note(f"  Console: {url}/")
        note(f"  OpenAI clients: base_url={url}/v1   Anthropic clients: base_url={url}")
        if dev:
            note(DEV_MODE)
        if not _has_provider(place):
            note("  No provider has a key or a base URL, so only the local model can answer. Run")
            note("  `remit setup`, or set ANTHROPIC_API_KEY or OPENAI_API_KEY and start again.")

    place = find_root(root).require().path.resolve()
    run(place, dev=dev, flags=flags_of("server", model, given), ready=ready, by=whoami())


def _has_provider(place: Path) -> bool:
    """Return True if a provider other than the local model is configured."""
    from remit.kernel.root import Root
    from remit.kernel.settings import load_settings
    from remit.runtime import resolve_model

    providers, _, _ = resolve_model(load_settings(Root(place).config).settings)
    return bool(providers.configured)


def flags_of(section: str, model: str | None, given: dict[str, Any]) -> dict[str, Any]:
    """Return the given options as settings by dotted key; absent options are left out."""
    flags = {"model.default": model} | {f"{section}.{name}": given[name] for name in given}
    return {name: value for name, value in flags.items() if value is not None}
