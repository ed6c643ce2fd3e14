"""Events of a turn, for listeners."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from remit.kernel.exchange import TextDelta


@dataclass(frozen=True, slots=True)
class PartialOutput:
    """Event: the part of a typed answer received so far.

    Attributes:
        data: plain data that is not validated; replaces the data of the event before.
    """

    data: Any


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """Event: a tool starts to run.

    Attributes:
        tool_id: the tool.
        arguments: JSON values by name.
    """

    tool_id: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolProgress:
    """Event: progress of a running tool, ``done`` of ``total``.

    Attributes:
        tool_id: the tool.
        done: the progress, in the tool's own unit.
        total: the end in the same unit; None if unknown.
        text: a short text of the tool; may be empty.
    """

    tool_id: str
    done: float
    total: float | None
    text: str


@dataclass(frozen=True, slots=True)
class ToolEnded:
    """Event: a tool ended or was refused.

    Attributes:
        tool_id: the tool.
        status: the status of the ``TOOL_CALL`` entry, see :class:`remit.agents.tools.ToolResult`.
        output: the returned value; None after an error.
        error: the error message; empty after success.
    """

    tool_id: str
    status: str
    output: Any
    error: str


@dataclass(frozen=True, slots=True)
class AnswerRejected:
    """The event of a rejected answer. Listeners should discard the text streamed so far.

    Attributes:
        reasons: reasons of the quality gate, or the problem with typed data.
        retrying: True if the model is asked again.
    """

    reasons: tuple[str, ...]
    retrying: bool


@dataclass(frozen=True, slots=True)
class Degraded:
    """Event: the loop of the turn failed. The agent then answers directly, without the plan, or a
    notice explains why there is no answer.

    Attributes:
        reason: the failure, as ``code: message``.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class ApprovalNeeded:
    """Event: a tool call waits for a person.

    Immutable.

    Attributes:
        request_id: id of the ``APPROVAL_REQUESTED`` entry, for ``remit approve``.
        wo_id: the waiting work order.
        tool_id: the tool.
        arguments: the arguments with which it is to run.
        kind: ``approval`` if the call has not run; ``unknown_outcome`` if it began and may have
            run.
    """

    request_id: str
    wo_id: str
    tool_id: str
    arguments: Mapping[str, Any]
    kind: str


@dataclass(frozen=True, slots=True)
class TurnResumed:
    """Event: an unfinished turn is continued, after an interruption or a wait for a person.

    Attributes:
        user_message: the message that the turn answers.
    """

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
