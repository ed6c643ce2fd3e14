"""``remit session``; by hand ``resume``, which talks."""

from __future__ import annotations

from pathlib import Path

import click

from remit.cli.operations import add_commands
from remit.cli.options import common


@click.group()
def session() -> None:
    """Show, resume and cancel recorded conversations."""


add_commands(session)


@session.command()
@click.argument("session_id")
@click.option("--model", help="The model that answers.")
@common
def resume(root: Path | None, session_id: str, model: str | None) -> None:
    """Resume a session and its unfinished turn. The same as `remit chat --session ID`."""
    from remit.cli.chat import run_chat

    run_chat(root, model, session_id)
