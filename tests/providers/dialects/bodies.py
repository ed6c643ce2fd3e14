"""Bodies and answers that say all that each dialect can, and JSON to put in their place."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from remit.kernel.exchange import StreamEvent
from remit.providers.dialects import stream_reader
from remit.providers.wire import stream_sum
from tests.support.wire import function_call

ENDPOINTS = ("openai.chat", "openai.responses", "anthropic.messages")
ALL_ENDPOINTS = (*ENDPOINTS, "gemini.generate", "bedrock.converse")
PDF = "data:application/pdf;base64,JVBERi0="
PNG = "data:image/png;base64,iVBORw0="
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}

_BERN = '{"city":"Bern"}'
_PLACE = {"name": "place", "schema": SCHEMA, "strict": True}
_CHAT_CALLS = [
    function_call("answer", _BERN),
    {"id": "call_2", "type": "custom", "custom": {"name": "patch", "input": "+a"}},
]
_REASONED = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Hm."}],
    "encrypted_content": "sealed",
}
_CALLED = {"type": "function_call", "call_id": "call_1", "name": "answer", "arguments": _BERN}
_PATCHED = {"type": "custom_tool_call", "call_id": "call_2", "name": "patch", "input": "+a"}
_THOUGHTS = [
    {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
    {"type": "redacted_thinking", "data": "sealed"},
]
_CITED = {"url": "https://example.org", "title": "T", "start_index": 0, "end_index": 3}


def _document(title: str, kind: str, **source: str) -> dict[str, Any]:
    return {"type": "document", "title": title, "source": {"type": kind, **source}}


CHAT: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
        {
            "role": "user",
            "name": "ann",
            "content": [
                {"type": "text", "text": "Look."},
                {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
                {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
                {"type": "file", "file": {"file_data": PDF, "filename": "a.pdf"}},
            ],
        },
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "Hm.",
            "refusal": None,
            "tool_calls": _CHAT_CALLS,
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "ok"},
        {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "done"}]},
        {"role": "user", "content": "And?"},
    ],
    "max_completion_tokens": 4000,
    "temperature": 0.5,
    "top_p": 0.9,
    "reasoning_effort": "medium",
    "user": "ann",
    "seed": 7,
    "stream": True,
    "stream_options": {"include_usage": True},
    "parallel_tool_calls": False,
    "tool_choice": {
        "type": "allowed_tools",
        "allowed_tools": {
            "mode": "auto",
            "tools": [{"type": "function", "function": {"name": "answer"}}],
        },
    },
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "answer",
                "description": "Say it.",
                "parameters": SCHEMA,
                "strict": True,
            },
        },
        {
            "type": "custom",
            "custom": {
                "name": "patch",
                "description": "Change it.",
                "format": {
                    "type": "grammar",
                    "grammar": {"syntax": "lark", "definition": "start: /.+/"},
                },
            },
        },
    ],
    "response_format": {"type": "json_schema", "json_schema": _PLACE},
}

RESPONSES: dict[str, Any] = {
    "model": "m",
    "instructions": "Be brief.",
    "input": [
        {"role": "developer", "content": "Be kind."},
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Look."},
                {"type": "input_image", "image_url": PNG, "detail": "low"},
                {"type": "input_file", "file_data": PDF, "filename": "a.pdf"},
            ],
        },
        _REASONED,
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "I look.", "annotations": []}],
        },
        {
            "type": "web_search_call",
            "id": "ws_1",
            "status": "completed",
            "action": {"type": "search", "query": "q", "queries": ["q"], "sources": []},
        },
        _CALLED,
        _PATCHED,
        {
            "type": "function_call_output",
            "call_id": "call_1",
            "output": [{"type": "input_text", "text": "ok"}],
        },
        {"type": "custom_tool_call_output", "call_id": "call_2", "output": "done"},
        {"role": "user", "content": "And?"},
    ],
    "max_output_tokens": 4000,
    "temperature": 0.5,
    "top_p": 0.9,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "user": "ann",
    "metadata": {"a": "b"},
    "include": ["reasoning.encrypted_content"],
    "store": False,
    "truncation": "disabled",
    "stream": True,
    "parallel_tool_calls": False,
    "max_tool_calls": 3,
    "tool_choice": {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "function", "name": "answer"}],
    },
    "tools": [
        {
            "type": "function",
            "name": "answer",
            "description": "Say it.",
            "parameters": SCHEMA,
            "strict": True,
        },
        {
            "type": "custom",
            "name": "patch",
            "description": "Change it.",
            "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"},
        },
    ],
    "text": {"format": {"type": "json_schema", **_PLACE}, "verbosity": "low"},
}

MESSAGES: dict[str, Any] = {
    "model": "m",
    "max_tokens": 4000,
    "system": [
        {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "Be kind."},
    ],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look."},
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0="},
                },
                _document("a.pdf", "base64", media_type="application/pdf", data="JVBERi0="),
                _document("t", "text", media_type="text/plain", data="words"),
            ],
        },
        {
            "role": "assistant",
            "content": [
                *_THOUGHTS,
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "toolu_1", "name": "answer", "input": {"city": "Bern"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "is_error": False,
                    "content": [
                        {"type": "text", "text": "ok"},
                        {
                            "type": "image",
                            "source": {"type": "url", "url": "https://example.org/a.png"},
                        },
                    ],
                },
                {"type": "text", "text": "And?"},
            ],
        },
    ],
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 5,
    "thinking": {"type": "enabled", "budget_tokens": 2000, "display": "summarized"},
    "output_config": {"effort": "high", "format": {"type": "json_schema", "schema": SCHEMA}},
    "metadata": {"user_id": "ann"},
    "stream": True,
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "tools": [
        {
            "name": "answer",
            "description": "Say it.",
            "input_schema": SCHEMA,
            "strict": True,
            "cache_control": {"type": "ephemeral"},
        }
    ],
}

GEMINI: dict[str, Any] = {
    "model": "m",
    "stream": True,
    "systemInstruction": {"parts": [{"text": "Be brief."}]},
    "contents": [
        {"role": "user", "parts": [
            {"text": "Look."},
            {"inlineData": {"mimeType": "image/png", "data": "iVBORw0="}},
            {"inlineData": {"mimeType": "application/pdf", "data": "JVBERi0="}},
            {"fileData": {"mimeType": "image/png", "fileUri": "https://example.org/a.png"}}]},
        {"role": "model", "parts": [
            {"text": "Hm.", "thought": True, "thoughtSignature": "c2lnbmVk"},
            {"text": "I look."},
            {"functionCall": {"id": "c1", "name": "look", "args": {"city": "Oslo"}},
             "thoughtSignature": "c2lnbmVk"},
            {"functionCall": {"name": "look", "args": {}}}]},
        {"role": "user", "parts": [
            {"functionResponse": {"id": "c1", "name": "look", "response": {"result": "sun"}}},
            {"functionResponse": {"name": "look", "response": {"error": "none"}}}]},
    ],
    "tools": [
        {"functionDeclarations": [{"name": "look", "description": "Looks.", "parameters": {
            "type": "OBJECT", "required": ["city"],
            "properties": {"city": {"type": "STRING", "nullable": True, "maxLength": "9"}}}}]},
        {"googleSearch": {}}],
    "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["look"]}},
    "safetySettings": [{"category": "HARM_CATEGORY_HATE_SPEECH", "threshold": "BLOCK_NONE"}],
    "generationConfig": {
        "maxOutputTokens": 64, "temperature": 0.5, "topP": 0.9, "topK": 40, "seed": 7,
        "stopSequences": ["END"], "responseMimeType": "application/json",
        "responseSchema": SCHEMA, "candidateCount": 1,
        "thinkingConfig": {"thinkingBudget": 2048, "includeThoughts": True}},
}  # fmt: skip
GEMINI_ANSWER: dict[str, Any] = {
    "candidates": [{"index": 0, "finishReason": "STOP", "content": {"role": "model", "parts": [
        {"text": "Hm.", "thought": True, "thoughtSignature": "c2lnbmVk"},
        {"text": "Sun."},
        {"functionCall": {"name": "look", "args": {"city": "Oslo"}},
         "thoughtSignature": "c2lnbmVk"}]}}],
    "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 5, "thoughtsTokenCount": 2,
                      "cachedContentTokenCount": 4, "totalTokenCount": 16},
    "modelVersion": "gemini-2.5-flash", "responseId": "r1",
}  # fmt: skip

CONVERSE: dict[str, Any] = {
    "model": "m", "stream": False,
    "system": [{"text": "Be brief."}, {"cachePoint": {"type": "default", "ttl": "1h"}}],
    "messages": [
        {"role": "user", "content": [
            {"text": "Look."},
            {"image": {"format": "png", "source": {"bytes": "iVBORw0="}}},
            {"document": {"format": "pdf", "name": "a", "source": {"bytes": "JVBERi0="}}},
            {"document": {"format": "txt", "name": "b", "source": {"text": "c"}}}]},
        {"role": "assistant", "content": [
            {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "sig"}}},
            {"reasoningContent": {"redactedContent": "c2VhbGVk"}},
            {"text": "I look."},
            {"toolUse": {"toolUseId": "t1", "name": "answer", "input": {"city": "Bern"}}}]},
        {"role": "user", "content": [
            {"toolResult": {"toolUseId": "t1", "status": "error",
                            "content": [{"text": "no"}, {"json": {"a": 1}}]}},
            {"cachePoint": {"type": "default"}}]},
    ],
    "inferenceConfig": {"maxTokens": 4000, "temperature": 0.5, "topP": 0.9,
                        "stopSequences": ["END"]},
    "toolConfig": {
        "tools": [{"toolSpec": {"name": "answer", "description": "d",
                                "inputSchema": {"json": SCHEMA}}}],
        "toolChoice": {"any": {}}},
    "outputConfig": {"effort": "low", "textFormat": {
        "type": "json_schema", "structure": {"jsonSchema": {"schema": '{"type":"object"}'}}}},
    "additionalModelRequestFields": {"thinking": {"type": "enabled", "budget_tokens": 2000}},
}  # fmt: skip
CONVERSE_ANSWER: dict[str, Any] = {
    "output": {"message": {"role": "assistant", "content": [
        *CONVERSE["messages"][1]["content"],
        {"citationsContent": {"content": [{"text": "cited"}], "citations": [{
            "title": "T", "sourceContent": [{"text": "cited"}],
            "location": {"documentPage": {"documentIndex": 0, "start": 1, "end": 2}}}]}}]}},
    "stopReason": "tool_use", "metrics": {"latencyMs": 5},
    "usage": {"inputTokens": 30, "outputTokens": 20, "totalTokens": 120,
              "cacheReadInputTokens": 60, "cacheWriteInputTokens": 10},
}  # fmt: skip
REQUESTS = {"openai.chat": CHAT, "openai.responses": RESPONSES, "anthropic.messages": MESSAGES,
            "gemini.generate": GEMINI, "bedrock.converse": CONVERSE}  # fmt: skip

CHAT_ANSWER: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "m-1",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "logprobs": None,
            "message": {
                "role": "assistant",
                "reasoning_content": "Hm.",
                "content": "See here.",
                "refusal": None,
                "annotations": [{"type": "url_citation", "url_citation": _CITED}],
                "tool_calls": _CHAT_CALLS,
            },
        }
    ],
    "usage": {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
        "completion_tokens_details": {"reasoning_tokens": 5},
    },
}

RESPONSES_ANSWER: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "status": "completed",
    "error": None,
    "incomplete_details": None,
    "model": "m-1",
    "output": [
        _REASONED,
        {
            "type": "web_search_call",
            "id": "ws_1",
            "status": "completed",
            "action": {
                "type": "search",
                "query": "q",
                "sources": [{"type": "url", "url": "https://example.org"}],
            },
        },
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [
                {
                    "type": "output_text",
                    "text": "See here.",
                    "annotations": [{"type": "url_citation", **_CITED}],
                }
            ],
        },
        {**_CALLED, "id": "fc_1", "status": "completed"},
        {**_PATCHED, "id": "ctc_1"},
    ],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "usage": {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 5},
        "total_tokens": 120,
    },
}

MESSAGES_ANSWER: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m-1",
    "content": [
        *_THOUGHTS,
        {
            "type": "server_tool_use",
            "id": "srvtoolu_1",
            "name": "web_search",
            "input": {"query": "q"},
        },
        {
            "type": "web_search_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": [
                {
                    "type": "web_search_result",
                    "url": "https://example.org",
                    "title": "T",
                    "encrypted_content": "e",
                    "page_age": None,
                }
            ],
        },
        {"type": "text", "text": "It is "},
        {
            "type": "text",
            "text": "here.",
            "citations": [
                {
                    "type": "web_search_result_location",
                    "url": "https://example.org",
                    "title": "T",
                    "cited_text": "c",
                    "encrypted_index": "i",
                },
                {
                    "type": "page_location",
                    "cited_text": "c",
                    "document_index": 0,
                    "document_title": "a.pdf",
                    "start_page_number": 1,
                    "end_page_number": 2,
                },
            ],
        },
        {"type": "tool_use", "id": "toolu_1", "name": "answer", "input": {"city": "Bern"}},
        {"type": "tool_use", "id": "toolu_2", "name": "patch", "input": {"input": "+a"}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {
        "input_tokens": 30,
        "cache_read_input_tokens": 60,
        "cache_creation_input_tokens": 10,
        "cache_creation": {"ephemeral_5m_input_tokens": 4, "ephemeral_1h_input_tokens": 6},
        "output_tokens": 20,
        "output_tokens_details": {"thinking_tokens": 5},
    },
}

ANSWERS = {
    "bedrock.converse": CONVERSE_ANSWER,
    "gemini.generate": GEMINI_ANSWER,
    "openai.chat": CHAT_ANSWER,
    "openai.responses": RESPONSES_ANSWER,
    "anthropic.messages": MESSAGES_ANSWER,
}

ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 10**30, "", "x", "auto", "\ud800", [], [None], [[]], [{}], ["x"],
    {}, {"type": "x"}, {"type": []}, {"type": "text"}, [{"type": "function"}],
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from places(inner, (*path, index))


def with_at(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy of ``value`` with ``new`` at ``path``."""
    changed = copy.deepcopy(value)
    holder = changed
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = copy.deepcopy(new)
    return changed


def without(value: Any, path: tuple[Any, ...]) -> Any:
    """A copy of ``value`` without what is at ``path``."""
    changed = copy.deepcopy(value)
    holder = changed
    for step in path[:-1]:
        holder = holder[step]
    del holder[path[-1]]
    return changed


class Reading:
    """A reader of a provider's stream, and the sum to which each event is added first."""

    def __init__(self, endpoint: str) -> None:
        self._total = stream_sum(endpoint)
        self._reader = stream_reader(endpoint, self._total)

    def feed(self, data: Any) -> list[StreamEvent]:
        if isinstance(data, dict):
            self._total.add("", b"", data)
        return self._reader.feed(data)

    def finish(self) -> list[StreamEvent]:
        return self._reader.finish()
