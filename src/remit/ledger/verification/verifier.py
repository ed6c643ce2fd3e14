"""The verification of a ledger, from the engine's file to the checkpoints."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TypeVar

from remit.ledger.archived_ranges import (
    ArchivedRange,
    Places,
    archived_ranges,
    archived_to,
    left_of,
)
from remit.ledger.checkpoints import stored_notes
from remit.ledger.errors import LedgerError
from remit.ledger.schema import TABLES
from remit.ledger.store import Store
from remit.ledger.table_checks import of_other_types
from remit.ledger.tlog import TILE_WIDTH, SignedCheckpoint, VerifierKey, tree_root
from remit.ledger.verification.contents import check_contents, check_steps, check_unnamed_subjects
from remit.ledger.verification.entries import EntryRange, check_entries, known_entries
from remit.ledger.verification.heads import check_heads, read_heads
from remit.ledger.verification.marks import Marks
from remit.ledger.verification.processes import runner
from remit.ledger.verification.report import Progress, VerificationReport, report_gap
from remit.ledger.verification.tables import (
    check_erasures,
    check_info,
    check_outliers,
    check_unnamed_steps,
    check_upper_tree,
    last_id,
)
from remit.ledger.verification.verified_mark import VerifiedMark, tree_digest

_T = TypeVar("_T")

# The checks of the two largest tables look at types themselves.
_TYPED = {name: TABLES[name] for name in TABLES if name not in ("entries", "contents")}
_RANGE = 8 * TILE_WIDTH  # entries or rows in one task
_MIN_PARALLEL_ROWS = 40_000  # entries and contents; below, starting processes costs more
_ATTEMPTS = 3  # if an erasure or a segment removes what is being checked
_SAMPLE = 4  # ranges of each kind, taken at random, that are read again under a mark

_Range = tuple[int, int]  # first and last


@dataclass(eq=False, repr=False)
class Verifier:
    """A verification of a ledger, which runs once, by :meth:`verify`.

    Faults and errors of reading become problems of the report. Only a mark is written.

    Args:
        reopen: opens the store in another process.
        store: the store to read.
        key: the key that checkpoints are checked by; ``None`` leaves signatures unchecked.
        witnesses: keys whose cosignatures are reported.
        marks: the marks of the root; ``None`` neither reads nor writes a mark.
        outside: a signed checkpoint that the caller held; ``None`` if there is none.
        jobs: number of processes; up to 40,000 rows one is used.
        deep: True to have the engine check its file too; ignored under a mark.
        progress: called with the number of checked rows and their total; ``None`` for none.
        attempts: number of verifications, as long as faults are found that an erasure or the
            removal of archived entries during the verification may explain.
    """

    _reopen: Callable[[], Store]
    _store: Store
    _key: VerifierKey | None
    _witnesses: Sequence[VerifierKey]
    _marks: Marks | None = None
    _: KW_ONLY
    outside: str | bytes | SignedCheckpoint | None = None
    jobs: int = 1
    deep: bool = True
    progress: Progress | None = None
    attempts: int = _ATTEMPTS
    _known: VerifiedMark = field(default_factory=VerifiedMark, init=False)  # the mark in use
    _now: VerifiedMark = field(default_factory=VerifiedMark, init=False)  # the mark to be written
    _report: VerificationReport = field(default_factory=VerificationReport, init=False)
    _named: set[int] = field(default_factory=set, init=False)  # the values that name subjects
    _waiting: int = field(default=0, init=False)  # entries that were archived and are to be removed
    _unread_archived: int = field(default=0, init=False)

    def verify(self, *, since_mark: bool = False) -> VerificationReport:
        """Return the result of :meth:`LedgerClient.verify`; write a mark if the ledger is sound.

        Tables of other parts, the stored head and segments are not checked here. An error of a
        check is a problem of the report; so are entries under the last mark that are missing or
        differ.

        Args:
            since_mark: True to read entries below the last mark only in samples, if the mark is of
                this ledger. Any fault then leads to a full verification, with ``deep``.
        """
        report = self._report
        marks = self._marks
        before = VerifiedMark()
        with report.guard("the mark of the last verification"):
            before = VerifiedMark.read(marks)
            if since_mark and before.is_of(self._store):
                self._known = before
                report.last_full = self._now.verified = before.verified
        removed = self._removed()
        self._read()
        if not report.verified:
            is_stale = self._removed() != removed
            if self._known.size or (is_stale and self.attempts > 1):
                # A whole verification names the faults.
                return replace(self, attempts=self.attempts - is_stale).verify()
            if is_stale:
                report.notes.append(
                    "Content was erased or entries were archived during the verification, which "
                    "may explain its faults; verify again."
                )
        with report.guard("the mark of the last verification"):
            if problem := before.contradiction(self._store, self._now.size):
                path = marks.path("verification") if marks else ""
                path = f"; if this was intended, keep {path} as a copy elsewhere" if path else ""
                report.add(None, "checkpoint", problem + path)
            if report.verified and marks is not None:
                self._now.write(marks, self._store)
        return report

    def _removed(self) -> object:
        """Return a value that changes if content is erased, or archived entries are removed."""
        with contextlib.suppress(LedgerError):  # The checks of the tables report the error.
            select = self._store.select
            end = archived_to(select)
            return end, select(
                "SELECT (SELECT max(seq) FROM erasures), "
                "(SELECT count(*) FROM entries WHERE seq < ?)",
                (end,),
            )
        return None

    def _read(self) -> None:
        report, store, known, now = self._report, self._store, self._known, self._now
        notes: list[tuple[int, str]] = []
        with report.guard("checkpoints"):
            # The notes first: one that comes while we read would cover entries we do not.
            notes.extend(stored_notes(store))
        subjects = last_id(report, store, "content_id", "content_subjects") or 0
        last = last_id(report, store, "seq", "entries")
        size = 0 if last is None else max(0, last + 1)
        if store.segment is not None:
            if size > store.segment.end:
                report.add(size - 1, "store", "an entry was added to a segment")
            size = max(size, store.segment.end)
            report.notes.append(
                f"{store.location} is a segment with {len(store.segment)} entries of a ledger; "
                "only a verification of that ledger compares its erasures"
            )
        contents = last_id(report, store, "content_id", "contents") or 0
        steps = last_id(report, store, "step_id", "message_steps") or 0
        now.size, now.ends = size, {"seq": size, "content_id": contents + 1, "step_id": steps + 1}
        check_outliers(report, store, size)
        if not known.size:
            report.take("store", of_other_types(store, _TYPED))
        with report.guard("ledger_info and migrations"):
            check_info(report, store, self._key)
        with report.guard("entries and their content"):
            self._read_entries(contents, steps, notes)
        ends = known.ends
        with report.guard("message_steps"):
            check_unnamed_steps(report, store, ends.get("step_id", 0), ends.get("seq", 0))
        with report.guard("content_subjects"):
            least = ends.get("content_id", -1 << 62)
            check_unnamed_subjects(report, store, least, subjects, self._named)
        with report.guard("erasures"):
            check_erasures(report, store, known.size)
        report.erased = sum(report.erasures.values())
        if self._waiting and store.segment is not None:
            report.add(None, "store", f"the segment does not name {self._waiting} of its entries")
        elif self._waiting:
            report.notes.append(
                f"{self._waiting} entries that were archived are still here; `remit ledger "
                "segment --finish` removes them"
            )

    def _read_entries(self, contents: int, steps: int, notes: list[tuple[int, str]]) -> None:
        """Check content, message steps and entries in ranges, then the tree."""
        report, known, now, size = self._report, self._known, self._now, self._now.size
        content_ranges: list[_Range] = []
        step_ranges: list[_Range] = []
        with report.guard("contents and message_steps"):
            content_ranges = list(self._ranges("content_id", "contents", 1, contents))
            step_ranges = list(self._ranges("step_id", "message_steps", 1, steps))
        heads = read_heads(report, notes, self.outside, self._key)
        wanted = {one.checkpoint.size for _, one in heads if one.checkpoint.size <= size}
        archived: list[ArchivedRange] = []
        left = Places(0)
        with report.guard("archived entries"):
            archived = archived_ranges(self._store)
            segment = self._store.segment
            left = left_of(archived) if segment is None else segment.others()
        entry_ranges = list(self._entry_ranges(size, left.end))
        unread = {
            (low, high)
            for low, high in _left_out(entry_ranges, known.ends.get("seq", 0))
            if all(str(item) in known.partials for item in wanted if low <= item <= high + 1)
        }
        if known.size:
            report.contents = self._store.select("SELECT count(*) FROM contents")[0][0]
            for ranges, kind in ((content_ranges, "content_id"), (step_ranges, "step_id")):
                ranges[:] = sorted({*ranges}.difference(_left_out(ranges, known.ends[kind])))
        reading = [item for item in entry_ranges if item not in unread]
        # About how many, for progress: ids have few gaps.
        total = sum(high - low + 1 for low, high in (*content_ranges, *step_ranges, *reading))
        done = 0

        def advance(number: int) -> None:
            nonlocal done
            done = min(done + number, total)
            if self.progress is not None:
                self.progress(done, total)

        advance(0)
        jobs = self.jobs if total > _MIN_PARALLEL_ROWS else 1
        with runner(self._reopen, self._store, jobs) as pool:
            file_problems = pool.start(_check_file, self.deep and not known.size)
            try:
                bad_contents: dict[int, str] = {}
                bad_steps: dict[int, str] = {}
                for count, bad, part in pool.run(check_contents, content_ranges):
                    report.contents += 0 if known.size else count
                    report.merge(part)
                    bad_contents.update(bad)
                    advance(count)
                for count, bad, part in pool.run(check_steps, step_ranges):
                    report.merge(part)
                    bad_steps.update(bad)
                    advance(count)
                read = pool.run(
                    check_entries,
                    (
                        (
                            low,
                            high,
                            bad_contents,
                            bad_steps,
                            {item for item in wanted if low <= item <= high + 1},
                            left.part(low, high),
                        )
                        for low, high in reading
                    ),
                )
                parts = (
                    self._known_entries(*item) if item in unread else next(read)
                    for item in entry_ranges
                )
                roots, partials, blamed = self._join(size, parts, advance)
                advance(total)  # there were gaps
            finally:
                report.merge(file_problems())
        report.unread = sum(high - low + 1 for low, high in unread) - self._unread_archived
        if known.size and bad_steps:  # Unread entries may show a damaged step.
            report.add(None, "messages", "a message list is damaged")
        if known.size and tree_digest(roots[: known.size // TILE_WIDTH]) != known.tree:
            report.add(None, "tree", "the stored tree hashes are others")
        for problem in {**bad_contents, **bad_steps}.values():
            if problem not in blamed:
                report.add(None, "content", problem)
        with report.guard("tree_hashes"):
            check_upper_tree(report, self._store, roots)
        for one in archived:
            if tree_root(roots[: one.end // TILE_WIDTH]).hex() != one.root:
                report.add(one.seq, "archive", "the tree had another root when it was archived")
        check_heads(
            report,
            heads,
            roots,
            partials,
            size,
            is_signed=self._key is not None,
            witnesses=self._witnesses,
        )
        now.tree = tree_digest(roots)
        now.partials = {str(number): root.hex() for number, root in partials.items()}

    def _known_entries(self, first: int, last: int) -> EntryRange:
        part = known_entries(self._store, first, last)
        self._unread_archived += part.report.archived
        return part

    def _entry_ranges(self, size: int, archived: int) -> Iterator[_Range]:
        """Yield ranges of entries: below ``archived`` all ranges, else ranges with rows."""
        low = 0
        while low < archived:
            yield low, min(low + _RANGE, size) - 1
            low += _RANGE
        yield from self._ranges("seq", "entries", low, size - 1)

    def _ranges(self, column: str, table: str, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of ids that have rows, at multiples of the same width from ``first``."""
        low = first
        while low <= last:
            rows = self._store.select(
                f"SELECT {column} FROM {table} WHERE {column} >= ? ORDER BY {column} LIMIT 1",
                (low,),
            )
            if not rows or rows[0][0] > last:
                return
            low += (rows[0][0] - low) // _RANGE * _RANGE
            yield low, min(low + _RANGE - 1, last)
            low += _RANGE

    def _join(
        self, size: int, ranges: Iterable[EntryRange], advance: Callable[[int], None]
    ) -> tuple[list[bytes], dict[int, bytes], set[str]]:
        """Join the results of ranges: links across their borders, and the tree in order."""
        roots: list[bytes] = []
        known = self._known.partials.items()
        partials = {int(number): bytes.fromhex(root) for number, root in known}
        blamed: set[str] = set()
        last_hash: str | None = ""
        expected = 0
        for part in ranges:
            if part.first > expected:
                report_gap(self._report, expected, part.first - 1)
                last_hash = None
            if last_hash is not None and part.first_link not in (None, last_hash):
                part.report.add(
                    part.first, "link", "previous_hash is not the hash of the entry before"
                )
            self._report.merge(part.report)
            advance(part.report.entries)
            roots.extend(part.tile_roots)
            partials.update(part.partial_roots)
            blamed |= part.blamed
            self._named |= part.named
            self._waiting += part.waiting
            last_hash = part.last_hash
            expected = part.last + 1
        self._now.entry_hash = last_hash or ""
        if not size:
            partials.setdefault(size, b"")
        return roots, partials, blamed


def _left_out(ranges: Sequence[_Range], end: int) -> Iterator[_Range]:
    """Yield the ranges below the ``end`` of a mark, except for a random sample."""
    whole = [item for item in ranges if item[1] < end]
    again = random.SystemRandom().sample(whole, min(_SAMPLE, len(whole)))
    return (item for item in whole if item not in again)


def _check_file(store: Store, deep: bool) -> VerificationReport:
    report = VerificationReport()
    with report.guard("the database and its layout"):
        for problem in store.integrity_problems(deep=deep):
            report.add(None, "store", problem)
    return report
