"""Is the ledger what it claims to be? Reads everything once, skips nothing (SPEC 3.3)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from remit.canonical import canonical_json, sha256_hex
from remit.errors import RemitError
from remit.ledger.content import NO_STEP, StoredValue, commit, next_step
from remit.ledger.entry import entry_id
from remit.ledger.errors import LedgerFormatError
from remit.ledger.record import (
    MAX_RECORD_BYTES,
    columns_of,
    commitments_in,
    content_scope,
    record_problem,
)
from remit.ledger.store import RawContent, RawEntry, RawStep, Store

__all__ = ["Problem", "Progress", "VerificationReport", "erasure_digest", "verify_store"]

Progress = Callable[[int, int], None]

_MOST_PROBLEMS = 100
_NONCE_BYTES = 32


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        seq: the sequence number of the entry it shows at; ``None`` when it is of no entry.
        kind: ``unreadable``, ``gap``, ``hash``, ``link``, ``column``, ``field``, ``content``,
            ``messages``, ``erasure`` or ``store``.
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


def erasure_digest(commitments: list[str]) -> str:
    """What an ``ERASURE`` entry says of the values it erased: SHA-256 over their commitments.

    The commitments (64 hex digits each) are sorted and concatenated.
    """
    return hashlib.sha256("".join(sorted(commitments)).encode()).hexdigest()


def verify_store(store: Store, progress: Progress | None = None) -> VerificationReport:
    """Check records, chain, columns, content, message lists and erasures of ``store``."""
    report = VerificationReport()
    try:
        if problem := store.integrity_problem():
            report.add(None, "store", problem)
        contents = _Contents(store, report)
        _check_entries(store, report, contents, progress)
        contents.report_unplaced()
    except LedgerFormatError as error:
        # The engine cannot go on reading: that is a failure, and says where it stopped.
        report.add(report.entries, "unreadable", error.message)
    report.problems.sort(key=lambda problem: (problem.seq is not None, problem.seq or 0))
    return report


class _Contents:
    """What is wrong with content, message steps and erasures, found in one pass over each."""

    def __init__(self, store: Store, report: VerificationReport) -> None:
        self._store = store
        self._report = report
        self._bad: dict[str, str] = {}
        self._bad_steps: set[str] = set()
        self._unplaced: dict[str, str] = {}
        self._sound_erasures = self._check_erasures()
        for row in store.scan_contents():
            report.contents += 1
            if problem := _content_problem(row):
                self._bad[row.commitment] = self._unplaced[row.commitment] = problem
        self._check_steps()

    def check(self, seq: int, scope: str, items: list[dict[str, Any]]) -> None:
        """Check the commitments of one record against what is stored."""
        wanted: dict[str, int] = {}
        for item in items:
            if "$messages" in item:
                self._check_list(seq, scope, item["$messages"], item["count"])
            else:
                wanted[item["$content"][12:]] = item["bytes"]
        found = self._store.content_facts(wanted) if wanted else {}
        missing = [mac for mac in wanted if mac not in found]
        erased = self._store.erasures(missing) if missing else {}
        for mac, length in wanted.items():
            if mac in self._bad:
                self._unplaced.pop(mac, None)
                self._report.add(seq, "content", self._bad[mac])
            elif mac in found:
                if found[mac] != (scope, length):
                    self._report.add(seq, "content", "the stored value is another's, by its row")
            elif erased.get(mac) in self._sound_erasures:
                self._report.erased += 1
            else:
                self._report.add(seq, "content", "content is missing and no ERASURE says why")

    def report_unplaced(self) -> None:
        """Bad values that no entry refers to by themselves: messages, and rows put in."""
        for problem in self._unplaced.values():
            self._report.add(None, "content", problem)

    def _check_list(self, seq: int, scope: str, head: str, count: int) -> None:
        step = self._store.step(head)
        if step is None or step.position != count or step.scope not in (scope, None):
            self._report.add(seq, "messages", "the message list is not the one committed to")
        elif head in self._bad_steps:
            self._report.add(seq, "messages", "a message of the list does not match its commitment")

    def _check_steps(self) -> None:
        roots = [step.step for step in self._store.scan_steps() if self._is_bad(step)]
        if not roots:
            return
        # A list is bad from its first bad message on. This second pass runs on damage only.
        children: dict[str, list[str]] = {}
        for step in self._store.scan_steps():
            children.setdefault(step.parent, []).append(step.step)
        while roots:
            root = roots.pop()
            if root not in self._bad_steps:
                self._bad_steps.add(root)
                roots.extend(children.get(root, ()))

    def _is_bad(self, step: RawStep) -> bool:
        try:
            sound = next_step(step.parent, step.commitment) == step.step
        except (ValueError, TypeError):
            return True
        before = 0 if step.parent == NO_STEP else step.parent_position
        if not sound or before is None or step.position != before + 1:
            return True
        if None not in (step.scope, step.parent_scope) and step.scope != step.parent_scope:
            return True
        if step.commitment in self._bad:
            self._unplaced.pop(step.commitment, None)
            return True
        return step.scope is None and step.erased_seq not in self._sound_erasures

    def _check_erasures(self) -> set[int]:
        """Sequence numbers of ``ERASURE`` entries that account for exactly what is gone."""
        sound = set()
        for seq in self._store.erasure_seqs():
            row = self._store.get(seq)
            under = self._store.erased_under(seq)
            try:
                metadata = orjson.loads(row.record)["metadata"] if row else {}
                agrees = (
                    row is not None
                    and row.event_type == "ERASURE"
                    and metadata["erased_count"] == len(under)
                    and metadata["erased_hash"] == erasure_digest(under)
                )
            except (ValueError, KeyError, TypeError):
                agrees = False
            if agrees:
                sound.add(seq)
            else:
                self._report.add(
                    seq, "erasure", "no ERASURE entry accounts for what is erased here"
                )
        return sound


def _content_problem(row: RawContent) -> str:
    if row.problem:
        return row.problem
    try:
        encoded = canonical_json(StoredValue(row.codec, row.value).decode())
    except RemitError as error:
        return error.message
    if len(row.nonce) != _NONCE_BYTES or commit(row.nonce, encoded) != row.commitment:
        return "the stored value does not match its commitment"
    if len(encoded) != row.length:
        return "the stored length is not the value's"
    if hashlib.sha256(encoded).digest() != row.digest:
        return "the digest that finds the value is not the value's"
    return ""


def _check_entries(
    store: Store, report: VerificationReport, contents: _Contents, progress: Progress | None
) -> None:
    head = store.head()
    total = head[0] + 1 if head else 0
    expected, previous = 0, b""
    for row in store.scan_entries():
        if row.seq != expected:
            missing = f"{expected} to {row.seq - 1}" if row.seq > expected + 1 else str(expected)
            report.add(expected, "gap", f"entry {missing} is not there")
        _check_entry(report, row, previous if row.seq == expected else None, contents)
        expected, previous = row.seq + 1, row.columns["entry_hash"] or b""
        report.entries += 1
        if progress is not None and (report.entries % 500 == 0 or report.entries == total):
            progress(report.entries, total)


def _check_entry(
    report: VerificationReport, row: RawEntry, previous: bytes | None, contents: _Contents
) -> None:
    seq, data = row.seq, row.record
    stored_hash = (row.columns["entry_hash"] or b"").decode("utf-8", "replace")
    if sha256_hex(data) != stored_hash:
        report.add(seq, "hash", "the record does not match entry_hash")
    try:
        record = orjson.loads(data)
        if problem := record_problem(record) or row.problem:
            raise ValueError(problem)
        if canonical_json(record) != data:
            raise ValueError("it is not in canonical form")
    except ValueError as error:
        report.add(seq, "unreadable", f"the record cannot be read: {error}")
        return
    if len(data) > MAX_RECORD_BYTES:
        report.add(seq, "field", f"the record is longer than {MAX_RECORD_BYTES:,} bytes")
    if record["seq"] != seq or record["id"] != entry_id(seq):
        report.add(seq, "field", f"the record says it is {record['id']}, seq {record['seq']}")
    if previous is not None and record["previous_hash"].encode() != previous:
        report.add(seq, "link", "previous_hash is not the hash of the entry before")
    derived = columns_of(record)
    expected = {name: record[name] for name in ("id", "timestamp", "event_type", "submission_id")}
    for name, value in {**expected, **derived}.items():
        if row.columns[name] != (None if value is None else value.encode()):
            report.add(seq, "column", f"column {name} differs from the record")
    items = commitments_in([record["metadata"], record["reason"]])
    if items:
        contents.check(seq, content_scope(derived["session_id"], seq), items)
