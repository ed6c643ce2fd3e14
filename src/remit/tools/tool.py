"""What a tool is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from remit.errors import RemitError

__all__ = ["Tool", "ToolError", "UnknownToolError"]


class ToolError(RemitError):
    """A tool cannot do what was asked; the message goes to the model."""


class UnknownToolError(RemitError):
    """No tool has that id."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A callable that agents may use.

    Attributes:
        tool_id: letters, digits, ``_`` and ``-``.
        description: for the model: what it does and when to use it.
        input_schema: JSON Schema of its arguments, an object.
        function: called with the arguments by name; may be ``async``; returns a JSON value.
        examples: phrases of a user that call for it, with the arguments they mean: for models
            that cannot choose tools by themselves.
        label: one plain word for it, which a small model picks more surely than an id.
        describe: says an output in one plain sentence, for models that cannot read data.
    """

    tool_id: str
    description: str
    input_schema: Mapping[str, Any]
    function: Callable[..., Any]
    examples: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    describe: Callable[[Any], str] | None = None
    label: str = ""

    def definition(self) -> dict[str, Any]:
        """What a provider is offered."""
        return {
            "name": self.tool_id,
            "description": self.description,
            "input_schema": dict(self.input_schema),
        }
