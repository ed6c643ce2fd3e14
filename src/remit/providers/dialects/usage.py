"""Token counts of an answer, as the three dialects report them.

In neutral form cached tokens and tokens written to a cache are a part of the input tokens, as
OpenAI counts; the Messages API counts them beside the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.kernel.canonical import MAX_SAFE_INTEGER
from remit.providers.protocol import ProviderResponse

__all__ = [
    "chat_usage",
    "count",
    "messages_counts",
    "messages_usage",
    "openai_counts",
    "responses_usage",
]


def count(value: Any) -> int | None:
    """A token count, or ``None`` where ``value`` is not one."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_SAFE_INTEGER:
        return value
    return None


def openai_counts(usage: Any, given: str, made: str) -> dict[str, Any]:
    """The fields of a :class:`ProviderResponse` for a usage object of OpenAI's.

    Args:
        usage: the object; anything.
        given: what it calls input tokens: ``prompt`` or ``input``.
        made: what it calls output tokens: ``completion`` or ``output``.
    """
    usage = usage if isinstance(usage, dict) else {}
    tokens_in = count(usage.get(f"{given}_tokens"))
    tokens_out = count(usage.get(f"{made}_tokens"))
    read = _details(usage, f"{given}_tokens_details")
    thought = _details(usage, f"{made}_tokens_details")
    return {
        "input_tokens": tokens_in or 0,
        "output_tokens": tokens_out or 0,
        "cached_input_tokens": count(read.get("cached_tokens")) or None,
        "cache_write_tokens": count(read.get("cache_write_tokens")) or None,
        "reasoning_tokens": count(thought.get("reasoning_tokens")) or None,
        "usage_reported": tokens_in is not None and tokens_out is not None,
    }


def messages_counts(usage: Any) -> dict[str, Any]:
    """The fields of a :class:`ProviderResponse` for a usage object of the Messages API."""
    usage = usage if isinstance(usage, dict) else {}
    tokens_in, tokens_out = count(usage.get("input_tokens")), count(usage.get("output_tokens"))
    cached = count(usage.get("cache_read_input_tokens")) or 0
    written = count(usage.get("cache_creation_input_tokens")) or 0
    short = count(_details(usage, "cache_creation").get("ephemeral_5m_input_tokens")) or 0
    thought = _details(usage, "output_tokens_details").get("thinking_tokens")
    return {
        "input_tokens": (tokens_in or 0) + cached + written,
        "output_tokens": tokens_out or 0,
        "cached_input_tokens": cached or None,
        "cache_write_tokens": written or None,
        "cache_write_short_tokens": min(short, written) or None,
        "reasoning_tokens": count(thought) or None,
        "usage_reported": tokens_in is not None and tokens_out is not None,
    }


def _details(usage: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = usage.get(key)
    return value if isinstance(value, dict) else {}


def chat_usage(answer: ProviderResponse) -> dict[str, Any]:
    """``usage`` of Chat Completions."""
    wire: dict[str, Any] = {
        "prompt_tokens": answer.input_tokens,
        "completion_tokens": answer.output_tokens,
        "total_tokens": answer.input_tokens + answer.output_tokens,
    }
    read: dict[str, int] = {}
    if answer.cached_input_tokens is not None:
        read["cached_tokens"] = answer.cached_input_tokens
    if answer.cache_write_tokens is not None:
        read["cache_write_tokens"] = answer.cache_write_tokens
    if read:
        wire["prompt_tokens_details"] = read
    if answer.reasoning_tokens is not None:
        wire["completion_tokens_details"] = {"reasoning_tokens": answer.reasoning_tokens}
    return wire


def responses_usage(answer: ProviderResponse) -> dict[str, Any]:
    """``usage`` of Responses."""
    return {
        "input_tokens": answer.input_tokens,
        "input_tokens_details": {
            "cached_tokens": answer.cached_input_tokens or 0,
            "cache_write_tokens": answer.cache_write_tokens or 0,
        },
        "output_tokens": answer.output_tokens,
        "output_tokens_details": {"reasoning_tokens": answer.reasoning_tokens or 0},
        "total_tokens": answer.input_tokens + answer.output_tokens,
    }


def messages_usage(answer: ProviderResponse) -> dict[str, Any]:
    """``usage`` of the Messages API."""
    cached, written = answer.cached_input_tokens or 0, answer.cache_write_tokens or 0
    wire: dict[str, Any] = {
        "input_tokens": max(answer.input_tokens - cached - written, 0),
        "output_tokens": answer.output_tokens,
    }
    if answer.cached_input_tokens is not None:
        wire["cache_read_input_tokens"] = cached
    if answer.cache_write_tokens is not None:
        wire["cache_creation_input_tokens"] = written
        if answer.cache_write_short_tokens is not None:
            short = answer.cache_write_short_tokens
            wire["cache_creation"] = {
                "ephemeral_5m_input_tokens": short,
                "ephemeral_1h_input_tokens": max(written - short, 0),
            }
    if answer.reasoning_tokens is not None:
        wire["output_tokens_details"] = {"thinking_tokens": answer.reasoning_tokens}
    return wire
