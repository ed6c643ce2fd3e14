"""Usage objects as providers state them, each with the bill of its call in nano-dollars.

Every model named ``corpus`` costs, in nano-dollars a token: 1,000 of input, 100 read from a cache,
1,250 written to one and 2,000 for longer, 4,000 of output. Other models cost what the shipped
table of prices says. The bills are worked out by hand from each provider's own documentation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
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
        shape: the endpoint: ``chat``, ``responses``, ``messages`` or ``converse``, whose client
            calls by Chat Completions.
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


def _pct(prompt: int = 1000, completion: int = 100, **more: Any) -> dict[str, Any]:
    counts = {"prompt_tokens": prompt, "completion_tokens": completion}
    return {**counts, "total_tokens": prompt + completion, **more}


def _io(given: int = 1000, made: int = 100, **more: Any) -> dict[str, Any]:
    return {"input_tokens": given, "output_tokens": made, **more}


def _cached(count: Any, **more: Any) -> dict[str, Any]:
    return {"prompt_tokens_details": {"cached_tokens": count, **more}}


def _thought(count: Any, **more: Any) -> dict[str, Any]:
    return {"completion_tokens_details": {"reasoning_tokens": count, **more}}


def _bill(fresh: int, read: int = 0, written: int = 0, kept: int = 0, made: int = 100) -> int:
    """The bill of input that is new, read from a cache, and written to one for short or long."""
    return fresh * 1000 + read * 100 + written * 1250 + kept * 2000 + made * 4000


_FULL = _bill(1000)  # 1,000 in and 100 out
_MINI = 1000 * 250 + 100 * 2000  # the same of gpt-5-mini
_HAIKU = 1000 * 1000 + 100 * 5000  # the same of claude-haiku-4-5
_KINDS = {"ephemeral_5m_input_tokens": 60, "ephemeral_1h_input_tokens": 40}
_LONG = {
    "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
}

_openai = partial(Case, "openai")
_openai_mini = partial(Case, "openai", model="gpt-5-mini")
_openai_responses = partial(Case, "openai", shape="responses")
_openai_responses_mini = partial(Case, "openai", shape="responses", model="gpt-5-mini")
_azure = partial(Case, "azure")
_anthropic = partial(Case, "anthropic", shape="messages")
_anthropic_haiku = partial(Case, "anthropic", shape="messages", model="claude-haiku-4-5")
_bedrock_messages = partial(Case, "bedrock", shape="messages")
_bedrock = partial(Case, "bedrock")
_converse = partial(Case, "bedrock", shape="converse")
_zai_messages = partial(Case, "zai", shape="messages")
_zai = partial(Case, "zai")
_deepseek = partial(Case, "deepseek")
_kimi = partial(Case, "kimi")
_groq = partial(Case, "groq")
_mistral = partial(Case, "mistral")
_xai = partial(Case, "xai")
_openrouter = partial(Case, "openrouter")
_perplexity = partial(Case, "perplexity")
_gemini = partial(Case, "gemini")
_qwen = partial(Case, "qwen")
_litellm = partial(Case, "litellm")
_minimax = partial(Case, "minimax")
_together = partial(Case, "together")
_fireworks = partial(Case, "fireworks")
_vllm = partial(Case, "vllm")
_llamacpp = partial(Case, "llamacpp")
_ollama = partial(Case, "ollama")

CORPUS: tuple[Case, ...] = (
    _openai("plain", _pct(), _FULL),
    _openai(
        "details of nulls",
        _pct(prompt_tokens_details=None, completion_tokens_details={"reasoning_tokens": None}),
        _FULL,
    ),
    _openai("cached and reasoning", _pct(**_cached(900), **_thought(60)), _bill(100, 900)),
    _openai(
        "cache writes of two ages",
        _pct(
            **_cached(
                500,
                cache_write_tokens=300,
                cache_write_tokens_details={"ttl_30m_tokens": 200, "ttl_12h_tokens": 100},
            )
        ),
        _bill(200, 500, written=200, kept=100),
    ),
    _openai(
        "sound and predictions",
        _pct(
            **_cached(0, audio_tokens=10),
            **_thought(0, audio_tokens=5, accepted_prediction_tokens=3),
        ),
        _FULL,
    ),
    _openai_mini(
        "priority that was asked for is served as default",
        _pct(),
        _MINI,
        answer={"service_tier": "default"},
        asked={"service_tier": "priority"},
    ),
    _openai_mini(
        "priority as served by the project's default",
        _pct(),
        2 * _MINI,
        answer={"service_tier": "priority"},
    ),
    _openai_mini(
        "flex as served",
        _pct(),
        _MINI // 2,
        answer={"service_tier": "flex"},
        asked={"service_tier": "flex"},
    ),
    _openai_mini(
        "flex that was not served",
        _pct(),
        _MINI,
        answer={"service_tier": "default"},
        asked={"service_tier": "flex"},
    ),
    _openai_mini("flex that nobody confirms", _pct(), _MINI, asked={"service_tier": "flex"}),
    _openai_mini(
        "priority that nobody denies", _pct(), 2 * _MINI, asked={"service_tier": "priority"}
    ),
    _openai_responses("Responses, plain", _io(total_tokens=1100), _FULL),
    _openai_responses(
        "Responses, cached and reasoning",
        _io(
            total_tokens=1100,
            input_tokens_details={"cached_tokens": 900},
            output_tokens_details={"reasoning_tokens": 90},
        ),
        _bill(100, 900),
    ),
    _openai_responses(
        "Responses, cache writes",
        _io(
            total_tokens=1100, input_tokens_details={"cached_tokens": 0, "cache_write_tokens": 400}
        ),
        _bill(600, written=400),
    ),
    _openai_responses_mini(
        "Responses, priority as served",
        _io(total_tokens=1100),
        2 * _MINI,
        answer={"service_tier": "priority"},
    ),
    _azure(
        "Chat Completions with zeros in all details",
        _pct(**_cached(0, audio_tokens=0), **_thought(0, audio_tokens=0)),
        _FULL,
    ),
    _azure("a count of latency beside", _pct(latency_checkpoint={"x_ms": 7}), _FULL),
    _anthropic("plain", _io(), _FULL),
    _anthropic(
        "cache reads beside the input", _io(100, 100, cache_read_input_tokens=900), _bill(100, 900)
    ),
    _anthropic(
        "cache writes with their ages",
        _io(900, 100, cache_creation_input_tokens=100, cache_creation=_KINDS),
        _bill(900, written=60, kept=40),
    ),
    _anthropic(
        "cache writes by their ages alone",
        _io(900, 100, cache_creation=_KINDS),
        _bill(900, written=60, kept=40),
    ),
    _anthropic(
        "cache writes without ages",
        _io(900, 100, cache_creation_input_tokens=100),
        _bill(900, written=100),
    ),
    _anthropic(
        "cache writes without ages, an hour asked for",
        _io(900, 100, cache_creation_input_tokens=100),
        _bill(900, kept=100),
        asked=_LONG,
    ),
    _anthropic(
        "ages that leave out a part",
        _io(900, 100, cache_creation_input_tokens=500, cache_creation=_KINDS),
        _bill(900, written=460, kept=40),
    ),
    _anthropic("thinking", _io(output_tokens_details={"thinking_tokens": 80}), _FULL),
    _anthropic(
        "runs that the totals leave out",
        _io(
            iterations=[
                {"type": "compaction", "input_tokens": 2000, "output_tokens": 300},
                {"type": "message", "input_tokens": 1000, "output_tokens": 100},
            ]
        ),
        _bill(3000, made=400),
    ),
    _anthropic_haiku(
        "in the US by the workspace's default",
        _io(service_tier="standard", inference_geo="us"),
        _HAIKU * 11 // 10,
    ),
    _anthropic_haiku("a place that is not known", _io(inference_geo="not_available"), _HAIKU),
    _anthropic_haiku("priority, paid beforehand", _io(service_tier="priority"), _HAIKU),
    _anthropic_haiku(
        "two searches",
        _io(server_tool_use={"web_search_requests": 2, "web_fetch_requests": 1}),
        _HAIKU + 2 * 10000000,
        asked={"tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 3}]},
    ),
    _anthropic("an estimate that was too low", _io(), _FULL, before=(_io(14, 1),)),
    _anthropic(
        "an estimate that was too high",
        _io(),
        _FULL,
        before=(_io(5000, 1, cache_read_input_tokens=300), _io(2000, 50)),
        answer={"zeros": ["cache_read_input_tokens"]},
    ),
    _bedrock_messages(
        "all members of null",
        _io(
            cache_creation_input_tokens=None,
            cache_read_input_tokens=None,
            cache_creation=None,
            server_tool_use=None,
        ),
        _FULL,
    ),
    _bedrock(
        "Converse",
        {
            "inputTokens": 100,
            "outputTokens": 100,
            "totalTokens": 1100,
            "cacheReadInputTokens": 900,
            "cacheWriteInputTokens": 0,
        },
        _bill(100, 900),
    ),
    _bedrock(
        "Converse, writes",
        {
            "inputTokens": 100,
            "outputTokens": 100,
            "totalTokens": 1100,
            "cacheReadInputTokens": 500,
            "cacheWriteInputTokens": 400,
        },
        _bill(100, 500, written=400),
    ),
    _converse(
        "Converse, reads and writes of two ages",
        {
            "inputTokens": 100,
            "outputTokens": 100,
            "totalTokens": 1100,
            "cacheReadInputTokens": 500,
            "cacheWriteInputTokens": 400,
            "cacheDetails": [{"ttl": "5m", "inputTokens": 300}, {"ttl": "1h", "inputTokens": 100}],
        },
        _bill(100, 500, written=300, kept=100),
        answer={"serviceTier": {"type": "default"}, "metrics": {"latencyMs": 9}},
    ),
    _converse(
        "Converse, zeros",
        {
            "inputTokens": 1000,
            "outputTokens": 100,
            "totalTokens": 1100,
            "cacheReadInputTokens": 0,
            "cacheWriteInputTokens": 0,
            "cacheDetails": [],
        },
        _FULL,
    ),
    _zai_messages(
        "counted at the end alone", _io(cache_read_input_tokens=0), _FULL, before=(_io(0, 0),)
    ),
    _zai_messages(
        "counted at the start alone",
        _io(0, 100),
        _FULL,
        before=(_io(1000, 0),),
        answer={"streamed_only": True},
    ),
    _zai("Chat Completions", _pct(**_cached(300)), _bill(700, 300)),
    _deepseek(
        "hits and misses",
        _pct(prompt_cache_hit_tokens=900, prompt_cache_miss_tokens=100),
        _bill(100, 900),
    ),
    _deepseek(
        "hits in both spellings",
        _pct(
            prompt_cache_hit_tokens=900,
            prompt_cache_miss_tokens=100,
            **_cached(900),
            **_thought(40),
        ),
        _bill(100, 900),
    ),
    _kimi("cached at the top", _pct(cached_tokens=900), _bill(100, 900)),
    _kimi("cached at the top, zero nested", _pct(cached_tokens=900, **_cached(0)), _bill(100, 900)),
    _kimi("in the choice", _pct(cached_tokens=900), _bill(100, 900), place="choice"),
    _groq(
        "times beside",
        _pct(queue_time=0.07, prompt_time=0.006, completion_time=0.02, total_time=0.028),
        _FULL,
    ),
    _groq("under x_groq", _pct(queue_time=0.07), _FULL, place="x_groq"),
    _groq("cached under x_groq", _pct(**_cached(500)), _bill(500, 500), place="x_groq"),
    _mistral("plain", _pct(prompt_audio_seconds=None), _FULL),
    _mistral("cached at the top", _pct(num_cached_tokens=400), _bill(600, 400)),
    _xai(
        "reasoning beside the output",
        {
            "prompt_tokens": 1000,
            "completion_tokens": 10,
            "total_tokens": 1110,
            **_thought(100),
            "num_sources_used": 0,
        },
        _bill(1000, made=110),
    ),
    _xai("reasoning within the output", _pct(**_thought(90)), _FULL),
    _xai(
        "cached text and pictures",
        _pct(**_cached(500, text_tokens=900, image_tokens=100, audio_tokens=0)),
        _bill(500, 500),
    ),
    _openrouter(
        "a cost beside, of null details",
        _pct(cost=0.0014, is_byok=False, cost_details={"upstream_inference_cost": None}),
        _FULL,
    ),
    _openrouter(
        "cache writes", _pct(**_cached(300, cache_write_tokens=200)), _bill(500, 300, written=200)
    ),
    _perplexity(
        "citations and reasoning beside the totals",
        _pct(citation_tokens=500, reasoning_tokens=300),
        _bill(1500, made=400),
    ),
    _perplexity(
        "the size of a search", _pct(search_context_size="low", cost={"total_cost": 0.1}), _FULL
    ),
    _gemini(
        "thoughts in the total alone",
        {"prompt_tokens": 1000, "completion_tokens": 40, "total_tokens": 1100},
        _bill(1000),
    ),
    _gemini(
        "its own words",
        {
            "promptTokenCount": 1000,
            "candidatesTokenCount": 40,
            "thoughtsTokenCount": 60,
            "cachedContentTokenCount": 900,
            "totalTokenCount": 1100,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 1000}],
        },
        _bill(100, 900),
    ),
    _gemini(
        "its own words, with a tool's prompt",
        {
            "promptTokenCount": 900,
            "candidatesTokenCount": 100,
            "toolUsePromptTokenCount": 100,
            "totalTokenCount": 1100,
        },
        _FULL,
    ),
    _qwen(
        "cache writes by age in the details",
        _pct(
            **_cached(
                500,
                cache_creation={"ephemeral_5m_input_tokens": 200},
                cache_creation_input_tokens=200,
                cache_type="ephemeral",
            )
        ),
        _bill(300, 500, written=200),
    ),
    _qwen("input and output", _io(total_tokens=1100, **_cached(200)), _bill(800, 200)),
    _litellm(
        "in the words of the Messages API too",
        _pct(cache_read_input_tokens=500, cache_creation_input_tokens=100),
        _bill(400, 500, written=100),
    ),
    _litellm(
        "a cache beside the input, by the total",
        {"prompt_tokens": 100, "completion_tokens": 100, "total_tokens": 1100, **_cached(900)},
        _bill(100, 900),
    ),
    _minimax(
        "characters beside",
        _pct(total_characters=0),
        _FULL,
        answer={"base_resp": {"status_code": 0, "status_msg": ""}},
    ),
    _together("cached at the top, of zero", _pct(cached_tokens=0), _FULL),
    _fireworks("details of null", _pct(prompt_tokens_details=None), _FULL),
    _vllm(
        "usage in every event", _pct(), _FULL, before=(_pct(1000, 0), _pct(1000, 3), _pct(1000, 60))
    ),
    _vllm(
        "zeros at the end",
        _pct(0, 0),
        _FULL,
        before=(_pct(1000, 100),),
        answer={"streamed_only": True},
    ),
    _vllm("an estimate that was too high", _pct(), _FULL, before=(_pct(1000, 5000),)),
    _llamacpp(
        "timings beside", _pct(), _FULL, answer={"timings": {"prompt_n": 1000, "predicted_n": 100}}
    ),
    _ollama("its own words", {"prompt_eval_count": 1000, "eval_count": 100}, _FULL),
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
