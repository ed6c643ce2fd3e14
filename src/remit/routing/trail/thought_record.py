"""Thought records: their fields, allowed values, and hash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

import orjson
from pydantic import AfterValidator, ConfigDict, StringConstraints, TypeAdapter, ValidationError

from remit.kernel.canonical import NotCanonicalError, sha256_hex, surrogate_error
from remit.kernel.errors import InvalidInputError, NotFoundError, RemitError
from remit.kernel.pydantic_validation import check_fields, first_error
from remit.ledger import Erased, time_text

ThoughtType = Literal["plan", "analysis", "decision", "reflection"]
"""The type of a thought."""

FIRST_PREV_HASH = "0" * 64
"""``prev_hash`` of a task's first record."""


def _storable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("it holds a lone surrogate, which UTF-8 cannot carry") from error
    return text


# Ledger records contain ids unchanged, and a record has a size limit.
Text = Annotated[str, StringConstraints(max_length=512, pattern=r"^[^\x00]*$")]
Id = Annotated[Text, StringConstraints(min_length=1)]
"""A text of 1 to 512 characters that every database keeps."""

_ids = TypeAdapter[str](Id, config=ConfigDict(strict=True))


class TrailError(RemitError):
    """A thought record cannot be read, or the trail is damaged; the base of the other errors."""


class ThoughtNotFoundError(TrailError, NotFoundError, KeyError):
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
    """A thought to record.

    Attributes:
        type: ``plan``, ``analysis``, ``decision`` or ``reflection``.
        task_id: the task of the chain, 1 to 512 characters.
        agent_id: the agent, 1 to 512 characters.
        content: the thought, any text that is valid Unicode.
        session_id: the session; empty for none.
    """

    type: ThoughtType
    task_id: Id
    agent_id: Id
    content: Annotated[str, AfterValidator(_storable)]
    session_id: Text = ""


@dataclass(frozen=True, slots=True)
class ThoughtRecord:
    """A recorded thought.

    Attributes:
        id: unique id in this trail.
        type: ``plan``, ``analysis``, ``decision`` or ``reflection``.
        task_id: the task of the chain.
        agent_id: the agent; outside the hash.
        content: the thought, or the marker of its erasure.
        timestamp: ISO 8601 in UTC, unless the writer's ``now_fn`` returned another text.
        prev_hash: ``hash`` of the task's record before; 64 zeros for the first.
        hash: SHA-256 (64 lower-case hex digits), see :func:`hash_thought`.
        session_id: the session, or empty; outside the hash.
        entry_id: id of the ``THOUGHT_RECORD`` entry; outside the hash.
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
        """Return the fields as plain data.

        For an erased thought ``content`` is ``None`` and ``erased`` is the id of the ``ERASURE``
        entry.
        """
        fields = {name: getattr(self, name) for name in self.__slots__}
        if isinstance(self.content, Erased):
            fields |= {"content": None, "erased": self.content.erasure_id}
        return fields


def hash_thought(
    thought_id: str, kind: str, task_id: str, content: str, timestamp: str, prev_hash: str
) -> str:
    """Return SHA-256 (hex) over the canonical JSON of these six fields, under the record's names.

    ``thought_id`` and ``kind`` are ``id`` and ``type`` there.

    Raises:
        NotCanonicalError: a text contains a lone surrogate.
    """
    try:  # For texts with these sorted keys this is the canonical form.
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
    """Return why ``expected`` is not the hash of these fields; empty if it is.

    A field that is no text, or no valid Unicode, is a reason too. Nothing is raised.
    """
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
    """Return a checked thought.

    Raises:
        InvalidInputError: ``given`` is neither a :class:`ThoughtInput` nor a mapping with its keys,
            or a field cannot be recorded.
    """
    try:
        thought = given if isinstance(given, ThoughtInput) else ThoughtInput(**given)
    except TypeError as error:
        raise InvalidInputError(
            f"The thought must be a mapping with the keys of ThoughtInput: {error}."
        ) from error
    return ThoughtInput(**check_fields(thought, "the thought"))


def check_id(name: str, value: Any) -> str:
    """Return ``value`` if it can be an id: a text of 1 to 512 characters without NUL.

    Args:
        name: name of the field, for the message.
        value: the value.

    Raises:
        InvalidInputError: the value cannot be an id.
    """
    try:
        return _ids.validate_python(value)
    except ValidationError as error:
        raise InvalidInputError(f"{name} of the thought: {first_error(error)[1]}.") from error


def read_time(value: Any) -> str:
    """Return a record's timestamp: a text unchanged, an aware ``datetime`` as ISO 8601 in UTC.

    Raises:
        InvalidInputError: ``value`` is a ``datetime`` without a time zone, or no text of 1 to 512
            characters without NUL.
    """
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidInputError("The time of a thought must have a time zone.")
        return time_text(value)
    return check_id("timestamp", value)
