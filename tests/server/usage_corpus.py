"""Usage objects as providers state them, each with the bill of its call in nano-dollars.

Every model named ``corpus`` costs, in nano-dollars a token: 1,000 of input, 100 read from a cache,
1,250 written to one and 2,000 for longer, 4,000 of output. Other models cost what the shipped
table of prices says. The bills are worked out by hand from each provider's own documentation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["CORPUS", "LIES", "Case"]


@dataclass(frozen=True)
class Case:
    """One answer of a provider.

    Attributes:
        provider: who answers, by its name in ``remit.toml``.
        name: what is peculiar about the usage.
        usage: the usage object.
        nano: the bill.
        shape: the endpoint: ``chat``, ``responses`` or ``messages``.
        answer: further members of the answer, as a stream states them in its last event.
        asked: further members of the request.
        place: where the usage stands: ``usage``, ``x_groq`` or ``choice``.
        before: usage objects of earlier events, of a stream.
        model: the model.
    """

    provider: str
    name: str
    usage: Any
    nano: int
    shape: str = "chat"
    answer: dict[str, Any] = field(default_factory=dict)
    asked: dict[str, Any] = field(default_factory=dict)
    place: str = "usage"
    before: tuple[Any, ...] = ()
    model: str = "corpus"

    def __str__(self) -> str:
        return f"{self.provider}: {self.name}"


def _pct(prompt: int, completion: int, **more: Any) -> dict[str, Any]:
    counts = {"prompt_tokens": prompt, "completion_tokens": completion}
    return {**counts, "total_tokens": prompt + completion, **more}


def _io(given: int, made: int, **more: Any) -> dict[str, Any]:
    return {"input_tokens": given, "output_tokens": made, **more}


def _cached(count: Any, **more: Any) -> dict[str, Any]:
    return {"prompt_tokens_details": {"cached_tokens": count, **more}}


def _thought(count: Any, **more: Any) -> dict[str, Any]:
    return {"completion_tokens_details": {"reasoning_tokens": count, **more}}


_FULL = 1000 * 1000 + 100 * 4000  # 1,000 in and 100 out
_MINI = 1000 * 250 + 100 * 2000  # the same of gpt-5-mini
_HAIKU = 1000 * 1000 + 100 * 5000  # the same of claude-haiku-4-5
_TIER = {"model": "gpt-5-mini"}
_KINDS = {"ephemeral_5m_input_tokens": 60, "ephemeral_1h_input_tokens": 40}
_LONG = {
    "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
}

CORPUS: tuple[Case, ...] = (
    # OpenAI, Chat Completions
    Case("openai", "plain", _pct(1000, 100), _FULL),
    Case(
        "openai",
        "details of nulls",
        _pct(
            1000,
            100,
            prompt_tokens_details=None,
            completion_tokens_details={"reasoning_tokens": None},
        ),
        _FULL,
    ),
    Case(
        "openai",
        "cached and reasoning",
        _pct(1000, 100, **_cached(900), **_thought(60)),
        100 * 1000 + 900 * 100 + 100 * 4000,
    ),
    Case(
        "openai",
        "cache writes of two ages",
        _pct(
            1000,
            100,
            **_cached(
                500,
                cache_write_tokens=300,
                cache_write_tokens_details={"ttl_30m_tokens": 200, "ttl_12h_tokens": 100},
            ),
        ),
        200 * 1000 + 500 * 100 + 200 * 1250 + 100 * 2000 + 100 * 4000,
    ),
    Case(
        "openai",
        "sound and predictions",
        _pct(
            1000,
            100,
            **_cached(0, audio_tokens=10),
            **_thought(0, audio_tokens=5, accepted_prediction_tokens=3),
        ),
        _FULL,
    ),
    Case(
        "openai",
        "priority that was asked for is served as default",
        _pct(1000, 100),
        _MINI,
        answer={"service_tier": "default"},
        asked={"service_tier": "priority"},
        **_TIER,
    ),
    Case(
        "openai",
        "priority as served by the project's default",
        _pct(1000, 100),
        2 * _MINI,
        answer={"service_tier": "priority"},
        **_TIER,
    ),
    Case(
        "openai",
        "flex as served",
        _pct(1000, 100),
        _MINI // 2,
        answer={"service_tier": "flex"},
        asked={"service_tier": "flex"},
        **_TIER,
    ),
    Case(
        "openai",
        "flex that was not served",
        _pct(1000, 100),
        _MINI,
        answer={"service_tier": "default"},
        asked={"service_tier": "flex"},
        **_TIER,
    ),
    Case(
        "openai",
        "flex that nobody confirms",
        _pct(1000, 100),
        _MINI,
        asked={"service_tier": "flex"},
        **_TIER,
    ),
    Case(
        "openai",
        "priority that nobody denies",
        _pct(1000, 100),
        2 * _MINI,
        asked={"service_tier": "priority"},
        **_TIER,
    ),
    # OpenAI, Responses
    Case("openai", "Responses, plain", _io(1000, 100, total_tokens=1100), _FULL, "responses"),
    Case(
        "openai",
        "Responses, cached and reasoning",
        _io(
            1000,
            100,
            total_tokens=1100,
            input_tokens_details={"cached_tokens": 900},
            output_tokens_details={"reasoning_tokens": 90},
        ),
        100 * 1000 + 900 * 100 + 100 * 4000,
        "responses",
    ),
    Case(
        "openai",
        "Responses, cache writes",
        _io(
            1000,
            100,
            total_tokens=1100,
            input_tokens_details={"cached_tokens": 0, "cache_write_tokens": 400},
        ),
        600 * 1000 + 400 * 1250 + 100 * 4000,
        "responses",
    ),
    Case(
        "openai",
        "Responses, priority as served",
        _io(1000, 100, total_tokens=1100),
        2 * _MINI,
        "responses",
        answer={"service_tier": "priority"},
        **_TIER,
    ),
    # Azure
    Case(
        "azure",
        "Chat Completions with zeros in all details",
        _pct(1000, 100, **_cached(0, audio_tokens=0), **_thought(0, audio_tokens=0)),
        _FULL,
    ),
    Case(
        "azure", "a count of latency beside", _pct(1000, 100, latency_checkpoint={"x_ms": 7}), _FULL
    ),
    # Anthropic
    Case("anthropic", "plain", _io(1000, 100), _FULL, "messages"),
    Case(
        "anthropic",
        "cache reads beside the input",
        _io(100, 100, cache_read_input_tokens=900),
        100 * 1000 + 900 * 100 + 100 * 4000,
        "messages",
    ),
    Case(
        "anthropic",
        "cache writes with their ages",
        _io(900, 100, cache_creation_input_tokens=100, cache_creation=_KINDS),
        900 * 1000 + 60 * 1250 + 40 * 2000 + 100 * 4000,
        "messages",
    ),
    Case(
        "anthropic",
        "cache writes by their ages alone",
        _io(900, 100, cache_creation=_KINDS),
        900 * 1000 + 60 * 1250 + 40 * 2000 + 100 * 4000,
        "messages",
    ),
    Case(
        "anthropic",
        "cache writes without ages",
        _io(900, 100, cache_creation_input_tokens=100),
        900 * 1000 + 100 * 1250 + 100 * 4000,
        "messages",
    ),
    Case(
        "anthropic",
        "cache writes without ages, an hour asked for",
        _io(900, 100, cache_creation_input_tokens=100),
        900 * 1000 + 100 * 2000 + 100 * 4000,
        "messages",
        asked=_LONG,
    ),
    Case(
        "anthropic",
        "ages that leave out a part",
        _io(900, 100, cache_creation_input_tokens=500, cache_creation=_KINDS),
        900 * 1000 + 460 * 1250 + 40 * 2000 + 100 * 4000,
        "messages",
    ),
    Case(
        "anthropic",
        "thinking",
        _io(1000, 100, output_tokens_details={"thinking_tokens": 80}),
        _FULL,
        "messages",
    ),
    Case(
        "anthropic",
        "runs that the totals leave out",
        _io(
            1000,
            100,
            iterations=[
                {"type": "compaction", "input_tokens": 2000, "output_tokens": 300},
                {"type": "message", "input_tokens": 1000, "output_tokens": 100},
            ],
        ),
        3000 * 1000 + 400 * 4000,
        "messages",
    ),
    Case(
        "anthropic",
        "in the US by the workspace's default",
        _io(1000, 100, service_tier="standard", inference_geo="us"),
        _HAIKU * 11 // 10,
        "messages",
        model="claude-haiku-4-5",
    ),
    Case(
        "anthropic",
        "a place that is not known",
        _io(1000, 100, inference_geo="not_available"),
        _HAIKU,
        "messages",
        model="claude-haiku-4-5",
    ),
    Case(
        "anthropic",
        "priority, paid beforehand",
        _io(1000, 100, service_tier="priority"),
        _HAIKU,
        "messages",
        model="claude-haiku-4-5",
    ),
    Case(
        "anthropic",
        "two searches",
        _io(1000, 100, server_tool_use={"web_search_requests": 2, "web_fetch_requests": 1}),
        _HAIKU + 2 * 10_000_000,
        "messages",
        asked={"tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 3}]},
        model="claude-haiku-4-5",
    ),
    Case(
        "anthropic",
        "an estimate that was too low",
        _io(1000, 100),
        _FULL,
        "messages",
        before=(_io(14, 1),),
    ),
    Case(
        "anthropic",
        "an estimate that was too high",
        _io(1000, 100),
        _FULL,
        "messages",
        before=(_io(5000, 1, cache_read_input_tokens=300), _io(2000, 50)),
        answer={"zeros": ["cache_read_input_tokens"]},
    ),
    # Bedrock and Vertex in front of the Messages API
    Case(
        "bedrock",
        "all members of null",
        _io(
            1000,
            100,
            cache_creation_input_tokens=None,
            cache_read_input_tokens=None,
            cache_creation=None,
            server_tool_use=None,
        ),
        _FULL,
        "messages",
    ),
    Case(
        "bedrock",
        "Converse",
        {
            "inputTokens": 100,
            "outputTokens": 100,
            "totalTokens": 1100,
            "cacheReadInputTokens": 900,
            "cacheWriteInputTokens": 0,
        },
        100 * 1000 + 900 * 100 + 100 * 4000,
    ),
    Case(
        "bedrock",
        "Converse, writes",
        {
            "inputTokens": 100,
            "outputTokens": 100,
            "totalTokens": 1100,
            "cacheReadInputTokens": 500,
            "cacheWriteInputTokens": 400,
        },
        100 * 1000 + 500 * 100 + 400 * 1250 + 100 * 4000,
    ),
    # z.ai
    Case(
        "zai",
        "counted at the end alone",
        _io(1000, 100, cache_read_input_tokens=0),
        _FULL,
        "messages",
        before=(_io(0, 0),),
    ),
    Case(
        "zai",
        "counted at the start alone",
        _io(0, 100),
        _FULL,
        "messages",
        before=(_io(1000, 0),),
        answer={"streamed_only": True},
    ),
    Case(
        "zai",
        "Chat Completions",
        _pct(1000, 100, **_cached(300)),
        700 * 1000 + 300 * 100 + 100 * 4000,
    ),
    # DeepSeek
    Case(
        "deepseek",
        "hits and misses",
        _pct(1000, 100, prompt_cache_hit_tokens=900, prompt_cache_miss_tokens=100),
        100 * 1000 + 900 * 100 + 100 * 4000,
    ),
    Case(
        "deepseek",
        "hits in both spellings",
        _pct(
            1000,
            100,
            prompt_cache_hit_tokens=900,
            prompt_cache_miss_tokens=100,
            **_cached(900),
            **_thought(40),
        ),
        100 * 1000 + 900 * 100 + 100 * 4000,
    ),
    # Moonshot
    Case(
        "kimi",
        "cached at the top",
        _pct(1000, 100, cached_tokens=900),
        100 * 1000 + 900 * 100 + 100 * 4000,
    ),
    Case(
        "kimi",
        "cached at the top, zero nested",
        _pct(1000, 100, cached_tokens=900, **_cached(0)),
        100 * 1000 + 900 * 100 + 100 * 4000,
    ),
    Case(
        "kimi",
        "in the choice",
        _pct(1000, 100, cached_tokens=900),
        100 * 1000 + 900 * 100 + 100 * 4000,
        place="choice",
    ),
    # Groq
    Case(
        "groq",
        "times beside",
        _pct(1000, 100, queue_time=0.07, prompt_time=0.006, completion_time=0.02, total_time=0.028),
        _FULL,
    ),
    Case("groq", "under x_groq", _pct(1000, 100, queue_time=0.07), _FULL, place="x_groq"),
    Case(
        "groq",
        "cached under x_groq",
        _pct(1000, 100, **_cached(500)),
        500 * 1000 + 500 * 100 + 100 * 4000,
        place="x_groq",
    ),
    # Mistral
    Case("mistral", "plain", _pct(1000, 100, prompt_audio_seconds=None), _FULL),
    Case(
        "mistral",
        "cached at the top",
        _pct(1000, 100, num_cached_tokens=400),
        600 * 1000 + 400 * 100 + 100 * 4000,
    ),
    # xAI
    Case(
        "xai",
        "reasoning beside the output",
        {
            "prompt_tokens": 1000,
            "completion_tokens": 10,
            "total_tokens": 1110,
            **_thought(100),
            "num_sources_used": 0,
        },
        1000 * 1000 + 110 * 4000,
    ),
    Case("xai", "reasoning within the output", _pct(1000, 100, **_thought(90)), _FULL),
    Case(
        "xai",
        "cached text and pictures",
        _pct(1000, 100, **_cached(500, text_tokens=900, image_tokens=100, audio_tokens=0)),
        500 * 1000 + 500 * 100 + 100 * 4000,
    ),
    # OpenRouter
    Case(
        "openrouter",
        "a cost beside, of null details",
        _pct(1000, 100, cost=0.0014, is_byok=False, cost_details={"upstream_inference_cost": None}),
        _FULL,
    ),
    Case(
        "openrouter",
        "cache writes",
        _pct(1000, 100, **_cached(300, cache_write_tokens=200)),
        500 * 1000 + 300 * 100 + 200 * 1250 + 100 * 4000,
    ),
    # Perplexity
    Case(
        "perplexity",
        "citations and reasoning beside the totals",
        _pct(1000, 100, citation_tokens=500, reasoning_tokens=300),
        1500 * 1000 + 400 * 4000,
    ),
    Case(
        "perplexity",
        "the size of a search",
        _pct(1000, 100, search_context_size="low", cost={"total_cost": 0.1}),
        _FULL,
    ),
    # Gemini
    Case(
        "gemini",
        "thoughts in the total alone",
        {"prompt_tokens": 1000, "completion_tokens": 40, "total_tokens": 1100},
        1000 * 1000 + 100 * 4000,
    ),
    Case(
        "gemini",
        "its own words",
        {
            "promptTokenCount": 1000,
            "candidatesTokenCount": 40,
            "thoughtsTokenCount": 60,
            "cachedContentTokenCount": 900,
            "totalTokenCount": 1100,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 1000}],
        },
        100 * 1000 + 900 * 100 + 100 * 4000,
    ),
    Case(
        "gemini",
        "its own words, with a tool's prompt",
        {
            "promptTokenCount": 900,
            "candidatesTokenCount": 100,
            "toolUsePromptTokenCount": 100,
            "totalTokenCount": 1100,
        },
        _FULL,
    ),
    # Qwen
    Case(
        "qwen",
        "cache writes by age in the details",
        _pct(
            1000,
            100,
            **_cached(
                500,
                cache_creation={"ephemeral_5m_input_tokens": 200},
                cache_creation_input_tokens=200,
                cache_type="ephemeral",
            ),
        ),
        300 * 1000 + 500 * 100 + 200 * 1250 + 100 * 4000,
    ),
    Case(
        "qwen",
        "input and output",
        _io(1000, 100, total_tokens=1100, **_cached(200)),
        800 * 1000 + 200 * 100 + 100 * 4000,
    ),
    # LiteLLM and other gateways
    Case(
        "litellm",
        "in the words of the Messages API too",
        _pct(1000, 100, cache_read_input_tokens=500, cache_creation_input_tokens=100),
        400 * 1000 + 500 * 100 + 100 * 1250 + 100 * 4000,
    ),
    Case(
        "litellm",
        "a cache beside the input, by the total",
        {"prompt_tokens": 100, "completion_tokens": 100, "total_tokens": 1100, **_cached(900)},
        100 * 1000 + 900 * 100 + 100 * 4000,
    ),
    # MiniMax, Together, Fireworks, vLLM, llama.cpp, Ollama
    Case(
        "minimax",
        "characters beside",
        _pct(1000, 100, total_characters=0),
        _FULL,
        answer={"base_resp": {"status_code": 0, "status_msg": ""}},
    ),
    Case("together", "cached at the top, of zero", _pct(1000, 100, cached_tokens=0), _FULL),
    Case("fireworks", "details of null", _pct(1000, 100, prompt_tokens_details=None), _FULL),
    Case(
        "vllm",
        "usage in every event",
        _pct(1000, 100),
        _FULL,
        before=(_pct(1000, 0), _pct(1000, 3), _pct(1000, 60)),
    ),
    Case(
        "vllm",
        "zeros at the end",
        _pct(0, 0),
        _FULL,
        before=(_pct(1000, 100),),
        answer={"streamed_only": True},
    ),
    Case(
        "vllm", "an estimate that was too high", _pct(1000, 100), _FULL, before=(_pct(1000, 5000),)
    ),
    Case(
        "llamacpp",
        "timings beside",
        _pct(1000, 100),
        _FULL,
        answer={"timings": {"prompt_n": 1000, "predicted_n": 100}},
    ),
    Case("ollama", "its own words", {"prompt_eval_count": 1000, "eval_count": 100}, _FULL),
)

LIES: tuple[Any, ...] = (
    None, {}, [], "x", 7, _pct(-1, 100), _pct(1000, -5), _pct(0, 0),
    {"prompt_tokens": "1000", "completion_tokens": "100"},
    {"prompt_tokens": 1000.0, "completion_tokens": 100},
    {"prompt_tokens": 1000, "completion_tokens": 1e300},
    {"prompt_tokens": True, "completion_tokens": True},
    {"prompt_tokens": 2**53 - 1, "completion_tokens": 2**53 - 1},
    {"prompt_tokens": 2**63, "completion_tokens": 1},
    {"prompt_tokens": 1000}, {"completion_tokens": 100},
    _pct(10_000_000, 100), _pct(1000, 10_000_000),
    _pct(1000, 100, **_cached(5000)), _pct(1000, 100, **_cached(-900)),
    _pct(1000, 100, **_cached("900")), _pct(1000, 100, prompt_tokens_details=[900]),
    _pct(1000, 100, cached_tokens=1e3), _pct(1000, 100, **_thought(500)),
    _pct(1000, 100, server_tool_use={"web_search_requests": -1}),
    _pct(1000, 100, server_tool_use={"web_search_requests": 10**9}),
)  # fmt: skip
"""Usage that cannot be true, in Chat Completions: its calls are charged what they reserved."""
