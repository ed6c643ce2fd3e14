"""``remit ledger``."""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path
from typing import Any

import click

from remit.cli import erasing, proving
from remit.cli.shared import (
    echo_json,
    echo_json_line,
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
    proving.verify, proving.key, proving.checkpoint, proving.prove, proving.export, proving.import_,
    erasing.erase, erasing.retain, erasing.compact,
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
        result = {
            "entries": client.count(),
            "events": client.count_by_event(),
            "head": {"seq": head[0], "entry_hash": head[1]} if head else None,
            "location": client.location,
        }
    if as_json:
        echo_json(result)
        return
    click.echo(f"{result['entries']} entries in {result['location']}")
    for name, number in _by_number(result):
        say(f"  {number:>8}  {name}")


def _by_number(result: dict[str, Any]) -> list[tuple[str, int]]:
    """Event types by falling number."""
    return sorted(result["events"].items(), key=lambda item: (-item[1], item[0]))


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
    if as_json:
        echo_json({"settled": settled, "waiting": waiting})
    else:
        click.echo(f"{len(settled)} settled, {waiting} still within their lease")


_TELLING = {
    "EXCHANGE": ("model_id", "input_tokens", "output_tokens", "cost_usd", "latency_ms"),
}
"""What people look for in a line, where it is not what comes first."""


def _line(entry: Any) -> str:
    told = entry.metadata
    keys = _TELLING.get(entry.event_type) or told
    shown = itertools.islice(
        (f"{key}={_short(told[key])}" for key in keys if _is_plain(told.get(key))),
        len(keys) if entry.event_type in _TELLING else 3,
    )
    text = (
        f"{entry.id}  {entry.timestamp}  {entry.event_type:<18} {entry.reason}  {' '.join(shown)}"
    )
    return text if len(text) <= 2 * _LINE_CHARS else text[: 2 * _LINE_CHARS - 1] + "…"


def _is_plain(value: Any) -> bool:
    return isinstance(value, (str, int, float)) and not isinstance(value, bool) and value != ""


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= _LINE_CHARS // 3 else text[: _LINE_CHARS // 3] + "…"
