"""Operations on the trail: the recorded thoughts of agents."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Literal

from remit.kernel.errors import InvalidInputError, RemitError
from remit.kernel.words import count, cut
from remit.operations.operation import (
    Caller,
    Document,
    Feed,
    Operation,
    RootPort,
    facts,
    field,
    limit,
)

_LINE_CHARS = 100


def _task(text: str = "Only thoughts of this task.") -> Any:
    return field(text, None, flag="--task")


def _text(thought: dict[str, Any]) -> str:
    erased = thought.get("erased")
    return f"[content erased under {erased}]" if erased else str(thought["content"])


class ListThoughts(Operation):
    """List thoughts in the order in which they were recorded."""

    command, command_member = "trail list", "thoughts"
    tools, needs = ("thought_record_list",), "read or call"

    task_id: str | None = _task()
    limit: int | None = limit()

    def run(self, root: RootPort, caller: Caller) -> Feed:
        """Return the thoughts."""
        from remit.routing.trail import iter_thought_records

        def read(cursor: str | None, most: int | None) -> Iterator[tuple[str, Any]]:
            for record in iter_thought_records(root.ledger, self.task_id, most):
                yield record.id, record.to_dict()

        return Feed(read)

    def line(self, item: dict[str, Any]) -> str:
        """Return id, time, task, type and the beginning of the thought."""
        return (f"{item['id']}  {item['timestamp']}  {item['task_id']}  {item['type']:<10}  "
                f"{cut(_text(item), _LINE_CHARS)}")  # fmt: skip


class ShowThought(Operation):
    """Print one thought in full."""

    command = "trail show"

    thought_id: str = field("Id of the thought.", flag="")

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Return the thought.

        Raises:
            NotFoundError: no such thought exists.
        """
        from remit.routing.trail import get_thought_record

        return get_thought_record(root.ledger, self.thought_id).to_dict()

    def lines(self, found: dict[str, Any]) -> Iterator[str]:
        """Yield each field, then the thought."""
        yield from facts(found, "content", "erased")
        yield from ("", *_text(found).splitlines())


class VerifyTrail(Operation):
    """Check the hash of every thought and its link to the one before; exit 1 if one fails."""

    command, tools, needs = "trail verify", ("thought_verify",), "verify or read or call"

    task_id: str | None = _task("Only the chain of this task.")

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Return the result.

        Raises:
            RemitError: the task has no thoughts.
        """
        from remit.routing.trail import verify_trail

        report = verify_trail(root.ledger, self.task_id, progress=root.progress("verifying"))
        if self.task_id is not None and report.verified and not report.records:
            raise RemitError(
                f"The task {self.task_id!r} has no thoughts.",
                next_step="`remit trail list` lists the thoughts of all tasks.",
            )
        self.report = report
        return report.to_dict()

    def has_failed(self, found: dict[str, Any]) -> bool:
        """Return True if a thought or a link is wrong."""
        return not self.report.verified

    def lines(self, found: dict[str, Any]) -> Iterator[str]:
        """Yield the numbers, or the problems."""
        report, number = self.report, self.report.problem_count
        if report.verified:
            thoughts, tasks = count(report.records, "thought"), count(report.tasks, "task")
            yield f"verified: {thoughts} of {tasks}, {report.erased} erased"
            return
        problems = count(number, "problem")
        yield f"NOT VERIFIED: {problems}; the first bad record is {report.first_bad}"
        yield from (f"  {problem}" for problem in report.problems)


class AddThought(Operation):
    """Record a thought."""

    command, changes, prints = "trail add", True, "{id}"
    tools, needs = ("thought_record",), "call"

    content: str = field("The thought.", flag="", metavar="TEXT")
    task_id: str = field("Task whose chain gets the thought.", flag="--task")
    type: Literal["plan", "analysis", "decision", "reflection"] = field("Type of the thought.")
    agent_id: str = field("Agent of the thought.", flag="--agent")
    session_id: str = field("Session of the thought.", "", flag="--session")

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Record the thought.

        Raises:
            InvalidInputError: a value cannot be used.
        """
        from remit.routing.trail import ThoughtInput, create_thought_record

        given: dict[str, Any] = {name: getattr(self, name) for name in self._declared()}
        return create_thought_record(root.ledger, ThoughtInput(**given)).to_dict()


class ExportThoughts(Operation):
    """Export thoughts as JSON Lines."""

    command, media_type = "trail export", "text/plain"

    target: Path = field("File, or -.", flag="--out")
    task_id: str | None = _task()

    def run(self, root: RootPort, caller: Caller) -> Document:
        """Return the document."""
        from remit.routing.trail import export_thought_records

        def write(file: IO[bytes]) -> None:
            number = export_thought_records(root.ledger, file, self.task_id)
            root.note(f"{count(number, 'thought')} written to {self.target}.")

        return Document(write, self.target)


class ImportThoughts(Operation):
    """Import JSON lines from a file, or - for standard input.

    Every line and link is checked first; then all thoughts are recorded, or none. In a restored
    ledger, thoughts without a place in a chain get it back.
    """

    command, changes = "trail import", True

    source: str = field("File of the thoughts.", flag="")

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Record the thoughts, and return their number.

        Raises:
            InvalidInputError: the file cannot be read, or a line or link is wrong.
        """
        from remit.routing.trail import import_thought_records

        if self.source == "-":
            return {"thoughts": import_thought_records(root.ledger, sys.stdin.buffer)}
        try:
            with Path(self.source).open("rb") as file:
                return {"thoughts": import_thought_records(root.ledger, file)}
        except OSError as error:
            raise InvalidInputError(
                f"{self.source} cannot be read: {error.strerror or error}."
            ) from error

    def lines(self, found: dict[str, Any]) -> Iterator[str]:
        """Yield the number of thoughts."""
        yield count(found["thoughts"], "thought")
