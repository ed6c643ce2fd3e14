"""Requests from each dialect to the others: what is said there, and what is refused by field."""

from __future__ import annotations

import copy
import json
from typing import Any, get_type_hints

import pytest
from pydantic import TypeAdapter

from remit.providers import ProviderResponse
from remit.providers.dialects import (
    DialectError,
    read_answer,
    read_request,
    stream_events,
    stream_writer,
    write_answer,
    write_request,
)
from remit.providers.wire import stream_sum
from tests.providers.dialects.bodies import (
    CHAT,
    ENDPOINTS,
    REQUESTS,
    RESPONSES,
    SCHEMA,
)

CLAUDE = "claude-opus-4-7"


def _to(target: str, source: str, body: dict[str, Any], model: str = CLAUDE) -> dict[str, Any]:
    before = copy.deepcopy(body)
    call = read_request(source, body)
    written = write_request(target, call, model=model, max_output_tokens=32000)
    assert body == before
    return written


def _chat(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **fields}


def _responses(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "input": "Hi", **fields}


def _messages(**fields: Any) -> dict[str, Any]:
    user = [{"role": "user", "content": "Hi"}]
    return {"model": "m", "max_tokens": 4000, "messages": user, **fields}


MINIMAL = {"openai.chat": _chat, "openai.responses": _responses, "anthropic.messages": _messages}


@pytest.mark.parametrize("source", ENDPOINTS)
@pytest.mark.parametrize("target", ENDPOINTS)
def test_what_is_written_is_what_the_sdk_of_the_target_sends(source: str, target: str) -> None:
    from anthropic.types import message_create_params as messages
    from openai.types.chat import completion_create_params as chat
    from openai.types.responses import response_create_params as responses

    if source == target:
        return
    written = _to(target, source, REQUESTS[source])
    params: dict[str, Any] = {
        "openai.chat": chat.CompletionCreateParamsStreaming,
        "openai.responses": responses.ResponseCreateParamsStreaming,
        "anthropic.messages": messages.MessageCreateParamsStreaming,
    }
    known = set(params[target].__annotations__)
    for base in params[target].__orig_bases__:
        known |= set(getattr(base, "__annotations__", ()))
    known |= {"temperature", "top_p", "top_k"}  # of older versions of the Messages API
    assert set(written) <= known
    for key in ("tools", "tool_choice", "output_config", "thinking", "reasoning", "text"):
        if key in written:
            TypeAdapter(_hint(params[target], key)).validate_python(written[key])


def _hint(params: Any, key: str) -> Any:
    return get_type_hints(params)[key]


def test_chat_to_responses_and_back_keeps_custom_tools() -> None:
    written = _to("openai.responses", "openai.chat", CHAT)
    kinds = [item["type"] for item in written["input"]]
    assert "custom_tool_call" in kinds
    assert "custom_tool_call_output" in kinds
    assert written["tools"][1] == RESPONSES["tools"][1]
    assert written["tool_choice"] == RESPONSES["tool_choice"]
    back = _to("openai.chat", "openai.responses", RESPONSES)
    assert [tool["type"] for tool in back["tools"]] == ["function"]


