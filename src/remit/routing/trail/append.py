"""Recording of thoughts: one entry and one row each, in one transaction."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from remit.gateway import DecisionStep
from remit.kernel.errors import InvalidInputError
from remit.kernel.loops import blocking
from remit.kernel.pydantic_validation import changed
from remit.ledger import (
    LedgerClient,
    LedgerEntry,
    LedgerFormatError,
    Transaction,
    content,
    parse_entry_id,
    utc_now,
)
from remit.routing.trail.chains import (
    ChainHeads,
    Head,
    known_records,
    prepare_table,
)
from remit.routing.trail.table import EVENT, INSERT
from remit.routing.trail.thought_record import (
    InvalidThoughtError,
    ThoughtInput,
    ThoughtRecord,
    TrailError,
    check_id,
    hash_thought,
    read_input,
    read_time,
)

_PREPARED = "thoughts"  # The name in the cache of transactions.
_RESERVED = frozenset({
    "thought_id", "type", "task_id", "agent_id", "session_id", "position", "content",
    "thought_timestamp", "prev_hash", "hash", "erased", "scope",
})  # fmt: skip
"""Metadata keys that a caller may not bring."""


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
    """Append a thought to its task's chain; return the record once it is durable.

    Writes one ``THOUGHT_RECORD`` entry and one row of the table ``thoughts`` in one transaction.
    Threads, event loops and processes can do so at once: a chain never forks. Cancelling the caller
    does not stop the write.

    Args:
        ledger: the ledger, which gets a ``THOUGHT_RECORD`` entry.
        input: the thought, or a mapping with the keys of :class:`ThoughtInput`.
        id_fn: returns the record's id; ``None`` for ``THT-`` and 32 random hex digits.
        now_fn: returns the time, as a text that is recorded unchanged or an aware ``datetime``;
            ``None`` for the clock.
        metadata: further metadata of the entry, outside the hash; ``None`` for none.
        tier: ``hot``, ``ho2`` or ``ho1``, recorded under ``scope``; ``None`` for none.
        subject_id: the person that the thought is about, for erasure; ``None`` for nobody.

    Raises:
        InvalidInputError: a field cannot be recorded, or ``metadata`` has a key of the record
            itself; nothing was written.
        InvalidThoughtError: another record has the id; nothing was written.
        TrailError: thoughts of the task have lost their places in its chain, as after the import of
            a ledger with erased thoughts; nothing was written.
        LedgerWriteError: the store refused the entry; nothing was written.
    """
    extra = dict(metadata or {})
    if taken := _RESERVED & extra.keys():
        raise InvalidInputError(
            f"The metadata of a thought must not contain {', '.join(sorted(taken))}."
        )
    if tier is not None:
        extra["scope"] = {"tier": check_id("tier", tier)}
    thought_id = id_fn() if id_fn else f"THT-{secrets.token_hex(16)}"
    record = _record_of(read_input(input), thought_id, (now_fn or utc_now)())
    placed: ThoughtRecord = await ledger.step(_Stage, _Step(ledger, record, extra, subject_id))
    return placed


create_thought_record = blocking(acreate_thought_record, is_brief=True)


def append_thoughts(
    tx: Transaction, ledger: LedgerClient, thoughts: Mapping[str, ThoughtInput]
) -> None:
    """Append thoughts to their chains in a transaction, except those that are recorded.

    Args:
        tx: the transaction.
        ledger: the ledger of the transaction.
        thoughts: the thoughts by id.

    Raises:
        InvalidInputError: an id or a thought cannot be recorded.
        TrailError: as :func:`acreate_thought_record`.
    """
    prepare_table(tx, ledger)
    known = known_records(tx.execute, thoughts)
    stage = _Stage(tx, ())
    for thought_id, thought in thoughts.items():
        if thought_id not in known:
            record = _record_of(read_input(thought), thought_id, utc_now())
            stage.do(_Step(ledger, record, {}, None))
    stage.write()


def thought_to_note(
    ledger: LedgerClient,
    record: ThoughtRecord,
    metadata: Callable[[str], Mapping[str, Any]],
    subject_id: str | None,
) -> DecisionStep:
    """Return the step that records a thought in the transaction of an answer. Writes nothing.

    Args:
        ledger: the ledger.
        record: the thought without hashes. Neither the thought nor its id is checked. The id must
            be the thought's alone.
        metadata: returns further metadata for the id of the answer's ``EXCHANGE``.
        subject_id: the person that the thought is about; ``None`` for nobody.
    """
    decision = DecisionStep(_Stage)
    decision.step = _Step(
        ledger, record, lambda: metadata(decision.exchange_entry_id), subject_id, is_new=True
    )
    return decision


def _record_of(thought: ThoughtInput, thought_id: str, at: str | datetime) -> ThoughtRecord:
    """Return a record without hashes; raise InvalidInputError for a bad id or time."""
    return ThoughtRecord(
        check_id("id", thought_id), thought.type, thought.task_id, thought.agent_id,
        thought.content, read_time(at), prev_hash="", hash="", session_id=thought.session_id,
    )  # fmt: skip


def entry_of(record: ThoughtRecord, position: int, extra: Mapping[str, Any]) -> LedgerEntry:
    """Return the ledger entry of a record.

    The entry does not contain the link: the link is the hash of the record before, and would
    outlive the erasure of that record as content of another session.

    Args:
        record: the record.
        position: position in the task's chain, from 0.
        extra: further metadata.
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


