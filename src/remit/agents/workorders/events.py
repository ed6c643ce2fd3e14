"""Events of a turn, for listeners."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class PartialOutput:
    """What has come so far of a typed answer: plain data, not checked yet."""

    data: Any


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool is about to run."""

    tool_id: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolProgress:
    """How far a running tool is: ``done`` of ``total``, which is ``None`` where not known."""

    tool_id: str
    done: float
    total: float | None
    text: str


@dataclass(frozen=True, slots=True)
class ToolEnded:
    """A tool ran, or was refused. ``output`` is what it returned."""

    tool_id: str
    status: str
    output: Any
    error: str


@dataclass(frozen=True, slots=True)
class AnswerRejected:
    """The answer was turned down; what was streamed does not count."""

    reasons: tuple[str, ...]
    retrying: bool


@dataclass(frozen=True, slots=True)
class Degraded:
    """The loop failed; one direct call answers."""

    reason: str


@dataclass(frozen=True, slots=True)
class ApprovalNeeded:
    """A tool call waits for a person.

    Attributes:
        request_id: id of the ``APPROVAL_REQUESTED``; what ``remit approve`` takes.
        kind: ``approval``: it has not run; ``unknown_outcome``: it began, and may have run.
    """

    request_id: str
    wo_id: str
    tool_id: str
    arguments: Mapping[str, Any]
    kind: str


@dataclass(frozen=True, slots=True)
class TurnResumed:
    """A turn that another process left unfinished is gone on with."""

    user_message: str


TurnEvent = (
    TextDelta
    | PartialOutput
    | ToolStarted
    | ToolProgress
    | ToolEnded
    | AnswerRejected
    | Degraded
    | ApprovalNeeded
    | TurnResumed
)
EventSink = Callable[[TurnEvent], None]
