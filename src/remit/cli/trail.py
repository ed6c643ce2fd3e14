"""The commands of ``remit trail``, for recorded thoughts."""

from __future__ import annotations

from pathlib import Path
from typing import IO

import click

from remit.cli.operations import add_commands
from remit.cli.shared import (
    FILE,
    common,
    emit,
    note,
    open_ledger,
    reads,
    write_file,
)
from remit.kernel.words import count


@click.group()
def trail() -> None:
    """Show, verify, export and import the recorded thoughts of agents."""


add_commands(trail)


@trail.command()
@click.option("--out", required=True, type=FILE, help="File, or -.")
@click.option("--task", "task_id", help="Only thoughts of this task.")
@common
def export(root: Path | None, out: Path, task_id: str | None) -> None:
    """Export thoughts as JSON Lines."""
    from remit.routing.trail import export_thought_records

    with open_ledger(root) as client, write_file(out) as file:
        number = export_thought_records(client, file, task_id)
    note(f"{count(number, 'thought')} written to {out}.")


@trail.command("import")
@click.argument("source", type=click.File("rb"))
@reads
def import_(root: Path | None, as_json: bool, source: IO[bytes]) -> None:
    """Import JSON lines from a file, or - for standard input.

    Every line and link is checked first; then all thoughts are recorded, or none. In a restored
    ledger, thoughts without a place in a chain get it back.
    """
    from remit.routing.trail import import_thought_records

    with open_ledger(root, signing=True) as client:
        number = import_thought_records(client, source)
    emit(as_json, {"thoughts": number}, [count(number, "thought")])
