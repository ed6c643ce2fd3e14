"""Exports of a trail imported: new records, and places that a restored ledger has lost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from remit.kernel.errors import InvalidInputError
from remit.ledger import Erased, LedgerClient, LedgerEntry, Transaction, parse_entry_id
from remit.routing.trail.append import entry_of
from remit.routing.trail.chains import (
    ChainHeads,
    Head,
    known_records,
    prepare_table,
    row_behind,
    thoughts_of,
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


def import_thought_records(ledger: LedgerClient, stream: Iterable[str | bytes]) -> int:
    """Record the thoughts of an export, ids, times and hashes as they are; return how many.

    Everything is checked, and all of it is written or nothing. A task that the ledger has already
    must go on exactly behind its last record.

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
    records = list(ThoughtLines(strict=True).records(stream))
    if not records:
        return 0
    return ledger.transact(lambda tx: _Import(tx, ledger).run(records))


class _Import:
    """Puts records into the chains of a ledger, within one transaction."""

    def __init__(self, tx: Transaction, ledger: LedgerClient) -> None:
        self._tx = tx
        self._ledger = ledger
        self._heads = ChainHeads(tx.execute)
        self._unplaced: dict[str, dict[int, LedgerEntry]] = {}  # by task and position
        self._rows: list[Row] = []

    def run(self, records: Sequence[tuple[int, ThoughtRecord]]) -> int:
        """Place records, each with the number of its line; return how many got a place."""
        filled = prepare_table(self._tx, self._ledger)
        is_restoring = filled > 0 or _lacks_places(self._tx)
        self._heads.look_up(record.task_id for _, record in records)
        known = known_records(self._tx.execute, [record.id for _, record in records])
        for number, record in records:
            here = known.get(record.id)
            own = (record.id, record.task_id, record.prev_hash, record.hash)
            if is_restoring and here == own:
                continue
            try:
                if is_restoring and here is not None:
                    raise InvalidInputError(f"there is another thought record {record.id!r}.")
                row = self._row_of(record, is_taken=here is not None)
            except (InvalidInputError, TrailDamagedError) as error:
                raise ThoughtLineError(
                    number, str(error), next_step="Nothing was recorded."
                ) from error
            self._put(row)
        self._go_on()
        self._tx.execute_many(INSERT, [row.columns for row in self._rows])
        return filled + len(self._rows)

    def _row_of(self, record: ThoughtRecord, *, is_taken: bool) -> Row:
        """Return the row of a record at the end of its chain, after its entry is there."""
        task_id = record.task_id
        head = self._heads.of(task_id)
        position = head.position + 1
        if task_id in self._heads.unplaced and task_id not in self._unplaced:
            self._unplaced[task_id] = self._by_position(task_id, head)
        entry = None
        if unplaced := self._unplaced.get(task_id):
            entry = unplaced.pop(position, None)
            place = f"place {position} of task {task_id!r}"
            if entry is None:
                raise InvalidInputError(f"the ledger has no thought for {place}.")
            if problem := _difference(entry, record, position):
                raise InvalidInputError(f"{entry.id}, for {place}, {problem}.")
        elif position > 0 and record.prev_hash == FIRST_PREV_HASH:
            raise InvalidInputError(f"the task {task_id!r} is here already.")
        if record.prev_hash != head.hash:
            raise InvalidInputError(f"it does not follow the last record of task {task_id!r} here.")
        if entry is None:
            if is_taken:
                raise InvalidInputError(f"there is a thought record {record.id!r} already.")
            elsewhere = record.content.erasure_id if isinstance(record.content, Erased) else None
            made = entry_of(record, position, {"erased": elsewhere} if elsewhere else {})
            seq = parse_entry_id(self._tx.append(made)) or 0
        else:
            seq = seq_of(entry)
        return Row(seq, task_id, position, record.id, record.prev_hash, record.hash)

    def _put(self, row: Row) -> None:
        self._rows.append(row)
        self._heads.move(row.task_id, Head(row.position, row.hash, row.seq))

    def _go_on(self) -> None:
        """Behind what was put back, place the entries that show by themselves where they belong."""
        for task_id, entries in self._unplaced.items():
            while True:
                head = self._heads.of(task_id)
                entry = entries.pop(head.position + 1, None)
                row = None if entry is None else row_behind(entry, task_id, head)
                if row is None:
                    break
                self._put(row)

    def _by_position(self, task_id: str, head: Head) -> dict[int, LedgerEntry]:
        """Return a task's entries behind the end of its chain, by the position that each names."""
        found: dict[int, LedgerEntry] = {}
        for entry in thoughts_of(self._tx, self._ledger, task_id, head.seq):
            position = entry.metadata.get("position")
            if type(position) is not int or position in found:
                raise TrailDamagedError(
                    f"the ledger's entry {entry.id} names no place of its own in task {task_id!r}."
                )
            found[position] = entry
        return found


def _lacks_places(tx: Transaction) -> bool:
    """Return whether there are more entries than places."""
    entries = tx.execute("SELECT count(*) FROM entries WHERE event_type = ?", (EVENT,))
    rows = tx.execute("SELECT count(*) FROM thoughts")
    return bool(entries[0][0] > rows[0][0])


def _difference(entry: LedgerEntry, record: ThoughtRecord, position: int) -> str:
    """Return why a ledger entry is not that of a record, or nothing. What is erased may differ."""
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
