"""Verification of the trail: rows and ledger entries are compared with each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from remit.kernel.errors import RemitError
from remit.ledger import (
    Erased,
    Finding,
    LedgerClient,
    LedgerEntry,
    LedgerFormatError,
    Progress,
    imported_size,
    keep_mark,
    left_of,
    parse_entry_id,
    read_mark,
    require_plain_text,
)
from remit.routing.trail.table import (
    EVENT,
    Row,
    content_of,
    last_seq,
    rows_of,
    stray_rows,
)
from remit.routing.trail.thought_record import FIRST_PREV_HASH, hash_problem

_PAGE = 500
_PROGRESS_EVERY = 1000
_MAX_PROBLEMS = 100
_MARK = "trail"
_NO_PLACE = "its place in the chain is missing"


@dataclass(frozen=True, slots=True)
class TrailProblem:
    """A problem of the trail.

    Attributes:
        thought_id: id of the record; of the entry if the record's id cannot be read.
        task_id: the record's task; empty if unknown.
        place: the ledger entry (``LED-…``).
        message: a sentence.
    """

    thought_id: str
    task_id: str
    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.thought_id} ({self.place}): {self.message}"


@dataclass(slots=True)
class TrailReport:
    """The result of verifying a trail.

    Attributes:
        records: number of checked records, including those of an earlier check under a mark.
        tasks: number of chains.
        erased: number of checked records whose content is erased; their place was checked.
        first_bad: id of the first record, in ledger order, with a problem; ``None`` without one.
        problem_count: number of problems.
        problems: at most 100 problems, in ledger order.
    """

    records: int = 0
    tasks: int = 0
    erased: int = 0
    first_bad: str | None = None
    problem_count: int = 0
    problems: list[TrailProblem] = field(default_factory=list)

    @property
    def verified(self) -> bool:
        """True if there is no problem."""
        return self.problem_count == 0

    def add(self, thought_id: str, task_id: str, place: str, message: str) -> None:
        """Count a problem, and list it if fewer than 100 are; the first one is ``first_bad``.

        Callers add problems in ledger order.
        """
        self.problem_count += 1
        if self.first_bad is None:
            self.first_bad = thought_id
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(TrailProblem(thought_id, task_id, place, message))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain data, ``verified`` first."""
        return {"verified": self.verified, **asdict(self)}


