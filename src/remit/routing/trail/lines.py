"""The trail as JSON lines: written out, read, and checked without a ledger (``docs/trail.md``)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import IO, Any

import orjson

from remit.kernel.errors import InvalidInputError
from remit.ledger import Erased, LedgerClient, parse_entry_id
from remit.routing.trail.errors import ThoughtLineError, TrailDamagedError
from remit.routing.trail.reading import iter_thought_records
from remit.routing.trail.record import (
    FIRST_PREV_HASH,
    ThoughtRecord,
    check_id,
    check_type,
    text_problem,
)
from remit.routing.trail.report import TrailReport
from remit.routing.trail.verification import hash_problem

__all__ = ["ThoughtLines", "export_thought_records", "verify_thought_lines"]

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


def verify_thought_lines(stream: Iterable[str | bytes]) -> TrailReport:
    """Check an export by itself, without a ledger: hashes, links, ids (SPEC 7.3).

    Args:
        stream: lines, text or UTF-8 bytes: an open file.

    Raises:
        InvalidInputError: ``stream`` is no file and gives no lines.
    """
    read = ThoughtLines(strict=False)
    for _ in read.records(stream):
        pass
    read.report.tasks = len(read.last)
    return read.report


class ThoughtLines:
    """Reads lines and follows their chains.

    Args:
        strict: raise what is wrong, with the line; else it goes to :attr:`report`.

    Attributes:
        last: by task, the hash of its last record so far.
        ids: by id, its line.
    """

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self.last: dict[str, str] = {}
        self.ids: dict[str, int] = {}
        self.report = TrailReport()

    def records(self, stream: Iterable[str | bytes]) -> Iterator[tuple[int, ThoughtRecord]]:
        """Each record that can be read, with the number of its line.

        Raises:
            InvalidInputError: ``stream`` is no file and gives no lines.
            ThoughtLineError: what is wrong, where this is strict.
        """
        if isinstance(stream, (str, bytes, bytearray, memoryview)) or not isinstance(
            stream, Iterable
        ):
            raise _no_lines(stream)
        for number, line in enumerate(stream, start=1):
            if not isinstance(line, (str, bytes)):
                raise _no_lines(line)
            if not line.strip():
                continue
            self.report.records += 1
            try:
                record = _parse(line)
            except InvalidInputError as error:
                self._wrong(number, f"line {number}", "", str(error))
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
        before = self.last.get(task_id)
        if before is None:
            if not self._strict and record.prev_hash != FIRST_PREV_HASH:
                message = "it is the first of its task, and does not begin with 64 zeros"
                self._wrong(number, thought_id, task_id, message)
        elif before != record.prev_hash:
            message = f"it does not follow the record of task {task_id!r} before it"
            self._wrong(number, thought_id, task_id, message)
        self.last[task_id] = record.hash
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
    record = ThoughtRecord(
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
    if _members(line) != len(told):  # last: what is looked at again is flat and well
        raise InvalidInputError("it has a key twice")
    return record


def _members(line: str | bytes) -> int:
    """How many members the object has, those given twice counted twice."""
    text = line if isinstance(line, str) else line.decode()
    try:
        count: int = json.loads(text, object_pairs_hook=len)
    except (ValueError, RecursionError):  # as deep as only a value that is given twice can be
        return -1
    return count


def _no_lines(given: Any) -> InvalidInputError:
    return InvalidInputError(
        f"Lines are read from an open file, or from texts or bytes one by one; not from "
        f"{type(given).__name__}."
    )
