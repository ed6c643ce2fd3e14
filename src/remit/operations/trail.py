"""Operations on the trail: the recorded thoughts of agents."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Literal

from remit.kernel.errors import InvalidInputError, RemitError
from remit.kernel.message_text import count, cut
from remit.operations.files import io_errors
from remit.operations.operation import Document, Feed, field, limit, verb
from remit.operations.ports import Caller, RootPort
from remit.operations.text import Table, facts

_LINE_CHARS = 70


def _task(text: str = "Only thoughts of this task.") -> Any:
    return field(text, None, flag="--task")


def _text(thought: dict[str, Any]) -> str:
    erased = thought.get("erased")
    return f"[content erased under {erased}]" if erased else str(thought["content"])


def _list_thoughts_line(item: dict[str, Any]) -> str:
    """Return id, time, task, type and the beginning of the thought."""
    return (f"{item['id']}  {item['timestamp']}  {item['task_id']}  {item['type']:<10}  "
            f"{cut(_text(item), _LINE_CHARS)}")  # fmt: skip


@verb(
    "trail list", command_member="thoughts", tools=("thought_record_list",), needs="read or call",
    line=_list_thoughts_line, nothing="No thoughts match. `remit trail add` records one.",
)  # fmt: skip
def list_thoughts(
    root: RootPort, caller: Caller, *, task_id: str | None = _task(), limit: int | None = limit()
) -> Feed:
    """List thoughts in the order in which they were recorded.

    Returns:
        A list; with a limit, of the earliest thoughts. An erased one has ``content`` None and
        ``erased``, the id of the ERASURE.

    Raises:
        InvalidInputError: the task is no text that can be recorded. All errors are raised when the
            list is read.
        TrailError: the entry of a thought is missing, or is another thought's.
        LedgerError: the ledger cannot be read.
    """
    from remit.routing.trail import iter_thought_records

    def read(cursor: str | None, most: int | None) -> Iterator[tuple[str, Any]]:
        for record in iter_thought_records(root.ledger, task_id, most):
            yield record.id, record.to_dict()

    return Feed(read)


@verb("trail show")
def show_thought(
    root: RootPort, caller: Caller, *, thought_id: str = field("Id of the thought.", flag="")
) -> dict[str, Any]:
    """Print one thought in full.

    Returns:
        The fields of the thought and of its place in the chain. An erased one has ``content`` None
        and ``erased``, the id of the ERASURE. The hash is not checked.

    Raises:
        ThoughtNotFoundError: no such thought exists.
        TrailError: the entry of the thought is missing, or belongs to another one.
        LedgerError: the ledger cannot be read; EntryArchivedError if the entry was archived.
    """
    from remit.routing.trail import get_thought_record

    return get_thought_record(root.ledger, thought_id).to_dict()


def _verify_lines(found: dict[str, Any]) -> Iterator[str | Table]:
    """Yield the verdict in a sentence, then the problems."""
    thoughts = f"{count(found['records'], 'thought')} of {count(found['tasks'], 'task')}"
    if found["verified"]:
        erased = f", {found['erased']} erased" if found["erased"] else ""
        yield f"verified: all {thoughts}{erased}"
    else:
        yield (f"NOT VERIFIED: {count(found['problem_count'], 'problem')} in {thoughts}; the first "
               f"is in {found['first_bad']}")  # fmt: skip
    yield from facts({"problems": found["problems"]})


@verb(
    "trail verify", tools=("thought_verify",), needs="verify or read or call", lines=_verify_lines,
    has_failed=lambda found: not found["verified"],
)  # fmt: skip
def verify_trail(
    root: RootPort, caller: Caller, *, task_id: str | None = _task("Only the chain of this task.")
) -> dict[str, Any]:
    """Check the hash of every thought and its link to the one before. Exit 1 if one fails.

    Returns:
        The report: ``verified``, ``records``, ``tasks``, ``erased``, ``first_bad``,
        ``problem_count`` and at most 100 ``problems``. A sound check of all tasks writes a mark,
        from which later checks of the ledger may continue.

    Raises:
        InvalidInputError: the task is no text that can be recorded.
        RemitError: the named task has no thoughts.
        LedgerError: the ledger cannot be read.
    """
    from remit.routing import trail

    report = trail.verify_trail(root.ledger, task_id, progress=root.progress("verifying"))
    if task_id is not None and report.verified and not report.records:
        raise RemitError(
            f"The task {task_id!r} has no thoughts.",
            next_step="`remit trail list` lists the thoughts of all tasks.",
        )
    return report.to_dict()


@verb("trail add", changes=True, prints="{id}", tools=("thought_record",), needs="call")
def add_thought(
    root: RootPort, caller: Caller, *,
    content: str = field("The thought.", flag="", metavar="TEXT"),
    task_id: str = field("Task whose chain gets the thought.", flag="--task"),
    type: Literal["plan", "analysis", "decision", "reflection"] = field("Type of the thought."),
    agent_id: str = field("Agent of the thought.", flag="--agent"),
    session_id: str = field("Session of the thought.", "", flag="--session"),
) -> dict[str, Any]:  # fmt: skip
    """Record a thought.

    Returns:
        The thought with its hash, and the id of its THOUGHT_RECORD.

    Raises:
        InvalidInputError: a value cannot be used.
        TrailError: the chain of the task cannot be continued.
        LedgerError: the ledger cannot be read or written.
    """
    from remit.routing.trail import ThoughtInput, create_thought_record

    thought = ThoughtInput(
        type=type, task_id=task_id, agent_id=agent_id, content=content, session_id=session_id
    )
    return create_thought_record(root.ledger, thought).to_dict()


@verb("trail export", media_type="text/plain")
def export_thoughts(
    root: RootPort, caller: Caller, *,
    target: Path = field("File, or -.", flag="--out"),
    task_id: str | None = _task(),
) -> Document:  # fmt: skip
    """Export thoughts as JSON Lines.

    Raises:
        InvalidInputError: the task is no text that can be recorded.
        TrailError: the entry or content of a thought is missing, though not erased. The thoughts
            before it are written.
        LedgerError: the ledger cannot be read. All errors are raised as the document is written.
    """
    from remit.routing.trail import export_thought_records

    def write(file: IO[bytes]) -> None:
        number = export_thought_records(root.ledger, file, task_id)
        root.note(f"{count(number, 'thought')} written to {target}.")

    return Document(write, target)


@verb(
    "trail import", changes=True, lines=lambda found: [count(found["thoughts"], "thought")]
)  # fmt: skip
def import_thoughts(
    root: RootPort, caller: Caller, *, source: str = field("File of the thoughts.", flag="")
) -> dict[str, Any]:
    """Import thoughts as JSON Lines from a file, or - for standard input.

    Every line and link is checked first; then all thoughts are recorded, or none. In a restored
    ledger, thoughts without a place in a chain get it back.

    Returns:
        ``thoughts``, their number.

    Raises:
        InvalidInputError: the file cannot be read, or a line or link is wrong; nothing is recorded.
        LedgerError: the ledger cannot be read or written; nothing is recorded.
    """
    from remit.routing.trail import import_thought_records

    if source == "-":
        return {"thoughts": import_thought_records(root.ledger, sys.stdin.buffer)}
    with io_errors(source, kind=InvalidInputError), Path(source).open("rb") as file:
        return {"thoughts": import_thought_records(root.ledger, file)}
