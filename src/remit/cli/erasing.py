"""``remit ledger`` commands that make content go: erase, retain, compact."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remit.cli.shared import common, echo_json, note, open_ledger, reads
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
            requested_by=_who(),
            dry_run=not yes,
        )
    _show([report], as_json, done=yes)


@click.command()
@click.option("--yes", is_flag=True, help="Do it. Without it, only say what would go.")
@reads
def retain(root: Path | None, as_json: bool, yes: bool) -> None:
    """Erase content that is older than [ledger.retention_days] allows for its class of event."""
    with open_ledger(root, signing=True) as client:
        reports = client.retain(requested_by=_who(), dry_run=not yes)
    _show(reports, as_json, done=yes)


@click.command()
@common
def compact(root: Path | None) -> None:
    """Make erased bytes leave the files, where an erasure could not do it at once."""
    with open_ledger(root) as client:
        left = client.compact()
    note(left or "Nothing that was erased is left in the files.")


def _who() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "operator"


def _show(reports: list[ErasureReport], as_json: bool, *, done: bool) -> None:
    if as_json:
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
        echo_json(rows[0] if len(rows) == 1 else {"erasures": rows})
        return
    if not reports:
        click.echo("nothing to erase")
    for report in reports:
        what = f"{report.values} content values first shown by {report.entries} entries"
        if done:
            click.echo(f"erased {what}, under {report.erasure_id}")
            if report.remainder:
                note(report.remainder)
        else:
            click.echo(f"would erase {what}; --yes does it")
        for session in report.sessions:
            click.echo(f"  in {session}")
