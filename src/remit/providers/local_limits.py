"""Requests that the local model cannot serve, refused by the name of the client's field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from remit.providers.dialects import ModelCall
from remit.providers.protocol import ProviderError

_CANNOT = {
    "audio": "speaks no audio",
    "prediction": "takes no predicted output",
    "moderation": "gives no moderation results",
}
_EFFORT = {"openai.responses": "reasoning", "anthropic.messages": "thinking"}
_TEXTS = frozenset({"text", "refusal", "thinking", "redacted_thinking"})
_TOOLS = frozenset({"tool_use", "tool_result"})


def refuse_unable(call: ModelCall, *, tools: bool) -> None:
    """Raise ProviderError if the local model cannot serve a call.

    llama.cpp would ignore such requests silently, or fail with a message about its own fields.

    Args:
        call: the call.
        tools: True if the model's template supports tools.

    Raises:
        ProviderError: ``INVALID_REQUEST``; the message and ``param`` name the first refused field.
    """
    found = next(_unable(call, tools), None)
    if found is not None:
        param, what = found
        raise ProviderError("INVALID_REQUEST", f"{param}: the local model {what}", param=param)


def _unable(call: ModelCall, tools: bool) -> Iterator[tuple[str, str]]:
    choice = str((call.tool_choice or {}).get("type", "auto"))
    if call.tools and choice != "none":
        for tool in call.tools:
            if tool.get("custom") or tool.get("type"):
                yield str(tool.get("at", "tools")), "calls functions, no other kind of tool"
        if not tools:
            param = "tools" if choice == "auto" else "tool_choice"
            yield param, "has no tools in its template, so it would never learn of them"
    for index, message in enumerate(call.messages):
        if not isinstance(content := message["content"], str):
            yield from _blocks(content, f"messages[{index}]", tools)
    effort = call.reasoning
    if effort is not None and (effort.budget_tokens or effort.effort not in (None, "none")):
        param = _EFFORT.get(call.endpoint, "reasoning_effort")
        yield param, "cannot be told how much to think"
    yield from _others(call.other)


def _blocks(content: Any, where: str, tools: bool) -> Iterator[tuple[str, str]]:
    for block in content:
        kind, at = block.get("type"), str(block.get("at", where))
        if kind in _TOOLS:
            if not tools:
                yield at, "has no tools in its template, so it would not see what they were called"
            if isinstance(inner := block.get("content"), list):
                yield from _blocks(inner, at, tools)
        elif kind not in _TEXTS:
            yield at, "reads text alone"


def _others(other: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, what in _CANNOT.items():
        if other.get(name):
            yield name, what
    if other.get("n") not in (None, 1):
        yield "n", "gives one answer"
    if other.get("modalities") not in (None, [], ["text"]):
        yield "modalities", "gives text alone"
    if other.get("verbosity") not in (None, "medium"):
        yield "verbosity", "cannot be told how long to talk"
