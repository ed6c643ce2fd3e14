"""The result of a verification."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from remit.ledger.entry import entry_id
from remit.ledger.projection import Repairable
from remit.ledger.table_checks import Finding, Uncheckable, reason_of
from remit.ledger.tlog.tiles import TILE_WIDTH

if TYPE_CHECKING:
    from remit.ledger.client import LedgerClient

Progress = Callable[[int, int], None]
"""Called repeatedly with the amount done and the total."""

StateCheck = Callable[["LedgerClient", bool], Iterable[Finding]]
"""A check of another part's tables against the record. Takes the ledger, and True if the check may
continue from the mark of an earlier one; yields findings."""

_MAX_PROBLEMS = 100


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem that verification found; immutable. ``str`` gives place, kind and message.

    Attributes:
        seq: sequence number of the entry; ``None`` if the problem concerns no entry.
        kind: ``unreadable`` (also if a check could not be finished), ``gap``, ``hash``, ``link``,
            ``column``, ``field``, ``content``, ``messages``, ``erasure``, ``tree``, ``checkpoint``,
            ``archive``, ``store`` or ``state``.
        message: a sentence.
        checkpoint: size of the stored checkpoint that does not match the records; 0 without one.
    """

    seq: int | None
    kind: str
    message: str
    checkpoint: int = 0

    def __str__(self) -> str:
        where = "store" if self.seq is None else f"seq {self.seq}"
        return f"{where}: {self.kind}: {self.message}"


