"""What a listener hears while a turn is worked on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["AnswerRejected", "Degraded", "EventSink", "TextDelta", "ToolEnded", "ToolStarted",
           "TurnEvent"]  # fmt: skip


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool is about to run."""

    tool_id: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolEnded:
    """A tool ran, or was refused. ``output`` is what it gave back."""

    tool_id: str
    status: str
    output: Any
    error: str


@dataclass(frozen=True, slots=True)
class AnswerRejected:
    """The quality gate turned the answer down; what was streamed does not count."""

    reasons: tuple[str, ...]
    retrying: bool


@dataclass(frozen=True, slots=True)
class Degraded:
    """The loop failed; one direct call answers."""

    reason: str


TurnEvent = TextDelta | ToolStarted | ToolEnded | AnswerRejected | Degraded
EventSink = Callable[[TurnEvent], None]
