"""``remit ledger``: reads the record and erases content."""

from __future__ import annotations

import itertools
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remit.cli import proofs, segments
from remit.cli.segments import attached, from_archive, require_archive, say_archived
from remit.cli.shared import (
    common,
    cut,
    echo_json,
    echo_json_line,
    emit,
    is_raw,
    limited,
    nearest,
    note,
    open_ledger,
    open_settings,
    print_json_list,
    progress,
    reads,
    say,
    say_list,
    say_text,
    whoami,
)
from remit.kernel.errors import InvalidInputError

if TYPE_CHECKING:
    from remit.ledger import ErasureReport, LedgerClient

# fmt: off
_FILTERS = ("event-type", "submission-id", "session-id", "work-order-id", "agent-id", "tier",
            "framework-id", "contract-id", "model-id", "outcome", "since", "until", "after")
# fmt: on
_LINE_CHARS = 100
_POLL_S = 0.3


@click.group()
def ledger() -> None:
    """Query, verify, prove, move to segments and erase the ledger."""


for _command in (
    proofs.verify, proofs.key, proofs.checkpoint, proofs.fork, proofs.prove, proofs.export,
    proofs.import_, segments.segment, segments.archive,
):  # fmt: skip
    ledger.add_command(_command)


_RANGES = {
    "since": "Only entries at or after this time.",
    "until": "Only entries before this time.",
    "after": "Only entries after this entry id.",
}


def _filters(function: Any) -> Any:
    for name in reversed(_FILTERS):
        meaning = _RANGES.get(name, f"Only entries with this {name.replace('-', ' ')}.")
        function = click.option(f"--{name}", help=meaning)(function)
    return function


@ledger.command()
@_filters
@click.option("--text", help='Words or a "phrase" that the content contains.')
@limited
@click.option("--order", type=click.Choice(["asc", "desc"]), default="asc", show_default=True)
@from_archive
@reads
def query(root: Path | None, as_json: bool, archives: tuple[Path, ...], **filters: Any) -> None:
    """List entries that match all filters, in ledger order."""
    with attached(root, archives) as client:
        _check_event_type(client, filters["event_type"])
        if filters["text"] is not None:
            client.index_text(progress("indexing"))
        limit = filters.pop("limit")
        # A list for people ends by itself, and says that there is more.
        found = client.query(limit=limit if as_json else None, **filters)
        if as_json:
            print_json_list("entries", found)
        else:
            say_list(map(_line, found), limit)
        if not archives and not as_json:
            say_archived(client)


def _check_event_type(client: LedgerClient, event_type: str | None) -> None:
    """Raise InvalidInputError if an event type is probably misspelt.

    An event type unlike all known ones may be a program's own; a note is printed.

    Raises:
        InvalidInputError: neither Remit nor the ledger has the type, and a similar type exists.
    """
    from remit.ledger import EVENTS

    if event_type is None or event_type in EVENTS or any(
        client.query(event_type=event_type, limit=1, with_content=False)
    ):  # fmt: skip
        return
    if near := nearest(event_type, {*EVENTS, *client.count_by_event()}):
        raise InvalidInputError(
            f"Unknown event type {event_type!r}.", next_step=f"Did you mean {near}?"
        )
    note(f"Unknown event type {event_type!r}: Remit does not write it, and no entry has it.")


@ledger.command()
@click.argument("entry_id")
@click.option("--record", is_flag=True, help="Write the canonical record's exact bytes.")
@click.option("--body", is_flag=True, help="Write the exact request body of a call.")
@click.option("--answer", is_flag=True, help="Write the exact response body of a call.")
@from_archive
@reads
def show(
    root: Path | None, as_json: bool, entry_id: str, archives: tuple[Path, ...], **exact: bool
) -> None:
    """Show an entry with its content, or write one of its exact byte strings.

    For a stream, the answer is the combined response.
    """
    wanted = [name for name, is_wanted in exact.items() if is_wanted]
    if len(wanted) > 1:
        raise InvalidInputError(f"--{' and --'.join(wanted)} cannot be written to one output.")
    with attached(root, archives) as client:
        if wanted:
            _write(_exact(client, entry_id, wanted[0]))
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


def _exact(client: LedgerClient, entry_id: str, which: str) -> bytes:
    from remit.ledger import call_answer, call_body

    if which == "record":
        return client.read_record(entry_id)
    return (call_body if which == "body" else call_answer)(client, entry_id)


def _write(data: bytes) -> None:
    """Write recorded bytes to standard output.

    JSON in a pipe or a file, and everything with ``--raw``, is written exactly. Other content is
    written as printable text.
    """
    text = data.decode("utf-8", "replace")
    if is_raw() or (not sys.stdout.isatty() and _is_json(text)):
        click.echo(data, nl=False)
    else:
        say_text(text, nl=False)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


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
        show_one = echo_json_line if as_json else lambda entry: say(_line(entry))
        for entry in latest:
            show_one(entry)
        while follow:
            time.sleep(_POLL_S)
            for entry in client.query(after=last):
                show_one(entry)
                last = int(entry.id[4:], 16)


@ledger.command()
@reads
def stats(root: Path | None, as_json: bool) -> None:
    """Count entries by event type."""
    with open_ledger(root) as client:
        head = client.head()
        result: dict[str, Any] = {
            "entries": client.count(),
            "events": client.count_by_event(),
            "archived": 0,
            "head": {"seq": head[0], "entry_hash": head[1]} if head else None,
            "location": client.location,
        }
    # What left is counted in no index.
    result["archived"] = result["entries"] - sum(result["events"].values())
    events: list[tuple[str, int]] = sorted(
        result["events"].items(), key=lambda item: (-item[1], item[0])
    )
    lines = [f"{result['entries']} entries in {result['location']}"]
    if result["archived"]:
        lines.append(f"  {result['archived']:>8}  of them archived")
    emit(as_json, result, lines + [f"  {number:>8}  {name}" for name, number in events])