@dataclass(slots=True)
class VerificationReport:
    """The result of a verification.

    Attributes:
        entries: number of entries covered.
        unread: number of these entries that an earlier verification of this root found sound, with
            their content, and that were not read again.
        last_full: time of the last full verification, ISO 8601; empty if this one was full.
        archived: number of archived entries, by the record. Only their hashes are checked against
            the tree; ``--archive`` reads them.
        contents: number of content values checked against their commitments, by this verification
            or the one that it continues.
        erased: number of missing content values that an ``ERASURE`` entry accounts for.
        erasures: number of these values, keyed by the id of the ``ERASURE`` entry.
        first_bad_seq: the lowest sequence number with a problem; ``None`` if there is none.
        problem_count: number of all problems.
        problems: the first 100 problems that were found; in ledger order after :meth:`sort`.
        checkpoint: the assurance that signed tree heads give. ``none``: there is no head, so a
            ledger cut off at its end, or rewritten completely, looks like a sound one.
            ``unchecked``: there is no key to check the heads. ``stored``: the heads in the database
            are valid, but the owner of key and disk could have rewritten everything. ``outside``:
            the head that the caller gave is valid. ``failed``: a head is not.
        checkpoint_size: number of entries under the greatest valid checkpoint.
        witnesses: names of the witnesses with valid cosignatures on it.
        notes: remarks that are no problems: checks that were not possible because older versions
            recorded less, limits of a segment, and archived entries that are not removed yet.
    """

    entries: int = 0
    unread: int = 0
    last_full: str = ""
    archived: int = 0
    contents: int = 0
    erased: int = 0
    erasures: dict[str, int] = field(default_factory=dict)
    first_bad_seq: int | None = None
    problem_count: int = 0
    problems: list[Problem] = field(default_factory=list)
    checkpoint: str = "none"
    checkpoint_size: int = 0
    witnesses: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def verified(self) -> bool:
        """True if there is no problem."""
        return self.problem_count == 0

    @classmethod
    def of_failure(cls, error: Exception) -> Self:
        """Return the report on a ledger that cannot be opened; ``error`` is its only problem.

        Args:
            error: the error; its text becomes an ``unreadable`` problem without a sequence number.
        """
        report = cls()
        report.add(None, "unreadable", reason_of(error))
        return report

    @contextlib.contextmanager
    def guard(self, name: str) -> Iterator[None]:
        """Report an exception of the block as an ``unreadable`` problem, so that the next check
        runs.

        The block's exception is not raised; KeyboardInterrupt and its like are.

        Args:
            name: name of the check, for the problem.
        """
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the report has to be made
            self.add(None, "unreadable", f"{name}: the check could not be finished: "
                                         f"{reason_of(error)}")  # fmt: skip

    def take(self, kind: str, findings: Iterable[Finding], *, sound: bool = True) -> None:
        """Add the findings of a check as problems of a kind; :class:`Uncheckable` ones as notes.

        The findings are iterated here, so an error of the check is raised.

        Args:
            kind: kind of the problems.
            findings: pairs of a sequence number (``None`` for none) and a sentence.
            sound: False to leave out the command that corrects a :class:`Repairable` row, because
                the entries have problems.
        """
        for seq, said in findings:
            if isinstance(said, Uncheckable):
                self.notes.append(said)
            elif isinstance(said, Repairable) and sound:
                self.add(seq, kind, f"{said}; `{said.repair}` takes what the ledger says")
            else:
                self.add(seq, kind, said)

    def add(self, seq: int | None, kind: str, message: str, checkpoint: int = 0) -> None:
        """Add a problem; only the first 100 are listed, all are counted.

        The lowest sequence number with a problem is updated.

        Args:
            seq: sequence number of the entry; ``None`` if the problem concerns no entry.
            kind: as for :class:`Problem`.
            message: a sentence.
            checkpoint: as for :class:`Problem`.
        """
        self.problem_count += 1
        if seq is not None and (self.first_bad_seq is None or seq < self.first_bad_seq):
            self.first_bad_seq = seq
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(Problem(seq, kind, message, checkpoint))

    def merge(self, part: VerificationReport) -> None:
        """Add the counts of entries, archived entries, contents and problems of another range to
        this report.

        At most 100 problems stay listed; all are counted. Notes, erasures and heads are not merged.

        Args:
            part: report of the other range, which is not changed.
        """
        self.entries += part.entries
        self.archived += part.archived
        self.contents += part.contents
        unlisted = part.problem_count - len(part.problems)
        for problem in part.problems:
            self.add(problem.seq, problem.kind, problem.message, problem.checkpoint)
        self.problem_count += unlisted

    def sort(self) -> None:
        """Sort the listed problems in ledger order, problems without an entry first."""
        self.problems.sort(key=lambda problem: (problem.seq is not None, problem.seq or 0))

    def lines(self) -> Iterator[str]:
        """Yield the listed problems for people: those of entries first, in the order of the list.

        Stored checkpoints that do not match the records share the last line.
        """
        stale = [problem.checkpoint for problem in self.problems if problem.checkpoint]
        for problem in self.problems:
            if problem.seq is not None:
                yield f"{entry_id(problem.seq)}: {problem.message}"
        for problem in self.problems:
            if problem.seq is None and (not problem.checkpoint or len(stale) == 1):
                yield problem.message
        if len(stale) > 1:
            yield (
                f"{len(stale):,} stored checkpoints (of {min(stale)} to {max(stale)} "
                "entries) do not match the records: the history before them was rewritten"
            )


def report_gap(report: VerificationReport, first: int, last: int) -> None:
    """Report that the entries from ``first`` to ``last`` are missing.

    Args:
        report: receives one problem of the kind ``gap``.
        first: sequence number of the first missing entry.
        last: sequence number of the last missing entry.
    """
    said = "this entry is missing"
    if last > first:
        said = f"the entries from this one to {entry_id(last)} are missing"
    report.add(first, "gap", said)


def report_tree_hash(report: VerificationReport, level: int, index: int) -> None:
    """Report that a stored tree hash differs from the root of its entries.

    Args:
        report: receives one problem of the kind ``tree``, without a sequence number.
        level: level of the tile tree, from 1.
        index: number of the hash in its level.
    """
    width = TILE_WIDTH**level
    report.add(
        None,
        "tree",
        f"tree_hashes: level {level}, {index}: the stored hash is not that of entries "
        f"{index * width} to {(index + 1) * width - 1}",
    )
