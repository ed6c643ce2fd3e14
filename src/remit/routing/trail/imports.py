"""Exports of a trail imported: new records, and places that a restored ledger has lost."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from remit.kernel.errors import InvalidInputError
from remit.ledger import Erased, LedgerClient, LedgerEntry, Transaction, parse_entry_id
from remit.routing.trail.append import entry_of
from remit.routing.trail.chains import (
    ChainHeads,
    Head,
    known_ids,
    prepare_table,
    row_behind,
)
from remit.routing.trail.lines import ThoughtLines
from remit.routing.trail.record import (
    FIRST_PREV_HASH,
    ThoughtLineError,
    ThoughtRecord,
    TrailDamagedError,
    hash_problem,
)
from remit.routing.trail.table import EVENT, INSERT, Row, content_of, seq_of

_CHUNK = 256

_Numbered = tuple[int, ThoughtRecord]
"""A record with the number of its line."""


def import_thought_records(ledger: LedgerClient, stream: Iterable[str | bytes]) -> int:
    """Put the records of an export on record, ids, times and hashes as they are; how many.

    Everything is checked before anything is written, and all of it is written or nothing. A task
    that the ledger has already must go on exactly behind its last record.

    Where the ledger has ``THOUGHT_RECORD`` entries without their places in a chain, as it has
    after it was itself imported with erased thoughts, the records of these entries get their
    places back. Records that are here already and the same are then skipped.

    Args:
        ledger: where they go.
        stream: lines, text or UTF-8 bytes: an open file.

    Returns:
        How many were recorded or got their places back.

    Raises:
        InvalidInputError: ``stream`` is not a file and gives no lines.
        ThoughtLineError: a line is malformed, does not follow, or does not fit this ledger;
            nothing was written.
    """
    read = ThoughtLines(strict=True)
    records = read.records(stream)
    first = list(islice(records, _CHUNK))
    if not first:
        return 0
    filled = ledger.transact(lambda tx: prepare_table(tx, ledger))
    placing = _Placing(ledger, restoring=filled > 0 or _lacks_places(ledger))
    while first:
        placing.place(first)
        first = list(islice(records, _CHUNK))
    placing.finish()
    ids = read.ids
    ledger.transact(lambda tx: placing.write(tx, ids))
    return filled + placing.count


class _Placing:
    """Finds each record's place, and encodes what is new, ahead of the transaction.

    Args:
        restoring: places are missing, so that records may be here already.

    Attributes:
        count: records that get a place.
    """

    def __init__(self, ledger: LedgerClient, *, restoring: bool) -> None:
        self._ledger = ledger
        self._restoring = restoring
        self._heads = ChainHeads(ledger.select)
        self._unplaced: dict[str, dict[int, LedgerEntry]] = {}  # by task and position
        self._firsts: dict[str, tuple[int, Head]] = {}  # line and head that new ones go behind
        self._rows: list[Row] = []  # of entries that are there
        self._new: list[tuple[int, LedgerEntry, Row]] = []  # with the line
        self.count = 0

    def place(self, records: list[_Numbered]) -> None:
        """Place the next few; raises :class:`ThoughtLineError`."""
        self._heads.look_up(record.task_id for _, record in records)
        here = self._here([record.id for _, record in records]) if self._restoring else {}
        for number, record in records:
            try:
                if record.id in here:
                    _check_same(here[record.id], record)
                else:
                    self._place(number, record)
            except ThoughtLineError:
                raise
            except (InvalidInputError, TrailDamagedError) as error:
                raise _wrong(number, str(error)) from error

    def finish(self) -> None:
        """Behind what was put back, go on as far as entries show it by themselves."""
        for task_id, entries in self._unplaced.items():
            while True:
                head = self._heads.of(task_id)
                entry = entries.pop(head.position + 1, None)
                row = None if entry is None else row_behind(entry, task_id, head)
                if row is None:
                    break
                self._put_back(row)

    def write(self, tx: Transaction, ids: dict[str, int]) -> None:
        """Everything, inside one transaction: what raises undoes it."""
        tx.execute_many(INSERT, [row.columns for row in self._rows])
        heads = ChainHeads(tx.execute)
        heads.look_up(self._firsts)
        for task_id, (number, expected) in self._firsts.items():
            if heads.of(task_id) != expected or task_id in heads.unplaced:
                raise _wrong(number, f"the task {task_id!r} has other thoughts by now.")
        if taken := known_ids(tx.execute, [row.thought_id for _, _, row in self._new]):
            thought_id = min(taken, key=ids.__getitem__)
            raise _wrong(ids[thought_id], f"there is a thought record {thought_id!r} already.")
        rows = []
        for number, entry, row in self._new:
            try:
                seq = parse_entry_id(tx.append(entry))
            except InvalidInputError as error:  # a record that is too large
                raise _wrong(number, str(error)) from error
            rows.append((seq, *row.columns[1:]))
        tx.execute_many(INSERT, rows)

    def _place(self, number: int, record: ThoughtRecord) -> None:
        task_id = record.task_id
        head = self._heads.of(task_id)
        if task_id in self._heads.unplaced and task_id not in self._unplaced:
            self._unplaced[task_id] = _by_position(self._ledger, task_id, head)
        position = head.position + 1
        if unplaced := self._unplaced.get(task_id):
            entry = unplaced.pop(position, None)
            place = f"place {position} of task {task_id!r}"
            if entry is None:
                raise _wrong(number, f"the ledger has no thought for {place}.")
            if problem := _difference(entry, record, position):
                raise _wrong(number, f"{entry.id}, for {place}, {problem}.")
            if record.prev_hash != head.hash:
                raise _wrong(
                    number, f"it does not follow the last record of task {task_id!r} here."
                )
            self._put_back(
                Row(seq_of(entry), task_id, position, record.id, record.prev_hash, record.hash)
            )
            return
        if head.position >= 0 and record.prev_hash == FIRST_PREV_HASH:
            raise _wrong(number, f"the task {task_id!r} is here already.")
        if record.prev_hash != head.hash:
            raise _wrong(number, f"it does not follow the last record of task {task_id!r} here.")
        self._firsts.setdefault(task_id, (number, head))
        elsewhere = record.content.erasure_id if isinstance(record.content, Erased) else None
        entry = entry_of(record, position, {"erased": elsewhere} if elsewhere else {})
        row = Row(-1, task_id, position, record.id, record.prev_hash, record.hash)
        self._new.append((number, entry, row))
        self._heads.move(task_id, Head(position, record.hash, -1))
        self.count += 1

    def _put_back(self, row: Row) -> None:
        self._rows.append(row)
        self._heads.move(row.task_id, Head(row.position, row.hash, row.seq))
        self.count += 1

    def _here(self, ids: list[str]) -> dict[str, tuple[Any, ...]]:
        """Those of the records that have their places already."""
        marks = ", ".join(["?"] * len(ids))
        rows = self._ledger.select(
            "SELECT thought_id, task_id, prev_hash, hash FROM thoughts "
            f"WHERE thought_id IN ({marks})",
            ids,
        )
        return {row[0]: row for row in rows}


def _lacks_places(ledger: LedgerClient) -> bool:
    """Whether there are more entries than places."""
    entries = ledger.select("SELECT count(*) FROM entries WHERE event_type = ?", (EVENT,))
    rows = ledger.select("SELECT count(*) FROM thoughts")
    return bool(entries[0][0] > rows[0][0])


def _by_position(ledger: LedgerClient, task_id: str, head: Head) -> dict[int, LedgerEntry]:
    """A task's entries behind the end of its chain, by the position that each names."""
    found: dict[int, LedgerEntry] = {}
    for entry in ledger.query(event_type=EVENT, submission_id=task_id, after=head.seq):
        position = entry.metadata.get("position")
        if type(position) is not int or position in found:
            raise TrailDamagedError(
                f"the ledger's entry {entry.id} names no place of its own in task {task_id!r}."
            )
        found[position] = entry
    return found