def check_trail(ledger: LedgerClient, since_mark: bool) -> Iterator[Finding]:
    """Yield the problems that :func:`verify_trail` lists, as a :data:`~remit.ledger.StateCheck`.

    At most 100 are listed. Missing places of thoughts from an import are left out, because those
    that were erased before have none. A sound check writes a mark.

    Args:
        ledger: the ledger.
        since_mark: True to continue from the last sound check.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    first = imported_size(ledger.select)
    for problem in verify_trail(ledger, since_mark=since_mark).problems:
        seq = parse_entry_id(problem.place)
        if problem.message != _NO_PLACE or seq is None or seq >= first:
            yield seq, f"thoughts: {problem}"


_Found = tuple[int, LedgerEntry | RemitError]
"""A sequence number and its ``THOUGHT_RECORD`` entry, or the error of reading it."""


def verify_trail(
    ledger: LedgerClient,
    task_id: str | None = None,
    *,
    since_mark: bool = False,
    progress: Progress | None = None,
) -> TrailReport:
    """Hash every thought again and check that it follows the one before; return the result. Blocks.

    Every record is compared with its ledger entry, and every ``THOUGHT_RECORD`` entry must have a
    place in a chain. For an erased thought only the place is checked. The entries themselves are
    checked by :meth:`~remit.ledger.LedgerClient.verify`. A sound result over all tasks is written
    as a mark, from which a later check can continue. Problems are reported, not raised.

    Args:
        ledger: the ledger.
        task_id: the task; ``None`` for all.
        since_mark: True to continue from the root's last sound check, if its records are still
            there; ignored with ``task_id``.
        progress: called with the number of checked records and their total; ``None`` for no call.

    Raises:
        InvalidInputError: ``task_id`` is not a text that can be recorded.
        LedgerError: the ledger cannot be read.
    """
    if task_id is not None:
        require_plain_text("task_id", task_id)
    last = last_seq(ledger)
    known: dict[str, Any] = {}
    if since_mark and task_id is None:
        known = read_mark(ledger, _MARK)
        if known and _counts(ledger, None, -1, known["size"] - 1) != [known["records"]] * 2:
            known = {}
    first = known.get("size", 0)
    report = _Check(ledger, task_id, first - 1, last, progress).run()
    report.records += known.get("records", 0)
    if report.verified and task_id is None:
        keep_mark(ledger, _MARK, last + 1, {"records": report.records})
    return report


class _Check:
    """A verification that reads rows and entries side by side."""

    def __init__(
        self,
        ledger: LedgerClient,
        task_id: str | None,
        behind: int,
        last: int,
        progress: Progress | None,
    ) -> None:
        self._ledger = ledger
        self._task_id = task_id
        self._behind = behind
        self._last = last
        self._progress = progress
        self._report = TrailReport()
        self._problems: list[tuple[int, str, str, str, str]] = []  # the entry's number first
        self._passed: dict[int, tuple[str, str]] = {}  # entries whose row has not come yet
        self._archived = left_of(ledger.archived_ranges())

    def run(self) -> TrailReport:
        """Check all rows and entries; return the report with problems in ledger order."""
        report = self._report
        total, _ = _counts(self._ledger, self._task_id, self._behind, self._last)
        report.tasks = self._tasks()
        entries = _entries(self._ledger, self._task_id, self._behind, self._last)
        current = next(entries, None)
        for row in stray_rows(self._ledger, self._task_id):
            self._note(row, "its row names no ledger entry")
        for row in rows_of(self._ledger, self._task_id, self._last, self._behind):
            if type(row.seq) is not int:
                self._note(row, "its row names no ledger entry")
                continue
            while current is not None and current[0] < row.seq:
                self._pass_by(*current)
                current = next(entries, None)
            if current is not None and current[0] == row.seq:
                self._check(row, current[1])
                current = next(entries, None)
            elif self._passed.pop(row.seq, None) is not None:
                self._check(row, _read(self._ledger, row.seq))
            elif row.seq in self._archived:
                self._check_links(row)
            else:
                self._note(row, "its entry is not in the ledger as a THOUGHT_RECORD of its task")
                self._check_links(row)
            report.records += 1
            if self._progress is not None and report.records % _PROGRESS_EVERY == 0:
                self._progress(min(report.records, total), total)
        while current is not None:
            self._pass_by(*current)
            current = next(entries, None)
        for seq, (thought_id, task_id) in self._passed.items():
            report.records += 1
            self._problems.append((seq, f"LED-{seq:08x}", thought_id, task_id, _NO_PLACE))
        if self._progress is not None:
            self._progress(total, total)
        for _, place, thought_id, task_id, message in sorted(
            self._problems, key=lambda problem: problem[0]
        ):
            report.add(thought_id, task_id, place, message)
        return report

    def _tasks(self) -> int:
        """Return the number of chains."""
        of_task = "" if self._task_id is None else " AND task_id = ?"
        given = (self._last,) if self._task_id is None else (self._last, self._task_id)
        sql = f"SELECT count(DISTINCT task_id) FROM thoughts WHERE seq <= ?{of_task}"
        return int(self._ledger.select(sql, given)[0][0])

    def _pass_by(self, seq: int, entry: LedgerEntry | RemitError) -> None:
        """Collect an entry without a row so far: a task's rows are read by position."""
        thought_id, task_id = f"LED-{seq:08x}", self._task_id or ""
        if isinstance(entry, LedgerEntry):
            thought_id = str(entry.metadata.get("thought_id", thought_id))
            task_id = str(entry.metadata.get("task_id", task_id))
        self._passed[seq] = (thought_id, task_id)

    def _check(self, row: Row, entry: LedgerEntry | RemitError) -> None:
        """Compare one row with its entry, and check its links."""
        self._check_links(row)
        if not row.is_sound:
            return
        if not isinstance(entry, LedgerEntry):
            self._note(row, f"its ledger entry cannot be read: {entry.args[0]}")
            return
        meta = entry.metadata
        for name, expected in (
            ("thought_id", row.thought_id),
            ("task_id", row.task_id),
            ("position", row.position),
        ):
            if meta.get(name) != expected:
                self._note(row, f"its ledger entry says {meta.get(name)!r} for its {name}, not "
                                f"{expected!r}")  # fmt: skip
        content = content_of(entry)
        if isinstance(content, Erased):
            self._report.erased += 1
            if content.erasure_id is None:
                self._note(row, "its content is missing, and no erasure accounts for it")
        elif problem := hash_problem(
            row.thought_id, meta.get("type"), row.task_id, content,
            meta.get("thought_timestamp"), row.prev_hash, row.hash,
        ):  # fmt: skip
            self._note(row, problem)
        own_hash = meta.get("hash")
        if isinstance(own_hash, Erased):
            if own_hash.erasure_id is None:
                self._note(row, "its hash is missing in its ledger entry, and no erasure "
                                "accounts for it")  # fmt: skip
        elif own_hash != row.hash and not (own_hash is None and "erased" in meta):
            self._note(row, "its ledger entry has another hash")

    def _check_links(self, row: Row) -> None:
        """Check that a row follows the row before it in its chain."""
        if not row.is_sound:
            self._note(row, "its row, or the one before, holds what is not of its column's type")
        elif row.position == 0:
            if row.prev_hash != FIRST_PREV_HASH:
                self._note(row, "it is the first of its task, and does not begin with 64 zeros")
        elif row.before_seq is None:
            self._note(row, f"the task has no record at position {row.position - 1}, before it")
        elif row.before_hash != row.prev_hash:
            self._note(row, "it does not follow the record before it")
        elif row.before_seq >= row.seq:
            self._note(row, "the record before it is later in the ledger")

    def _note(self, row: Row, message: str) -> None:
        seq = row.seq if type(row.seq) is int and row.seq >= 0 else self._last + 1
        thought_id, task_id = (
            item if isinstance(item, str) else repr(item) for item in (row.thought_id, row.task_id)
        )
        self._problems.append((seq, row.place, thought_id, task_id, message))


