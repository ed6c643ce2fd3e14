"""JSON lines of a trail: written and read (``docs/trail.md``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import IO, Annotated, Any

import orjson
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from remit.kernel.errors import InvalidInputError
from remit.kernel.json_text import load_unique
from remit.kernel.pydantic_validation import first_error
from remit.ledger import Erased, LedgerClient, parse_entry_id
from remit.routing.trail.table import iter_thought_records
from remit.routing.trail.thought_record import (
    Id,
    InvalidThoughtError,
    Text,
    ThoughtRecord,
    ThoughtType,
    TrailError,
    hash_problem,
)

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


def export_thought_records(
    ledger: LedgerClient, stream: IO[Any], task_id: str | None = None
) -> int:
    """Write records as JSON lines, in the order in which they were recorded; return their number.

    An erased thought has the id of its ``ERASURE`` entry instead of its content. The stream is not
    closed.

    Args:
        ledger: the ledger with the trail.
        stream: open for writing, text or bytes.
        task_id: the task whose records are written; ``None`` for all tasks.

    Raises:
        InvalidInputError: ``task_id`` is not a text that can be recorded.
        TrailError: a record cannot be read, or its content is missing without an erasure. The
            records before it were written, as after the next error.
        LedgerError: the ledger cannot be read, or a record is in a segment that is not attached.
    """
    is_text = hasattr(stream, "encoding")
    count = 0
    for record in iter_thought_records(ledger, task_id):
        fields = record.to_dict()
        del fields["entry_id"]
        if fields.get("erased", "") is None:
            raise TrailError(
                f"The content of the thought record {record.id!r} is missing, and no erasure "
                "accounts for it.",
                next_step="`remit trail verify` names each damaged record.",
            )
        line = orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)
        stream.write(line.decode() if is_text else line)
        count += 1
    return count


def read_lines(stream: Iterable[str | bytes]) -> Iterator[tuple[int, ThoughtRecord]]:
    """Yield each record with the number of its line, counted from 1. Empty lines are skipped.

    Args:
        stream: lines of text or of UTF-8 bytes, such as an open file.

    Raises:
        InvalidInputError: ``stream`` is not an iterable of lines.
        InvalidThoughtError: a line is malformed, has an id twice, has another hash than its
            content, or does not follow the line before it in its chain. The first line of a task
            may follow a record that is elsewhere.
    """
    if isinstance(stream, (str, bytes)) or not isinstance(stream, Iterable):
        raise InvalidInputError(f"A trail is read from lines, not from {type(stream).__name__}.")
    ids: dict[str, int] = {}
    heads: dict[str, str] = {}  # the hash of each task's last record
    for number, line in enumerate(stream, start=1):
        if not isinstance(line, (str, bytes)):
            raise InvalidInputError(f"Line {number} is no text but {type(line).__name__}.")
        if not line.strip():
            continue
        try:
            record = _parse(line)
        except InvalidInputError as error:
            raise _bad_line(str(error), number) from error
        if (other := ids.setdefault(record.id, number)) != number:
            raise _bad_line(f"line {other} has the same id {record.id!r}", number)
        if heads.get(record.task_id) not in (None, record.prev_hash):
            raise _bad_line(
                f"it does not follow the record of task {record.task_id!r} before it", number
            )
        heads[record.task_id] = record.hash
        if not isinstance(record.content, Erased) and (
            problem := hash_problem(
                record.id, record.type, record.task_id, record.content, record.timestamp,
                record.prev_hash, record.hash,
            )
        ):  # fmt: skip
            raise _bad_line(problem, number)
        yield number, record


def _bad_line(problem: str, number: int) -> InvalidThoughtError:
    return InvalidThoughtError(
        f"{problem.rstrip('.')}.", next_step="Nothing was recorded.", line=number
    )


def _parse(line: str | bytes) -> ThoughtRecord:
    """Return the record of a line; raise InvalidInputError if the line is malformed."""
    try:
        read = _Line.model_validate_json(line)
    except ValidationError as error:
        key, problem = first_error(error)
        raise InvalidInputError(f"{key}: {problem}" if key else problem) from error
    load_unique(line)
    if (read.content is None) != ("erased" in read.model_fields_set):
        raise InvalidInputError("it needs either a content, or the content null and erased")
    if read.content is None and parse_entry_id(read.erased or "") is None:
        raise InvalidInputError("erased is not the id of a ledger entry")
    return ThoughtRecord(
        read.id, read.type, read.task_id, read.agent_id,
        Erased(read.erased) if read.content is None else read.content,
        read.timestamp, read.prev_hash, read.hash, read.session_id,
    )  # fmt: skip
