"""The heads of chains: the last record of each task, which the next one follows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from remit.ledger import LedgerClient, LedgerEntry, Transaction
from remit.routing.trail.table import EVENT, INSERT, Row, content_of
from remit.routing.trail.thought_record import FIRST_PREV_HASH, TrailError, hash_problem

_MAX_MARKS = 256

# The index of submissions is the one to use for entries: there are few behind the head. An
# expression in place of the event type keeps the planner from that one's.
_HEADS = """
    SELECT v.column1, t.position, t.hash, t.seq,
           (SELECT min(e.seq) FROM entries AS e WHERE e.submission_id = v.column1
            AND e.seq > coalesce(t.seq, -1) AND e.event_type || '' = ?)
    FROM (VALUES {marks}) AS v LEFT JOIN thoughts AS t ON t.task_id = v.column1
         AND t.position = (SELECT max(position) FROM thoughts WHERE task_id = v.column1)"""

_Execute = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]
"""Runs a statement: :meth:`Transaction.execute`, or :meth:`LedgerClient.select`."""


class Head(NamedTuple):
    """The last record of a task; without arguments, the head of an empty chain.

    Attributes:
        position: position in the chain, from 0.
        hash: hash of the record.
        seq: sequence number of its ledger entry.
    """

    position: int = -1
    hash: str = FIRST_PREV_HASH
    seq: int = -1


class ChainHeads:
    """The heads of chains, read for many tasks together and advanced in memory.

    Args:
        execute: runs a statement.

    Attributes:
        unplaced: by task, the first ledger entry after the head without a row, as in a ledger that
            was imported with erased thoughts. Appending there would fork the chain.
    """

    def __init__(self, execute: _Execute) -> None:
        self._execute = execute
        self._heads: dict[str, Head | None] = {}  # None: the row cannot be read
        self.unplaced: dict[str, int] = {}

    def look_up(self, tasks: Iterable[str]) -> None:
        """Read the heads of ``tasks`` that were not read yet; fill :attr:`unplaced`.

        A task without records has an empty chain. A head whose row is damaged makes :meth:`of`
        raise its error.
        """
        wanted = [task_id for task_id in dict.fromkeys(tasks) if task_id not in self._heads]
        for part, marks in _parts(wanted, "(?)"):
            rows = self._execute(_HEADS.format(marks=marks), (EVENT, *part))
            for task_id, position, hash_, seq, unplaced in rows:
                if position is hash_ is seq is None:
                    head: Head | None = Head()
                elif type(position) is int and type(seq) is int and isinstance(hash_, str):
                    head = Head(position, hash_, seq)
                else:
                    head = None
                self._heads[task_id] = head
                if unplaced is not None:
                    self.unplaced[task_id] = unplaced

    def __contains__(self, task_id: str) -> bool:
        """Return True if the head of a task was read."""
        return task_id in self._heads

    def of(self, task_id: str) -> Head:
        """Return the head of a task that :meth:`look_up` has read.

        Raises:
            KeyError: the task was not read.
            TrailError: the head's row cannot be read.
        """
        head = self._heads[task_id]
        if head is None:
            raise TrailError(
                f"The last place of the task {task_id!r} in the table of thoughts cannot be read.",
                next_step="`remit trail verify` names the damage.",
            )
        return head

    def to_append(self, task_id: str) -> Head:
        """Return the head of a task whose chain can be continued.

        Raises:
            KeyError: the task was not read by :meth:`look_up`.
            TrailError: the head's row cannot be read, or later thoughts of the task have no rows.
        """
        head = self.of(task_id)
        if task_id in self.unplaced:
            raise TrailError(
                f"The chain of the task {task_id!r} does not reach its last thoughts: from "
                f"LED-{self.unplaced[task_id]:08x} on their places are missing, as after the "
                "import of a ledger in which thoughts are erased. A new one would fork it.",
                next_step="`remit trail import` of an export of the trail puts them back; "
                "without one, continue under another task id.",
            )
        return head

    def move(self, task_id: str, head: Head) -> None:
        """Set the head of a chain after a record was appended."""
        self._heads[task_id] = head


def known_records(execute: _Execute, ids: Iterable[str]) -> dict[str, tuple[Any, ...]]:
    """Return id, task, ``prev_hash`` and ``hash`` of existing records, keyed by id.

    Args:
        execute: runs a statement.
        ids: ids of records; unknown ones are left out.
    """
    found: dict[str, tuple[Any, ...]] = {}
    for part, marks in _parts(list(dict.fromkeys(ids)), "?"):
        rows = execute(
            "SELECT thought_id, task_id, prev_hash, hash FROM thoughts "
            f"WHERE thought_id IN ({marks})",
            part,
        )
        found.update((row[0], row) for row in rows)
    return found


def thoughts_of(
    tx: Transaction, ledger: LedgerClient, task_id: str | None = None, after: int = -1
) -> Iterator[LedgerEntry]:
    """Yield thoughts in ledger order while a transaction of their ledger is open.

    Args:
        tx: the transaction, which is kept alive by small statements.
        ledger: the ledger.
        task_id: the task; ``None`` for all.
        after: sequence number to continue after.
    """
    entries = ledger.query(event_type=EVENT, submission_id=task_id, after=after)
    for number, entry in enumerate(entries, start=1):
        if number % _MAX_MARKS == 0:
            tx.execute("SELECT 1")  # a server ends a transaction that it does not hear of
        yield entry


def prepare_table(tx: Transaction, ledger: LedgerClient) -> int:
    """Fill the table ``thoughts`` from the entries if it is empty; return the number of new rows.

    An imported ledger has the entries without their rows. Rows that follow from content are
    restored, so that chains continue. Rows after erased content need an export of the trail; until
    its import, the chain cannot be continued.

    Args:
        tx: the transaction that gets the rows.
        ledger: the ledger of the transaction.

    Raises:
        LedgerError: an entry cannot be read.
    """
    if tx.execute("SELECT 1 FROM thoughts LIMIT 1"):
        return 0
    if not tx.execute("SELECT 1 FROM entries WHERE event_type = ? LIMIT 1", (EVENT,)):
        return 0
    rows: list[tuple[Any, ...]] = []
    heads: dict[str, Head] = {}
    ids: set[str] = set()
    for entry in thoughts_of(tx, ledger):
        task_id = entry.submission_id
        row = row_behind(entry, task_id, heads.get(task_id, Head()))
        if row is not None and row.thought_id not in ids:
            ids.add(row.thought_id)
            heads[task_id] = Head(row.position, row.hash, row.seq)
            rows.append(row.columns)
    tx.execute_many(INSERT, rows)
    return len(rows)


def row_behind(entry: LedgerEntry, task_id: str, head: Head) -> Row | None:
    """Return the row of a task's entry that follows ``head``; ``None`` if it does not follow.

    Task, position and hash must fit, so an entry with erased content never follows.

    Args:
        entry: the entry of a thought.
        task_id: the task.
        head: the last record before it.
    """
    meta = entry.metadata
    thought_id, own_hash = meta.get("thought_id"), meta.get("hash")
    if meta.get("task_id") != task_id or meta.get("position") != head.position + 1:
        return None
    if hash_problem(
        thought_id, meta.get("type"), task_id, content_of(entry), meta.get("thought_timestamp"),
        head.hash, own_hash,
    ):  # fmt: skip
        return None
    return Row(entry.seq, task_id, head.position + 1, str(thought_id), head.hash, str(own_hash))


def _parts(values: Sequence[str], mark: str) -> list[tuple[tuple[str, ...], str]]:
    """Return ``values`` in pieces with their placeholders, in few sizes of statement."""
    pieces = []
    for start in range(0, len(values), _MAX_MARKS):
        part = values[start : start + _MAX_MARKS]
        size = 1 << (len(part) - 1).bit_length()
        padded = (*part, *[part[-1]] * (size - len(part)))
        pieces.append((padded, ", ".join([mark] * size)))
    return pieces