_PATCH = "*** Begin Patch\n*** End Patch"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [(json.dumps({"input": _PATCH}), _PATCH), (json.dumps({"patch": _PATCH}), _PATCH),
     (json.dumps(_PATCH), _PATCH), (_PATCH, _PATCH), ("{}", ""), ("", ""), (None, ""),
     ('{"a":"b","c":"d"}', '{"a":"b","c":"d"}'), ("[1]", "[1]")],
)  # fmt: skip
def test_a_custom_tool_gets_its_text_however_a_model_wrote_it(
    arguments: str | None, text: str
) -> None:
    """Models of Chat Completions are offered a function in its place."""
    tool = {"type": "custom", "name": "apply_patch"}
    call = read_request("openai.responses", {"model": "m", "input": "go", "tools": [tool]})
    called = {"id": "c", "function": {"name": "apply_patch", "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [called]}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    answer = read_answer("openai.chat", {"id": "r", "model": "m", "choices": [choice]})
    ids = {"answer_id": "r", "created": 1, "model": "m"}
    (item,) = write_answer("openai.responses", answer, call, **ids)["output"]
    assert (item["type"], item["input"]) == ("custom_tool_call", text)
    writer = stream_writer("openai.responses", call, **ids)
    wire = writer.start() + b"".join(map(writer.event, stream_events(answer))) + writer.end(answer)
    total = stream_sum("openai.responses")
    for line in wire.splitlines():
        if line.startswith(b"data: "):
            total.add("", line[6:])
    assert total.answer()["output"] == [item]


@pytest.mark.parametrize("source", ENDPOINTS)
@pytest.mark.parametrize("name", ["answer", "a" * 80, "ns.tool/1", "ß"])
def test_a_tool_of_any_name_goes_there_and_the_schema_beside_it(source: str, name: str) -> None:
    body: dict[str, Any] = {
        "openai.chat": _chat(
            tools=[{"type": "function", "function": {"name": name, "parameters": SCHEMA}}],
            tool_choice={"type": "function", "function": {"name": name}},
            response_format=CHAT["response_format"],
        ),
        "openai.responses": _responses(
            tools=[{"type": "function", "name": name, "parameters": SCHEMA, "strict": False}],
            tool_choice={"type": "function", "name": name},
            text=RESPONSES["text"],
        ),
        "anthropic.messages": _messages(
            tools=[{"name": name, "input_schema": SCHEMA}],
            tool_choice={"type": "tool", "name": name},
            output_config={"format": {"type": "json_schema", "schema": SCHEMA}},
        ),
    }[source]
    names = set()
    for target in ENDPOINTS:
        if target == source:
            continue
        written = _to(target, source, body)
        assert len(written["tools"]) == 1
        tool, choice = written["tools"][0], written["tool_choice"]
        sent = tool["function"]["name"] if target == "openai.chat" else tool["name"]
        assert sent == (choice["function"] if target == "openai.chat" else choice)["name"]
        names.add(sent)
        held = written.get("response_format") or written.get("output_config") or written.get("text")
        assert "city" in str(held)
    (sent,) = names
    assert len(sent) <= 64
    assert sent.replace("_", "").replace("-", "").isascii()
    if name == "answer":
        assert sent == name


def test_a_schema_is_told_in_the_words_that_the_messages_api_knows() -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 1}, "s": {"oneOf": [{"type": "null"}]}},
    }
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    written = _to("anthropic.messages", "openai.chat", _chat(response_format=form))
    assert written["output_config"]["format"]["schema"] == {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "n": {"type": "integer", "description": "{minimum: 1}"},
            "s": {"anyOf": [{"type": "null"}]},
        },
    }


def test_what_a_provider_sealed_comes_back_to_it_alone() -> None:
    item = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "Hm."}],
        "encrypted_content": "remit-anthropic-signature:sig",
    }
    said = {"role": "assistant", "content": "I look."}
    body = _responses(input=[{"role": "user", "content": "Hi"}, item, said])
    turn = _to("anthropic.messages", "openai.responses", body)["messages"][1]
    assert turn["content"][0] == {"type": "thinking", "thinking": "Hm.", "signature": "sig"}
    block = {"type": "thinking", "thinking": "Hm.", "signature": "remit-openai-reasoning:rs_1:seal"}
    body = _messages()
    body["messages"] = [*body["messages"], {"role": "assistant", "content": [block]}]
    assert _to("openai.responses", "anthropic.messages", body)["input"][1] == {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "Hm."}],
        "encrypted_content": "seal",
    }
    block["signature"] = ""  # what a server of open models thought has none
    turn = _to("openai.chat", "anthropic.messages", body)["messages"][1]
    assert turn["reasoning_content"] == "Hm."


@pytest.mark.parametrize(
    "turns",
    [[{"role": "user", "content": ""}], [{"role": "assistant", "content": "a"}],
     [{"role": "assistant", "content": ""}, {"role": "user", "content": " "}]],
)  # fmt: skip
def test_a_conversation_begins_with_a_turn_of_the_user(turns: list[dict[str, Any]]) -> None:
    for target, name, inner in (
        ("anthropic.messages", "messages", "content"), ("gemini.generate", "contents", "parts"),
    ):  # fmt: skip
        call = read_request("openai.chat", {"model": "m", "messages": turns})
        written = write_request(target, call, model="m", max_output_tokens=5)[name]
        assert written[0]["role"] == "user"
        assert all(turn[inner] for turn in written)


