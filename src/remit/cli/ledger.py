"""``remit ledger``, with ``tail`` and ``export --cursor``, which follow the ledger, by hand."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import click

from remit.cli.operations import add_commands
from remit.cli.shared import (
    FILE,
    echo_json_line,
    open_ledger,
    open_settings,
    print_json_list,
    reads,
    say,
)
from remit.operations.ledger import entry_line

_POLL_S = 0.3


@click.group()
def ledger() -> None:
    """Query, verify, prove, move to segments and erase the ledger."""


add_commands(ledger)


def _with_cursor(command: click.Command) -> None:
    """Add the options of a continuous export to ``ledger export``."""
    whole = command.callback
    assert whole is not None

    def export(cursor: Path | None, follow: bool, content: bool, **given: Any) -> None:
        if cursor is None:
            if follow or content:
                raise click.UsageError("--follow and --content require --cursor FILE.")
            whole(**given)
            return
        names = ("session", "order", "action", "span")
        if any(given[name] is not None for name in names):
            raise click.UsageError("With --cursor, all entries are exported.")
        if given["tiles"] or given["format"] not in (None, "jsonl"):
            raise click.UsageError("The output has one format. Leave out --format and --tiles.")
        from remit.cli.cursors import export_by_cursor

        root = given["root"]
        with open_ledger(root, signing=True) as client:
            if given["archives"]:
                client.attach(given["archives"])
            loaded = open_settings(root)[1]
            export_by_cursor(
                client, loaded, cursor, given["target"], follow=follow, content=content
            )

    command.callback = export
    at = next(place for place, one in enumerate(command.params) if one.name == "archives")
    command.params[at:at] = [
        click.Option(["--cursor"], type=FILE, help="Append the records after those of the last "
                     "export with this file, which stores the place."),
        click.Option(["-f", "--follow"], is_flag=True, help="With --cursor: wait for new entries."),
        click.Option(["--content"], is_flag=True,
                     help="With --cursor: add content, without secrets."),
    ]  # fmt: skip


_with_cursor(ledger.commands["export"])


@ledger.command()
@click.option("-n", "number", type=click.IntRange(min=0), default=10, show_default=True)
@click.option(
    "-f", "--follow", is_flag=True, help="Keep printing new entries (with --json, one line each)."
)
@reads
def tail(root: Path | None, as_json: bool, number: int, follow: bool) -> None:
    """Show the latest entries."""
    with open_ledger(root) as client:
        last = client.count() - 1
        first = max(0, last + 1 - number)
        latest = itertools.islice(client.query(after=first - 1), last + 1 - first)
        if as_json and not follow:
            print_json_list("entries", latest)
            return
        show_one = echo_json_line if as_json else lambda entry: say(entry_line(entry))
        for entry in latest:
            show_one(entry)
        while follow:
            time.sleep(_POLL_S)
            for entry in client.query(after=last):
                show_one(entry)
                last = entry.seq
