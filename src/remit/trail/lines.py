"""The trail as JSON lines: out, in again, and checked without a ledger (``docs/trail.md``)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import IO, Any

import orjson

from remit.errors import InvalidInputError
from remit.ledger import Erased, LedgerClient, Transaction, parse_entry_id
from remit.trail.appending import entry_of, known_ids, last_of
from remit.trail.errors import ThoughtLineError, TrailDamagedError
from remit.trail.preparing import prepare_table
from remit.trail.reading import iter_thought_records
from remit.trail.record import (
    FIRST_PREV_HASH,
    ThoughtRecord,
    check_id,
    check_type,
    text_problem,
)
from remit.trail.report import TrailReport
from remit.trail.table import INSERT
from remit.trail.verification import hash_problem

__all__ = ["export_thought_records", "import_thought_records", "verify_thought_lines"]

_HASH = re.compile("[0-9a-f]{64}")
_MEMBERS = frozenset({
    "id", "type", "task_id", "agent_id", "content", "timestamp", "prev_hash", "hash",
})  # fmt: skip
_OPTIONAL = frozenset({"session_id", "erased"})


def export_thought_records(
    ledger: LedgerClient, stream: IO[Any], task_id: str | None = None
) -> int:
    """Write records as JSON lines, in the order in which they were recorded; how many.

    Args:
        ledger: whose records.
        stream: open for writing, text or bytes.
        task_id: only this task's.

    Raises:
        TrailDamagedError: a record cannot be read; what is before it was written.
    """
    as_text = hasattr(stream, "encoding")  # what streams of text have
    count = 0
    for record in iter_thought_records(ledger, task_id):
        told = record.to_dict()
        del told["entry_id"]
        if told.get("erased", "") is None:
            raise TrailDamagedError(
                f"The content of the thought record {record.id!r} is missing, and no erasure "
                "accounts for it.",
                next_step="`remit ledger verify` says what is damaged.",
            )
        line = orjson.dumps(told, option=orjson.OPT_APPEND_NEWLINE)
        stream.write(line.decode() if as_text else line)
        count += 1
    return count


def import_thought_records(ledger: LedgerClient, stream: Iterable[str | bytes]) -> int:
    """Put the records of an export on record, ids, times and hashes as they are; how many.

    Everything is checked before anything is written, and all of it is written or nothing. A task
    that the ledger has already must go on exactly behind its last record.

    Args:
        ledger: where they go.
        stream: lines, text or UTF-8 bytes: an open file.

    Raises:
        ThoughtLineError: a line is malformed, does not follow, or does not fit this ledger;
            nothing was written.
    """
    read = _Lines(strict=True)
    records = [(number, record) for number, record in read.records(stream) if record is not None]
    if not records:
        return 0

    def write(tx: Transaction) -> None:
        prepare_table(tx, ledger)
        _write(tx, read, records)

    ledger.transact(write)
    return len(records)


def verify_thought_lines(stream: Iterable[str | bytes]) -> TrailReport:
    """Check an export by itself, without a ledger: hashes, links, ids (SPEC 7.3).

    Args:
        stream: lines, text or UTF-8 bytes: an open file.
    """
    read = _Lines(strict=False)
    for _ in read.records(stream):
        pass
    read.report.tasks = len(read.first)
    return read.report


class _Lines:
    """Reads lines and follows their chains.

    Args:
        strict: raise what is wrong, with the line; else it goes to :attr:`report`.

    Attributes:
        first: by task, the line of its first record here, and that one's ``prev_hash``.
        ids: by id, its line.
    """

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._last: dict[str, str] = {}
        self.first: dict[str, tuple[int, str]] = {}
        self.ids: dict[str, int] = {}
        self.report = TrailReport()

    def records(self, stream: Iterable[str | bytes]) -> Iterator[tuple[int, ThoughtRecord | None]]:
        """Each record with the number of its line; ``None`` for a line that is none."""
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            self.report.records += 1
            try:
                record = _parse(line)
            except InvalidInputError as error:
                self._wrong(number, f"line {number}", "", str(error))
                yield number, None
                continue
            self._follow(number, record)
            yield number, record

    def _follow(self, number: int, record: ThoughtRecord) -> None:
        """Check a record against what came before it."""
        thought_id, task_id = record.id, record.task_id
        if (line := self.ids.setdefault(thought_id, number)) != number:
            self._wrong(
                number, thought_id, task_id, f"the id {thought_id!r} is that of line {line}"
            )
        before = self._last.get(task_id)
        if before is None:
            self.first[task_id] = (number, record.prev_hash)
            if not self._strict and record.prev_hash != FIRST_PREV_HASH:
                message = "it is the first of its task, and does not begin with 64 zeros"
                self._wrong(number, thought_id, task_id, message)
        elif before != record.prev_hash:
            message = f"it does not follow the record of task {task_id!r} before it"
            self._wrong(number, thought_id, task_id, message)
        self._last[task_id] = record.hash
        if isinstance(record.content, Erased):
            self.report.erased += 1
        elif problem := hash_problem(
            thought_id, record.type, task_id, record.content, record.timestamp,
            record.prev_hash, record.hash,
        ):  # fmt: skip
            self._wrong(number, thought_id, task_id, problem)

    def _wrong(self, number: int, thought_id: str, task_id: str, message: str) -> None:
        if self._strict:
            raise ThoughtLineError(
                number, f"{message.rstrip('.')}.", next_step="Nothing was recorded."
            )
        self.report.add(thought_id, task_id, f"line {number}", message)


def _parse(line: str | bytes) -> ThoughtRecord:
    """A line as a record; raises :class:`InvalidInputError`."""
    try:
        told = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise InvalidInputError(f"it is not JSON: {error}") from error
    if not isinstance(told, dict):
        raise InvalidInputError("it is not an object")
    if missing := _MEMBERS - told.keys():
        raise InvalidInputError(f"it has no {', '.join(sorted(missing))}")
    if unknown := told.keys() - _MEMBERS - _OPTIONAL:
        raise InvalidInputError(f"a thought has no {', '.join(sorted(unknown))}")
    content, erased = told["content"], told.get("erased")
    if content is None and "erased" in told:
        if not isinstance(erased, str) or parse_entry_id(erased) is None:
            raise InvalidInputError("erased is not the id of a ledger entry")
        content = Erased(erased)
    elif "erased" in told:
        raise InvalidInputError("it is erased, and has content")
    elif not isinstance(content, str):
        raise InvalidInputError("content is not a text")
    elif problem := text_problem(content):
        raise InvalidInputError(f"content {problem}")
    for name in ("prev_hash", "hash"):
        if not isinstance(told[name], str) or _HASH.fullmatch(told[name]) is None:
            raise InvalidInputError(f"{name} is not 64 lower-case hex digits")
    return ThoughtRecord(
        id=check_id("id", told["id"]),
        type=check_type(told["type"]),
        task_id=check_id("task_id", told["task_id"]),
        agent_id=check_id("agent_id", told["agent_id"]),
        content=content,
        timestamp=check_id("timestamp", told["timestamp"]),
        prev_hash=told["prev_hash"],
        hash=told["hash"],
        session_id=check_id("session_id", told.get("session_id", ""), may_be_empty=True),
    )


def _write(tx: Transaction, read: _Lines, records: list[tuple[int, ThoughtRecord]]) -> None:
    """Everything, inside one transaction: what raises undoes it."""
    last = last_of(tx, list(read.first))
    for task_id, (number, prev_hash) in read.first.items():
        if task_id in last and prev_hash == FIRST_PREV_HASH:
            raise ThoughtLineError(
                number, f"the task {task_id!r} is here already.", next_step="Nothing was recorded."
            )
        if prev_hash != (last[task_id][1] if task_id in last else FIRST_PREV_HASH):
            raise ThoughtLineError(
                number,
                f"it does not follow the last record of task {task_id!r} here.",
                next_step="Nothing was recorded.",
            )
    if taken := known_ids(tx, list(read.ids)):
        thought_id = min(taken, key=lambda one: read.ids[one])
        raise ThoughtLineError(
            read.ids[thought_id],
            f"there is a thought record {thought_id!r} already.",
            next_step="Nothing was recorded.",
        )
    positions = {task_id: place for task_id, (place, _) in last.items()}
    rows = []
    for number, record in records:
        position = positions[record.task_id] = positions.get(record.task_id, -1) + 1
        elsewhere = record.content.erasure_id if isinstance(record.content, Erased) else None
        entry = entry_of(record, position, {"erased": elsewhere} if elsewhere else {})
        try:
            seq = parse_entry_id(tx.append(entry))
        except InvalidInputError as error:  # a record that is too large
            raise ThoughtLineError(number, str(error), next_step="Nothing was recorded.") from error
        rows.append((seq, record.task_id, position, record.id, record.prev_hash, record.hash))
    tx.execute_many(INSERT, rows)
