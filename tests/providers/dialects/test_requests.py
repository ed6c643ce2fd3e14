"""Bodies in, calls or clear refusals out."""

from __future__ import annotations

from typing import Any

import pytest

from remit.providers.dialects import ClientCall, DialectError
from remit.providers.dialects.anthropic import anthropic_messages, anthropic_tools, parse_messages
from remit.providers.dialects.openai import openai_messages, openai_tools, parse_chat

SECRET = "my-secret-text"
HELLO = {"role": "user", "content": "hello"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def chat(*messages: Any, **fields: Any) -> ClientCall:
    return parse_chat({"model": "m", "messages": list(messages) or [HELLO], **fields})


def ask(*messages: Any, **fields: Any) -> ClientCall:
    body = {"model": "m", "max_tokens": 9, "messages": list(messages) or [HELLO], **fields}
    return parse_messages(body)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def _one(role: str, block: Any) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": [block]}]}


def test_a_chat_in_neutral_form() -> None:
    call = parse_chat(
        {
            "model": "gpt-4o-mini",
            "max_tokens": 10,
            "max_completion_tokens": 20,
            "temperature": 1,
            "stream": True,
            "stream_options": {"include_usage": True},
            "user": "u",
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": SCHEMA},
            },
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "f", "parameters": SCHEMA, "strict": True},
                    "cache_control": {"type": "ephemeral"},
                },
                {"type": "function", "function": {"name": "g", "description": "G."}},
            ],
            "messages": [
                {"role": "developer", "content": "Be brief."},
                {
                    "role": "user",
                    "name": "ann",
                    "content": [
                        {"type": "text", "text": "look", "cache_control": {"type": "ephemeral"}},
                        {
                            "type": "image_url",
                            "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"},
                        },
                        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
                    ],
                },
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            "id": "c1",
                            "type": "function",
                            "function": {"name": "f", "arguments": '{"a": 1}'},
                        },
                        {
                            "id": "c2",
                            "type": "function",
                            "function": {"name": "f", "arguments": "{broken"},
                        },
                    ],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "one"},
                {"role": "tool", "tool_call_id": "c2", "content": "two"},
            ],
        }
    )
    assert call.messages == [
        {"role": "system", "content": "Be brief.", "developer": True},
        {
            "role": "user",
            "name": "ann",
            "content": [
                {"type": "text", "text": "look", "cache_control": {"type": "ephemeral"}},
                {
                    "type": "image",
                    "source": {
                        "type": "base64",
                        "media_type": "image/png",
                        "data": "AAAA",
                        "detail": "low",
                    },
                },
                {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}},
                {"type": "tool_use", "id": "c2", "name": "f", "input": {"_unparsed": "{broken"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "one"},
                {"type": "tool_result", "tool_use_id": "c2", "content": "two"},
            ],
        },
    ]
    assert (call.max_tokens, call.temperature, call.stream, call.include_usage) == (20, 1, 1, 1)
    assert call.tools == (
        {
            "name": "f",
            "input_schema": SCHEMA,
            "strict": True,
            "cache_control": {"type": "ephemeral"},
        },
        {
            "name": "g",
            "description": "G.",
            "input_schema": {"type": "object", "properties": {}},
        },
    )
    assert call.response_schema == SCHEMA
    assert call.parameters.keys() == {"user", "response_format"}


def test_a_message_request_in_neutral_form() -> None:
    call = ask(
        HELLO,
        {"role": "system", "content": "From now on be brief."},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t"}],
        },
        system="Be kind.",
        temperature=0.5,
        thinking={"type": "adaptive"},
        output_config={"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
    )
    assert call.messages == [
        {"role": "system", "content": "Be kind."},
        HELLO,
        {"role": "system", "content": "From now on be brief.", "inline": True},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t", "content": ""}],
        },
    ]
    assert (call.max_tokens, call.temperature, call.stream) == (9, 0.5, False)
    assert call.response_schema == SCHEMA
    assert call.parameters.keys() == {"thinking", "output_config"}
    older = ask(output_format={"type": "json_schema", "schema": SCHEMA})
    assert older.response_schema == SCHEMA


