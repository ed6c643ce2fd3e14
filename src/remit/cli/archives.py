"""``remit ledger archive``, and the option ``--archive`` of other commands."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from remit.cli.shared import emit, note, open_ledger, progress, reads, settings_of, whoami
from remit.kernel.errors import InvalidInputError

if TYPE_CHECKING:
    from remit.ledger import LedgerClient
    from remit.ledger.archive import Archive, Guard

_F = TypeVar("_F", bound=Callable[..., Any])


def from_archive(function: _F) -> _F:
    """Add ``--archive`` to a command, to read archived entries too."""
    option = click.option(
        "--archive",
        "archives",
        multiple=True,
        metavar="DIR",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        help="Directory of an archive. Repeat for several archives.",
    )
    return option(function)


def opened(archives: tuple[Path, ...]) -> Archive:
    """Return the archive in the given directories.

    Raises:
        LedgerError: a directory cannot be read, or no directory holds an archive.
    """
    from remit.ledger.archive import Archive

    return Archive(archives)


def say_archived(client: LedgerClient) -> None:
    """Print a note if older entries were archived and are therefore not shown."""
    if end := client.archived_to:
        note(f"Entries before LED-{end:08x} may be in an archive; add --archive DIR to read them.")


@contextlib.contextmanager
def exclusive(client: LedgerClient, root: Path | None) -> Iterator[Guard]:
    """Keep all other processes from changing the archive of a ledger while the block runs.

    Returns:
        The guard of the block's transactions, which raises LeaseLostError if another process
        has taken over.

    Raises:
        LeaseBusyError: another process changes the archive.
    """
    from remit.gateway.leases import LeaseManager

    with LeaseManager(client, settings_of(root).leases).hold_blocking("archive") as lease:
        yield lease.require_in


@click.command()
@click.option("--before", metavar="WHEN|SEQ|ID", help="Archive entries before this time or entry.")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Directory of the new archive."
)
@click.option(
    "--format", "kind", type=click.Choice(["parquet", "jsonl"]),
    help="File format (default: parquet if pyarrow is installed, else jsonl).",
)  # fmt: skip
@click.option("--jobs", type=click.IntRange(min=1), help="Processes (default: one per core).")
@click.option("--finish", is_flag=True, help="Only complete an interrupted archive or erasure.")
@from_archive
@reads
def archive(
    root: Path | None,
    as_json: bool,
    before: str | None,
    out: Path | None,
    kind: Any,
    jobs: int | None,
    finish: bool,
    archives: tuple[Path, ...],
) -> None:
    """Move old entries of ended sessions from the database to an archive.

    Remit copies the entries, verifies the copy, records an ARCHIVED entry, and deletes the rows.
    Proofs keep working.
    """
    from remit.ledger import archive as package
    from remit.runtime.state import carried_state

    if finish:
        if before or out:
            raise click.UsageError("--finish excludes --before and --out.")
        _finish(root, as_json, archives)
        return
    if not before or out is None or archives:
        raise click.UsageError("Give --before and --out, or --finish.")
    with open_ledger(root, signing=True) as client, exclusive(client, root) as guard:
        done = package.archive(
            client,
            package.cut_at(client, before),
            out,
            by=whoami(),
            carry=carried_state,
            guard=guard,
            jobs=jobs or os.cpu_count() or 1,
            kind=kind,
            progress=progress,
        )
    if not done.archived_id:
        lines = [f"Nothing to archive: all entries before entry {done.end} are archived."]
    else:
        lines = [
            f"{done.entries} of the entries {done.first} to {done.end - 1} were moved to "
            f"{done.directory} ({done.archived_id})",
            f"{done.stayed} entries before {done.end} stay in the database",
        ]
    emit(as_json, asdict(done), lines)
    for path in package.interrupted_copies(out):
        note(f"{path} is left over from an interrupted run. Keep a copy, then remove it.")
    if done.remainder and not as_json:
        note(done.remainder)
    if done.archived_id and not as_json:
        note("Back up the archive like the ledger: it holds the only copy of these entries.")


def _finish(root: Path | None, as_json: bool, archives: tuple[Path, ...]) -> None:
    from remit.ledger import archive as package

    with open_ledger(root, signing=True) as client, exclusive(client, root) as guard:
        purged = package.purge(client, opened(archives).parts(), guard) if archives else 0
        removed, remainder = package.finish(client, archives, guard=guard, progress=progress)
    found = {"removed": removed, "purged": purged, "remainder": remainder or None}
    lines = [f"{removed} archived entries removed from the database"]
    if archives:
        lines.append(f"{purged} erased values deleted from the archive")
    emit(as_json, found, lines)
    if remainder and not as_json:
        note(remainder)


def require_archive(client: LedgerClient, archives: tuple[Path, ...], what: str) -> None:
    """Raise InvalidInputError if entries are archived and no archive is given.

    Args:
        client: the ledger.
        archives: the directories given with ``--archive``.
        what: the refused action, as the message names it.

    Raises:
        InvalidInputError: the ledger has archived entries and ``archives`` is empty.
    """
    if client.archived_to and not archives:
        raise InvalidInputError(
            f"Some entries of this ledger are archived, and {what} needs the archive.",
            next_step="Add --archive DIR.",
        )
