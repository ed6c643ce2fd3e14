"""What a client sends comes back out of the neutral form, and nothing breaks the reader."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.kernel.exchange import check_messages
from remit.providers.dialects import ClientCall, Dialect, DialectError, translate_parameters
from remit.providers.dialects.anthropic import anthropic_messages, anthropic_tools, parse_messages
from remit.providers.dialects.openai import openai_messages, openai_tools, parse_chat
from tests.providers.dialects import strategies as shapes


def _same_arguments(text: str) -> Any:
    """What a text of arguments says, however it is written."""
    try:
        value = orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        return text
    return value if isinstance(value, dict) else text


def _plain(content: Any) -> Any:
    """A list of plain texts and the text that they join to say the same."""
    if isinstance(content, list) and all(
        part["type"] == "text" and len(part) == 2 for part in content
    ):
        return "".join(part["text"] for part in content)
    return content


def _call_essence(call: dict[str, Any]) -> dict[str, Any]:
    if call["type"] == "custom":
        return call
    function = call["function"]
    return {**call, "function": {**function, "arguments": _same_arguments(function["arguments"])}}


def _essence(message: dict[str, Any]) -> dict[str, Any]:
    message = {**message, "content": _plain(message.get("content"))}
    if message.get("tool_calls"):
        message["content"] = message["content"] or ""
        message["tool_calls"] = [_call_essence(call) for call in message["tool_calls"]]
    return message


@given(st.lists(shapes.chat_messages, min_size=1, max_size=5))
def test_chat_messages_come_back(messages: list[dict[str, Any]]) -> None:
    before = orjson.dumps(messages)
    call = parse_chat({"model": "m", "messages": messages})
    back = openai_messages(call.messages)
    assert [_essence(message) for message in back] == [_essence(message) for message in messages]
    assert check_messages(call.messages) == ""
    assert orjson.dumps(messages) == before


@given(shapes.argument_texts)
def test_arguments_that_an_object_cannot_keep_stay_the_text_they_were(text: str) -> None:
    asked = {"id": "c", "type": "function", "function": {"name": "f", "arguments": text}}
    message = {"role": "assistant", "content": None, "tool_calls": [asked]}
    call = parse_chat({"model": "m", "messages": [message]})
    block = call.messages[0]["content"][0]
    back = openai_messages(call.messages)[0]["tool_calls"][0]["function"]["arguments"]
    if "_unparsed" in block["input"]:
        assert block["input"] == {"_unparsed": text}
        assert back == text
    else:
        assert orjson.loads(back) == orjson.loads(text or "{}")


@given(st.lists(shapes.chat_tools, max_size=4))
def test_chat_tools_come_back(tools: list[dict[str, Any]]) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": tools}
    assert openai_tools(parse_chat(body).tools) == tools


@st.composite
def _anthropic_turns(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Turns of which no two neighbours have the same role: those the API joins."""
    turns: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(1, 5))):
        turn = draw(shapes.user_turns | shapes.assistant_turns | shapes.inline_systems)
        if not turns or turns[-1]["role"] != turn["role"]:
            turns.append(turn)
    return turns


@given(_anthropic_turns(), st.lists(shapes.messages_tools, max_size=3))
def test_turns_of_the_messages_api_come_back(
    turns: list[dict[str, Any]], tools: list[dict[str, Any]]
) -> None:
    before = orjson.dumps([turns, tools])
    body = {"model": "m", "max_tokens": 5, "messages": turns, "tools": tools}
    call = parse_messages(body)
    assert anthropic_messages(call.messages) == ("", turns)
    assert anthropic_tools(call.tools) == tools
    assert check_messages(call.messages) == ""
    assert orjson.dumps([turns, tools]) == before


@given(shapes.texts | st.lists(shapes.text_blocks))
def test_the_system_prompt_comes_back(system: Any) -> None:
    messages = [{"role": "user", "content": "x"}]
    body = {"model": "m", "max_tokens": 5, "system": system, "messages": messages}
    back, turns = anthropic_messages(parse_messages(body).messages)
    assert back == _plain(system)
    assert turns == messages


@given(st.dictionaries(shapes.words.map("x_".__add__), shapes.json_values))
def test_fields_that_remit_does_not_know_are_kept(more: dict[str, Any]) -> None:
    messages = [{"role": "user", "content": "x"}]
    known = {"model": "m", "max_tokens": 5, "messages": messages, "stream": True}
    for read in (parse_chat, parse_messages):
        call = read({**known, "tool_choice": "auto", "stop": None, **more})
        assert call.parameters == {"tool_choice": "auto", "stop": None, **more}


def _check_reader(read: Any, body: Any) -> None:
    try:
        call = read(body)
    except DialectError as error:
        assert error.message
        return
    assert isinstance(call, ClientCall)
    assert check_messages(call.messages) == ""
    other: Dialect = "anthropic" if call.dialect == "openai" else "openai"
    steps: list[Callable[[], Any]] = [
        lambda: openai_messages(call.messages, source=call.dialect),
        lambda: anthropic_messages(call.messages, source=call.dialect),
        lambda: openai_tools(call.tools, source=call.dialect),
        lambda: anthropic_tools(call.tools, source=call.dialect),
        lambda: translate_parameters(call.parameters, call.dialect, other),
    ]
    for step in steps:
        with contextlib.suppress(DialectError):
            step()


@pytest.mark.parametrize("read", [parse_chat, parse_messages])
@given(body=shapes.wild | shapes.wild_bodies)
def test_any_json_is_a_call_or_a_dialect_error(read: Any, body: Any) -> None:
    _check_reader(read, body)


@given(
    st.lists(shapes.chat_messages, min_size=1, max_size=3),
    st.data(),
)
def test_a_damaged_chat_body_is_a_call_or_a_dialect_error(
    messages: list[dict[str, Any]], data: st.DataObject
) -> None:
    body = {"model": "m", "messages": orjson.loads(orjson.dumps(messages)), "tools": []}
    _damage(body, data)
    _check_reader(parse_chat, body)


@given(_anthropic_turns(), st.data())
def test_a_damaged_messages_body_is_a_call_or_a_dialect_error(
    turns: list[dict[str, Any]], data: st.DataObject
) -> None:
    body = {"model": "m", "max_tokens": 1, "messages": orjson.loads(orjson.dumps(turns))}
    _damage(body, data)
    _check_reader(parse_messages, body)


def _damage(body: Any, data: st.DataObject) -> None:
    """Replace one value somewhere in the body by any JSON."""
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in pairs:
            places.append((value, key))
            if isinstance(item, (dict, list)):
                walk(item)

    walk(body)
    holder, key = data.draw(st.sampled_from(places))
    holder[key] = data.draw(shapes.wild)


@given(st.lists(shapes.chat_messages, min_size=1, max_size=5))
def test_a_chat_for_the_messages_api_is_whole_or_refused(messages: list[dict[str, Any]]) -> None:
    call = parse_chat({"model": "m", "messages": messages})
    try:
        system, turns = anthropic_messages(call.messages, source="openai")
    except DialectError as error:
        assert error.param is not None
        return
    wire = orjson.dumps([system, turns]).decode()
    for message in messages:
        content = message["content"]
        for text in [content] if isinstance(content, str) else content or []:
            said = text if isinstance(text, str) else text.get("text", "")
            assert orjson.dumps(said).decode()[1:-1] in wire
    for turn, after in itertools.pairwise(turns):
        assert turn["role"] != after["role"]
    for turn in turns:
        assert turn.keys() == {"role", "content"}
        assert turn["content"]