def _check_same(row: tuple[Any, ...], record: ThoughtRecord) -> None:
    if row != (record.id, record.task_id, record.prev_hash, record.hash):
        raise InvalidInputError(f"there is another thought record {record.id!r}.")


def _difference(entry: LedgerEntry, record: ThoughtRecord, position: int) -> str:
    """Why a ledger entry is not that of a record; empty where it is. What is erased may differ."""
    meta = entry.metadata
    for name, expected in (
        ("thought_id", record.id),
        ("type", record.type),
        ("task_id", record.task_id),
        ("agent_id", record.agent_id),
        ("session_id", record.session_id),
        ("position", position),
        ("thought_timestamp", record.timestamp),
    ):
        if meta.get(name) != expected:
            return f"has another {name}"
    content, own_hash = content_of(entry), meta.get("hash")
    if not isinstance(content, Erased):
        return hash_problem(
            record.id, record.type, record.task_id, content, record.timestamp, record.prev_hash,
            record.hash,
        ) and "has other content"  # fmt: skip
    if content.erasure_id is None:
        return "has lost its content, and no erasure accounts for it"
    if isinstance(own_hash, str) and own_hash != record.hash:
        return "has another hash"
    return ""


def _wrong(number: int, message: str) -> ThoughtLineError:
    return ThoughtLineError(number, message, next_step="Nothing was recorded.")
