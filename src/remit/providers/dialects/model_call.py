"""The neutral form of a request to a model."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from remit.kernel.exchange import Message

_FIELD = re.compile(r"[A-Za-z0-9_.\[\]-]{1,80}")
_UNPRINTABLE = "(a field with another name)"
_MOST_DROPPED = 40
_CONFIG, _INFERENCE = "generationConfig", "inferenceConfig"
_OWN_NAMES = {
    "openai.chat": {"reasoning": "reasoning_effort", "thoughts": "reasoning_content"},
    "openai.responses": {"reasoning": "reasoning.effort", "max_tokens": "max_output_tokens"},
    "anthropic.messages": {"reasoning": "thinking", "stop": "stop_sequences",
                           "user": "metadata.user_id"},
    "gemini.generate": {
        "reasoning": f"{_CONFIG}.thinkingConfig", "stop": f"{_CONFIG}.stopSequences",
        "max_tokens": f"{_CONFIG}.maxOutputTokens", "temperature": f"{_CONFIG}.temperature",
        "top_p": f"{_CONFIG}.topP", "top_k": f"{_CONFIG}.topK", "tool_choice": "toolConfig",
    },
    "bedrock.converse": {
        "reasoning": "additionalModelRequestFields.thinking",
        "top_k": "additionalModelRequestFields.top_k", "stop": f"{_INFERENCE}.stopSequences",
        "max_tokens": f"{_INFERENCE}.maxTokens", "temperature": f"{_INFERENCE}.temperature",
        "top_p": f"{_INFERENCE}.topP", "tool_choice": "toolConfig.toolChoice",
    },
}  # fmt: skip
"""The names of fields in the dialects that do not have the name of the attribute."""


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """The required form of the answer's text.

    Attributes:
        schema: the JSON Schema to follow; None for any JSON object.
        name: the schema's name; empty without one.
        strict: whether the schema must be followed exactly; None if the client did not say.
        description: the schema's description; empty without one.
    """

    schema: dict[str, Any] | None = None
    name: str = ""
    strict: bool | None = None
    description: str = ""


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The wanted amount of thinking.

    Attributes:
        effort: ``none``, ``minimal``, ``low``, ``medium``, ``high``, ``xhigh`` or ``max``.
        budget_tokens: most tokens for thinking.
        summary: ``auto``, ``concise`` or ``detailed`` to show a summary; ``omitted`` to show none.
        adaptive: True if the model decides.
    """

    effort: str | None = None
    budget_tokens: int | None = None
    summary: str | None = None
    adaptive: bool = False


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A request in neutral form. Its values are the body's own, not copies.

    Messages are as in :mod:`remit.kernel.exchange`; system and developer prompts are ``system``
    messages in the client's order (developer prompts with ``"developer": True``). Further blocks:
    ``document`` (``source``, ``title``?), ``thinking`` (``signature``? of Anthropic; ``encrypted``
    and ``item_id``? of OpenAI; ``details``? of OpenRouter; ``thought_signature``? of Google;
    ``"raw": True`` if it is not a summary), ``redacted_thinking``, ``refusal``, and ``other``, a
    part that only its own ``endpoint`` knows (``value``). Calls and results of a tool with free
    text input have ``"custom": True`` and the input ``{"input": text}``. ``at`` of a block is its
    place in the client's body.

    Attributes:
        model: the client's name of the model.
        messages: the conversation.
        endpoint: the client's endpoint; empty for callers in Python.
        max_tokens: most output tokens; None if the client set none.
        temperature: the temperature; here and below None if the client set none.
        tools: ``{"name", "description"?, "input_schema", "strict"?}``; a tool with free text input
            has ``"custom": True`` and ``format``? instead of the schema; ``{"type": "web_search",
            …}`` is a search run by the provider; ``{"type": "other", …}`` is a tool that only its
            own endpoint knows.
        tool_choice: ``{"type": "auto" | "any" | "none"}``, ``{"type": "tool", "name"}``, or
            ``{"type": "allowed", "mode": "auto" | "any", "names"}``.
        parallel_tools: whether several tools may be called at once.
        response_format: the required form of the answer's text.
        stop: texts that end the answer; empty for none.
        top_p: nucleus sampling.
        top_k: number of candidates in sampling.
        reasoning: the wanted amount of thinking.
        user: the end user's id.
        stream: True if the answer is wanted as a stream.
        include_usage: whether a stream ends with token counts (Chat Completions only).
        other: fields that the neutral form does not know, in the spelling of ``endpoint``.
        dropped: the client's names of fields that do not reach the model; see :meth:`drop`.
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
    dropped: list[str] = field(default_factory=list, compare=False)

    def own(self, name: str) -> str:
        """Return the client's name of the field that an attribute holds, such as ``stop``."""
        return _OWN_NAMES.get(self.endpoint, {}).get(name, name)

    def drop(self, name: str) -> None:
        """Note a field that does not reach the model as the client sent it.

        At most 40 fields are noted, each once. A name that is no plain text is not repeated.

        Args:
            name: the attribute, or the client's name of any other field, such as
                ``messages[].name``.
        """
        name = self.own(name)
        if _FIELD.fullmatch(name) is None:
            name = _UNPRINTABLE
        if name not in self.dropped and len(self.dropped) < _MOST_DROPPED:
            self.dropped.append(name)
