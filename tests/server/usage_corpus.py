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


def _aws(given: int, read: int, written: int, **more: Any) -> dict[str, Any]:
    counts = {"cacheReadInputTokens": read, "cacheWriteInputTokens": written, **more}
    return {"inputTokens": given, "outputTokens": 100, "totalTokens": 1100, **counts}


def _tier(name: str, nano: int, asked: str, served: str = "") -> Case:
    """A call of gpt-5-mini that asked for a service, and was told one, if any."""
    answer, more = ({"service_tier": one} if one else {} for one in (served, asked))
    return Case("openai", name, _pct(), nano, answer=answer, asked=more, model="gpt-5-mini")


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
_openai_responses = partial(Case, "openai", shape="responses")
_openai_responses_mini = partial(Case, "openai", shape="responses", model="gpt-5-mini")
_anthropic = partial(Case, "anthropic", shape="messages")
_anthropic_haiku = partial(Case, "anthropic", shape="messages", model="claude-haiku-4-5")
_bedrock_messages = partial(Case, "bedrock", shape="messages")
_converse = partial(Case, "bedrock", shape="converse")
_zai_messages = partial(Case, "zai", shape="messages")

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
    _tier("priority that was asked for is served as default", _MINI, "priority", "default"),
    _tier("priority as served by the project's default", 2 * _MINI, "", "priority"),
    _tier("flex as served", _MINI // 2, "flex", "flex"),
    _tier("flex that was not served", _MINI, "flex", "default"),
    _tier("flex that nobody confirms", _MINI, "flex"),
    _tier("priority that nobody denies", 2 * _MINI, "priority"),
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
    Case(
        "azure",
        "Chat Completions with zeros in all details",
        _pct(**_cached(0, audio_tokens=0), **_thought(0, audio_tokens=0)),
        _FULL,
    ),
    Case("azure", "a count of latency beside", _pct(latency_checkpoint={"x_ms": 7}), _FULL),
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
    Case("bedrock", "Converse", _aws(100, 900, 0), _bill(100, 900)),
    Case("bedrock", "Converse, writes", _aws(100, 500, 400), _bill(100, 500, written=400)),
    _converse(
        "Converse, reads and writes of two ages",
        _aws(
            100,
            500,
            400,
            cacheDetails=[{"ttl": "5m", "inputTokens": 300}, {"ttl": "1h", "inputTokens": 100}],
        ),
        _bill(100, 500, written=300, kept=100),
        answer={"serviceTier": {"type": "default"}, "metrics": {"latencyMs": 9}},
    ),
    _converse("Converse, zeros", _aws(1000, 0, 0, cacheDetails=[]), _FULL),
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
    Case("zai", "Chat Completions", _pct(**_cached(300)), _bill(700, 300)),
    Case(
        "deepseek",
        "hits and misses",
        _pct(prompt_cache_hit_tokens=900, prompt_cache_miss_tokens=100),
        _bill(100, 900),
    ),
    Case(
        "deepseek",
        "hits in both spellings",
        _pct(
            prompt_cache_hit_tokens=900,
            prompt_cache_miss_tokens=100,
            **_cached(900),
            **_thought(40),
        ),
        _bill(100, 900),
    ),
    Case("kimi", "cached at the top", _pct(cached_tokens=900), _bill(100, 900)),
    Case(
        "kimi",
        "cached at the top, zero nested",
        _pct(cached_tokens=900, **_cached(0)),
        _bill(100, 900),
    ),
    Case("kimi", "in the choice", _pct(cached_tokens=900), _bill(100, 900), place="choice"),
    Case(
        "groq",
        "times beside",
        _pct(queue_time=0.07, prompt_time=0.006, completion_time=0.02, total_time=0.028),
        _FULL,
    ),
    Case("groq", "under x_groq", _pct(queue_time=0.07), _FULL, place="x_groq"),
    Case("groq", "cached under x_groq", _pct(**_cached(500)), _bill(500, 500), place="x_groq"),
    Case("mistral", "plain", _pct(prompt_audio_seconds=None), _FULL),
    Case("mistral", "cached at the top", _pct(num_cached_tokens=400), _bill(600, 400)),
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
        _bill(1000, made=110),
    ),
    Case("xai", "reasoning within the output", _pct(**_thought(90)), _FULL),
    Case(
        "xai",
        "cached text and pictures",
        _pct(**_cached(500, text_tokens=900, image_tokens=100, audio_tokens=0)),
        _bill(500, 500),
    ),
    Case(
        "openrouter",
        "a cost beside, of null details",
        _pct(cost=0.0014, is_byok=False, cost_details={"upstream_inference_cost": None}),
        _FULL,
    ),
    Case(
        "openrouter",
        "cache writes",
        _pct(**_cached(300, cache_write_tokens=200)),
        _bill(500, 300, written=200),
    ),
    Case(
        "perplexity",
        "citations and reasoning beside the totals",
        _pct(citation_tokens=500, reasoning_tokens=300),
        _bill(1500, made=400),
    ),
    Case(
        "perplexity",
        "the size of a search",
        _pct(search_context_size="low", cost={"total_cost": 0.1}),
        _FULL,
    ),
    Case(
        "gemini",
        "thoughts in the total alone",
        {"prompt_tokens": 1000, "completion_tokens": 40, "total_tokens": 1100},
        _bill(1000),
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
        _bill(100, 900),
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
    Case(
        "qwen",
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
    Case("qwen", "input and output", _io(total_tokens=1100, **_cached(200)), _bill(800, 200)),
    Case(
        "litellm",
        "in the words of the Messages API too",
        _pct(cache_read_input_tokens=500, cache_creation_input_tokens=100),
        _bill(400, 500, written=100),
    ),
    Case(
        "litellm",
        "a cache beside the input, by the total",
        {"prompt_tokens": 100, "completion_tokens": 100, "total_tokens": 1100, **_cached(900)},
        _bill(100, 900),
    ),
    Case(
        "minimax",
        "characters beside",
        _pct(total_characters=0),
        _FULL,
        answer={"base_resp": {"status_code": 0, "status_msg": ""}},
    ),
    Case("together", "cached at the top, of zero", _pct(cached_tokens=0), _FULL),
    Case("fireworks", "details of null", _pct(prompt_tokens_details=None), _FULL),
    Case(
        "vllm",
        "usage in every event",
        _pct(),
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
    Case("vllm", "an estimate that was too high", _pct(), _FULL, before=(_pct(1000, 5000),)),
    Case(
        "llamacpp",
        "timings beside",
        _pct(),
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
