"""One request to a model in neutral form, whichever dialect it came in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from remit.kernel.exchange import Message

__all__ = ["ModelCall", "Reasoning", "ResponseFormat"]


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """What the answer's text must be.

    Attributes:
        schema: the JSON Schema to hold it to; ``None`` for any JSON object.
        name: the schema's name, where the client gave one.
        strict: whether the schema is to be kept exactly; ``None`` where nothing was said.
    """

    schema: dict[str, Any] | None = None
    name: str = ""
    strict: bool | None = None
    description: str = ""


@dataclass(frozen=True, slots=True)
class Reasoning:
    """How much the model is to think.

    Attributes:
        effort: ``none``, ``minimal``, ``low``, ``medium``, ``high``, ``xhigh`` or ``max``.
        budget_tokens: most tokens to think with.
        summary: ``auto``, ``concise`` or ``detailed``: a summary of it is to be shown;
            ``omitted``: none.
        adaptive: the model is to decide itself how much.
    """

    effort: str | None = None
    budget_tokens: int | None = None
    summary: str | None = None
    adaptive: bool = False


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One request. Its values are the body's own, not copies.

    Messages are as in :mod:`remit.kernel.exchange`; system and developer prompts are ``system``
    messages in the client's order (``"developer": True`` on those). Blocks beside those named
    there: ``document`` (``source``, ``title``?), ``thinking`` (``signature``? of Anthropic's;
    ``encrypted`` and ``item_id``? of OpenAI's; ``"raw": True`` where it is no summary),
    ``redacted_thinking``, ``refusal``, and ``other``, a part that only its own ``endpoint``
    knows (``value``). Calls and results of a tool with free text input have ``"custom": True``
    and the input ``{"input": text}``. ``at`` of a block is where the client wrote it.

    Attributes:
        endpoint: the one that the client spoke to; empty for callers in Python.
        max_tokens: most output tokens; ``None`` where the client said nothing.
        tools: ``{"name", "description"?, "input_schema", "strict"?}``; with ``"custom": True``
            and ``format``? instead of the schema a tool with free text input;
            ``{"type": "web_search", …}`` a search run by the provider; ``{"type": "other", …}``
            one that only its own endpoint knows.
        tool_choice: ``{"type": "auto" | "any" | "none"}``, ``{"type": "tool", "name"}``, or
            ``{"type": "allowed", "mode": "auto" | "any", "names"}``.
        parallel_tools: whether several tools may be called at once.
        user: the end user's id.
        include_usage: whether a stream ends with token counts (Chat Completions only).
        other: fields that the neutral form does not know, as ``endpoint`` spells them.
    """

    model: str
    messages: list[Message]
    endpoint: str = ""
    max_tokens: int | None = None
    temperature: float | None = None
    tools: tuple[dict[str, Any], ...] = ()
    tool_choice: dict[str, Any] | None = None
    parallel_tools: bool | None = None
    response_format: ResponseFormat | None = None
    stop: tuple[str, ...] = ()
    top_p: float | None = None
    top_k: float | None = None
    reasoning: Reasoning | None = None
    user: str | None = None
    stream: bool = False
    include_usage: bool = False
    other: dict[str, Any] = field(default_factory=dict)