@ledger.command()
@reads
def recover(root: Path | None, as_json: bool) -> None:
    """Settle calls of dead processes, and batches that ended."""
    from remit.gateway import InFlightCalls
    from remit.gateway.budget import TokenBudgeter

    _, loaded = open_settings(root)
    with open_ledger(root) as client:
        calls = InFlightCalls(client, TokenBudgeter(client), charging=True)
        settled = calls.recover(loaded.settings.gateway.orphan_policy)
        waiting = calls.count()
        batches = client.select("SELECT count(*) FROM batches")[0][0]
    found: dict[str, Any] = {"settled": settled, "waiting": waiting}
    lines = [f"{len(settled)} settled, {waiting} not settled yet (lease not expired)"]
    if batches:
        found["batches"] = _settle_batches(root)
        lines.append(f"{found['batches']} of {batches} batches have not ended yet")
    emit(as_json, found, lines)


def _settle_batches(root: Path | None) -> int:
    """Record the results of finished batches, and return the number of open batches."""
    from remit.kernel.loops import run_blocking
    from remit.runtime import Runtime

    with Runtime.open(root, by=whoami()) as runtime:

        async def poll() -> int:
            try:
                return await runtime.gateway.batches.poll()
            finally:
                await runtime.aclose()

        return run_blocking(poll())


@ledger.command()
@click.argument("entry_id", required=False)
@click.option("--session", "session_id", help="Erase all content of a session.")
@click.option("--subject", "subject_id", help="Erase all content that belongs to a person.")
@click.option("--reason", help="Reason (recorded permanently): name the request, not the person.")
@click.option("--yes", is_flag=True, help="Erase. Without --yes, only show what would be erased.")
@from_archive
@reads
def erase(
    root: Path | None,
    as_json: bool,
    reason: str | None,
    yes: bool,
    archives: tuple[Path, ...],
    **which: str | None,
) -> None:
    """Erase content permanently; records, hash chain and old proofs stay valid.

    An erasure of one entry also erases copies of its content in other entries of the session,
    and texts there that quote a longer part of it.
    """
    if yes and not reason:
        raise InvalidInputError("An erasure requires --reason, which is recorded permanently.")
    with attached(root, archives, signing=True, alone=True) as client:
        given: dict[str, Any] = {
            **which, "reason": reason or "-", "requested_by": whoami(), "dry_run": not yes,
        }  # fmt: skip
        report = client.erase(**given)
        gone = _forget(root, client) if yes else []
    _show_erasures([report], as_json, done=yes)
    for proposal_id in gone:
        note(f"The proposal {proposal_id} was learned from this content and was removed.")


@ledger.command()
@click.option("--yes", is_flag=True, help="Erase. Without --yes, only show what would be erased.")
@from_archive
@reads
def retain(root: Path | None, as_json: bool, yes: bool, archives: tuple[Path, ...]) -> None:
    """Erase content older than [ledger.retention_days] for its event class."""
    with attached(root, archives, signing=True, alone=True) as client:
        require_archive(client, archives, "this erasure")
        reports = client.retain(requested_by=whoami(), dry_run=not yes)
        if yes:
            _forget(root, client)
    _show_erasures(reports, as_json, done=yes)


def _forget(root: Path | None, client: LedgerClient) -> list[str]:
    """Remove proposals and learned packages with erased content; return the proposals' ids."""
    from remit.runtime.installation import forget_erased

    place, loaded = open_settings(root)
    return forget_erased(place, client, loaded)


@ledger.command()
@common
def compact(root: Path | None) -> None:
    """Remove erased bytes from the database files, if the erasure could not do so itself."""
    with open_ledger(root) as client:
        left = client.compact()
    note(left or "The database files contain no erased content.")


def _show_erasures(reports: list[ErasureReport], as_json: bool, *, done: bool) -> None:
    rows: list[dict[str, Any]] = [
        {
            "erased": done,
            "erasure_id": report.erasure_id or None,
            "values": report.values,
            "entries": report.entries,
            "sessions": report.sessions,
            "remainder": report.remainder or None,
        }
        for report in reports
    ]
    lines = [] if rows else ["nothing to erase"]
    for row in rows:
        what = f"{row['values']} content values first shown by {row['entries']} entries"
        under = f"erased {what} ({row['erasure_id']})"
        lines += [
            under if done else f"would erase {what}; add --yes to erase",
            *(f"  in {session}" for session in row["sessions"]),
        ]
    emit(as_json, rows[0] if len(rows) == 1 else {"erasures": rows}, lines)
    for row in () if as_json else rows:
        if row["remainder"]:
            note(row["remainder"])


# The metadata that a line shows, where it is not what comes first.
_SHOWN = {"EXCHANGE": ("model_id", "input_tokens", "output_tokens", "cost_usd", "latency_ms")}


def _line(entry: Any) -> str:
    metadata = entry.metadata
    keys = _SHOWN.get(entry.event_type)
    plain = [
        key
        for key in keys or metadata
        if isinstance(value := metadata.get(key), (str, int, float))
        and not isinstance(value, bool)
        and value != ""
    ]
    shown = (
        f"{key}={cut(str(metadata[key]), _LINE_CHARS // 3)}" for key in plain[: None if keys else 3]
    )
    text = (
        f"{entry.id}  {entry.timestamp}  {entry.event_type:<18} {entry.reason}  {' '.join(shown)}"
    )
    return text if len(text) <= 2 * _LINE_CHARS else text[: 2 * _LINE_CHARS - 1] + "…"
