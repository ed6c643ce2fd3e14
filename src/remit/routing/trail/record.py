"""Thought records: their fields, what may stand in them, and their hash (SPEC 7.3)."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from remit.kernel.canonical import canonical_json, sha256_hex
from remit.kernel.errors import InvalidInputError
from remit.ledger import Erased, is_plain_text

__all__ = [
    "FIRST_PREV_HASH",
    "MAX_ID_CHARS",
    "ThoughtInput",
    "ThoughtRecord",
    "ThoughtType",
    "check_id",
    "check_type",
    "hash_thought",
    "new_id",
    "read_input",
    "read_time",
    "text_problem",
]

ThoughtType = Literal["plan", "analysis", "decision", "reflection"]
"""What a thought is."""

FIRST_PREV_HASH = "0" * 64
"""``prev_hash`` of a task's first record."""

MAX_ID_CHARS = 512
"""Longest id of any kind: ids stand in ledger records as they are, and those have a limit."""

_TYPES = get_args(ThoughtType)
_FIELDS = ("type", "task_id", "agent_id", "content")


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
    task_id: str
    agent_id: str
    content: str
    session_id: str = ""


@dataclass(frozen=True, slots=True)
class ThoughtRecord:
    """A thought on record.

    Attributes:
        id: its own, unlike that of any other in this trail.
        type: ``plan``, ``analysis``, ``decision`` or ``reflection``.
        task_id: whose chain it belongs to.
        agent_id: who thought it; outside the hash.
        content: the thought, or the marker that stands where it was erased.
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
        told = {name: getattr(self, name) for name in self.__slots__}
        if isinstance(self.content, Erased):
            told["content"] = None
            told["erased"] = self.content.erasure_id
        return told


def hash_thought(
    thought_id: str, kind: str, task_id: str, content: str, timestamp: str, prev_hash: str
) -> str:
    """SHA-256 (hex) over the canonical JSON of exactly these six, under the record's names.

    Raises:
        NotCanonicalError: a text holds a lone surrogate.
    """
    return sha256_hex(
        canonical_json(
            {
                "id": thought_id,
                "type": kind,
                "task_id": task_id,
                "content": content,
                "timestamp": timestamp,
                "prev_hash": prev_hash,
            }
        )
    )


def new_id() -> str:
    """An id that nobody has: ``THT-`` and 32 hex digits."""
    return f"THT-{secrets.token_hex(16)}"


def read_input(given: ThoughtInput | Mapping[str, Any]) -> ThoughtInput:
    """Check a thought that is to be recorded.

    Raises:
        InvalidInputError: it is neither a :class:`ThoughtInput` nor a mapping with its keys, or
            one of them cannot be on record.
    """
    if isinstance(given, ThoughtInput):
        told: dict[str, Any] = {name: getattr(given, name) for name in given.__slots__}
    elif isinstance(given, Mapping):
        told = dict(given)
        if missing := [name for name in _FIELDS if name not in told]:
            raise InvalidInputError(f"The thought has no {', '.join(missing)}.")
        if unknown := told.keys() - {*_FIELDS, "session_id"}:
            raise InvalidInputError(f"A thought has no {', '.join(sorted(map(str, unknown)))}.")
    else:
        raise InvalidInputError(
            f"A thought is a ThoughtInput or a mapping, not a {type(given).__name__}."
        )
    content = told["content"]
    if not isinstance(content, str):
        raise InvalidInputError(
            f"The content of a thought is a text, not a {type(content).__name__}."
        )
    if problem := text_problem(content):
        raise InvalidInputError(f"The content of the thought {problem}.")
    return ThoughtInput(
        type=check_type(told["type"]),
        task_id=check_id("task_id", told["task_id"]),
        agent_id=check_id("agent_id", told["agent_id"]),
        content=str.__str__(content),
        session_id=check_id("session_id", told.get("session_id", ""), may_be_empty=True),
    )


def check_type(kind: Any) -> ThoughtType:
    """``kind`` where it is one of the four.

    Raises:
        InvalidInputError: it is not.
    """
    for known in _TYPES:
        if isinstance(kind, str) and kind == known:
            found: ThoughtType = known
            return found
    raise InvalidInputError(f"A thought is of type {', '.join(_TYPES)}; not {kind!r}.")


def check_id(name: str, value: Any, *, may_be_empty: bool = False) -> str:
    """``value`` where it can be an id: a text of 1 to 512 characters that databases keep.

    Raises:
        InvalidInputError: it cannot.
    """
    if not is_plain_text(value):
        raise InvalidInputError(
            f"{name} is not a text, or holds a NUL character or a lone surrogate."
        )
    text = str.__str__(value)
    if not text and not may_be_empty:
        raise InvalidInputError(f"{name} is empty.")
    if len(text) > MAX_ID_CHARS:
        raise InvalidInputError(
            f"{name} is {len(text):,} characters long; an id has at most {MAX_ID_CHARS}."
        )
    return text


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


_SURROGATE = re.compile("[\ud800-\udfff]")


def text_problem(text: str) -> str:
    """Why a text cannot be content; empty when it can."""
    if text.isascii() or _SURROGATE.search(text) is None:
        return ""
    return "holds a lone surrogate, which UTF-8 cannot carry"
