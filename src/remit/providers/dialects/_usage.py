"""Token counts of an answer, as the two dialects report them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["chat_usage", "messages_usage"]


def chat_usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """``input_tokens``, ``output_tokens``, ``cached_input_tokens``?, ``reasoning_tokens``?"""
    given = usage.get("input_tokens") or 0
    made = usage.get("output_tokens") or 0
    wire: dict[str, Any] = {
        "prompt_tokens": given,
        "completion_tokens": made,
        "total_tokens": given + made,
    }
    if (cached := usage.get("cached_input_tokens")) is not None:
        wire["prompt_tokens_details"] = {"cached_tokens": cached}
    if (thought := usage.get("reasoning_tokens")) is not None:
        wire["completion_tokens_details"] = {"reasoning_tokens": thought}
    return wire


def messages_usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """The same in the words of the Messages API, which counts cached tokens beside the others."""
    given = usage.get("input_tokens") or 0
    cached = usage.get("cached_input_tokens")
    wire: dict[str, Any] = {
        "input_tokens": max(given - (cached or 0), 0),
        "output_tokens": usage.get("output_tokens") or 0,
    }
    if cached is not None:
        wire["cache_read_input_tokens"] = cached
    if (thought := usage.get("reasoning_tokens")) is not None:
        wire["output_tokens_details"] = {"thinking_tokens": thought}
    return wire