def test_counting_needs_no_max_tokens() -> None:
    body = {"model": "m", "messages": [HELLO]}
    assert parse_messages(body, require_max_tokens=False).max_tokens is None
    with pytest.raises(DialectError) as caught:
        parse_messages(body)
    assert caught.value.param == "max_tokens"


_CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": ""}, "model"),
        ({"model": 3}, "model"),
        ({"model": "a\nb"}, "model"),
        ({"model": "a\x85b"}, "model"),
        ({"model": "m" * 513}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": {}}, "messages"),
        ({"messages": [HELLO, 3]}, "messages[1]"),
        ({"messages": [{"role": ["user"], "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": SECRET, "content": "x"}]}, "messages[0].role"),
        ({"messages": [HELLO, {"role": "user", "content": None}]}, "messages[1].content"),
        ({"messages": [{"role": "user", "content": [3]}]}, "messages[0].content[0]"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": 3}]}]},
            "messages[0].content[0].text",
        ),
        ({"messages": [{**HELLO, "developer": True}]}, "messages[0].developer"),
        ({"messages": [{**HELLO, "inline": True}]}, "messages[0].inline"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 10**9 + 1}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": 3.0}, "max_tokens"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": float("inf")}, "top_p"),
        ({"metadata": nested(100)}, "metadata[0]"),
        ({"seed": 2**64}, "seed"),
        ({"stream": 1}, "stream"),
        ({"tools": {}}, "tools"),
        ({"tools": [3]}, "tools[0]"),
    ],
)
@pytest.mark.parametrize("read", [parse_chat, parse_messages])
def test_what_neither_dialect_takes(read: Any, fields: dict[str, Any], param: str) -> None:
    body = {"model": "m", "max_tokens": 9, "messages": [HELLO], "stream": False}
    read(body)
    with pytest.raises(DialectError) as caught:
        read({**body, **fields})
    assert caught.value.param == param
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("read", [parse_chat, parse_messages])
def test_depth_is_allowed_up_to_its_limit(read: Any) -> None:
    body = {"model": "m", "max_tokens": 9, "messages": [HELLO]}
    assert read({**body, "metadata": nested(99)}).parameters == {"metadata": nested(99)}
    for wrong in (None, [], "text", 3):
        with pytest.raises(DialectError) as caught:
            read(wrong)
        assert caught.value.param is None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_completion_tokens": "9"}, "max_completion_tokens"),
        ({"n": 2}, "n"),
        ({"n": True}, "n"),
        ({"functions": []}, "functions"),
        ({"function_call": "auto"}, "function_call"),
        ({"stream_options": []}, "stream_options"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": []}}},
            "response_format.json_schema.schema",
        ),
        ({"tools": [{"function": {"name": "f"}}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]},
            "tools[0].function.parameters",
        ),
    ],
)
def test_what_chat_completions_does_not_take(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(DialectError) as caught:
        chat(**fields)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "function", "name": "f", "content": "x"}, "role"),
        ({"role": "assistant", "function_call": {"name": SECRET}}, "function_call"),
        ({"role": "assistant", "content": None}, "content"),
        ({"role": "assistant", "content": None, "tool_calls": []}, "content"),
        ({"role": "user", "content": "x", "tool_calls": [_CALL]}, "tool_calls"),
        ({"role": "assistant", "tool_calls": [3]}, "tool_calls[0]"),
        ({"role": "assistant", "tool_calls": [{**_CALL, "type": "x"}]}, "tool_calls[0].type"),
        ({"role": "assistant", "tool_calls": [{**_CALL, "id": 3}]}, "tool_calls[0].id"),
        (
            {"role": "assistant", "tool_calls": [{**_CALL, "function": {"name": "f"}}]},
            "tool_calls[0].function.arguments",
        ),
        ({"role": "tool", "content": "x"}, "tool_call_id"),
        ({"role": "tool", "tool_call_id": "c"}, "content"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "content[0].image_url"),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": SECRET}]},
            "content[0].image_url",
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {}}]},
            "content[0].image_url.url",
        ),
        ({"role": "user", "content": [{"type": "tool_result"}]}, "content[0].type"),
        ({"role": "user", "content": [{"type": "image"}]}, "content[0].type"),
    ],
)
def test_messages_that_chat_completions_does_not_take(message: Any, param: str) -> None:
    with pytest.raises(DialectError) as caught:
        chat(message)
    assert caught.value.param == f"messages[0].{param}"
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"system": 3}, "system"),
        ({"system": [{"type": "image"}]}, "system[0]"),
        ({"system": [{"type": "text"}]}, "system[0].text"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"output_format": {"type": "json_schema"}}, "output_format.schema"),
        ({"output_config": {"format": {}}}, "output_config.format.type"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
        (
            _one("user", {"type": "tool_result"}),
            "messages[0].content[0].tool_use_id",
        ),
        (
            _one("user", {"type": "image", "source": {"type": "base64"}}),
            "messages[0].content[0].source.media_type",
        ),
        (
            _one("assistant", {"type": "tool_use", "id": "t", "name": "f"}),
            "messages[0].content[0].input",
        ),
    ],
)
def test_what_the_messages_api_does_not_take(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(DialectError) as caught:
        ask(**fields)
    assert caught.value.param == param


def test_a_coding_agents_request_reaches_chat_completions() -> None:
    cached = {"cache_control": {"type": "ephemeral"}}
    call = ask(
        {"role": "user", "content": [{"type": "text", "text": "read a", **cached}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "I read it.", "citations": None},
                {"type": "tool_use", "id": "t1", "name": "read", "input": {"a": 1}, **cached},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "content": [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}],
                    "is_error": True,
                    **cached,
                },
                {"type": "text", "text": "go on"},
            ],
        },
        system=[{"type": "text", "text": "Be kind.", **cached}],
        tools=[{"name": "read", "input_schema": SCHEMA, **cached}],
    )
    assert openai_messages(call.messages, source="anthropic") == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "read a"},
        {
            "role": "assistant",
            "content": "I read it.",
            "tool_calls": [
                {
                    "id": "t1",
                    "type": "function",
                    "function": {"name": "read", "arguments": '{"a":1}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "AB"},
        {"role": "user", "content": "go on"},
    ]
    assert openai_tools(call.tools, source="anthropic") == [
        {"type": "function", "function": {"name": "read", "parameters": SCHEMA}}
    ]


def test_a_chat_reaches_the_messages_api() -> None:
    call = chat(
        {"role": "system", "content": "Be kind."},
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": "a", "name": "ann"},
        {"role": "assistant", "content": "", "tool_calls": [_CALL], "refusal": None},
        {"role": "tool", "tool_call_id": "c", "content": "r", "name": "f"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": ""},
                {
                    "type": "image_url",
                    "image_url": {"url": "https://example.org/a.png", "detail": "low"},
                },
            ],
        },
        {"role": "assistant", "content": None, "refusal": "No."},
        tools=[{"type": "function", "function": {"name": "f", "parameters": {}, "strict": None}}],
    )
    system, turns = anthropic_messages(call.messages, source="openai")
    assert system == "Be kind.\n\nBe brief."
    assert turns == [
        {"role": "user", "content": "a"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c", "content": "r"},
                {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "No."}]},
    ]
    assert anthropic_tools(call.tools, source="openai") == [
        {"name": "f", "input_schema": {"type": "object"}}
    ]


def test_neighbours_of_one_role_are_joined_for_the_messages_api() -> None:
    messages = [HELLO, {"role": "user", "content": [{"type": "text", "text": "you"}]}]
    assert anthropic_messages(messages)[1] == [
        {
            "role": "user",
            "content": [{"type": "text", "text": "hello"}, {"type": "text", "text": "you"}],
        }
    ]
    assert "you" not in str(messages[0])


@pytest.mark.parametrize("kind", ["document", "server_tool_use", "web_search_tool_result"])
def test_what_chat_completions_cannot_carry_is_refused(kind: str) -> None:
    messages = [HELLO, {"role": "user", "content": [{"type": kind, "source": SECRET}]}]
    for source in ("openai", "anthropic"):
        with pytest.raises(DialectError) as caught:
            openai_messages(messages, source=source)  # type: ignore[arg-type]
        assert caught.value.param == "messages[1].content[0]"
        assert SECRET not in str(caught.value)


def test_images_that_chat_completions_cannot_carry_are_refused() -> None:
    file = {"type": "image", "source": {"type": "file", "file_id": "f"}}
    picture = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [picture]}
    for block, param in ((file, "content[0].source"), (result, "content[0].content[0]")):
        with pytest.raises(DialectError) as caught:
            openai_messages([{"role": "user", "content": [block]}], source="anthropic")
        assert caught.value.param == f"messages[0].{param}"


