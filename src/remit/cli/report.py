"""``remit report``: writes a self-verifying HTML file for an auditor."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remit.cli.options import FILE, reads
from remit.cli.output import note, print_json_list, progress, say
from remit.cli.roots import open_ledger, open_settings, whoami, write_file
from remit.kernel.message_text import count

if TYPE_CHECKING:
    from remit.ledger import LedgerClient


@click.command()
@click.option(
    "--since",
    help="Entries at or after this time: today, yesterday, monday, 24h, 7d, or ISO 8601, rounded "
    "down to a quarter of an hour. Default: from the beginning.",
)
@click.option(
    "--until",
    help="Entries before this time, rounded up to a quarter of an hour. Default: to the end.",
)
@click.option("--time-zone", default="UTC", show_default=True,
              help="The time zone of dates and days, such as Europe/Berlin.")  # fmt: skip
@click.option(
    "--most",
    type=click.IntRange(min=0),
    default=2_000,
    show_default=True,
    help="In a range of more than 20,000 entries, list only the latest N calls, refusals, charges "
    "and budgets, of each event type.",
)
@click.option(
    "--witness", "witnesses", nargs=2, multiple=True, metavar="URL VKEY",
    help="Request a cosignature of this witness. Repeat for several witnesses.",
)  # fmt: skip
@click.option(
    "--gates/--no-gates", "with_gates", default=True, help="Check the gates for the report."
)
@click.option(
    "--html",
    "page",
    type=FILE,
    help="Write one self-contained file; - is standard output.",
)
@click.option("--script-hash", "with_hash", is_flag=True,
              help="Only print the SHA-256 of the script in reports of this version.")  # fmt: skip
@reads
def report(
    root: Path | None,
    as_json: bool,
    since: str | None,
    until: str | None,
    time_zone: str,
    most: int,
    witnesses: tuple[tuple[str, str], ...],
    with_gates: bool,
    page: Path | None,
    with_hash: bool,
) -> None:
    """Write a report for an auditor.

    The report shows runs, callers, costs, refusals, changes and gates. The HTML file verifies
    itself in the reader's browser, without a network. Prompts and answers are not in the file. With
    --json each entry has its record and proof. The gates are run first and recorded, unless
    --no-gates is given, and a checkpoint is signed. The exit code is 1 if the ledger does not
    verify or a gate fails.
    """
    from remit.ledger.tlog import VerifierKey
    from remit.runtime.installation import run_gates
    from remit.views import audit_report, instant_of, report_script_hash

    if with_hash:
        say(f"sha256-{report_script_hash()}")
        return
    if page is None and not as_json:
        raise click.UsageError("Give --html FILE, --json, or both.")
    if as_json and page is not None and str(page) == "-":
        raise click.UsageError("Only one of --html - and --json can go to standard output.")
    keys = [(url, VerifierKey.parse(text)) for url, text in witnesses]
    begins, ends = (  # before anything is done
        None if one is None else instant_of(one, time_zone) for one in (since, until)
    )
    if begins is not None and ends is not None and ends <= begins:
        raise click.UsageError("--until is not after --since.")
    # The gates come first, so that the checkpoint covers them.
    gates = run_gates(root, by=whoami(), progress=progress) if with_gates else None
    with open_ledger(root, signing=True) as client:
        verification = client.verify(
            jobs=os.cpu_count() or 1,
            since_mark=client.count() > open_settings(root)[1].settings.gates.full_entries,
            progress=progress("verifying"),
        )
        checkpoint = _checkpoint(client, keys)
        given: dict[str, Any] = {
            "checkpoint": checkpoint, "since": begins, "until": ends, "most": most,
            "verification": verification, "gates": None if gates is None else gates.to_dict(),
            "witnesses": [key.name for _, key in keys],
        }  # fmt: skip
        if page is not None:
            _write_page(client, page, given)
        if as_json:
            found = audit_report(client, **given)
            rest = {key: value for key, value in found.items() if key != "sections"}
            print_json_list("entries", _entries(found), rest)
    if not verification.verified:
        note("The ledger does not verify; the report says so.")
        note("next: `remit ledger verify`.")
    for one in () if gates is None else gates.gates:
        if not one.passed:
            note(f"Gate {one.gate} failed ({one.message}); the report says so.")
            note(f"next: `remit gate check --gate {one.gate}`.")
    if not verification.verified or (gates is not None and not gates.passed):
        raise SystemExit(1)


def _write_page(client: LedgerClient, page: Path, given: Mapping[str, Any]) -> None:
    """Write the file, and notes on its range and its script."""
    from remit.views import audit_report, report_parts, report_script_hash

    made = audit_report(client, **given)
    with write_file(page) as file:
        for part in report_parts(client, made):
            file.write(part.encode())
    if str(page) != "-":
        note(f"written to {page}")
    note(f"range: {made['since'] or 'the beginning'} to {made['until'] or 'the end'}")
    if archived := made["range"]["archived"]:
        note(f"{count(archived, 'entry')} of the range were archived and are not in the file")
    note(f"script: sha256-{report_script_hash()}")


def _checkpoint(client: LedgerClient, witnesses: list[tuple[str, Any]]) -> Any:
    """Return a new checkpoint, cosigned, or the latest one if the ledger cannot be written."""
    from remit.ledger import LedgerWriteError, NoSignerError
    from remit.ledger.tlog import SignedCheckpoint
    from remit.operations.checkpoints import cosigned

    try:
        signed = SignedCheckpoint.parse(client.checkpoint())
    except (LedgerWriteError, NoSignerError):
        latest = client.checkpoints.latest()
        if latest is None:
            raise
        note(
            f"No new checkpoint can be signed. The one of {latest.checkpoint.size} entries is used."
        )
        signed = latest
    return cosigned(client, signed, witnesses) if witnesses else signed


def _entries(found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for section in found["sections"]:
        for entry in section["entries"]:
            yield {"section": section["name"], **entry}