def test_web_search_where_both_have_it() -> None:
    tool = {
        "type": "web_search",
        "filters": {"allowed_domains": ["example.org"]},
        "user_location": {"type": "approximate", "country": "CH"},
    }
    written = _to("anthropic.messages", "openai.responses", _responses(tools=[tool]))
    assert written["tools"] == [
        {
            "type": "web_search_20250305",
            "name": "web_search",
            "allowed_domains": ["example.org"],
            "user_location": {"type": "approximate", "country": "CH"},
        }
    ]
    body = _messages(tools=written["tools"])
    assert _to("openai.responses", "anthropic.messages", body)["tools"] == [tool]
    offline = _responses(tools=[{"type": "web_search", "external_web_access": False}])
    assert "tools" not in _to("openai.chat", "openai.responses", offline)


AUDIO = {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}
FILE = {"type": "file", "file": {"file_id": "file-1"}}


def _said(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}]}


def _given(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"input": [{"role": "user", "content": list(parts)}]}


@pytest.mark.parametrize(
    ("target", "source", "fields", "param"),
    [
        ("messages", "chat", {"stop": " "}, "stop"),
        ("messages", "chat", _said({"type": "text", "text": "a"}, AUDIO), "messages[0].content[1]"),
        ("messages", "chat", _said(FILE), "messages[0].content[0].file"),
        ("chat", "responses", _given({"type": "input_file", "file_id": "f"}),
         "input[0].content[0]"),
        ("chat", "responses", {"tools": [{"type": "web_search"}]}, "tools[0]"),
        ("messages", "responses", {"input": [{"type": "item_reference", "id": "msg_1"}]},
         "input[0]"),
        ("messages", "responses",
         {"tools": [{"type": "file_search", "vector_store_ids": ["v"]}]}, "tools[0]"),
        ("chat", "messages",
         {"tools": [{"type": "code_execution_20250825", "name": "code_execution"}]}, "tools[0]"),
        ("chat", "messages", _said({"type": "document", "citations": {"enabled": True},
                                    "source": {"type": "text", "data": "w"}}),
         "messages[0].content[0].citations"),
        ("responses", "messages",
         {"tools": [{"type": "web_search_20250305", "blocked_domains": ["x"]}]},
         "tools[0].blocked_domains"),
    ],
)  # fmt: skip
def test_what_cannot_be_said_is_refused_by_field(
    target: str, source: str, fields: dict[str, Any], param: str
) -> None:
    by_name = {endpoint.partition(".")[2]: endpoint for endpoint in ENDPOINTS}
    source, target = by_name[source], by_name[target]
    assert _to(target, source, MINIMAL[source]())
    with pytest.raises(DialectError) as refused:
        _to(target, source, {**MINIMAL[source](), **fields})
    assert refused.value.param == param
    assert refused.value.message


def _result(content: list[Any]) -> list[dict[str, Any]]:
    """Turns in which a tool was called and gave its result."""
    use = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": content}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]


@pytest.mark.parametrize("target", ["openai.responses", "gemini.generate", "anthropic.messages"])
@pytest.mark.parametrize(
    ("stated", "data", "kind"),
    [("image/jpg", "aQ==", "image/jpeg"), ("image/jpeg", "iVBORw0KGgo=", "image/png")],
)
def test_an_image_is_named_by_its_bytes_or_its_proper_type(
    target: str, stated: str, data: str, kind: str
) -> None:
    url = f"data:{stated};base64,{data}"
    content = [{"type": "image_url", "image_url": {"url": url}}]
    written = str(
        _to(target, "openai.chat", _chat(messages=[{"role": "user", "content": content}]))
    )
    assert kind in written
    assert stated not in written


def test_gemini_gets_the_parts_of_a_result_in_words_or_after_it() -> None:
    image = {"type": "base64", "media_type": "image/png", "data": "aQ=="}
    found = {"type": "search_result", "title": "T", "source": "s", "content": [{"text": "body"}]}
    content = [{"type": "text", "text": "see "}, found, {"type": "image", "source": image}]
    body = _messages(messages=_result(content))
    written = _to("gemini.generate", "anthropic.messages", body)
    response, picture = written["contents"][-1]["parts"]
    assert response["functionResponse"]["response"] == {"result": "see T\ns\nbody"}
    assert picture == {"inlineData": {"mimeType": "image/png", "data": "aQ=="}}


