"""Token counts of an answer in the forms of the dialects.

In neutral form the input tokens include cached tokens and tokens written to a cache, as OpenAI
counts. The Messages API counts them separately.
"""

from __future__ import annotations

from typing import Any

from remit.providers.protocol import ProviderResponse
from remit.providers.wire.usage import Usage

_PARTS = (
    "cached_input_tokens", "cache_write_tokens", "cache_write_short_tokens",
    "cache_write_long_tokens", "reasoning_tokens", "audio_input_tokens", "audio_output_tokens",
)  # fmt: skip
_TOOLS = ("web_search", "web_fetch")


def reported(usage: Usage | None) -> dict[str, Any]:
    """Return the fields of a :class:`ProviderResponse` for the usage that an answer states."""
    if usage is None:
        return {"input_tokens": 0, "output_tokens": 0, "usage_reported": False}
    fields: dict[str, Any] = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "server_tool_uses": usage.server_tool_uses,
        "served": usage.served,
    }
    for name in _PARTS:
        fields[name] = getattr(usage, name) or None
    return fields


def chat_usage(answer: ProviderResponse) -> dict[str, Any]:
    """Return ``usage`` for Chat Completions."""
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
    """Return ``usage`` for Responses."""
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


def gemini_usage(answer: ProviderResponse) -> dict[str, Any]:
    """Return ``usageMetadata`` for Gemini, which counts thoughts next to the candidates."""
    thoughts = answer.reasoning_tokens or 0
    wire = {
        "promptTokenCount": answer.input_tokens,
        "candidatesTokenCount": max(answer.output_tokens - thoughts, 0),
        "totalTokenCount": answer.input_tokens + answer.output_tokens,
    }
    if answer.cached_input_tokens is not None:
        wire["cachedContentTokenCount"] = answer.cached_input_tokens
    if answer.reasoning_tokens is not None:
        wire["thoughtsTokenCount"] = thoughts
    return wire


def converse_usage(answer: ProviderResponse) -> dict[str, Any]:
    """Return ``usage`` for Bedrock's Converse, which counts cached tokens next to the input."""
    cached, written = answer.cached_input_tokens or 0, answer.cache_write_tokens or 0
    wire: dict[str, Any] = {
        "inputTokens": max(answer.input_tokens - cached - written, 0),
        "outputTokens": answer.output_tokens,
        "totalTokens": answer.input_tokens + answer.output_tokens,
    }
    if answer.cached_input_tokens is not None:
        wire["cacheReadInputTokens"] = cached
    if answer.cache_write_tokens is not None:
        wire["cacheWriteInputTokens"] = written
        if long := answer.cache_write_long_tokens:
            counts = {"5m": max(written - long, 0), "1h": long}
            wire["cacheDetails"] = [{"ttl": ttl, "inputTokens": count}
                                    for ttl, count in counts.items() if count]  # fmt: skip
    return wire


def messages_usage(answer: ProviderResponse) -> dict[str, Any]:
    """Return ``usage`` for the Messages API."""
    cached, written = answer.cached_input_tokens or 0, answer.cache_write_tokens or 0
    wire: dict[str, Any] = {
        "input_tokens": max(answer.input_tokens - cached - written, 0),
        "output_tokens": answer.output_tokens,
    }
    if answer.cached_input_tokens is not None:
        wire["cache_read_input_tokens"] = cached
    if answer.cache_write_tokens is not None:
        wire["cache_creation_input_tokens"] = written
        long = answer.cache_write_long_tokens
        if answer.cache_write_short_tokens is not None or long is not None:
            wire["cache_creation"] = {
                "ephemeral_5m_input_tokens": max(written - (long or 0), 0),
                "ephemeral_1h_input_tokens": long or 0,
            }
    if answer.reasoning_tokens is not None:
        wire["output_tokens_details"] = {"thinking_tokens": answer.reasoning_tokens}
    if not answer.server_tool_uses.keys().isdisjoint(_TOOLS):
        uses = answer.server_tool_uses
        wire["server_tool_use"] = {f"{name}_requests": uses.get(name, 0) for name in _TOOLS}
    return wire
