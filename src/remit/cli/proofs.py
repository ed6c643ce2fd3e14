"""The commands of ``remit ledger`` that verify, prove, sign, export and import."""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from remit.cli.extracts import extract_of, verify_file
from remit.cli.segments import attached, from_archive
from remit.cli.shared import (
    FILE,
    common,
    emit,
    note,
    open_ledger,
    open_settings,
    progress,
    reads,
    whoami,
    write_text,
)
from remit.kernel.errors import InvalidInputError, RemitError
from remit.kernel.words import count

if TYPE_CHECKING:
    from remit.ledger import VerificationReport


_FETCH_S = 10
_MAX_CHECKPOINT = 1_000_000
_STATUS = {
    "none": "The ledger has no signed checkpoint, so a truncation or a full rewrite cannot be "
    "detected. `remit init` creates a key.",
    "unchecked": "The stored checkpoints match the records, but their signatures were not "
    "checked because there is no key.",
    "stored": "Verified with the stored checkpoints, up to {size} entries. The owner of the key "
    "and the disk could still have rewritten everything. To detect a full rewrite, "
    "keep a checkpoint elsewhere and pass it with --checkpoint.",
    "outside": "Verified with the given checkpoint: its {size} entries are unchanged.",
    "failed": "",
}


@click.command()
@click.option("--checkpoint", "source", metavar="FILE|URL", help="Checkpoint kept elsewhere.")
@click.option(
    "--from", "first", metavar="SEQ", default="0", help="Skip entries before this sequence number."
)
@click.option("--jobs", type=click.IntRange(min=1), help="Processes (default: one per core).")
@click.option(
    "--full/--incremental",
    default=True,
    help="Incremental continues from the last verification and rechecks only a sample of earlier "
    "entries (default: full).",
)
@click.option(
    "--witness",
    "witnesses",
    multiple=True,
    metavar="VKEY",
    help="Require the cosignature of this witness.",
)
@click.option("--file", "file", type=FILE, help="Verify this extract instead.")
@click.option("--key", "text", metavar="VKEY", help="With --file: the log's verifier key.")
@from_archive
@reads
def verify(
    root: Path | None,
    as_json: bool,
    file: Path | None,
    text: str | None,
    source: str | None,
    first: str,
    jobs: int | None,
    full: bool,
    witnesses: tuple[str, ...],
    archives: tuple[Path, ...],
) -> None:
    """Verify the whole ledger; exit 1 on a problem.

    The command checks records, hash chain, tree, content, erasures and checkpoints. With --file, it
    checks the file alone, without a root."""
    from remit.ledger import LedgerError, VerificationReport
    from remit.ledger.tlog import VerifierKey

    if file is not None:
        verify_file(file, VerifierKey.parse(text) if text else None, as_json)
        return
    held = _read_checkpoint(source) if source else None
    keys = [VerifierKey.parse(text) for text in witnesses]
    try:
        with open_ledger(root) as client:
            unread = VerificationReport()
            if archives:
                with unread.guard("the segments"):
                    client.attach(archives)
            start: str | int = int(first) if first.isdecimal() else first
            report = client.verify(
                checkpoint=held,
                first=start,
                jobs=jobs or os.cpu_count() or 1,
                witnesses=keys,
                since_mark=not full,
                progress=progress("verifying"),
            )
            report.merge(unread)
    except LedgerError as error:  # a ledger that cannot be opened does not verify
        report = VerificationReport.of_failure(error)
        if error.next_step:
            note(f"next: {error.next_step}")
    problems = [str(problem) for problem in report.problems]
    emit(as_json, {**_plain(report), "problems": problems}, _lines(report, problems))
    if report.verified and not as_json:
        for said in report.notes:
            note(f"Not checked: {said}.")
        if report.first_seq:
            note(f"Entries before {report.first_seq} were not checked.")
        if report.last_full:
            note(
                f"Verified earlier and not read again: {count(report.unread, 'entry')}. The last "
                f"full check, including the database file, was on {report.last_full}."
            )
        if report.archived and not archives:
            note(
                f"Checked only by their hashes: {count(report.archived, 'archived entry')}; add "
                "--archive DIR to read them."
            )
        note(_STATUS[report.checkpoint].format(size=report.checkpoint_size))
    raise SystemExit(0 if report.verified else 1)


