"""``remit ledger``; by hand ``tail``, which follows the ledger."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import click

from remit.cli.operations import add_commands
from remit.cli.shared import (
    echo_json_line,
    open_ledger,
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
                last = int(entry.id[4:], 16)
