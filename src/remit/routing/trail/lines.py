"""JSON lines of a trail: written, read, and checked without a ledger (``docs/trail.md``)."""

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
    FIRST_PREV_HASH,
    Id,
    Text,
    ThoughtRecord,
    ThoughtType,
    TrailError,
    hash_problem,
)
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


def verify_thought_lines(stream: Iterable[str | bytes]) -> TrailReport:
    """Return the result of checking an export without a ledger: members, ids, hashes and links.

    Args:
        stream: lines of text or of UTF-8 bytes, such as an open file.

    Raises:
        InvalidInputError: ``stream`` is not an iterable of lines.
    """
    report = TrailReport()
    report.tasks = len({record.task_id for _, record in read_lines(stream, report)})
    return report


def read_lines(
    stream: Iterable[str | bytes], report: TrailReport, *, is_continued: bool = False
) -> Iterator[tuple[int, ThoughtRecord]]:
    """Yield each readable record with the number of its line, counted from 1.

    Args:
        stream: lines of text or of UTF-8 bytes; empty lines are skipped.
        report: receives the counts, and a problem for each line that is malformed or does not
            follow the line before it in its chain.
        is_continued: True if the first line of a task may follow a record that is elsewhere.

    Raises:
        InvalidInputError: ``stream`` is not an iterable of lines.
    """
    if isinstance(stream, (str, bytes, bytearray, memoryview)) or not isinstance(stream, Iterable):
        raise _not_lines(stream)
    ids: dict[str, int] = {}
    heads: dict[str, str] = {}  # the hash of each task's last record
    for number, line in enumerate(stream, start=1):
        if not isinstance(line, (str, bytes)):
            raise _not_lines(line)
        if not line.strip():
            continue
        report.records += 1
        place = f"line {number}"
        try:
            record = _parse(line)
        except InvalidInputError as error:
            report.add(place, "", place, str(error))
            continue
        before = heads.get(record.task_id)
        problems = []
        if (other := ids.setdefault(record.id, number)) != number:
            problems.append(f"line {other} has the same id {record.id!r}")
        if before is None and not is_continued and record.prev_hash != FIRST_PREV_HASH:
            problems.append("it is the first of its task, and its link is not 64 zeros")
        if before not in (None, record.prev_hash):
            problems.append(f"it does not follow the record of task {record.task_id!r} before it")
        heads[record.task_id] = record.hash
        if isinstance(record.content, Erased):
            report.erased += 1
        elif problem := hash_problem(
            record.id, record.type, record.task_id, record.content, record.timestamp,
            record.prev_hash, record.hash,
        ):  # fmt: skip
            problems.append(problem)
        for problem in problems:
            report.add(record.id, record.task_id, place, problem)
        yield number, record


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


def _not_lines(given: Any) -> InvalidInputError:
    return InvalidInputError(
        f"A trail is read from an open file, or from an iterable of str or bytes lines, not from "
        f"{type(given).__name__}."
    )