def _plain(report: VerificationReport) -> dict[str, Any]:
    names = (
        "verified", "entries", "archived", "first_seq", "unread", "last_full", "first_bad_seq",
        "problems", "problem_count", "contents", "erased", "erasures", "checkpoint",
        "checkpoint_size", "witnesses", "notes",
    )  # fmt: skip
    return {name: getattr(report, name) for name in names}


def _lines(report: VerificationReport, problems: Sequence[str]) -> Iterator[str]:
    if not report.verified:
        number = report.problem_count
        yield f"NOT VERIFIED: {count(number, 'problem')} in {count(report.entries, 'entry')}"
        yield from (f"  {problem}" for problem in problems)
        return
    yield (
        f"verified: {count(report.entries, 'entry')}, {count(report.contents, 'content value')}, "
        f"{report.erased} erased"
    )
    if report.archived:
        yield f"  archived: {count(report.archived, 'more entry')}"
    for name, number in sorted(report.erasures.items()):
        yield f"  content erased under {name}: {number}"
    for name in report.witnesses:
        yield f"  cosigned by {name}"


def _read_checkpoint(source: str) -> bytes:
    """Return a checkpoint from a file or an http(s) URL.

    Raises:
        InvalidInputError: the URL has another scheme.
        RemitError: the file cannot be read, or the URL cannot be fetched.
    """
    if "://" not in source:
        try:
            with Path(source).open("rb") as file:
                return file.read(_MAX_CHECKPOINT)
        except OSError as error:
            raise RemitError(
                f"The checkpoint {source} cannot be read: {error.strerror or error}.",
                next_step="`remit ledger checkpoint --out FILE` writes one.",
            ) from error
    if not source.startswith(("https://", "http://")):
        raise InvalidInputError(f"A checkpoint cannot be fetched from {source!r}.")
    try:
        with urllib.request.urlopen(source, timeout=_FETCH_S) as answer:  # noqa: S310
            data: bytes = answer.read(_MAX_CHECKPOINT)
            return data
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise RemitError(
            f"The checkpoint could not be fetched from {source}: {error}.",
            next_step="Check the URL, or save the checkpoint to a file and give that.",
        ) from error


@click.command()
@click.option("--reason", required=True, help="Reason (recorded permanently).")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@reads
def fork(root: Path | None, as_json: bool, reason: str, yes: bool) -> None:
    """Continue from an older copy under a new origin, after all newer copies were lost."""
    from remit.ledger import KeptHead, ledger_key
    from remit.ledger import fork as fork_ledger

    place, loaded = open_settings(root)
    kept = KeptHead(ledger_key(place, loaded.settings.ledger))
    with open_ledger(root, signing=True) as client:
        if (problem := client.checkpoints.problem()) and not yes:
            note(f"{problem} Spending in the lost entries is unknown and no longer counted.")
            if not sys.stdin.isatty():
                raise click.UsageError(
                    "Cannot ask for confirmation without a terminal. Confirm with --yes."
                )
            click.confirm("Give up the lost entries permanently?", abort=True, err=True)
        done = fork_ledger(client, kept, reason=reason, by=whoami())
    lines = [
        f"The log {done['old_origin']} ends at {done['old_size']} signed entries.",
        f"The new log continues with {count(done['entries'], 'entry')}; {done['entry_id']} records "
        "what was lost.",
        f"New verifier key: {done['verifier_key']}",
    ]
    emit(as_json, done, lines)
    if not as_json:
        note("Restart the server, and give the new key to auditors and witnesses.")


@click.command()
@click.option("--out", type=FILE, help="Write to this file (default: standard output).")
@click.option(
    "--witness", "witnesses", nargs=2, multiple=True, metavar="URL VKEY",
    help="Request a cosignature of this witness. Repeat for several witnesses.",
)  # fmt: skip
@common
def checkpoint(root: Path | None, out: Path | None, witnesses: tuple[tuple[str, str], ...]) -> None:
    """Sign a checkpoint of the ledger. Keep it where the operator cannot change it."""
    from remit.ledger.tlog import SignedCheckpoint, VerifierKey

    keys = [(url, VerifierKey.parse(text)) for url, text in witnesses]
    with open_ledger(root, signing=True) as client:
        signed = SignedCheckpoint.parse(client.checkpoint())
        if keys:
            signed = cosigned(client, signed, keys)
        elif (latest := client.checkpoints.latest()) and latest.note.text == signed.note.text:
            signed = latest
    write_text(out, str(signed))


