"""Bodies of known forms, and JSON of none."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import strategies as st

texts = st.text(max_size=12)
words = st.text("abcdefghij_-", min_size=1, max_size=8)
scalars = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | texts
json_values = st.recursive(
    scalars | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(texts, json_values, max_size=3)
extras = st.dictionaries(st.sampled_from(["x_one", "x_two", "cache_control"]), json_values)


def _with(base: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(lambda fixed, more: {**more, **fixed}, base, extras)


def _fixed(**fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            key: value if isinstance(value, st.SearchStrategy) else st.just(value)
            for key, value in fields.items()
        }
    )


# Chat Completions

text_parts = _with(_fixed(type="text", text=texts))
image_parts = _with(
    st.builds(
        lambda url, more: {"type": "image_url", "image_url": {"url": url, **more}},
        st.sampled_from(
            [
                "https://example.org/a.png",
                "data:image/png;base64,AAAA",
                "data:;base64,",
                "data:image/svg+xml;charset=utf-8;base64,BB==",
                "data:text/plain,hello",
                "gs://bucket/x",
            ]
        ),
        st.dictionaries(st.just("detail"), st.sampled_from(["low", "high"])),
    )
)
odd_parts = _with(
    _fixed(type=st.sampled_from(["input_audio", "file", "thinking", "x"]), x_data=objects)
)
argument_texts = st.one_of(
    objects.map(lambda value: orjson.dumps(value).decode()),
    texts,
    st.sampled_from(
        ['{"_unparsed":"x"}', '{"a":9007199254740993}', '{"a":1e999}', "[1]", "{", '{"a":1e40}']
    ),
)


def _joined(called: dict[str, Any], more: dict[str, Any], outer: dict[str, Any]) -> dict[str, Any]:
    kind = "custom" if "input" in called else "function"
    return {"type": kind, kind: {**more, **called}, **outer}


tool_calls = st.builds(
    lambda identity, call: {"id": identity, **call},
    words,
    st.builds(
        _joined,
        _fixed(name=words, arguments=argument_texts) | _fixed(name=words, input=texts),
        extras,
        extras,
    ),
)
chat_messages = st.one_of(
    _with(
        _fixed(role=st.sampled_from(["user", "system", "developer", "assistant"]), content=texts)
    ),
    _with(_fixed(role="user", content=st.lists(text_parts | image_parts | odd_parts))),
    _with(_fixed(role="user", content=texts, name=words)),
    _with(
        _fixed(
            role="assistant",
            content=st.none() | texts,
            tool_calls=st.lists(tool_calls, min_size=1),
        )
    ),
    _with(_fixed(role="assistant", content=st.none(), refusal=texts, audio=st.none())),
    _with(_fixed(role="tool", tool_call_id=words, content=texts | st.lists(text_parts))),
)


def _chat_tool(
    name: str, fields: dict[str, Any], inner: dict[str, Any], outer: dict[str, Any]
) -> dict[str, Any]:
    inner = {key: value for key, value in inner.items() if key not in outer}
    return {"type": "function", "function": {"name": name, **fields, **inner}, **outer}


chat_tools = st.one_of(
    st.builds(
        _chat_tool,
        words,
        st.fixed_dictionaries(
            {"parameters": objects}, optional={"description": texts, "strict": st.booleans()}
        ),
        extras,
        extras,
    ),
    _fixed(type="custom", custom=_fixed(name=words)),
)

# Messages API

caches = st.dictionaries(st.just("cache_control"), st.just({"type": "ephemeral"}))


def _cached(base: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(lambda fixed, more: {**fixed, **more}, base, caches)


text_blocks = _cached(_fixed(type="text", text=texts))
image_blocks = _cached(
    _fixed(
        type="image",
        source=_fixed(type="base64", media_type="image/png", data=words)
        | _fixed(type="url", url="https://example.org/a.png")
        | _fixed(type="file", file_id=words),
    )
)
result_blocks = _cached(
    _fixed(
        type="tool_result",
        tool_use_id=words,
        content=texts | st.lists(text_blocks | image_blocks, max_size=3),
        is_error=st.booleans(),
    )
)
use_blocks = _cached(_fixed(type="tool_use", id=words, name=words, input=objects))
odd_blocks = _fixed(
    type=st.sampled_from(["document", "thinking", "redacted_thinking", "server_tool_use"]),
    x_data=objects,
)
user_turns = _with(
    _fixed(
        role="user",
        content=texts | st.lists(text_blocks | image_blocks | result_blocks | odd_blocks),
    )
)
assistant_turns = _with(
    _fixed(role="assistant", content=texts | st.lists(text_blocks | use_blocks | odd_blocks))
)
inline_systems = _fixed(role="system", content=texts | st.lists(text_blocks, min_size=1))
messages_tools = st.one_of(
    _with(
        st.fixed_dictionaries(
            {"name": words, "input_schema": objects},
            optional={"description": texts, "type": st.just("custom")},
        )
    ),
    _fixed(type="web_search_20250305", name="web_search", max_uses=st.integers(1, 5)),
)

# Anything

_KEYS = [
    "role",
    "content",
    "type",
    "text",
    "tool_calls",
    "function",
    "id",
    "name",
    "input",
    "image_url",
    "source",
    "custom",
    "arguments",
    "tool_call_id",
    "tool_use_id",
    "url",
    "media_type",
    "data",
]
_VALUES = [
    "user",
    "assistant",
    "system",
    "developer",
    "tool",
    "text",
    "image_url",
    "image",
    "tool_use",
    "tool_result",
    "function",
    "custom",
    "json_schema",
    "base64",
    "auto",
]
_FIELDS = [
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "tools",
    "stream",
    "system",
    "stream_options",
    "n",
    "response_format",
    "functions",
    "output_config",
    "output_format",
    "tool_choice",
    "stop",
    "metadata",
]
wild = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            texts | st.sampled_from(_KEYS), inner | st.sampled_from(_VALUES), max_size=5
        )
    ),
    max_leaves=15,
)
wild_bodies = st.fixed_dictionaries(
    {"model": st.just("m") | wild, "messages": st.lists(wild, max_size=3) | wild},
    optional=dict.fromkeys(_FIELDS, wild),
)
"""Objects that look like a body from afar."""
