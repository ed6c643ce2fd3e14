"""Is the ledger what it claims to be? Reads everything once, skips nothing (SPEC 3.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from remit.canonical import canonical_json, sha256_hex
from remit.errors import RemitError
from remit.ledger.content import NO_STEP, commit, next_step
from remit.ledger.entry import entry_id
from remit.ledger.errors import LedgerFormatError
from remit.ledger.record import MAX_RECORD_BYTES, columns_of, commitments_in
from remit.ledger.store import EntryRow, Filter, Store

__all__ = ["Problem", "Progress", "VerificationReport", "verify_store"]

Progress = Callable[[int, int], None]

_PAGE = 500
_MOST_PROBLEMS = 100
_FIELDS = frozenset(
    {
        "decision", "event_type", "id", "metadata", "previous_hash", "prompts_used",
        "reason", "seq", "submission_id", "timestamp",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        seq: the sequence number of the entry it shows at; ``None`` when it is of no entry.
        kind: ``unreadable``, ``gap``, ``hash``, ``link``, ``column``, ``field``, ``content``,
            ``messages`` or ``store``.
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
        entries: entries read.
        contents: content values checked against their commitments.
        erased: content values that an ``ERASURE`` entry accounts for.
        first_bad_seq: the lowest sequence number with a problem.
        problems: at most 100 of them, in ledger order; ``problem_count`` counts all.
        checkpoint: ``none`` as long as there is no signed checkpoint to hold against: then a
            ledger cut off at its end, or rewritten whole, cannot be told from a sound one.
    """

    entries: int = 0
    contents: int = 0
    erased: int = 0
    first_bad_seq: int | None = None
    problem_count: int = 0
    problems: list[Problem] = field(default_factory=list)
    checkpoint: str = "none"

    @property
    def verified(self) -> bool:
        """Whether nothing is wrong."""
        return self.problem_count == 0

    def add(self, seq: int | None, kind: str, message: str) -> None:
        """Note one problem."""
        self.problem_count += 1
        if seq is not None and (self.first_bad_seq is None or seq < self.first_bad_seq):
            self.first_bad_seq = seq
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(Problem(seq, kind, message))


def verify_store(store: Store, progress: Progress | None = None) -> VerificationReport:
    """Check records, chain, columns, content and message lists of ``store``."""
    report = VerificationReport()
    try:
        if problem := store.integrity_problem():
            report.add(None, "store", problem)
        lengths = _Contents(store, report)
        _check_entries(store, report, lengths, progress)
    except LedgerFormatError as error:
        # The engine cannot go on reading: that is a failure, and says where it stopped.
        report.add(report.entries, "unreadable", error.message)
    except UnicodeDecodeError as error:
        report.add(report.entries, "unreadable", f"a column is not UTF-8: {error.reason}")
    report.problems.sort(key=lambda problem: (problem.seq is not None, problem.seq or 0))
    return report