def cosigned(client: Any, signed: Any, keys: list[tuple[str, Any]]) -> Any:
    """Return a signed checkpoint with cosignatures of witnesses, requested over HTTP.

    Each cosignature is stored in the ledger as soon as the witness gives it.

    Args:
        client: the ledger.
        signed: the signed checkpoint.
        keys: the URL and the public key of each witness.
    """
    from remit.kernel.loops import run_blocking
    from remit.ledger.witness import request_cosignature

    for url, witness in keys:
        signed = run_blocking(
            request_cosignature(url, signed, witness, client.checkpoints.prove_consistency)
        )
        client.checkpoints.add_cosignatures(signed)  # Stored now: the next may fail.
    return signed


@click.command()
@click.option(
    "--format", "kind", type=click.Choice(["jsonl", "parquet", "tiles"]), default="jsonl",
    show_default=True, help="jsonl: everything; parquet: a table; tiles: a static C2SP "
                            "tlog-tiles directory.",
)  # fmt: skip
@click.option("--tiles", "as_tiles", is_flag=True, help="The same as --format tiles.")
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), help="Output file or directory."
)
@click.option("--session", metavar="ID", help="Write an extract: all entries of a session.")
@click.option("--order", metavar="ID", help="Write an extract: all entries of a work order.")
@click.option("--action", metavar="ID", help="Write an extract: a tool action or model call.")
@click.option(
    "--range", "span", nargs=2, metavar="FIRST END",
    help="Write an extract: the entries from FIRST to before END.",
)  # fmt: skip
@from_archive
@common
def export(
    root: Path | None, kind: Any, as_tiles: bool, out: Path, session: str | None,
    order: str | None, action: str | None,
    span: tuple[str, str] | None, archives: tuple[Path, ...],
) -> None:  # fmt: skip
    """Export the ledger with a signed checkpoint.

    With --archive, the export contains the archived entries too. An extract contains the records of
    a session, order, action or range, without content, and proves that none of them is missing."""
    kind = "tiles" if as_tiles else kind
    of = extract_of(session, order, action, span)
    if of and kind != "jsonl":
        raise click.UsageError("An extract has one format. Leave out --format and --tiles.")
    with attached(root, archives, signing=True) as client:
        if of:
            from remit.ledger import make_extract

            found = make_extract(client, of)
            text = orjson.dumps(found).decode() + "\n"
            write_text(None if str(out) == "-" else out, text)
            note(f"{count(len(found['records']), 'record')} written to {out}.")
            return
        if str(out) == "-":
            if kind != "jsonl":
                raise InvalidInputError("Only jsonl can be written to standard output.")
            number = client.export(sys.stdout.buffer)
        else:
            number = client.export(out, format=kind, progress=progress("exporting"))
        later = client.count() - number
    note(f"{count(number, 'entry')} written to {out}.")
    if later > 0:
        note(f"Left out, because no checkpoint covers them: {count(later, 'later entry')}.")


@click.command("import")
@click.argument("source", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--key", "text", metavar="VKEY", help="Verifier key of the exported log.")
@click.option("--verify", "again", is_flag=True, help="Verify the whole ledger after the import.")
@reads
def import_(root: Path | None, as_json: bool, source: Path, text: str | None, again: bool) -> None:
    """Import an export (jsonl) into an empty ledger.

    Every line is verified, and all entries are imported or none."""
    from remit.ledger.tlog import VerifierKey
    from remit.runtime.state import rebuild_state

    with open_ledger(root, signing=True) as client:
        report = client.import_jsonl(
            source,
            key=VerifierKey.parse(text) if text else None,
            progress=progress("importing"),
        )
        rebuild_state(client)
        verified = client.verify().verified if again else None
    found = {
        "entries": report.entries, "contents": report.contents, "erased": report.erased,
        "checkpoint": report.checkpoint, "unsigned_subjects": report.unsigned_subjects,
        "verified": verified,
    }  # fmt: skip
    values = count(report.contents, "content value")
    line = f"{count(report.entries, 'entry')}, {values}, {report.erased} erased"
    emit(as_json, found, [line])
    if report.checkpoint == "unsigned" and not as_json:
        note(
            "No signature was checked. To check it, pass the verifier key of the exported log "
            "with --key."
        )
    if report.unsigned_subjects and not as_json:
        note(f"The persons of {report.unsigned_subjects} values are not covered by a record or "
             "by the checkpoint. Compare them with the source before you erase by "
             "--subject.")  # fmt: skip
    if verified is False:
        raise SystemExit(1)
