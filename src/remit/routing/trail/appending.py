"""Putting thoughts on record: one entry and one row each, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from remit.kernel.errors import InvalidInputError
from remit.kernel.loops import run_blocking
from remit.ledger import (
    LedgerClient,
    LedgerEntry,
    Transaction,
    content,
    parse_entry_id,
    utc_now,
)
from remit.routing.trail.ends import End, Ends, known_ids
from remit.routing.trail.errors import DuplicateThoughtError
from remit.routing.trail.preparing import is_ready, prepare_table, set_ready
from remit.routing.trail.record import (
    ThoughtInput,
    ThoughtRecord,
    check_id,
    hash_thought,
    new_id,
    read_input,
    read_time,
)
from remit.routing.trail.table import EVENT, INSERT

__all__ = [
    "OWN_KEYS",
    "acreate_thought_record",
    "create_thought_record",
    "entry_of",
]

OWN_KEYS = frozenset({
    "thought_id", "type", "task_id", "agent_id", "session_id", "position", "content",
    "thought_timestamp", "prev_hash", "hash", "erased", "scope",
})  # fmt: skip
"""Metadata keys that a caller may not bring."""


def create_thought_record(
    ledger: LedgerClient,
    input: ThoughtInput | Mapping[str, Any],  # noqa: A002 - the contract's word
    *,
    id_fn: Callable[[], str] | None = None,
    now_fn: Callable[[], str | datetime] | None = None,
    metadata: Mapping[str, Any] | None = None,
    tier: str | None = None,
    subject_id: str | None = None,
) -> ThoughtRecord:
    """Put a thought at the end of its task's chain; returns when it is durable (SPEC 7.3).

    Any number of threads, event loops and processes may do so at once: a chain never forks.

    Args:
        ledger: where it is recorded, as a ``THOUGHT_RECORD`` entry.
        input: the thought, or a mapping with the keys of :class:`ThoughtInput`.
        id_fn: gives the record's id; ``THT-`` and 32 random hex digits when left out.
        now_fn: gives its time, as a text that is kept as it is or an aware ``datetime``; the
            clock when left out.
        metadata: what else the ledger entry is to say; outside the hash.
        tier: ``hot``, ``ho2`` or ``ho1``, under ``scope`` of the entry.
        subject_id: the person of whom it speaks, for erasure.

    Raises:
        InvalidInputError: a field cannot be on record; nothing was written.
        DuplicateThoughtError: the id is taken; nothing was written.
        TrailDamagedError: thoughts of the task have lost their places in its chain, as after
            the import of a ledger in which thoughts are erased; nothing was written.
        LedgerWriteError: the store did not take it; nothing was written.
    """
    return run_blocking(
        acreate_thought_record(
            ledger, input, id_fn=id_fn, now_fn=now_fn, metadata=metadata, tier=tier,
            subject_id=subject_id,
        )
    )  # fmt: skip


async def acreate_thought_record(
    ledger: LedgerClient,
    input: ThoughtInput | Mapping[str, Any],  # noqa: A002 - the contract's word
    *,
    id_fn: Callable[[], str] | None = None,
    now_fn: Callable[[], str | datetime] | None = None,
    metadata: Mapping[str, Any] | None = None,
    tier: str | None = None,
    subject_id: str | None = None,
) -> ThoughtRecord:
    """:func:`create_thought_record` without blocking the event loop.

    Who stops waiting does not stop it: what was handed over is recorded.
    """
    extra = dict(metadata or {})
    if taken := OWN_KEYS & extra.keys():
        raise InvalidInputError(
            f"The metadata of a thought may not bring {', '.join(sorted(taken))}."
        )
    if tier is not None:
        extra["scope"] = {"tier": check_id("tier", tier)}
    step = _Append(
        ledger=ledger,
        thought_id=check_id("The id of the thought", (id_fn or new_id)()),
        timestamp=read_time((now_fn or utc_now)()),
        thought=read_input(input),
        extra=extra,
        subject_id=subject_id,
    )
    if not is_ready(ledger):
        await ledger.submit(lambda tx: prepare_table(tx, ledger))
        set_ready(ledger)
    record: ThoughtRecord = await ledger.step(_Appends, step)
    return record


def entry_of(record: ThoughtRecord, position: int, extra: Mapping[str, Any]) -> LedgerEntry:
    """The ledger entry of a record.

    The link is not in it: it is the hash of the record at the position before, and would outlive
    that one's erasure as content of another session.
    """
    erased = not isinstance(record.content, str)
    return LedgerEntry(
        event_type=EVENT,
        submission_id=record.task_id,
        decision=record.type,
        reason="Thought recorded",
        metadata={
            "thought_id": record.id,
            "type": record.type,
            "task_id": record.task_id,
            "agent_id": record.agent_id,
            "session_id": record.session_id,
            "position": position,
            "content": None if erased else content(record.content),
            "thought_timestamp": record.timestamp,
            "hash": None if erased else content(record.hash),
            **extra,
        },
    )


@dataclass(slots=True)
class _Append:
    """The step that puts one thought at the end of its chain."""

    ledger: LedgerClient
    thought_id: str
    timestamp: str
    thought: ThoughtInput
    extra: dict[str, Any] = field(default_factory=dict)
    subject_id: str | None = None


class _Appends:
    """The stage: all thoughts of one transaction. Chains are read at once, rows written at once."""

    def __init__(self, tx: Transaction, steps: Sequence[_Append]) -> None:
        self._tx = tx
        self._rows: list[tuple[Any, ...]] = []
        ids = list(dict.fromkeys(step.thought_id for step in steps))
        self._ids = set(ids)  # those that were looked up
        self._ends = Ends(tx.execute)
        self._ends.look_up(step.thought.task_id for step in steps)
        self._known = known_ids(tx.execute, ids)

    def do(self, step: _Append) -> ThoughtRecord:
        """See :class:`~remit.ledger.Stage`."""
        thought, thought_id = step.thought, step.thought_id
        self._look_up(step)
        if thought_id in self._known:
            raise DuplicateThoughtError(
                f"There is a thought record {thought_id!r} already.",
                next_step="Give each record an id of its own, or leave id_fn out.",
            )
        position, prev_hash, _ = self._ends.to_append(thought.task_id)
        position += 1
        own_hash = hash_thought(
            thought_id, thought.type, thought.task_id, thought.content, step.timestamp, prev_hash
        )
        record = ThoughtRecord(
            thought_id, thought.type, thought.task_id, thought.agent_id, thought.content,
            step.timestamp, prev_hash, own_hash, thought.session_id,
        )  # fmt: skip
        entry = entry_of(record, position, step.extra)
        entry_id = self._tx.append(step.ledger.prepare(entry, subject_id=step.subject_id))
        seq = parse_entry_id(entry_id) or 0
        self._rows.append((seq, thought.task_id, position, thought_id, prev_hash, own_hash))
        self._ends.move(thought.task_id, End(position, own_hash, seq))
        self._known.add(thought_id)
        return ThoughtRecord(
            record.id, record.type, record.task_id, record.agent_id, record.content,
            record.timestamp, prev_hash, own_hash, record.session_id, entry_id,
        )  # fmt: skip

    def write(self) -> None:
        """See :class:`~remit.ledger.Stage`."""
        if self._rows:
            rows, self._rows = self._rows, []
            self._tx.execute_many(INSERT, rows)

    def _look_up(self, step: _Append) -> None:
        """Read what was not asked for when the stage was opened."""
        if step.thought.task_id not in self._ends:
            self._ends.look_up([step.thought.task_id])
        if step.thought_id not in self._ids:
            self._ids.add(step.thought_id)
            self._known |= known_ids(self._tx.execute, [step.thought_id])
