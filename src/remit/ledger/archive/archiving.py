"""Archiving: a copy outside that is checked, an entry that says so, and then the rows go."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remit.ledger.archive.copying import RangeCopy
from remit.ledger.archive.files import (
    Kind,
    kind_there,
)
from remit.ledger.archive.leaving import leaving, refers
from remit.ledger.archive.removal import remove
from remit.ledger.archived import ARCHIVED, ARCHIVED_TO, Places, archived_to
from remit.ledger.client import LedgerClient
from remit.ledger.content import Content, content
from remit.ledger.entry import LedgerEntry
from remit.ledger.errors import LedgerError, NoSignerError
from remit.ledger.report import Progress
from remit.ledger.store import Transaction
from remit.ledger.tlog import TILE_WIDTH
from remit.ledger.tree import LedgerTree
from remit.ledger.usage_audit import carried_usage

__all__ = ["ArchiveReport", "Carry", "archive", "cut_at", "finish"]

Carry = Callable[[LedgerClient, int], dict[str, Any]]
"""What other parts of Remit need of the entries before a cut, to check what they keep."""

_ATTEMPTS = 3
_TILES_AT_ONCE = 64
_TILE = "INSERT INTO tree_hashes VALUES (0, ?, ?) ON CONFLICT (level, idx) DO NOTHING"
_INFO = (
    f"INSERT INTO ledger_info VALUES ('{ARCHIVED_TO}', ?) ON CONFLICT (name) DO UPDATE "
    "SET value = excluded.value"
)


@dataclass(frozen=True, slots=True)
class ArchiveReport:
    """What was archived.

    Attributes:
        first: the first entry of the range; ``end`` the first after it. Equal where there was
            nothing to archive.
        entries: how many left the database.
        stayed: how many of before ``end`` are still in it.
        archived_id: the ``ARCHIVED`` entry; empty when there was nothing to archive.
        directory: of the range.
        remainder: what could not be done at once, and how it can be; empty when all was.
        seconds: by step, how long it took.
    """

    first: int
    end: int
    entries: int
    stayed: int
    archived_id: str
    directory: str
    remainder: str
    seconds: dict[str, float]


def cut_at(ledger: LedgerClient, before: str) -> int:
    """The greatest cut that is at or below what was asked: a multiple of 256.

    Args:
        ledger: to be cut.
        before: a sequence number, an entry's id, or a time (ISO 8601): then the first entry that
            is not older.

    Raises:
        InvalidInputError: it is none of these.
    """
    from remit.ledger.queries import instant, to_seq

    size = ledger.count()
    if before.isdecimal():
        seq = int(before)
    elif before.startswith("LED-"):
        seq = to_seq(before) or 0
    else:
        sql = "SELECT min(seq) FROM entries WHERE timestamp >= ? AND seq >= ?"
        rows = ledger.select(sql, (instant(before), archived_to(ledger.select)))
        seq = size if rows[0][0] is None else rows[0][0]
    return min(seq, size) // TILE_WIDTH * TILE_WIDTH


def archive(
    ledger: LedgerClient,
    end: int,
    directory: Path,
    *,
    by: str,
    carry: Carry,
    jobs: int = 1,
    kind: Kind | None = None,
    progress: Callable[[str], Progress] | None = None,
) -> ArchiveReport:
    """Archive what is before ``end``: see ``docs/operations/growth.md``.

    The copy is on disk and checked before the ``ARCHIVED`` entry is written, and that before the
    first row goes. Killed anywhere, the next call begins again, or goes on.

    Args:
        ledger: with its key.
        end: a multiple of 256 (:func:`cut_at`).
        directory: of the archive; made where it is not there.
        by: who asked, on record.
        carry: :data:`Carry`; what it gives must be JSON.
        jobs: processes for the verification before.
        kind: of the parts; Parquet where pyarrow is installed.
        progress: gives, for what is done just now, what is called with done and total.

    Raises:
        LedgerError: the ledger does not verify, is in use up to the cut, or the archive cannot be
            written.
        NoSignerError: the client holds no key.
    """
    run = _Archiving(ledger, directory, by, carry, kind or kind_there(), progress)
    return run.run(end, jobs)


def finish(
    ledger: LedgerClient, progress: Callable[[str], Progress] | None = None
) -> tuple[int, str]:
    """Remove what is on record as archived and still there; how many entries that was, and what
    of :meth:`LedgerClient.compact` could not be done."""
    if not archived_to(ledger.select):
        return 0, ""
    removed = remove(ledger._store, ledger.transact, progress and progress("removing"))
    return removed, ledger._store.compact() if removed else ""


class _Archiving:
    def __init__(
        self, ledger: LedgerClient, directory: Path, by: str, carry: Carry, kind: Kind,
        progress: Callable[[str], Progress] | None,
    ) -> None:  # fmt: skip
        self._ledger = ledger
        self._store = ledger._store
        self._directory = directory
        self._by = by
        self._carry = carry
        self._kind: Kind = kind
        self._progress = progress
        self._seconds: dict[str, float] = {}
        self._since = time.perf_counter()

    def run(self, end: int, jobs: int) -> ArchiveReport:
        ledger = self._ledger
        if ledger.checkpoints.signer is None:
            raise NoSignerError(
                "An archive needs a signed checkpoint, and this client holds no key.",
                next_step="Open the ledger through its root: `remit ledger archive`.",
            )
        remainder = finish(ledger, self._progress)[1]
        first = archived_to(ledger.select)
        if end <= first:
            return ArchiveReport(first, first, 0, 0, "", "", remainder, {})
        report = ledger.verify(jobs=jobs, progress=self._shown("verifying"))
        self._took("verify")
        if not report.verified:
            raise LedgerError(
                f"The ledger does not verify ({report.problems[0]}); nothing is archived of it.",
                next_step="Run `remit ledger verify` to see what is damaged.",
            )
        size = ledger.count()
        places = leaving(self._store, end)
        self._took("plan")
        try:
            copy = RangeCopy(ledger, self._directory, first, end, self._kind, self._shown)
            copy.write(places)
            self._took("write")
            self._keep_leaves(first, end)
            carried = {"usage": carried_usage(ledger, first, end), **self._carry(ledger, end)}
            archived_id = self._record(copy, first, end, size, places, carried)
            copy.note(archived_id)
            self._took("record")
        except OSError as error:
            raise LedgerError(
                f"The archive cannot be written to {self._directory}: {error.strerror or error}.",
                next_step="Nothing has left the database. Check free space and permissions.",
            ) from error
        remove(self._store, ledger.transact, self._shown("removing"))
        self._took("remove")
        remainder = self._store.compact()
        self._took("compact")
        stayed = ledger.select("SELECT count(*) FROM entries WHERE seq < ?", (end,))[0][0]
        return ArchiveReport(
            first, end, len(places), stayed, archived_id, str(copy.place), remainder,
            self._seconds,
        )  # fmt: skip

    def _shown(self, what: str) -> Progress | None:
        return self._progress(what) if self._progress is not None else None

    def _took(self, step: str) -> None:
        now = time.perf_counter()
        self._seconds[step], self._since = round(now - self._since, 3), now

    def _keep_leaves(self, first: int, end: int) -> None:
        """Store the leaf hashes of the range: proofs need them, and the records go."""
        tree = LedgerTree(self._store.select, self._store)
        last = end // TILE_WIDTH
        for low in range(first // TILE_WIDTH, last, _TILES_AT_ONCE):
            rows = [
                (index, b"".join(tree.tile(0, index)))
                for index in range(low, min(low + _TILES_AT_ONCE, last))
            ]
            self._ledger.transact(functools.partial(_insert, rows))

    def _record(
        self, copy: RangeCopy, first: int, end: int, size: int, places: Places,
        carried: dict[str, Any],
    ) -> str:  # fmt: skip
        """Write the ``ARCHIVED`` entry; what came to life meanwhile, or was erased, is first taken
        out of the archive."""
        for _ in range(_ATTEMPTS):
            done = self._ledger.transact(
                functools.partial(self._record_in, first, end, copy.root, size, places, carried)
            )
            if isinstance(done, str):
                return done
            for seq in done:
                places.remove(seq)
            size = self._ledger.count()
            copy.write_parts_again(places)
        raise LedgerError(
            "Sessions of before the cut go on all the time.",
            next_step="Nothing has left the database. Archive again later, or less.",
        )

    def _record_in(
        self, first: int, end: int, root: bytes, size: int, places: Places,
        carried: dict[str, Any], tx: Transaction,
    ) -> str | list[int]:  # fmt: skip
        """The id of the entry; or the entries that cannot leave, as their sessions go on: none
        where only something was erased."""
        if archived_to(tx.execute) != first:
            raise LedgerError(
                "Another process archives this ledger.", next_step="Nothing was done here."
            )
        alive = [
            seq
            for session_id in refers(tx, tx.execute, size)
            for (seq,) in tx.execute(
                "SELECT seq FROM entries WHERE session_id = ? AND seq < ?", (session_id, end)
            )
            if seq in places
        ]
        if alive or tx.execute("SELECT 1 FROM erasures WHERE seq >= ? LIMIT 1", (size,)):
            return alive
        tx.execute(_INFO, (str(end),))
        return tx.append(
            LedgerEntry(
                event_type=ARCHIVED,
                submission_id=self._by,
                decision="ARCHIVED",
                reason=f"Entries {first} to {end - 1} archived",
                metadata={
                    "first": first,
                    "end": end,
                    "root": root.hex(),
                    "entries": len(places),
                    "left": content(places.to_text()),
                    "carried": Content(carried),
                    "by": self._by,
                },
            )
        )


def _insert(rows: list[tuple[int, bytes]], tx: Transaction) -> None:
    tx.execute_many(_TILE, rows)
