"""``remit ledger segment``, and the option ``--archive`` of other commands."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from remit.cli.shared import emit, note, open_ledger, progress, reads, settings_of, whoami
from remit.kernel.errors import InvalidInputError
from remit.kernel.words import count

if TYPE_CHECKING:
    from remit.ledger import LedgerClient
    from remit.ledger.segments import Guard

_F = TypeVar("_F", bound=Callable[..., Any])


def from_archive(function: _F) -> _F:
    """Add ``--archive`` to a command, to read archived entries too."""
    option = click.option(
        "--archive",
        "archives",
        multiple=True,
        metavar="DIR",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        help="Directory of segments. Repeat for several directories.",
    )
    return option(function)


@contextlib.contextmanager
def attached(
    root: Path | None, archives: tuple[Path, ...], *, signing: bool = False, alone: bool = False
) -> Iterator[LedgerClient]:
    """Open the ledger of a root with the segments in some directories, for the block.

    Args:
        root: the root; ``None`` finds it.
        archives: directories of segments; may be empty.
        signing: True to sign checkpoints.
        alone: True to keep other processes from changing the segments.

    Raises:
        LedgerError: the ledger or a segment cannot be read.
        LeaseBusyError: another process changes the segments.
    """
    with open_ledger(root, signing=signing) as client, contextlib.ExitStack() as stack:
        if archives and alone:
            stack.enter_context(exclusive(client, root))
        if archives:
            client.attach(archives)
        yield client


@contextlib.contextmanager
def exclusive(client: LedgerClient, root: Path | None) -> Iterator[Guard]:
    """Keep all other processes from changing the segments of a ledger while the block runs.

    Returns:
        The guard of the block's transactions, which raises LeaseLostError if another process
        has taken over.

    Raises:
        LeaseBusyError: another process changes the segments.
    """
    from remit.gateway.leases import LeaseManager

    with LeaseManager(client, settings_of(root).leases).hold_blocking("archive") as lease:
        yield lease.require_in


@click.command()
@click.option("--before", metavar="WHEN|SEQ|ID", help="Move entries before this time or entry.")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Directory of the new segment."
)
@click.option("--format", "kind", hidden=True, expose_value=False)  # Archives had a format.
@click.option("--jobs", type=click.IntRange(min=1), help="Processes (default: one per core).")
@click.option("--finish", is_flag=True, help="Only complete an interrupted run or erasure.")
@click.option(
    "--convert", "old", metavar="DIR",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Only replace the archives that an earlier version wrote here by segments.",
)  # fmt: skip
@from_archive
@reads
def segment(
    root: Path | None,
    as_json: bool,
    before: str | None,
    out: Path | None,
    jobs: int | None,
    finish: bool,
    old: Path | None,
    archives: tuple[Path, ...],
) -> None:
    """Move old entries of ended sessions from the database to a segment.

    A segment is a ledger file of its own. Remit copies the entries, verifies the copy, records an
    ARCHIVED entry, compares the rows with the copy, and deletes them. Proofs keep working.
    """
    from remit.ledger import segments as package
    from remit.runtime.state import carried_state

    given = bool(before or out) + finish + (old is not None)
    if given != 1 or (archives and not finish) or bool(before) != bool(out):
        raise click.UsageError("Give --before and --out, or --finish, or --convert.")
    if finish:
        _finish(root, as_json, archives)
        return
    with open_ledger(root, signing=True) as client, exclusive(client, root) as guard:
        if old is not None:
            number = package.convert(client, old)
            emit(
                as_json, {"converted": number}, [f"{count(number, 'archive')} replaced by segments"]
            )
            return
        assert before is not None
        assert out is not None
        done = package.move_to_segment(
            client,
            package.cut_at(client, before),
            out,
            by=whoami(),
            carry=carried_state,
            guard=guard,
            jobs=jobs or os.cpu_count() or 1,
            progress=progress,
        )
    if not done.archived_id:
        lines = [f"Nothing to move: all entries before entry {done.end} are archived."]
    else:
        lines = [
            f"{done.entries} of the entries {done.first} to {done.end - 1} were moved to "
            f"{done.directory} ({done.archived_id})",
            f"{count(done.stayed, 'entry')} from before {done.end} left in the database",
        ]
    emit(as_json, asdict(done), lines)
    for path in package.interrupted_copies(out):
        note(f"{path} is left over from an interrupted run. Keep a copy, then remove it.")
    if done.remainder and not as_json:
        note(done.remainder)
    if done.archived_id and not as_json:
        note("Back up the segment like the ledger: it holds the only copy of these entries.")


archive = copy.copy(segment)
archive.name, archive.help = "archive", "The same as `segment`, until version 1.0."


def _finish(root: Path | None, as_json: bool, archives: tuple[Path, ...]) -> None:
    from remit.ledger import segments as package

    with open_ledger(root, signing=True) as client, exclusive(client, root) as guard:
        purged = package.purge_all(client, archives) if archives else 0
        removed, remainder = package.finish(client, archives, guard=guard, progress=progress)
    found = {"removed": removed, "purged": purged, "remainder": remainder or None}
    lines = [f"{removed} archived entries removed from the database"]
    if archives:
        lines.append(f"{purged} erased values deleted from the segments")
    emit(as_json, found, lines)
    if remainder and not as_json:
        note(remainder)


def require_archive(client: LedgerClient, archives: tuple[Path, ...], what: str) -> None:
    """Raise InvalidInputError if entries are archived and no segments are given.

    Args:
        client: the ledger.
        archives: the directories given with ``--archive``.
        what: the refused action, as the message names it.

    Raises:
        InvalidInputError: the ledger has archived entries and ``archives`` is empty.
    """
    if client.archived_to and not archives:
        raise InvalidInputError(
            f"Some entries of this ledger are archived, and {what} needs their segments.",
            next_step="Add --archive DIR.",
        )
