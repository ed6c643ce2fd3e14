"""Thought records: their fields, what may be in them, and their hash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import orjson
from pydantic import AfterValidator, ConfigDict, StringConstraints, TypeAdapter, ValidationError

from remit.kernel.canonical import NotCanonicalError, sha256_hex, surrogate_error
from remit.kernel.errors import InvalidInputError, RemitError
from remit.kernel.validation import check_fields, first_error
from remit.ledger import Erased

ThoughtType = Literal["plan", "analysis", "decision", "reflection"]
"""What a thought is."""

FIRST_PREV_HASH = "0" * 64
"""``prev_hash`` of a task's first record."""


def _storable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("it holds a lone surrogate, which UTF-8 cannot carry") from error
    return text


# Ids are in ledger records as they are, and those have a limit.
Text = Annotated[str, StringConstraints(max_length=512, pattern=r"^[^\x00]*$")]
Id = Annotated[Text, StringConstraints(min_length=1)]
"""A text of 1 to 512 characters that every database keeps."""

_ids = TypeAdapter[str](Id, config=ConfigDict(strict=True))


class TrailError(RemitError):
    """A thought record cannot be read, or the trail is damaged; the base of the other errors."""


class ThoughtNotFoundError(TrailError, KeyError):
    """No thought record has the given id."""


class InvalidThoughtError(TrailError, InvalidInputError):
    """A thought contradicts the trail: its id is taken, or its line of an export cannot be used.

    Attributes:
        line: number of the line, from 1; 0 if the thought was not read from a line.
    """

    def __init__(self, message: str, *, next_step: str = "", line: int = 0) -> None:
        super().__init__(f"Line {line}: {message}" if line else message, next_step=next_step)
        self.line = line


# Earlier names, until 1.0.
TrailDamagedError = TrailError
DuplicateThoughtError = ThoughtLineError = InvalidThoughtError


@dataclass(frozen=True, slots=True)
class ThoughtInput:
    """A thought that is to be put on record.

    Attributes:
        type: ``plan``, ``analysis``, ``decision`` or ``reflection``.
        task_id: whose chain it belongs to, 1 to 512 characters.
        agent_id: who thought it, 1 to 512 characters.
        content: the thought, any text that is valid Unicode.
        session_id: the session it belongs to; empty for none.
    """

    type: ThoughtType
    task_id: Id
    agent_id: Id
    content: Annotated[str, AfterValidator(_storable)]
    session_id: Text = ""


@dataclass(frozen=True, slots=True)
class ThoughtRecord:
    """A thought on record.

    Attributes:
        id: its own, unlike that of any other in this trail.
        type: ``plan``, ``analysis``, ``decision`` or ``reflection``.
        task_id: whose chain it belongs to.
        agent_id: who thought it; outside the hash.
        content: the thought, or the marker in its place where it was erased.
        timestamp: when, ISO 8601 in UTC unless the writer's ``now_fn`` says otherwise.
        prev_hash: ``hash`` of the task's record before; 64 zeros for the first.
        hash: SHA-256 (64 lower-case hex digits), see :func:`hash_thought`.
        session_id: the session it belongs to, or empty; outside the hash.
        entry_id: the ``THOUGHT_RECORD`` entry of the ledger that holds it; outside the hash.
    """

    id: str
    type: ThoughtType
    task_id: str
    agent_id: str
    content: str | Erased
    timestamp: str
    prev_hash: str
    hash: str
    session_id: str = ""
    entry_id: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As plain data. Of an erased one ``content`` is ``None``, and ``erased`` names why."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        if isinstance(self.content, Erased):
            fields |= {"content": None, "erased": self.content.erasure_id}
        return fields


def hash_thought(
    thought_id: str, kind: str, task_id: str, content: str, timestamp: str, prev_hash: str
) -> str:
    """SHA-256 (hex) over the canonical JSON of exactly these six, under the record's names.

    Raises:
        NotCanonicalError: a text holds a lone surrogate.
    """
    try:  # of texts alone, with such keys, this is the canonical form
        encoded = orjson.dumps(
            {
                "content": content,
                "id": thought_id,
                "prev_hash": prev_hash,
                "task_id": task_id,
                "timestamp": timestamp,
                "type": kind,
            }
        )
    except TypeError as error:
        raise surrogate_error() from error
    return sha256_hex(encoded)


def hash_problem(
    thought_id: Any, kind: Any, task_id: Any, content: Any, timestamp: Any, prev_hash: Any,
    expected: Any,
) -> str:  # fmt: skip
    """Why ``expected`` is not the hash of these; empty when it is."""
    parts = (thought_id, kind, task_id, content, timestamp, prev_hash)
    if not all(isinstance(part, str) for part in parts):
        return "one of the fields that its hash covers is not a text"
    try:
        found = hash_thought(*parts)
    except NotCanonicalError:
        return "one of the fields that its hash covers is not valid Unicode"
    if found != expected:
        return "its hash is not that of its content, type, task, time and link"
    return ""


def read_input(given: ThoughtInput | Mapping[str, Any]) -> ThoughtInput:
    """Check a thought that is to be recorded.

    Raises:
        InvalidInputError: it is neither a :class:`ThoughtInput` nor a mapping with its keys, or
            one of them cannot be on record.
    """
    try:
        thought = given if isinstance(given, ThoughtInput) else ThoughtInput(**given)
    except TypeError as error:
        raise InvalidInputError(
            f"The thought is no mapping with the keys of ThoughtInput: {error}."
        ) from error
    return ThoughtInput(**check_fields(thought, "the thought"))


def check_id(name: str, value: Any) -> str:
    """``value`` where it can be an id.

    Raises:
        InvalidInputError: it cannot.
    """
    try:
        return _ids.validate_python(value)
    except ValidationError as error:
        raise InvalidInputError(f"{name} of the thought: {first_error(error)[1]}.") from error


def read_time(value: Any) -> str:
    """A record's timestamp: a text as it is, an aware ``datetime`` as ISO 8601 in UTC.

    Raises:
        InvalidInputError: it is neither.
    """
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidInputError("The time of a thought is a datetime without a time zone.")
        return value.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"
    return check_id("timestamp", value)
