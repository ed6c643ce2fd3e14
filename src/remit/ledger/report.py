"""What verification found."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from remit.ledger.state import Finding, Uncheckable, reason_of

if TYPE_CHECKING:
    from remit.ledger.client import LedgerClient

Progress = Callable[[int, int], None]
"""Called now and then with what is done and what there is in all."""

StateCheck = Callable[["LedgerClient", bool], Iterable[Finding]]
"""Compares what another part of Remit keeps in the ledger's database with the record. Takes the
ledger, and True if the check may continue from the mark of an earlier one."""

_MAX_PROBLEMS = 100


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        seq: the sequence number of the entry it shows at; ``None`` when it is of no entry.
        kind: ``unreadable`` (also of a check that could not be finished), ``gap``, ``hash``,
            ``link``, ``column``, ``field``, ``content``, ``messages``, ``erasure``, ``tree``,
            ``checkpoint``, ``archive``, ``store`` or ``state``.
        message: a sentence.
    """

    seq: int | None
    kind: str
    message: str

    def __str__(self) -> str:
        where = "store" if self.seq is None else f"seq {self.seq}"
        return f"{where}: {self.kind}: {self.message}"


@dataclass(slots=True)
class VerificationReport:
    """What verification found.

    Attributes:
        entries: how many were looked at.
        first_seq: the first of them; more than 0 when older ones were left out on request.
        unread: those of them that an earlier verification of this root found sound, with all they
            show, and that were not read again.
        last_full: when everything was checked the last time, ISO 8601; empty where it was now.
        archived: how many left for an archive, by the record, and are held against the tree by
            their hashes alone; ``--archive`` reads them.
        contents: content values checked against their commitments.
        erased: content values that are gone and that an ``ERASURE`` entry accounts for.
        erasures: by ``ERASURE`` entry id, how many of them went under it.
        first_bad_seq: the lowest sequence number with a problem.
        problems: at most 100 of them, in ledger order; ``problem_count`` counts all.
        checkpoint: how far signed tree heads vouch for the ledger:
            ``none`` (there is none: a ledger cut off at its end, or rewritten completely, looks
            the same as a sound one), ``unchecked`` (there are, but no key to check them by),
            ``stored`` (those in the database hold: the owner of key and disk could still have
            rewritten everything), ``outside`` (the one given by the caller holds) or ``failed``.
        checkpoint_size: entries under the greatest checkpoint that holds.
        witnesses: names of the witnesses whose cosignatures on it hold.
        notes: what could not be checked, as older versions put less on record.
    """

    entries: int = 0
    first_seq: int = 0
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
        """Whether nothing is wrong."""
        return self.problem_count == 0

    @classmethod
    def of_failure(cls, error: Exception) -> Self:
        """Return the report on a ledger that cannot be opened."""
        report = cls()
        report.add(None, "unreadable", reason_of(error))
        return report

    @contextlib.contextmanager
    def guard(self, name: str) -> Iterator[None]:
        """Report a check that fails, whatever is stored; the next check runs."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the report has to be made
            self.add(None, "unreadable", f"{name}: the check could not be finished: "
                                         f"{reason_of(error)}")  # fmt: skip

    def take(self, kind: str, findings: Iterable[Finding]) -> None:
        """Note what a check of tables found."""
        for seq, said in findings:
            if isinstance(said, Uncheckable):
                self.notes.append(said)
            else:
                self.add(seq, kind, said)

    def add(self, seq: int | None, kind: str, message: str) -> None:
        """Note one problem."""
        self.problem_count += 1
        if seq is not None and (self.first_bad_seq is None or seq < self.first_bad_seq):
            self.first_bad_seq = seq
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(Problem(seq, kind, message))

    def merge(self, part: VerificationReport) -> None:
        """Take over what was found in another range."""
        self.entries += part.entries
        self.archived += part.archived
        self.contents += part.contents
        unlisted = part.problem_count - len(part.problems)
        for problem in part.problems:
            self.add(problem.seq, problem.kind, problem.message)
        self.problem_count += unlisted

    def sort(self) -> None:
        """Problems in ledger order, those of no entry first."""
        self.problems.sort(key=lambda problem: (problem.seq is not None, problem.seq or 0))
