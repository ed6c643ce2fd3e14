"""``remit ledger``: reads the record and erases content."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remit.cli import proofs, segments
from remit.cli.operations import add_commands
from remit.cli.segments import attached, from_archive, require_archive
from remit.cli.shared import (
    common,
    echo_json_line,
    emit,
    note,
    open_ledger,
    open_settings,
    print_json_list,
    reads,
    say,
    whoami,
)
from remit.kernel.errors import InvalidInputError
from remit.kernel.words import count
from remit.operations.ledger import entry_line

if TYPE_CHECKING:
    from remit.ledger import ErasureReport, LedgerClient

_POLL_S = 0.3


@click.group()
def ledger() -> None:
    """Query, verify, prove, move to segments and erase the ledger."""


for _command in (
    proofs.verify, proofs.checkpoint, proofs.fork, proofs.export, proofs.import_,
    segments.segment, segments.archive,
):  # fmt: skip
    ledger.add_command(_command)
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
        values, entries = count(row["values"], "content value"), count(row["entries"], "entry")
        what = f"{values} first shown by {entries}"
        under = f"erased {what} ({row['erasure_id']})"
        lines += [
            under if done else f"would erase {what}; add --yes to erase",
            *(f"  in {session}" for session in row["sessions"]),
        ]
    emit(as_json, rows[0] if len(rows) == 1 else {"erasures": rows}, lines)
    for row in () if as_json else rows:
        if row["remainder"]:
            note(row["remainder"])