@pytest.mark.parametrize("source", ["openai", "anthropic"])
@pytest.mark.parametrize("kind", ["input_audio", "file"])
def test_what_the_messages_api_cannot_carry_is_refused(kind: str, source: Any) -> None:
    call = chat(HELLO, {"role": "user", "content": [{"type": kind, kind: {"data": SECRET}}]})
    with pytest.raises(DialectError) as caught:
        anthropic_messages(call.messages, source=source)
    assert caught.value.param == "messages[1].content[0]"
    assert SECRET not in str(caught.value)


def test_other_things_that_the_messages_api_cannot_carry_are_refused() -> None:
    url = {"type": "image_url", "image_url": {"url": "gs://bucket/x"}}
    for message in (
        {"role": "user", "content": [url]},
        {"role": "assistant", "content": "x", "audio": {"id": "a"}},
        {"role": "system", "content": [url]},
    ):
        with pytest.raises(DialectError):
            anthropic_messages(chat(message).messages, source="openai")


def test_tools_that_the_other_side_does_not_have_are_refused() -> None:
    search = ask(tools=[{"type": "web_search_20250305", "name": "web_search"}]).tools
    custom = chat(tools=[{"type": "custom", "custom": {"name": "c"}}]).tools
    for make, tools, sources in (
        (openai_tools, search, ("openai", "anthropic")),
        (anthropic_tools, custom, ("openai", "anthropic")),
    ):
        for source in sources:
            with pytest.raises(DialectError) as caught:
                make(tools, source=source)  # type: ignore[operator]
            assert caught.value.param == "tools[0]"