def _counts(ledger: LedgerClient, task_id: str | None, behind: int, last: int) -> list[int]:
    """Return the numbers of entries and of rows in a part of the ledger."""
    given: tuple[Any, ...] = (behind, last) if task_id is None else (behind, last, task_id)
    counts = []
    for what, task in (
        (f"entries WHERE event_type = '{EVENT}' AND", "submission_id"),
        ("thoughts WHERE", "task_id"),
    ):
        of_task = "" if task_id is None else f" AND {task} = ?"
        sql = f"SELECT count(*) FROM {what} seq > ? AND seq <= ?{of_task}"
        counts.append(int(ledger.select(sql, given)[0][0]))
    return counts


def _entries(ledger: LedgerClient, task_id: str | None, behind: int, last: int) -> Iterator[_Found]:
    """Yield the ``THOUGHT_RECORD`` entries of a part; a damaged one as its error."""
    while seqs := _next_seqs(ledger, task_id, behind, last):
        try:
            page = list(
                ledger.query(event_type=EVENT, submission_id=task_id, after=behind, limit=len(seqs))
            )
        except LedgerFormatError:
            page = []
        if [entry.seq for entry in page] == seqs:
            yield from zip(seqs, page, strict=True)
        else:  # An entry of the page is damaged.
            for seq in seqs:
                yield seq, _read(ledger, seq)
        behind = seqs[-1]


def _next_seqs(ledger: LedgerClient, task_id: str | None, behind: int, last: int) -> list[int]:
    sql = "SELECT seq FROM entries WHERE event_type = ? AND seq > ? AND seq <= ? "
    given: tuple[Any, ...] = (EVENT, behind, last)
    if task_id is not None:
        sql += "AND submission_id = ? "
        given = (*given, task_id)
    return [row[0] for row in ledger.select(f"{sql}ORDER BY seq LIMIT {_PAGE}", given)]


def _read(ledger: LedgerClient, seq: int) -> LedgerEntry | RemitError:
    try:
        entry = ledger.read(f"LED-{seq:08x}")
    except RemitError as error:
        return error
    if entry.seq != seq:
        return LedgerFormatError(f"it gives itself the id {entry.id!r}")
    return entry
