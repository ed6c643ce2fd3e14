"""``remit package``: installs, upgrades, lists, restores and removes signed packages."""

from __future__ import annotations

from typing import Any

import click

from remit.cli.operations import add_commands
from remit.kernel.extensions import INDEX, load_extension


class _Index(click.Group):
    """The group ``remit package index``, loaded from the distribution ``remit-index``."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **more: Any,
    ) -> click.Context:
        return self._loaded.make_context(info_name, args, parent, **more)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return self._loaded.list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self._loaded.get_command(ctx, cmd_name)

    @property
    def _loaded(self) -> click.Group:
        loaded: click.Group = load_extension(INDEX, "remit.commands", "package.index")
        return loaded


@click.group()
def package() -> None:
    """Manage packages of agents, contracts, prompts and policies."""


_index = _Index(
    "index",
    help="Manage package indexes, which are signed so that no mirror can change a package.",
    short_help=f"Manage signed package indexes (needs {INDEX}).",
)
_trust = click.Group("trust", help="Manage the keys that may sign packages of this root.")
_key = click.Group("key", help="Manage keys that sign packages.")
for _command in (_trust, _key, _index):
    package.add_command(_command)
add_commands(package)


@package.command(
    "diff", hidden=True, context_settings={"ignore_unknown_options": True, "allow_extra_args": True}
)
def _diff() -> None:
    """Name the replacement of a removed command."""
    raise click.UsageError(
        "`remit package diff` was removed. Unpack both versions with `tar xzf`, and compare them "
        "with `diff -r`. `remit package upgrade` names wider permissions."
    )
