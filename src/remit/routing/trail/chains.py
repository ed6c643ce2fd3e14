"""The heads of chains: the last record of each task, which the next one goes behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from remit.ledger import LedgerClient, LedgerEntry, Transaction
from remit.routing.trail.record import FIRST_PREV_HASH, TrailDamagedError, hash_problem
from remit.routing.trail.table import EVENT, INSERT, Row, content_of, seq_of

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
    """The last record of a task; without arguments, of a task without a record.

    Attributes:
        position: in the chain, from 0.
        hash: its own.
        seq: of its ledger entry.
    """

    position: int = -1
    hash: str = FIRST_PREV_HASH
    seq: int = -1


class ChainHeads:
    """The heads of chains, looked up for many tasks at once and moved on in memory.

    Args:
        execute: runs statements.

    Attributes:
        unplaced: by task, the first ledger entry behind the head that has no row: what a ledger
            holds that was imported with erased thoughts. Appending there would fork the chain.
    """

    def __init__(self, execute: _Execute) -> None:
        self._execute = execute
        self._heads: dict[str, Head | None] = {}  # None: the row cannot be read
        self.unplaced: dict[str, int] = {}

    def look_up(self, tasks: Iterable[str]) -> None:
        """Read the heads of those ``tasks`` that were not looked up yet."""
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
        """Whether a task was looked up."""
        return task_id in self._heads

    def of(self, task_id: str) -> Head:
        """The head of a task that was looked up.

        Raises:
            TrailDamagedError: its row holds what cannot be there.
        """
        head = self._heads[task_id]
        if head is None:
            raise TrailDamagedError(
                f"The last thought of the task {task_id!r} cannot be read.",
                next_step="`remit trail verify` says what is damaged.",
            )
        return head

    def to_append(self, task_id: str) -> Head:
        """:meth:`of`, where a record may be put behind it.

        Raises:
            TrailDamagedError: it may not: thoughts of the task have lost their places.
        """
        head = self.of(task_id)
        if task_id in self.unplaced:
            raise TrailDamagedError(
                f"The chain of the task {task_id!r} does not reach its last thoughts: from "
                f"LED-{self.unplaced[task_id]:08x} on their places are missing, as after the "
                "import of a ledger in which thoughts are erased. A new one would fork it.",
                next_step="`remit trail import` of an export of the trail puts them back; "
                "without one, go on under another task id.",
            )
        return head

    def move(self, task_id: str, head: Head) -> None:
        """Note that the chain goes on to ``head``."""
        self._heads[task_id] = head


def known_records(execute: _Execute, ids: Iterable[str]) -> dict[str, tuple[Any, ...]]:
    """Return, by id, the id, task and hashes of the records that have one of these ids already."""
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
    """Read thoughts, of one task or of all, while a transaction of their ledger is open."""
    entries = ledger.query(event_type=EVENT, submission_id=task_id, after=after)
    for number, entry in enumerate(entries, start=1):
        if number % _MAX_MARKS == 0:
            tx.execute("SELECT 1")  # a server ends a transaction that it does not hear of
        yield entry


def prepare_table(tx: Transaction, ledger: LedgerClient) -> int:
    """Fill the table where it is empty, in a transaction of ``ledger``; how many rows it got.

    A ledger that was imported has the entries and not their rows: what follows from the entries
    is put in again, so that chains go on where they ended. What follows from erased content
    does not: an export of the trail can put it back, and until then the chain does not go on.
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
    """The row of a task's entry, where its content shows that it follows ``head``."""
    meta = entry.metadata
    thought_id, own_hash = meta.get("thought_id"), meta.get("hash")
    if meta.get("task_id") != task_id or meta.get("position") != head.position + 1:
        return None
    if hash_problem(
        thought_id, meta.get("type"), task_id, content_of(entry), meta.get("thought_timestamp"),
        head.hash, own_hash,
    ):  # fmt: skip
        return None
    return Row(seq_of(entry), task_id, head.position + 1, str(thought_id), head.hash, str(own_hash))


def _parts(values: Sequence[str], mark: str) -> list[tuple[tuple[str, ...], str]]:
    """``values`` in pieces with as many marks, in few sizes of statement."""
    pieces = []
    for start in range(0, len(values), _MAX_MARKS):
        part = values[start : start + _MAX_MARKS]
        size = 1 << (len(part) - 1).bit_length()
        padded = (*part, *[part[-1]] * (size - len(part)))
        pieces.append((padded, ", ".join([mark] * size)))
    return pieces