class _Contents:
    """What is wrong with content values and message steps, found in one pass over each."""

    def __init__(self, store: Store, report: VerificationReport) -> None:
        self._store = store
        self._report = report
        self.bad: dict[str, str] = {}
        self._bad_steps: set[str] = set()
        for row in store.scan_contents():
            report.contents += 1
            try:
                encoded = canonical_json(row.stored.decode())
            except RemitError as error:
                self.bad[row.commitment] = error.message
                continue
            if commit(row.nonce, encoded) != row.commitment:
                self.bad[row.commitment] = "the stored value does not match its commitment"
            elif len(encoded) != row.length:
                self.bad[row.commitment] = "the stored length is not the value's"
        self._check_steps()

    def _check_steps(self) -> None:
        roots: list[str] = []
        for step, parent, commitment, position in self._store.scan_steps():
            try:
                sound = next_step(parent, commitment) == step
            except (ValueError, TypeError):
                sound = False
            expected = 0 if parent == NO_STEP else self._store.has_step(parent)
            if (
                not sound
                or expected is None
                or position != expected + 1
                or commitment in self.bad
                or not self._accounted(commitment)
            ):
                roots.append(step)
        if not roots:
            return
        # A list is bad from its first bad message on. This second pass runs on damage only.
        children: dict[str, list[str]] = {}
        for step, parent, _, _ in self._store.scan_steps():
            children.setdefault(parent, []).append(step)
        while roots:
            step = roots.pop()
            if step not in self._bad_steps:
                self._bad_steps.add(step)
                roots.extend(children.get(step, ()))

    def _accounted(self, commitment: str) -> bool:
        return bool(self._store.contents([commitment])) or bool(self._store.erasures([commitment]))

    def check(self, seq: int, items: list[dict[str, Any]]) -> None:
        """Check the commitments of one record against what is stored."""
        wanted: dict[str, int] = {}
        for item in items:
            if "$messages" in item:
                self._check_list(seq, item)
                continue
            name, mac = str(item["$content"]), str(item["$content"])[12:]
            if set(item) != {"$content", "bytes"} or not name.startswith("hmac-sha256:"):
                self._report.add(seq, "content", "a commitment is malformed")
            elif mac in self.bad:
                self._report.add(seq, "content", self.bad[mac])
            else:
                wanted[mac] = item["bytes"]
        if not wanted:
            return
        found = self._store.contents(wanted)
        missing = [mac for mac in wanted if mac not in found]
        erased = self._store.erasures(missing) if missing else {}
        self._report.erased += len(erased)
        for mac in missing:
            if mac not in erased:
                self._report.add(seq, "content", "content is missing and no ERASURE says why")
        for mac, stored in found.items():
            if len(canonical_json(stored.decode())) != wanted[mac]:
                self._report.add(seq, "content", "the record states another length")

    def _check_list(self, seq: int, item: dict[str, Any]) -> None:
        head, count = item["$messages"], item.get("count")
        if set(item) != {"$messages", "count"} or self._store.has_step(str(head)) != count:
            self._report.add(seq, "messages", "the message list is not the one committed to")
        elif head in self._bad_steps:
            self._report.add(seq, "messages", "a message of the list does not match its commitment")


def _check_entries(
    store: Store, report: VerificationReport, contents: _Contents, progress: Progress | None
) -> None:
    head = store.head()
    total = head[0] + 1 if head else 0
    expected, previous = 0, ""
    after: int | None = None
    while rows := store.page(Filter(after=after), _PAGE):
        for row in rows:
            if row.seq != expected:
                missing = f"{expected} to {row.seq - 1}" if row.seq > expected + 1 else expected
                report.add(expected, "gap", f"entry {missing} is not there")
            _check_entry(report, row, previous if row.seq == expected else None, contents)
            expected, previous = row.seq + 1, row.entry_hash
            report.entries += 1
        after = rows[-1].seq
        if progress is not None:
            progress(report.entries, total)


def _check_entry(
    report: VerificationReport, row: EntryRow, previous: str | None, contents: _Contents
) -> None:
    seq = row.seq
    try:
        record = orjson.loads(row.record)
        if not isinstance(record, dict) or record.keys() != _FIELDS:
            raise ValueError("it does not have exactly the ten fields of a record")
        if canonical_json(record) != row.record:
            raise ValueError("it is not in canonical form")
        metadata = record["metadata"]
        if not isinstance(metadata, dict):
            raise ValueError("its metadata is not an object")
    except (ValueError, TypeError) as error:
        report.add(seq, "unreadable", f"the record cannot be read: {error}")
        if sha256_hex(bytes(row.record or b"")) != row.entry_hash:
            report.add(seq, "hash", "the record does not match entry_hash")
        return
    if sha256_hex(row.record) != row.entry_hash:
        report.add(seq, "hash", "the record does not match entry_hash")
    if len(row.record) > MAX_RECORD_BYTES:
        report.add(seq, "field", f"the record is longer than {MAX_RECORD_BYTES:,} bytes")
    if record["seq"] != seq or record["id"] != entry_id(seq):
        report.add(seq, "field", f"the record says it is {record['id']}, seq {record['seq']}")
    if previous is not None and record["previous_hash"] != previous:
        report.add(seq, "link", "previous_hash is not the hash of the entry before")
    for name, value in (
        ("id", row.id),
        ("timestamp", row.timestamp),
        ("event_type", row.event_type),
        ("submission_id", row.submission_id),
    ):
        if record[name] != value:
            report.add(seq, "column", f"column {name} differs from the record")
    columns = columns_of(record)
    for name in columns:
        if columns[name] != row.columns[name]:
            report.add(seq, "column", f"column {name} differs from the record")
    contents.check(seq, commitments_in([metadata, record["reason"]]))
