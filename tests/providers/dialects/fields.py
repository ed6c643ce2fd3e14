"""The fate of each field between dialects, found by translating a body with and without it.

``python -m tests.providers.dialects.fields`` writes the table of ``docs/translation.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from remit.kernel.json_text import dump
from remit.kernel.settings import ProviderSettings
from remit.providers import Body, Outgoing, ProviderError, ProviderRequest, UpstreamProvider
from remit.providers.wire.endpoint_table import (
    CHAT,
    CONVERSE,
    GENERATE,
    MESSAGES,
    RESPONSES,
    Endpoint,
)

PAGE = Path(__file__).parents[3] / "docs" / "translation.md"
ENDPOINTS = {"Chat Completions": CHAT, "Responses": RESPONSES, "Messages": MESSAGES}
ALL_ENDPOINTS = {**ENDPOINTS, "Gemini": GENERATE, "Converse": CONVERSE}
MODELS = {
    CHAT.name: "deepseek-v4",
    RESPONSES.name: "gpt-5.6",
    MESSAGES.name: "claude-sonnet-4-5",
    GENERATE.name: "gemini-2.5-flash",
    CONVERSE.name: "anthropic.claude-sonnet-4-5",
}
_TOOL = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}
_BASE: dict[str, dict[str, Any]] = {
    CHAT.name: {
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"type": "function", "function": _TOOL}],
    },
    RESPONSES.name: {"input": "Hi", "tools": [{"type": "function", **_TOOL}]},
    MESSAGES.name: {
        "max_tokens": 8000,
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"name": "f", "input_schema": _TOOL["parameters"]}],
    },
    GENERATE.name: {
        "contents": [{"parts": [{"text": "Hi"}]}],
        "generationConfig": {"responseMimeType": "application/json"},
        "tools": [{"functionDeclarations": [_TOOL]}],
    },
    CONVERSE.name: {
        "messages": [{"role": "user", "content": [{"text": "Hi"}]}],
        "toolConfig": {
            "tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": _TOOL["parameters"]}}}]
        },
        "inferenceConfig": {"maxTokens": 8000},
    },
}
_SCHEMA = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
_COMMON = {
    "metadata": {"k": "v"},
    "parallel_tool_calls": False,
    "prompt_cache_key": "key",
    "prompt_cache_options": {"mode": "implicit"},
    "prompt_cache_retention": "24h",
    "safety_identifier": "person",
    "service_tier": "flex",
    "store": True,
    "stream": True,
    "temperature": 0.5,
    "tool_choice": "required",
    "top_logprobs": 3,
    "top_p": 0.9,
    "user": "person",
    "moderation": {"model": "omni"},
}
VALUES: dict[str, dict[str, Any]] = {
    CHAT.name: {
        **_COMMON,
        "audio": {"voice": "alloy", "format": "wav"},
        "cache_control": {"type": "ephemeral"},
        "enable_thinking": True,
        "extra_field": 1,
        "frequency_penalty": 0.5,
        "function_call": "auto",
        "functions": [{"name": "f"}],
        "logit_bias": {"1": 2},
        "logprobs": True,
        "max_completion_tokens": 500,
        "max_tokens": 500,
        "messages": [{"role": "user", "content": "Bye"}],
        "modalities": ["text", "audio"],
        "n": 2,
        "prediction": {"type": "content", "content": "x"},
        "presence_penalty": 0.5,
        "reasoning": {"effort": "low"},
        "reasoning_effort": "low",
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": _SCHEMA}},
        "seed": 0,
        "stop": ["END"],
        "stream_options": {"include_usage": True},
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "tools": [{"type": "function", "function": {"name": "g"}}],
        "top_k": 5,
        "verbosity": "low",
        "web_search_options": {},
    },
    RESPONSES.name: {
        **_COMMON,
        "access_programs": {"trusted": True},
        "background": True,
        "background_options": {"window": "2h"},
        "context_management": [{"type": "compaction", "compact_threshold": 1000}],
        "conversation": "conv_1",
        "image": {"detail": "high"},
        "include": ["file_search_call.results"],
        "input": "Bye",
        "instructions": "Be brief.",
        "max_output_tokens": 500,
        "max_tool_calls": 3,
        "previous_response_id": "resp_1",
        "prompt": {"id": "p"},
        "reasoning": {"effort": "low"},
        "stream_options": {"include_obfuscation": False},
        "text": {"verbosity": "low"},
        "tools": [{"type": "function", "name": "g"}],
        "truncation": "auto",
    },
    MESSAGES.name: {
        "betas": ["x"],
        "billing_policy": {"type": "billing_policy", "bill_to": "user_profile"},
        "cache_control": {"type": "ephemeral"},
        "compaction": {"type": "compaction"},
        "container": "c",
        "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]},
        "diagnostics": {"previous_message_id": "m"},
        "fallback_credit_token": "t",
        "fallbacks": [{"model": "m"}],
        "inference_geo": "eu",
        "max_tokens": 500,
        "mcp_servers": [{"name": "x"}],
        "messages": [{"role": "user", "content": "Bye"}],
        "metadata": {"user_id": "person"},
        "output_config": {"effort": "low"},
        "output_format": {"type": "json_schema", "schema": _SCHEMA},
        "service_tier": "standard_only",
        "speed": "fast",
        "stop_sequences": ["END"],
        "stream": True,
        "system": "Be brief.",
        "temperature": 0.5,
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "thread": {"type": "create"},
        "tool_choice": {"type": "any"},
        "tools": [{"name": "g", "input_schema": {"type": "object"}}],
        "top_k": 5,
        "top_p": 0.9,
        "user_profile_id": "u",
        "workspace_id": "w",
    },
    GENERATE.name: {
        "cachedContent": "cachedContents/c",
        "contents": [{"parts": [{"text": "Bye"}]}],
        "generationConfig.candidateCount": 2,
        "generationConfig.enableEnhancedCivicAnswers": True,
        "generationConfig.frequencyPenalty": 0.5,
        "generationConfig.logprobs": 3,
        "generationConfig.maxOutputTokens": 500,
        "generationConfig.mediaResolution": "MEDIA_RESOLUTION_LOW",
        "generationConfig.presencePenalty": 0.5,
        "generationConfig.responseJsonSchema": _SCHEMA,
        "generationConfig.responseLogprobs": True,
        "generationConfig.responseMimeType": "text/plain",
        "generationConfig.responseModalities": ["AUDIO"],
        "generationConfig.responseSchema": _SCHEMA,
        "generationConfig.seed": 1,
        "generationConfig.speechConfig": {"languageCode": "de"},
        "generationConfig.stopSequences": ["END"],
        "generationConfig.temperature": 0.5,
        "generationConfig.thinkingConfig": {"thinkingBudget": 2000},
        "generationConfig.topK": 5,
        "generationConfig.topP": 0.9,
        "labels": {"k": "v"},
        "safetySettings": [{"category": "x", "threshold": "BLOCK_NONE"}],
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
        "tools": [{"functionDeclarations": [{"name": "g"}]}],
    },
    CONVERSE.name: {
        "additionalModelRequestFields.thinking": {"type": "enabled", "budget_tokens": 2000},
        "additionalModelRequestFields.top_k": 5,
        "additionalModelRequestFields.other": 1,
        "additionalModelResponseFieldPaths": ["/x"],
        "guardrailConfig": {"guardrailIdentifier": "g", "guardrailVersion": "1"},
        "inferenceConfig.maxTokens": 500,
        "inferenceConfig.stopSequences": ["END"],
        "inferenceConfig.temperature": 0.5,
        "inferenceConfig.topP": 0.9,
        "messages": [{"role": "user", "content": [{"text": "Bye"}]}],
        "outputConfig.effort": "low",
        "performanceConfig": {"latency": "optimized"},
        "projectIdentifier": "p",
        "promptVariables": {"a": {"text": "b"}},
        "requestMetadata": {"k": "v"},
        "serviceTier": {"type": "flex"},
        "system": [{"text": "Be brief."}],
        "toolConfig.toolChoice": {"any": {}},
        "toolConfig.tools": [{"toolSpec": {"name": "g", "inputSchema": {"json": _SCHEMA}}}],
    },
}


def sdk_fields(source: Endpoint) -> set[str]:
    """Return the names of all fields of a request that the SDK declares."""
    from anthropic.types.beta.message_create_params import MessageCreateParamsBase as MessagesFields
    from openai.types.chat.completion_create_params import CompletionCreateParamsBase as ChatFields
    from openai.types.responses.response_create_params import (
        ResponseCreateParamsBase as ResponseFields,
    )

    declared = {
        CHAT.name: ChatFields, RESPONSES.name: ResponseFields, MESSAGES.name: MessagesFields,
    }  # fmt: skip
    return set(declared[source.name].__annotations__)


def provider(
    target: Endpoint, model: str, name: str = "", *, version: str = "2023-06-01",
    responses: bool = False, reasons: Sequence[str] = (),
) -> UpstreamProvider:  # fmt: skip
    """A provider of the dialect of ``target``, which nothing is sent to."""
    settings = ProviderSettings(
        kind="converse" if target is CONVERSE else target.dialect, base_url="http://x", api_key="k",
        base_url_env="", api_key_env="", default_model=model, send_temperature=True,
        native_tools=True, structured_output=True, api_version=version,
        responses=responses or target is RESPONSES, max_completion_tokens_models=list(reasons),
    )  # fmt: skip
    return UpstreamProvider("http://localhost", "k", settings, name)


def sent(
    source: Endpoint,
    target: Endpoint,
    fields: dict[str, Any],
    model: str = "",
    name: str = "",
    *,
    headers: Mapping[str, str] = MappingProxyType({}),
    version: str = "2023-06-01",
    responses: bool = False,
    reasons: Sequence[str] = (),
    largest: int | None = None,
) -> Outgoing:
    """The request that a provider of ``target`` gets for a client's body of ``source``."""
    model = model or MODELS[target.name]
    sender = provider(
        target, model, name, version=version, responses=responses, reasons=reasons
    )  # fmt: skip
    value: dict[str, Any] = {"model": "m", **_BASE[source.name]}
    for name, each in fields.items():
        outer, dot, inner = name.partition(".")
        value[outer] = {**value.get(outer, {}), inner: each} if dot else each
    body = Body.read(source, dump(value))
    request = ProviderRequest(
        model, (), None, None, 30, body=body, headers=headers, largest_output=largest
    )
    return sender.outgoing(request)


