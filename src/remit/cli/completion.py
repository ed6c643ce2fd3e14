"""``remit completion``: prints the script with which a shell completes ``remit`` on Tab."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from remit.cli.output import say_text


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash:  remit completion bash >> ~/.bashrc
    zsh:   remit completion zsh >> ~/.zshrc
    fish:  remit completion fish > ~/.config/fish/completions/remit.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None  # Click itself defines each of the shells.
    say_text(kind(ctx.find_root().command, {}, "remit", "_REMIT_COMPLETE").source())
