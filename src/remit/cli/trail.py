"""The commands of ``remit trail``, for recorded thoughts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from remit.cli.shared import (
    FILE,
    common,
    cut,
    emit,
    indented,
    limited,
    note,
    open_ledger,
    print_json_list,
    progress,
    reads,
    say_list,
    write_file,
)
from remit.kernel.errors import RemitError

if TYPE_CHECKING:
    from remit.routing.trail import ThoughtRecord

_TYPES = ["plan", "analysis", "decision", "reflection"]
_LINE_CHARS = 100


@click.group()
def trail() -> None:
    """Show, verify, export and import the recorded thoughts of agents."""


@trail.command("list")
@click.option("--task", "task_id", help="Only thoughts of this task.")
@limited
@reads
def list_all(root: Path | None, as_json: bool, task_id: str | None, limit: int | None) -> None:
    """List thoughts in the order in which they were recorded."""
    from remit.routing.trail import iter_thought_records

    with open_ledger(root) as client:
        found = iter_thought_records(client, task_id, limit if as_json else None)
        if as_json:
            print_json_list("thoughts", (record.to_dict() for record in found))
        else:
            say_list(map(_line, found), limit)


def _line(record: ThoughtRecord) -> str:
    shown = cut(str(record.content), _LINE_CHARS)
    return f"{record.id}  {record.timestamp}  {record.task_id}  {record.type:<10}  {shown}"


@trail.command()
@click.argument("thought_id")
@reads
def show(root: Path | None, as_json: bool, thought_id: str) -> None:
    """Print one thought in full."""
    from remit.routing.trail import get_thought_record

    with open_ledger(root) as client:
        record = get_thought_record(client, thought_id)
    emit(as_json, record.to_dict(), _lines(record))


@trail.command()
@click.option("--task", "task_id", help="Only the chain of this task.")
@reads
def verify(root: Path | None, as_json: bool, task_id: str | None) -> None:
    """Check the hash of every thought and its link to the one before; exit 1 if one fails."""
    from remit.routing.trail import verify_trail

    with open_ledger(root) as client:
        report = verify_trail(client, task_id, progress=progress("verifying"))
    if task_id is not None and report.verified and not report.records:
        raise RemitError(
            f"The task {task_id!r} has no thoughts.",
            next_step="`remit trail list` lists the thoughts of all tasks.",
        )
    number = report.problem_count
    lines = [f"verified: {report.records} thoughts of {report.tasks} tasks, {report.erased} erased"]
    if not report.verified:
        noun = "problem" if number == 1 else "problems"
        lines = [f"NOT VERIFIED: {number} {noun}; the first bad record is {report.first_bad}"]
        lines += [f"  {problem}" for problem in report.problems]
    emit(as_json, report.to_dict(), lines)
    raise SystemExit(0 if report.verified else 1)


@trail.command()
@click.option("--out", required=True, type=FILE, help="File, or -.")
@click.option("--task", "task_id", help="Only thoughts of this task.")
@common
def export(root: Path | None, out: Path, task_id: str | None) -> None:
    """Export thoughts as JSON Lines."""
    from remit.routing.trail import export_thought_records

    with open_ledger(root) as client, write_file(out) as file:
        count = export_thought_records(client, file, task_id)
    note(f"{count} thoughts written to {out}.")


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
        count = import_thought_records(client, source)
    emit(as_json, {"thoughts": count}, [f"{count} thoughts"])


@trail.command()
@click.option("--task", "task_id", required=True, help="Task whose chain gets the thought.")
@click.option("--type", "kind", required=True, type=click.Choice(_TYPES))
@click.option("--agent", "agent_id", required=True, help="Agent of the thought.")
@click.option("--session", "session_id", default="", help="Session of the thought.")
@click.argument("text")
@reads
def add(root: Path | None, as_json: bool, text: str, kind: Any, **ids: str) -> None:
    """Record a thought."""
    from remit.routing.trail import ThoughtInput, create_thought_record

    with open_ledger(root, signing=True) as client:
        record = create_thought_record(client, ThoughtInput(type=kind, content=text, **ids))
    emit(as_json, record.to_dict(), [record.id])


def _lines(record: ThoughtRecord) -> Iterator[str]:
    for name, value in record.to_dict().items():
        if name not in ("content", "erased"):
            yield f"{name}: {value}"
    yield ""
    yield from indented("", record.content)
