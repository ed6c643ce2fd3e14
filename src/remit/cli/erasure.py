"""``remit ledger`` commands that make content go: erase, retain, compact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remit.cli.shared import common, emit, note, open_ledger, reads, whoami
from remit.kernel.errors import InvalidInputError

if TYPE_CHECKING:
    from remit.ledger import ErasureReport

__all__ = ["compact", "erase", "retain"]


@click.command()
@click.argument("entry_id", required=False)
@click.option("--session", help="Erase all content of a session.")
@click.option("--subject", help="Erase all content that belongs to a person.")
@click.option("--reason", help="Stays on record: name the request, not the person.")
@click.option("--yes", is_flag=True, help="Do it. Without it, only say what would go.")
@reads
def erase(
    root: Path | None,
    as_json: bool,
    entry_id: str | None,
    session: str | None,
    subject: str | None,
    reason: str | None,
    yes: bool,
) -> None:
    """Erase content for good; records, chain and old proofs stay valid.

    By entry, what the entry shows goes wherever its session shows it, and so does whatever
    quotes a longer text of it there.
    """
    if yes and not reason:
        raise InvalidInputError("An erasure needs --reason: it stays on record.")
    with open_ledger(root, signing=True) as client:
        report = client.erase(
            entry_id,
            session_id=session,
            subject_id=subject,
            reason=reason or "-",
            requested_by=whoami(),
            dry_run=not yes,
        )
    _show([report], as_json, done=yes)


@click.command()
@click.option("--yes", is_flag=True, help="Do it. Without it, only say what would go.")
@reads
def retain(root: Path | None, as_json: bool, yes: bool) -> None:
    """Erase content that is older than [ledger.retention_days] allows for its class of event."""
    with open_ledger(root, signing=True) as client:
        reports = client.retain(requested_by=whoami(), dry_run=not yes)
    _show(reports, as_json, done=yes)


@click.command()
@common
def compact(root: Path | None) -> None:
    """Make erased bytes leave the files, where an erasure could not do it at once."""
    with open_ledger(root) as client:
        left = client.compact()
    note(left or "Nothing that was erased is left in the files.")


def _show(reports: list[ErasureReport], as_json: bool, *, done: bool) -> None:
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
    emit(as_json, rows[0] if len(rows) == 1 else {"erasures": rows}, _lines(rows))


def _lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    if not rows:
        yield "nothing to erase"
    for row in rows:
        what = f"{row['values']} content values first shown by {row['entries']} entries"
        if row["erased"]:
            yield f"erased {what}, under {row['erasure_id']}"
            if row["remainder"]:
                note(row["remainder"])
        else:
            yield f"would erase {what}; --yes does it"
        yield from (f"  in {session}" for session in row["sessions"])
