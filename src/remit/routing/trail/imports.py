"""Import of an exported trail: new records, and the places that a restored ledger lacks."""

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
from remit.routing.trail.lines import read_lines
from remit.routing.trail.table import EVENT, INSERT, Row, content_of
from remit.routing.trail.thought_record import (
    FIRST_PREV_HASH,
    InvalidThoughtError,
    ThoughtRecord,
    TrailError,
    hash_problem,
)

_NOTHING = "Nothing was recorded."


def import_thought_records(ledger: LedgerClient, stream: Iterable[str | bytes]) -> int:
    """Record the thoughts of an export with their ids, times and hashes; return their number.

    All lines are checked first, then one transaction writes all entries and rows or none. An
    existing task must continue exactly after its last record.

    A ledger that was itself imported with erased thoughts has ``THOUGHT_RECORD`` entries without
    places in a chain. The records of these entries get their places back, and are counted. Records
    that are identical to existing ones are then skipped.

    Args:
        ledger: receives the records.
        stream: lines of text or of UTF-8 bytes, such as an open file.

    Raises:
        InvalidInputError: ``stream`` is not an iterable of lines.
        InvalidThoughtError: a line is malformed, or does not follow its chain, or contradicts the
            ledger. Nothing was written; ``line`` is its number.
        LedgerWriteError: the store refused the transaction; nothing was written.
    """
    records = list(read_lines(stream))
    if not records:
        return 0
    return ledger.transact(lambda tx: _Import(tx, ledger).run(records))


class _Import:
    """An import: appends records to the chains of a ledger, within one transaction."""

    def __init__(self, tx: Transaction, ledger: LedgerClient) -> None:
        self._tx = tx
        self._ledger = ledger
        self._heads = ChainHeads(tx.execute)
        # Entries without a row, by task and position.
        self._unplaced: dict[str, dict[int, LedgerEntry]] = {}
        self._rows: list[Row] = []

    def run(self, records: Sequence[tuple[int, ThoughtRecord]]) -> int:
        """Place records, each with the number of its line; return how many got a place."""
        filled = prepare_table(self._tx, self._ledger)
        ((is_incomplete,),) = self._tx.execute(
            "SELECT (SELECT count(*) FROM entries WHERE event_type = ?) > "
            "(SELECT count(*) FROM thoughts)",
            (EVENT,),
        )
        is_restoring = filled > 0 or bool(is_incomplete)
        self._heads.look_up(record.task_id for _, record in records)
        known = known_records(self._tx.execute, [record.id for _, record in records])
        for number, record in records:
            own = (record.id, record.task_id, record.prev_hash, record.hash)
            existing = known.get(record.id)
            if is_restoring and existing == own:
                continue
            try:
                self._place(record, is_known=existing is not None, is_restoring=is_restoring)
            except (InvalidInputError, TrailError) as error:
                raise InvalidThoughtError(str(error), next_step=_NOTHING, line=number) from error
        # Entries after a restored place follow from their own content.
        for task_id, entries in self._unplaced.items():
            head = self._heads.of(task_id)
            while entry := entries.pop(head.position + 1, None):
                row = row_behind(entry, task_id, head)
                if row is None:
                    break
                head = self._put(row)
        self._tx.execute_many(INSERT, [row.columns for row in self._rows])
        return filled + len(self._rows)

    def _place(self, record: ThoughtRecord, *, is_known: bool, is_restoring: bool) -> None:
        """Put a record at the end of its chain, and append its entry unless the ledger has it.

        Raises:
            InvalidInputError: the record does not follow, or contradicts the ledger.
            TrailError: an entry of the task has no usable position.
        """
        task_id = record.task_id
        head = self._heads.of(task_id)
        position = head.position + 1
        if is_restoring and is_known:
            raise InvalidInputError(f"there is another thought record {record.id!r}.")
        if task_id in self._heads.unplaced and task_id not in self._unplaced:
            self._unplaced[task_id] = self._by_position(task_id, head)
        entry = None
        if unplaced := self._unplaced.get(task_id):
            entry = unplaced.pop(position, None)
            place = f"place {position} of task {task_id!r}"
            if entry is None:
                raise InvalidInputError(f"the ledger contains no thought for {place}.")
            if problem := _difference(entry, record, position):
                raise InvalidInputError(f"{entry.id}, for {place}, {problem}.")
        elif position > 0 and record.prev_hash == FIRST_PREV_HASH:
            raise InvalidInputError(f"the task {task_id!r} already exists.")
        if record.prev_hash != head.hash:
            raise InvalidInputError(f"it does not follow the last record of task {task_id!r}.")
        if entry is not None:
            seq = entry.seq
        elif is_known:
            raise InvalidInputError(f"the thought record {record.id!r} already exists.")
        else:
            erasure = record.content.erasure_id if isinstance(record.content, Erased) else None
            made = entry_of(record, position, {"erased": erasure} if erasure else {})
            seq = parse_entry_id(self._tx.append(made)) or 0
        self._put(Row(seq, task_id, position, record.id, record.prev_hash, record.hash))

    def _put(self, row: Row) -> Head:
        """Collect a row to insert; return the new head of its chain."""
        self._rows.append(row)
        head = Head(row.position, row.hash, row.seq)
        self._heads.move(row.task_id, head)
        return head

    def _by_position(self, task_id: str, head: Head) -> dict[int, LedgerEntry]:
        """Return a task's entries after the end of its chain, by their recorded position."""
        found: dict[int, LedgerEntry] = {}
        for entry in thoughts_of(self._tx, self._ledger, task_id, head.seq):
            position = entry.metadata.get("position")
            if type(position) is not int or position in found:
                raise TrailError(
                    f"the ledger's entry {entry.id} names no place of its own in task {task_id!r}."
                )
            found[position] = entry
        return found


def _difference(entry: LedgerEntry, record: ThoughtRecord, position: int) -> str:
    """Return how a ledger entry differs from a record; empty if at most by erased content."""
    meta = entry.metadata
    for name, expected in entry_of(record, position, {}).metadata.items():
        if name not in ("content", "hash") and meta.get(name) != expected:
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
