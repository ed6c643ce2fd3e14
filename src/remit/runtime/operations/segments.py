"""Operations that move entries to segments, import a ledger, or continue a lost one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.kernel.errors import InvalidInputError
from remit.operations import Answer, Caller, RootPort, field, verb
from remit.operations.files import archives

if TYPE_CHECKING:
    from remit.ledger import LedgerClient
    from remit.ledger.segments import Guard


@contextlib.contextmanager
def attached(root: RootPort, folders: list[Path]) -> Iterator[LedgerClient]:
    """Yield the ledger with the segments in some directories, locked against other processes.

    Without directories the plain ledger is yielded and nothing is locked. The caller does not close
    it.

    Args:
        root: the open root.
        folders: directories of segments; may be empty.

    Raises:
        LedgerError: the ledger or a segment cannot be read.
        LeaseBusyError: another process changes the segments.
    """
    with exclusive(root) if folders else contextlib.nullcontext():
        if folders:
            root.ledger.attach(folders)
        yield root.ledger


@contextlib.contextmanager
def exclusive(root: RootPort) -> Iterator[Guard]:
    """Keep all other processes from changing the segments of a ledger while the block runs.

    Yields:
        The guard of the block's transactions, which raises LeaseLostError if another process
        has taken over.

    Raises:
        LeaseBusyError: another process, thread or task changes the segments.
        LedgerError: the lease cannot be read or written.
    """
    from remit.gateway.leases import LeaseManager

    with LeaseManager(root.ledger, root.settings.leases).hold_blocking("archive") as lease:
        yield lease.require_in


def require_archive(ledger: LedgerClient, folders: list[Path], what: str) -> None:
    """Raise InvalidInputError if entries are archived and no segments are given.

    Args:
        ledger: the ledger.
        folders: the directories given with ``--archive``.
        what: the refused action, as the message names it.

    Raises:
        InvalidInputError: the ledger has archived entries and ``folders`` is empty.
    """
    if ledger.archived_to and not folders:
        raise InvalidInputError(
            f"Some entries of this ledger are archived, and {what} needs their segments.",
            next_step="Give the folder of segments, as in `remit ledger verify --archive DIR`.",
        )


@verb("ledger archive", changes=True, doc="Deprecated name of `segment`, until version 1.0.")
@verb("ledger segment", changes=True)
def move_to_segment(
    root: RootPort, caller: Caller, *,
    before: str | None = field("Move entries before this time or entry.", None,
                               metavar="WHEN|SEQ|ID"),
    folder: Path | None = field("Directory of the new segment.", None, flag="--out",
                                place="folder"),
    format: str | None = field("Ignored: archives of earlier versions had a format.", None,
                               is_hidden=True),
    jobs: int | None = field("Processes (default: one per core).", None, least=1),
    finish: bool = field("Only complete an interrupted run or erasure.", False),
    convert: Path | None = field(
        "Only replace the archives that an earlier version wrote here by segments.", None,
        metavar="DIR", place="input folder",
    ),
    archives: list[Path] = archives(),
) -> dict[str, Any] | Answer:  # fmt: skip
    """Move old entries of ended sessions from the database to a segment.

    A segment is a ledger file of its own. Remit copies the entries, verifies the copy, records an
    ARCHIVED entry, compares the rows with the copy, and deletes them. Proofs keep working.

    Returns:
        The fields of :class:`SegmentReport`. With --finish: ``removed`` entries, ``purged`` values
        (0 without --archive) and ``remainder`` or None. With --convert: the number ``converted``.

    Raises:
        InvalidInputError: the options contradict each other, or nothing is requested.
        LedgerError: the ledger does not verify, sessions continue to write, the segment cannot be
            written or differs from the rows, or with --finish is not among the directories.
        LeaseBusyError: another process changes the segments.
    """
    from remit.ledger import segments
    from remit.runtime.state_tables import carried_state

    wanted = bool(before or folder) + finish + (convert is not None)
    if wanted != 1 or (archives and not finish) or bool(before) != bool(folder):
        raise InvalidInputError("Give --before and --out, or --finish, or --convert.")
    ledger = root.ledger
    with exclusive(root) as guard:
        if finish:
            purged = segments.purge_all(ledger, archives) if archives else 0
            removed, remainder = segments.finish(
                ledger, archives, guard=guard, progress=root.progress
            )
            return {"removed": removed, "purged": purged, "remainder": remainder or None}
        if convert is not None:
            return {"converted": segments.convert(ledger, convert)}
        assert before is not None
        assert folder is not None
        done = segments.move_to_segment(
            ledger, segments.cut_at(ledger, before), folder, by=caller.name,
            carry=carried_state, guard=guard, jobs=jobs or os.cpu_count() or 1,
            progress=root.progress,
        )  # fmt: skip
    for path in segments.interrupted_copies(folder):
        root.note(f"{path} is left over from an interrupted run. Keep a copy, then remove it.")
    if not done.archived_id:
        root.note("Nothing to move: entries are moved 256 at a time, and no further 256 lie wholly "
                  f"before {before}.")  # fmt: skip
        return Answer(asdict(done), ())
    root.note("Back up the segment like the ledger: it holds the only copy of these entries.")
    return asdict(done)


@verb("ledger import", changes=True)
def import_ledger(
    root: RootPort, caller: Caller, *,
    source: Path = field("File of the export.", flag="", place="input"),
    key: str | None = field("Verifier key of the exported log.", None, metavar="VKEY"),
) -> dict[str, Any]:  # fmt: skip
    """Import an export (jsonl) into an empty ledger.

    Every line is verified, and all entries are imported or none. Budgets are then rebuilt from the
    entries; keys are not imported. Without --key no signature is checked.

    Returns:
        The numbers of ``entries``, ``contents`` and ``erased`` values; ``checkpoint``: ``held``, or
        ``unsigned`` if no signature was checked; and ``unsigned_subjects``, the number of values
        whose persons no record and no checked signature confirms.

    Raises:
        LedgerError: the file cannot be read, or the ledger cannot be read or written; the ledger is
            not empty, a line does not verify, or, with --key, the export has no checkpoint or
            another key.
        TlogError: the key cannot be parsed, or the checkpoint is another log's.
    """
    from remit.ledger.tlog import VerifierKey
    from remit.runtime.state_tables import rebuild_state

    ledger, verifier = root.ledger, VerifierKey.parse(key) if key else None
    report = ledger.import_jsonl(source, key=verifier, progress=root.progress("importing"))
    rebuild_state(ledger)
    if report.unsigned_subjects:
        root.note(f"The persons of {report.unsigned_subjects} values are not covered by a record "
                  "or by the checkpoint. Compare them with the source before you erase by "
                  "--subject.")  # fmt: skip
    names = ("entries", "contents", "erased", "checkpoint", "unsigned_subjects")
    return {name: getattr(report, name) for name in names}


@verb(
    "ledger fork", changes=True,
    then="Restart the server, and give the new key to auditors and witnesses.",
)  # fmt: skip
def fork_ledger(
    root: RootPort, caller: Caller, *,
    reason: str = field("Reason (recorded permanently)."),
    is_sure: bool = field("Do not ask for confirmation.", False, flag="--yes"),
) -> dict[str, Any]:  # fmt: skip
    """Continue from an older copy under a new origin, after all newer copies were lost.

    If entries are known to be lost, the command asks for confirmation, and ends without one.

    Returns:
        ``entry_id``, ``old_origin``, ``old_size``, ``entries``, ``verifier_key`` and
        ``checkpoint``, as :func:`remit.ledger.fork` returns them.

    Raises:
        InvalidInputError: there is no reason, or nobody can answer a needed confirmation.
        LedgerError: the ledger is not an older copy; nothing was changed.
    """
    from remit.ledger import KeptHead, fork as fork_ledger, ledger_key

    ledger = root.ledger
    if (problem := ledger.checkpoints.problem()) and not is_sure:
        root.note(f"{problem} Spending in the lost entries is unknown and no longer counted.")
        caller.confirm("Give up the lost entries permanently?")
    kept = KeptHead(ledger_key(root.place, root.settings.ledger))
    return fork_ledger(ledger, kept, reason=reason, by=caller.name)
