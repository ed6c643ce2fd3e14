"""Pieces of an answer as they come from a model, in neutral form (SPEC 4.1, 12)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["StreamEvent", "TextDelta", "ThinkingDelta", "ToolInputDelta", "ToolUseStart"]


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolUseStart:
    """The model begins to call a tool.

    Attributes:
        index: tells the calls of one answer apart; any number that no other call of it has.
        id: the call's id, which its result will name.
        name: the tool's name.
    """

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolInputDelta:
    """The next piece of a tool call's input.

    Attributes:
        index: the ``index`` of the call's :class:`ToolUseStart`.
        partial_json: text that gives the input's JSON when all pieces are joined.
    """

    index: int
    partial_json: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """The next piece of what the model thinks before it answers.

    Attributes:
        text: may be empty where only the signature comes.
        signature: the provider's seal on the thinking so far; ends this piece of thinking.
    """

    text: str
    signature: str = ""


StreamEvent = TextDelta | ToolUseStart | ToolInputDelta | ThinkingDelta
"""One piece of a streamed answer."""