def test_functions_of_a_namespace_are_offered_flat_and_called_by_their_own_names() -> None:
    inner = {"type": "function", "name": "read", "parameters": {"type": "object"}}
    namespace = {"type": "namespace", "name": "mcp__files", "tools": [inner]}
    said = {"type": "function_call", "call_id": "c", "namespace": "mcp__files", "name": "read",
            "arguments": "{}"}  # fmt: skip
    given_back = {"type": "function_call_output", "call_id": "c", "output": "r"}
    body = {"model": "m", "tools": [namespace], "input": [said, given_back]}
    call = read_request("openai.responses", body)
    written = write_request("openai.chat", call, model="m", max_output_tokens=5)
    (tool,) = written["tools"]
    assert tool["function"]["name"] == "mcp__files__read"
    (called,) = written["messages"][0]["tool_calls"]
    assert called["function"]["name"] == "mcp__files__read"
    chosen = {"type": "function", "namespace": "mcp__files", "name": "read"}
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [chosen]}
    for choice in (chosen, allowed):
        forced = read_request("openai.responses", {**body, "tool_choice": choice})
        assert "mcp__files__read" in str(forced.tool_choice)
    block = {"type": "tool_use", "id": "d", "name": "mcp__files__read", "input": {}}
    answer = ProviderResponse("", "m", 1, 1, "tool_use", content_blocks=(block,))
    answered = write_answer("openai.responses", answer, call, answer_id="r", created=1, model="m")
    (item,) = answered["output"]
    assert (item["namespace"], item["name"]) == ("mcp__files", "read")
    assert answered["tools"] == [namespace]


_FUNCTION = {"name": "f", "arguments": "{}"}


@pytest.mark.parametrize(
    ("source", "more", "where"),
    [
        ("anthropic.messages", _said({"type": "text", "text": "a", "source": {"type": "url"}}),
         "messages[0].content[0]"),
        ("anthropic.messages",
         _said({"type": "image", "source": {"type": "base64", "media_type": "image/png",
                                            "data": "QQ==", "url": "https://a.example/b"}}),
         "messages[0].content[0].source"),
        ("openai.chat", _said({"type": "text", "text": "a", "image_url": {"url": "https://b"}}),
         "messages[0].content[0]"),
        ("openai.chat",
         {"messages": [{"role": "user", "content": "a"},
                       {"role": "assistant", "tool_calls": [
                           {"id": "c", "type": "function", "function": _FUNCTION,
                            "custom": {"name": "g", "input": "x"}}]}]},
         "messages[1].tool_calls[0]"),
        ("openai.chat",
         {"tools": [{"type": "function", "function": {"name": "f"}, "custom": {"name": "g"}}]},
         "tools[0]"),
        ("openai.responses",
         {"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}",
                     "output": "done"}]},
         "input[0]"),
    ],
)  # fmt: skip
def test_a_part_with_the_payloads_of_two_kinds_is_refused(
    source: str, more: dict[str, Any], where: str
) -> None:
    target = "openai.chat" if source != "openai.chat" else "anthropic.messages"
    with pytest.raises(DialectError, match="more than one kind") as refused:
        _to(target, source, MINIMAL[source](**more))
    assert refused.value.param == where


def _gemini(part: dict[str, Any], **more: Any) -> dict[str, Any]:
    turns = [{"role": "user", "parts": [{"text": "a"}]}, {"role": "model", "parts": [part]}]
    return {"model": "m", "contents": turns, **more}


@pytest.mark.parametrize("tools", [None, [{"functionDeclarations": [{"name": "f"}]}]])
def test_gemini_may_allow_only_functions_that_it_defines(tools: Any) -> None:
    config = {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["g"]}}
    body = _gemini({"text": "b"}, tools=tools, toolConfig=config)
    with pytest.raises(DialectError) as refused:
        _to("anthropic.messages", "gemini.generate", body)
    assert refused.value.param == "toolConfig.functionCallingConfig.allowedFunctionNames"