class _Step(NamedTuple):
    """A thought to append to its chain; its record has no hashes yet."""

    ledger: LedgerClient
    record: ThoughtRecord
    metadata: Mapping[str, Any] | Callable[[], Mapping[str, Any]]
    subject_id: str | None
    is_new: bool = False  # the record's id, for sure


class _Stage:
    """The thoughts of one transaction, whose chains are read and rows written together."""

    def __init__(self, tx: Transaction, steps: Sequence[_Step]) -> None:
        self._tx = tx
        self._rows: list[tuple[Any, ...]] = []
        self._heads = ChainHeads(tx.execute)
        self._looked_up: set[str] = set()  # ids
        self._taken: set[str] = set()  # The ids of existing records.
        self._look_up(steps)

    def do(self, step: _Step) -> ThoughtRecord:
        """Append one record's entry and collect its row; return the record with hashes.

        Raises:
            InvalidThoughtError: another record has the id.
            TrailError: the chain cannot be continued, or recorded thoughts cannot be read.
        """
        self._prepare(step.ledger)
        record = step.record
        thought_id, task_id = record.id, record.task_id
        more = step.metadata() if callable(step.metadata) else step.metadata
        if task_id not in self._heads or not step.is_new:
            self._look_up([step])
        if thought_id in self._taken:
            raise InvalidThoughtError(
                f"The thought record {thought_id!r} already exists.",
                next_step="Give each record an id of its own, or leave id_fn out.",
            )
        head = self._heads.to_append(task_id)
        position = head.position + 1
        own_hash = hash_thought(
            thought_id, record.type, task_id, str(record.content), record.timestamp, head.hash
        )
        record = changed(record, prev_hash=head.hash, hash=own_hash)
        entry = entry_of(record, position, more)
        entry_id = self._tx.append(step.ledger.prepare(entry, subject_id=step.subject_id))
        seq = parse_entry_id(entry_id) or 0
        self._rows.append((seq, task_id, position, thought_id, head.hash, own_hash))
        self._heads.move(task_id, Head(position, own_hash, seq))
        self._taken.add(thought_id)
        return changed(record, entry_id=entry_id)

    def write(self) -> None:
        """Insert the collected rows."""
        if self._rows:
            rows, self._rows = self._rows, []
            self._tx.execute_many(INSERT, rows)

    def _prepare(self, ledger: LedgerClient) -> None:
        """Fill the table if the transactions before did not make sure that it is filled."""
        if _PREPARED in self._tx.cache:
            return
        try:
            filled = prepare_table(self._tx, ledger)
        except LedgerFormatError as error:  # The other entries of the transaction are kept.
            raise TrailError(error.message, next_step=error.next_step) from error
        if filled:  # The heads were read before.
            self._heads = ChainHeads(self._tx.execute)
            self._looked_up.clear()
        self._tx.cache[_PREPARED] = True

    def _look_up(self, steps: Sequence[_Step]) -> None:
        """Read unknown chain heads and ids, usually all when the stage is opened."""
        self._heads.look_up([step.record.task_id for step in steps])
        ids = [
            step.record.id
            for step in steps
            if not step.is_new and step.record.id not in self._looked_up
        ]
        if ids:
            self._looked_up.update(ids)
            self._taken |= known_records(self._tx.execute, ids).keys()