def test_a_system_prompt_with_hints_stays_blocks() -> None:
    cached = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
    messages = [
        {"role": "system", "content": [cached]},
        {"role": "system", "content": "b"},
        HELLO,
    ]
    for source in ("openai", "anthropic"):
        system, _ = anthropic_messages(messages, source=source)  # type: ignore[arg-type]
        assert system == [cached, {"type": "text", "text": "b"}]


@pytest.mark.parametrize(
    "text",
    [
        '{"a":9007199254740993}',
        '{"a":1e300000}',
        '{"a":123456789012345678901234567890}',
        '{"_unparsed":"x"}',
        '{"a":' * 101 + "1" + "}" * 101,
        "[1]",
        "",
    ],
)
def test_arguments_are_an_object_only_where_it_says_the_same(text: str) -> None:
    function = {"name": "f", "arguments": text}
    message = {"role": "assistant", "tool_calls": [{**_CALL, "function": function}]}
    (block,) = chat(message).messages[0]["content"]
    assert block["input"] == ({"_unparsed": text} if text else {})


def test_long_digits_in_a_text_are_no_number() -> None:
    function = {"name": "f", "arguments": '{"a":"1234567890123456789","b":0.12345678901234568}'}
    message = {"role": "assistant", "tool_calls": [{**_CALL, "function": function}]}
    (block,) = chat(message).messages[0]["content"]
    assert block["input"] == {"a": "1234567890123456789", "b": 0.12345678901234568}


def test_a_message_with_keys_of_its_own_is_joined_to_none() -> None:
    turns = [HELLO, {**HELLO, "x_mark": 1}, HELLO]
    assert anthropic_messages(ask(*turns).messages) == ("", turns)


def test_empty_texts_of_a_chat_are_left_out_of_a_system_prompt() -> None:
    cached = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
    content = [cached, {"type": "text", "text": ""}]
    call = chat({"role": "system", "content": content}, HELLO)
    assert anthropic_messages(call.messages, source="openai")[0] == [cached]
