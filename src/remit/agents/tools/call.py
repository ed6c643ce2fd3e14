"""What a running tool may ask about its own call."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

__all__ = ["ToolCall", "calling", "current_call"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of one tool.

    Attributes:
        tool_id: the tool.
        idempotency_key: the same for every attempt of this call and for no other one: a
            service that is given it can distinguish a repetition from a second request.
        work_order_id: the order that calls.
        session_id: its session.
    """

    tool_id: str
    idempotency_key: str
    work_order_id: str
    session_id: str


calling: ContextVar[ToolCall | None] = ContextVar("remit_tool_call", default=None)
"""Set by the dispatcher in the context that a tool runs in."""


def current_call() -> ToolCall | None:
    """The call that this code runs for; ``None`` outside one, or when its caller named none."""
    return calling.get()
