"""Where chains end: what the next record of a task goes behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from remit.routing.trail.errors import TrailDamagedError
from remit.routing.trail.record import FIRST_PREV_HASH
from remit.routing.trail.table import EVENT

__all__ = ["NO_END", "End", "Ends", "Execute", "known_ids"]

_MAX_MARKS = 256

Execute = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]
"""Runs a statement: :meth:`Transaction.execute`, or :meth:`LedgerClient.select`."""


class End(NamedTuple):
    """The last record of a task.

    Attributes:
        position: in the chain, from 0.
        hash: its own.
        seq: of its ledger entry.
    """

    position: int
    hash: str
    seq: int


NO_END = End(-1, FIRST_PREV_HASH, -1)
"""Where a task without a record ends."""


class Ends:
    """The ends of chains, looked up for many tasks at once and moved on in memory.

    Args:
        execute: runs statements.

    Attributes:
        unplaced: by task, the first ledger entry behind the end that has no row: what a ledger
            holds that was imported with erased thoughts. Appending there would fork the chain.
    """

    def __init__(self, execute: Execute) -> None:
        self._execute = execute
        self._ends: dict[str, End] = {}
        self._damaged: set[str] = set()
        self.unplaced: dict[str, int] = {}

    def __contains__(self, task_id: str) -> bool:
        """Whether the task was looked up."""
        return task_id in self._ends

    def look_up(self, tasks: Iterable[str]) -> None:
        """Read the ends of those ``tasks`` that were not looked up yet."""
        wanted = [task_id for task_id in dict.fromkeys(tasks) if task_id not in self._ends]
        for part, marks in _parts(wanted, "(?)"):
            self._ends.update((task_id, NO_END) for task_id in part)
            rows = self._execute(
                f"SELECT t.task_id, t.position, t.hash, t.seq FROM (VALUES {marks}) AS v "
                "JOIN thoughts AS t ON t.task_id = v.column1 AND t.position = "
                "(SELECT max(position) FROM thoughts WHERE task_id = v.column1)",
                part,
            )
            for task_id, position, hash_, seq in rows:
                if type(position) is int and type(seq) is int and isinstance(hash_, str):
                    self._ends[task_id] = End(position, hash_, seq)
                else:
                    self._damaged.add(task_id)
        for part, marks in _parts(wanted, "(?, CAST(? AS BIGINT))"):
            # The index of submissions is the one to go by: there are few behind the end. An
            # expression in place of the event type keeps the planner from that one's.
            self.unplaced.update(
                self._execute(
                    f"SELECT v.column1, min(e.seq) FROM (VALUES {marks}) AS v CROSS JOIN "
                    "entries AS e WHERE e.submission_id = v.column1 AND e.seq > v.column2 "
                    "AND e.event_type || '' = ? GROUP BY v.column1",
                    (*(item for one in part for item in (one, self._ends[one].seq)), EVENT),
                )
            )

    def of(self, task_id: str) -> End:
        """Where the chain of a task that was looked up ends.

        Raises:
            TrailDamagedError: its last row holds what cannot be there.
        """
        if task_id in self._damaged:
            raise TrailDamagedError(
                f"The last place of the task {task_id!r} in the table of thoughts cannot be read.",
                next_step="`remit trail verify` says what is damaged.",
            )
        return self._ends[task_id]

    def to_append(self, task_id: str) -> End:
        """:meth:`of`, where a record may be put behind it.

        Raises:
            TrailDamagedError: it may not: thoughts of the task have lost their places.
        """
        end = self.of(task_id)
        if task_id in self.unplaced:
            raise TrailDamagedError(
                f"The chain of the task {task_id!r} does not reach its last thoughts: from "
                f"LED-{self.unplaced[task_id]:08x} on their places are missing, as after the "
                "import of a ledger in which thoughts are erased. A new one would fork it.",
                next_step="`remit trail import` of an export of the trail puts them back; "
                "without one, go on under another task id.",
            )
        return end

    def move(self, task_id: str, end: End) -> None:
        """Note that the chain goes on to ``end``."""
        self._ends[task_id] = end


def known_ids(execute: Execute, ids: Sequence[str]) -> set[str]:
    """Those of ``ids`` that records have already."""
    found: set[str] = set()
    for part, marks in _parts(ids, "?"):
        rows = execute(f"SELECT thought_id FROM thoughts WHERE thought_id IN ({marks})", part)
        found.update(row[0] for row in rows)
    return found


def _parts(values: Sequence[str], mark: str) -> list[tuple[tuple[str, ...], str]]:
    """``values`` in pieces with as many marks, in few sizes of statement."""
    pieces = []
    for start in range(0, len(values), _MAX_MARKS):
        part = values[start : start + _MAX_MARKS]
        size = 1 << (len(part) - 1).bit_length()
        padded = (*part, *[part[-1]] * (size - len(part)))
        pieces.append((padded, ", ".join([mark] * size)))
    return pieces
