"""Token counts of an answer in the forms of the dialects.

In neutral form the input tokens include cached tokens and tokens written to a cache, as OpenAI
counts. The Messages API counts them separately.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.providers.protocol import ProviderResponse

_FORMS: Mapping[str, Mapping[str, str]] = {
    "openai.chat": {
        "prompt_tokens": "input", "completion_tokens": "output", "total_tokens": "total",
        "prompt_tokens_details.cached_tokens": "cached",
        "prompt_tokens_details.cache_write_tokens": "written",
        "completion_tokens_details.reasoning_tokens": "reasoning",
    },
    "openai.responses": {
        "input_tokens": "input", "input_tokens_details.cached_tokens": "cached or 0",
        "input_tokens_details.cache_write_tokens": "written or 0", "output_tokens": "output",
        "output_tokens_details.reasoning_tokens": "reasoning or 0", "total_tokens": "total",
    },
    "anthropic.messages": {
        "input_tokens": "fresh", "output_tokens": "output", "cache_read_input_tokens": "cached",
        "cache_creation_input_tokens": "written",
        "cache_creation.ephemeral_5m_input_tokens": "short",
        "cache_creation.ephemeral_1h_input_tokens": "long",
        "output_tokens_details.thinking_tokens": "reasoning",
        "server_tool_use.web_search_requests": "searches",
        "server_tool_use.web_fetch_requests": "fetches",
    },
    "gemini.generate": {
        "promptTokenCount": "input", "candidatesTokenCount": "said", "totalTokenCount": "total",
        "cachedContentTokenCount": "cached", "thoughtsTokenCount": "reasoning",
    },
    "bedrock.converse": {
        "inputTokens": "fresh", "outputTokens": "output", "totalTokens": "total",
        "cacheReadInputTokens": "cached", "cacheWriteInputTokens": "written",
    },
}  # fmt: skip
"""The members of each dialect's usage and their counts; a count that is not known is left out."""


def usage_of(endpoint: str, answer: ProviderResponse) -> dict[str, Any]:
    """Return the usage of an answer in the form of an endpoint; unknown counts are left out.

    Args:
        endpoint: the main endpoint of a dialect, such as ``openai.chat``; KeyError for another.
        answer: the answer, with 0 for tokens that its provider did not report.
    """
    given, made = answer.input_tokens, answer.output_tokens
    cached, written = answer.cached_input_tokens, answer.cache_write_tokens
    short, long = answer.cache_write_short_tokens, answer.cache_write_long_tokens
    reasoning, uses = answer.reasoning_tokens, answer.server_tool_uses
    times_known = written is not None and (short is not None or long is not None)
    ran_tools = not uses.keys().isdisjoint(("web_search", "web_fetch"))
    counts = {
        "input": given,
        "output": made,
        "total": given + made,
        "fresh": max(given - (cached or 0) - (written or 0), 0),
        "said": max(made - (reasoning or 0), 0),
        "cached": cached,
        "cached or 0": cached or 0,
        "written": written,
        "written or 0": written or 0,
        "short": max((written or 0) - (long or 0), 0) if times_known else None,
        "long": (long or 0) if times_known else None,
        "reasoning": reasoning,
        "reasoning or 0": reasoning or 0,
        "searches": uses.get("web_search", 0) if ran_tools else None,
        "fetches": uses.get("web_fetch", 0) if ran_tools else None,
    }
    wire: dict[str, Any] = {}
    for path, name in _FORMS[endpoint].items():
        if (count := counts[name]) is not None:
            outer, dot, inner = path.partition(".")
            if dot:
                wire.setdefault(outer, {})[inner] = count
            else:
                wire[outer] = count
    if endpoint == "bedrock.converse" and long:
        kinds = {"5m": counts["short"], "1h": long}
        wire["cacheDetails"] = [{"ttl": ttl, "inputTokens": count}
                                for ttl, count in kinds.items() if count]  # fmt: skip
    return wire
