"""The trail as JSON lines: written out, read, and checked without a ledger (``docs/trail.md``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import IO, Annotated, Any, Self

import orjson
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError, model_validator

from remit.kernel.errors import InvalidInputError
from remit.kernel.json_text import load_unique
from remit.kernel.validation import first_error
from remit.ledger import Erased, LedgerClient, parse_entry_id
from remit.routing.trail.record import (
    FIRST_PREV_HASH,
    Id,
    Text,
    ThoughtLineError,
    ThoughtRecord,
    ThoughtType,
    TrailDamagedError,
    hash_problem,
)
from remit.routing.trail.table import iter_thought_records
from remit.routing.trail.verification import TrailReport

_Hash = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]


class _Line(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    id: Id
    type: ThoughtType
    task_id: Id
    agent_id: Id
    session_id: Text = ""
    content: str | None
    timestamp: Id
    prev_hash: _Hash
    hash: _Hash
    erased: str | None = None

    @model_validator(mode="after")
    def _content_or_erased(self) -> Self:
        if (self.content is None) != ("erased" in self.model_fields_set):
            raise ValueError("it takes content, or null for it and erased")
        if self.content is None and parse_entry_id(self.erased or "") is None:
            raise ValueError("erased is not the id of a ledger entry")
        return self


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
        fields = record.to_dict()
        del fields["entry_id"]
        if fields.get("erased", "") is None:
            raise TrailDamagedError(
                f"The content of the thought record {record.id!r} is missing, and no erasure "
                "accounts for it.",
                next_step="`remit ledger verify` says what is damaged.",
            )
        line = orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)
        stream.write(line.decode() if as_text else line)
        count += 1
    return count


def verify_thought_lines(stream: Iterable[str | bytes]) -> TrailReport:
    """Check an export by itself, without a ledger: hashes, links, ids.

    Args:
        stream: lines, text or UTF-8 bytes: an open file.

    Raises:
        InvalidInputError: ``stream`` is not a file and gives no lines.
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
            InvalidInputError: ``stream`` is not a file and gives no lines.
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
        read = _Line.model_validate_json(line)
    except ValidationError as error:
        key, problem = first_error(error)
        raise InvalidInputError(f"{key}: {problem}" if key else problem) from error
    load_unique(line)
    return ThoughtRecord(
        read.id, read.type, read.task_id, read.agent_id,
        Erased(read.erased) if read.content is None else read.content,
        read.timestamp, read.prev_hash, read.hash, read.session_id,
    )  # fmt: skip


def _no_lines(given: Any) -> InvalidInputError:
    return InvalidInputError(
        f"Lines are read from an open file, or from texts or bytes one by one; not from "
        f"{type(given).__name__}."
    )
