"""``remit ledger``."""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path
from typing import Any

import click

from remit.cli import erasure, proofs
from remit.cli.shared import (
    cut,
    echo_json,
    echo_json_line,
    emit,
    open_ledger,
    open_settings,
    print_json_list,
    progress,
    reads,
    say,
)

# fmt: off
_FILTERS = ("event-type", "submission-id", "session-id", "work-order-id", "agent-id", "tier",
            "framework-id", "contract-id", "model-id", "outcome", "since", "until", "after")
# fmt: on
_LINE_CHARS = 100
_FOLLOW_S = 0.3


@click.group()
def ledger() -> None:
    """Read, verify, prove, erase: the record."""


for _command in (
    proofs.verify, proofs.key, proofs.checkpoint, proofs.prove, proofs.export, proofs.import_,
    erasure.erase, erasure.retain, erasure.compact,
):  # fmt: skip
    ledger.add_command(_command)


def _filters(function: Any) -> Any:
    for name in reversed(_FILTERS):
        function = click.option(f"--{name}", help=f"Only this {name.replace('-', ' ')}.")(function)
    return function


@ledger.command()
@_filters
@click.option("--text", help='Words that its content holds; "a phrase" in double quotes.')
@click.option("--limit", type=click.IntRange(min=0), help="Most entries.")
@click.option("--order", type=click.Choice(["asc", "desc"]), default="asc", show_default=True)
@reads
def query(root: Path | None, as_json: bool, **filters: Any) -> None:
    """Entries that match all that is given, in ledger order."""
    with open_ledger(root) as client:
        if filters["text"] is not None:
            client.index_text(progress("indexing"))
        found = client.query(**filters)
        if as_json:
            print_json_list("entries", found)
        else:
            for entry in found:
                say(_line(entry))


@ledger.command()
@click.argument("entry_id")
@click.option("--record", is_flag=True, help="Write the canonical record's exact bytes.")
@reads
def show(root: Path | None, as_json: bool, entry_id: str, record: bool) -> None:
    """One entry, its content in place."""
    with open_ledger(root) as client:
        if record:
            exact = client.read_record(entry_id)
            if sys.stdout.isatty():
                say(exact.decode(), nl=False)
            else:
                click.echo(exact, nl=False)
            return
        entry = client.read(entry_id)
        if as_json:
            echo_json(entry)
            return
        for key, value in entry.to_dict().items():
            if key != "metadata":
                say(f"{key}: {value}")
        for key, value in entry.metadata.items():
            say(f"  {key}: {value}")


@ledger.command()
@click.option("-n", "number", type=click.IntRange(min=0), default=10, show_default=True)
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes (JSON: a line each).")
@reads
def tail(root: Path | None, as_json: bool, number: int, follow: bool) -> None:
    """The latest entries."""
    with open_ledger(root) as client:
        last = client.count() - 1
        first = max(0, last + 1 - number)
        latest = itertools.islice(client.query(after=first - 1), last + 1 - first)
        if as_json and not follow:
            print_json_list("entries", latest)
            return
        show_one = echo_json_line if as_json else lambda entry: say(_line(entry))
        for entry in latest:
            show_one(entry)
        while follow:
            time.sleep(_FOLLOW_S)
            for entry in client.query(after=last):
                show_one(entry)
                last = int(entry.id[4:], 16)


@ledger.command()
@reads
def stats(root: Path | None, as_json: bool) -> None:
    """How many entries of which kind."""
    with open_ledger(root) as client:
        head = client.head()
        result: dict[str, Any] = {
            "entries": client.count(),
            "events": client.count_by_event(),
            "head": {"seq": head[0], "entry_hash": head[1]} if head else None,
            "location": client.location,
        }
    events: list[tuple[str, int]] = sorted(
        result["events"].items(), key=lambda item: (-item[1], item[0])
    )
    lines = [f"{result['entries']} entries in {result['location']}"]
    emit(as_json, result, lines + [f"  {number:>8}  {name}" for name, number in events])


@ledger.command()
@reads
def recover(root: Path | None, as_json: bool) -> None:
    """Settle calls whose process died before their answer was on record."""
    from remit.gateway import InFlightCalls
    from remit.gateway.budget import TokenBudgeter

    _, loaded = open_settings(root)
    with open_ledger(root) as client:
        calls = InFlightCalls(client, TokenBudgeter(client), charging=True)
        settled = calls.recover(loaded.settings.gateway.orphan_policy)
        waiting = calls.count()
    line = f"{len(settled)} settled, {waiting} still within their lease"
    emit(as_json, {"settled": settled, "waiting": waiting}, [line])


_SHOWN = {
    "EXCHANGE": ("model_id", "input_tokens", "output_tokens", "cost_usd", "latency_ms"),
}
"""The metadata that a line shows, where it is not what comes first."""


def _line(entry: Any) -> str:
    metadata = entry.metadata
    keys = _SHOWN.get(entry.event_type) or metadata
    plain = (key for key in keys if _is_plain(metadata.get(key)))
    most = len(keys) if entry.event_type in _SHOWN else 3
    shown = [
        f"{key}={cut(str(metadata[key]), _LINE_CHARS // 3)}"
        for key in itertools.islice(plain, most)
    ]
    text = (
        f"{entry.id}  {entry.timestamp}  {entry.event_type:<18} {entry.reason}  {' '.join(shown)}"
    )
    return text if len(text) <= 2 * _LINE_CHARS else text[: 2 * _LINE_CHARS - 1] + "…"


def _is_plain(value: Any) -> bool:
    return isinstance(value, (str, int, float)) and not isinstance(value, bool) and value != ""
