"""What a client asked for, whichever dialect it speaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from remit.kernel.errors import RemitError
from remit.kernel.exchange import Message

__all__ = ["ClientCall", "Dialect", "DialectError"]

Dialect = Literal["openai", "anthropic"]
"""``openai`` is Chat Completions, ``anthropic`` is the Messages API."""


class DialectError(RemitError):
    """A request body that is no valid one, or one that the other dialect cannot carry.

    Args:
        message: what is wrong, in words that quote nothing of the body.
        param: where, as ``messages[1].content``; ``None`` for all of the body.
    """

    def __init__(self, message: str, *, param: str | None = None, next_step: str = "") -> None:
        super().__init__(message, next_step=next_step)
        self.param = param


@dataclass(frozen=True, slots=True)
class ClientCall:
    """One request body in neutral form. Its values are the body's own, not copies.

    Attributes:
        model: as the client named it.
        messages: as in :mod:`remit.kernel.exchange`. System and developer prompts are
            ``system`` messages, in the client's order. ``"developer": True`` on one says that
            its role was ``developer``; ``"inline": True`` that it stood among the messages of
            the Messages API. Keys that the neutral form does not know are kept.
        max_tokens: most output tokens; ``None`` where the client said nothing.
        temperature: 0 to 2; ``None`` where the client said nothing.
        tools: ``{"name", "description"?, "input_schema", …}``; a tool that has no
            ``input_schema`` (one that the provider runs, a custom tool) is as it came.
        response_schema: the JSON Schema that the client wants the answer held to.
        parameters: every other field of the body, as it came.
        stream: whether the answer is to come in pieces.
        include_usage: whether a stream ends with token counts (``openai`` only).
    """

    dialect: Dialect
    model: str
    messages: list[Message]
    max_tokens: int | None
    temperature: float | None
    tools: tuple[dict[str, Any], ...]
    response_schema: dict[str, Any] | None
    parameters: dict[str, Any]
    stream: bool
    include_usage: bool