def fate(source: Endpoint, target: Endpoint, field: str) -> str:
    """``translated``, ``dropped``, ``refused``, or empty if the provider gets the same body."""
    base = sent(source, target, {})
    try:
        outgoing = sent(source, target, {field: VALUES[source.name][field]})
    except ProviderError as error:
        assert error.param is not None, (field, error)
        assert error.param.startswith(field), (field, error.param)
        return "refused"
    if any(name == field or name.startswith(f"{field}.") for name in outgoing.dropped):
        return "dropped"
    same = (outgoing.body.value, outgoing.path) == (base.body.value, base.path)
    return "" if same else "translated"


def rows() -> list[str]:
    """The tables' lines: for each source, the fields that share their fates."""
    lines = []
    for title, source in ALL_ENDPOINTS.items():
        others = {name: target for name, target in ALL_ENDPOINTS.items() if target is not source}
        lines += [
            f"| fields of {title} | to {' | to '.join(others)} |",
            "|---" * (len(others) + 1) + "|",
        ]
        groups: dict[tuple[str, ...], list[str]] = {}
        for field in sorted(VALUES[source.name]):
            fates = tuple(fate(source, one, field) or "Remit's own" for one in others.values())
            groups.setdefault(fates, []).append(f"`{field}`")
        for fates, names in sorted(groups.items(), reverse=True):
            lines.append(f"| {', '.join(names)} | {' | '.join(fates)} |")
        lines.append("")
    return lines


if __name__ == "__main__":
    text = PAGE.read_text()
    head, _, rest = text.partition("| fields of ")
    _, heading, tail = rest.partition("## Where")
    PAGE.write_text(f"{head}{chr(10).join(rows())}\n{heading}{tail}")
