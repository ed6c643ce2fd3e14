"""Every field of every API is translated, named as dropped, or refused: none is lost silently."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remit.providers import ProviderResponse
from remit.providers.dialects import (
    read_answer,
    read_request,
    stream_events,
    stream_writer,
    write_answer,
)
from remit.providers.wire import stream_sum
from remit.providers.wire.endpoint_table import (
    CHAT,
    CONVERSE,
    GENERATE,
    MESSAGES,
    RESPONSES,
    Endpoint,
)
from tests.providers.dialects import fields
from tests.providers.dialects.bodies import Reading

REMITS_OWN = {
    CHAT.name: {"stream_options"},
    RESPONSES.name: {"background", "metadata", "store", "stream_options", "truncation"},
    MESSAGES.name: set[str](),
}
"""Fields that Remit honours without the provider."""


def test_the_page_states_the_fate_of_each_field() -> None:
    page = fields.PAGE.read_text()
    for row in fields.rows():
        assert row in page, "python -m tests.providers.dialects.fields"


@pytest.mark.parametrize("source", fields.ALL_ENDPOINTS.values(), ids=lambda one: one.name)
def test_every_field_of_the_sdk_has_a_fate(source: Endpoint) -> None:
    if source is CONVERSE:
        import botocore.session

        service = botocore.session.get_session().get_service_model("bedrock-runtime")
        named = set(service.operation_model("Converse").input_shape.members) - {"modelId"}
        assert named <= {name.partition(".")[0] for name in fields.VALUES[source.name]}
    elif source in fields.ENDPOINTS.values():
        assert fields.sdk_fields(source) - {"model"} <= set(fields.VALUES[source.name])
    for target in fields.ALL_ENDPOINTS.values():
        for field in fields.VALUES[source.name]:
            if target is not source and field not in REMITS_OWN.get(source.name, ()):
                assert fields.fate(source, target, field), (field, target.name)


def _taking(argument: dict[str, Any]) -> dict[str, Any]:
    """A body with a tool of one argument."""
    schema = {"type": "object", "properties": {"x": argument}}
    return {"tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}]}


def _turn(*parts: Any, role: str = "user") -> dict[str, Any]:
    return {"messages": [{"role": role, "content": list(parts)}]}


_PNG = "iVBORw0KGgo="
_NAMED = {"messages": [{"role": "user", "name": "ann", "content": "a"}]}
_CACHED = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
_USE = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
_THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "sig"}
_CITED = {"type": "text", "text": "a", "citations": [{"type": "char_location"}]}
_FORMAT = {"name": "x", "description": "d", "schema": {"type": "object"}}


@pytest.mark.parametrize(
    ("source", "target", "body", "dropped"),
    [
        (CHAT, MESSAGES, {"temperature": 1.5}, "temperature"),
        (CHAT, MESSAGES, {"tool_choice": "required", "reasoning_effort": "low"},
         "reasoning_effort"),
        (CHAT, MESSAGES, {"stop": ["", "a"]}, "stop"),
        (CHAT, MESSAGES, _turn({"type": "text", "text": "a"}) | {"user": None, "seed": 1}, "seed"),
        (CHAT, MESSAGES, {"messages": [{"role": "user", "name": "ann", "content": "a"}]},
         "messages[].name"),
        (CHAT, MESSAGES, {"messages": [{"role": "user", "odd": "ann", "content": "a"}]},
         "messages[].odd"),
        (CHAT, MESSAGES, {"messages": [{"role": "user", "content": [_CACHED] * 5}]},
         "cache_control"),
        (CHAT, MESSAGES, {"tools": [{"type": "function", "odd": 1, "function": {"name": "f"}}]},
         "tools[].odd"),
        (CHAT, MESSAGES, {"response_format": {"type": "json_schema", "json_schema": _FORMAT}},
         "response_format.description"),
        (RESPONSES, MESSAGES, {"text": {"format": {"type": "json_schema", **_FORMAT}}},
         "response_format.description"),
        (CHAT, MESSAGES, _turn({"type": "image_url", "image_url": {
            "url": f"data:image/png;base64,{_PNG}", "detail": "low"}}), "detail"),
        (MESSAGES, CHAT, _turn(_CACHED), "cache_control"),
        (MESSAGES, CHAT, _turn(_CITED, role="assistant"), "citations"),
        (MESSAGES, CHAT, _turn(_THOUGHT, role="assistant"), "thinking"),
        (MESSAGES, CHAT, {"system": [_CACHED]}, "cache_control"),
        (MESSAGES, CHAT, {"thinking": {"type": "disabled"}}, "thinking"),
        (MESSAGES, CHAT, {"messages": [
            {"role": "user", "content": "a"},
            {"role": "system", "output_config": {"effort": "low"}}]}, "messages[].output_config"),
        (MESSAGES, CHAT, {"tools": [{"name": "f", "input_schema": {}, "defer_loading": True}]},
         "tools[].defer_loading"),
        (RESPONSES, MESSAGES, {"input": [
            {"type": "additional_tools", "role": "developer", "tools": [{"type": "web_search"}]},
            {"role": "user", "content": "a"}]}, "input[].tools[].web_search"),
        (MESSAGES, CHAT, {"tools": [{"type": "tool_search_tool_bm25_20251119", "name": "s"}]},
         "tools[].tool_search_tool"),
        (MESSAGES, CHAT, {"tools": [{"name": "f", "strict": True, "input_schema": {
            "type": "object", "properties": {"a": {}}}}]}, "tools[].strict"),
        (MESSAGES, RESPONSES, {"max_tokens": 5}, "max_tokens"),
        (RESPONSES, MESSAGES, {"tools": [{"type": "web_search", "external_web_access": False}]},
         "tools[].web_search"),
        (RESPONSES, CHAT, {"text": {"verbosity": "low"}}, "text.verbosity"),
        (RESPONSES, CHAT, {"\u00fc": 1}, "(a field with another name)"),
        (CHAT, RESPONSES, _NAMED, "messages[].name"),
        (CHAT, GENERATE, _NAMED, "messages[].name"),
        (CHAT, GENERATE, {"response_format": {"type": "json_schema", "json_schema": _FORMAT}},
         "response_format.description"),
        (CHAT, GENERATE, {"parallel_tool_calls": False}, "parallel_tool_calls"),
        (MESSAGES, CONVERSE, {"messages": [
            {"role": "assistant", "content": [_USE]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t", "content": [_CACHED]}]}]},
         "cache_control"),
        (GENERATE, CHAT, {"generationConfig.topK": 5}, "generationConfig.topK"),
        (GENERATE, CHAT, {"generationConfig": {"responseJsonSchema": _FORMAT["schema"]}},
         "generationConfig.responseJsonSchema"),
        (GENERATE, CHAT, {"contents": [{"parts": [{"inlineData": {
            "mimeType": "image/png", "data": "aQ==", "displayName": "d"}}]}]},
         "contents[].parts[].inlineData.displayName"),
        (GENERATE, CHAT, {"contents": [{"role": "model", "parts": [{"functionCall": {
            "name": "f", "partialArgs": [{"jsonPath": "$.a"}]}}]}]},
         "contents[].parts[].functionCall.partialArgs"),
        (CONVERSE, CHAT, {"additionalModelRequestFields.top_k": 5},
         "additionalModelRequestFields.top_k"),
    ],
)  # fmt: skip
def test_what_a_target_lacks_is_named(
    source: Endpoint, target: Endpoint, body: dict[str, Any], dropped: str
) -> None:
    assert dropped in fields.sent(source, target, body).dropped


def _messages_of(source: Endpoint, target: Endpoint, body: dict[str, Any], **more: Any) -> Any:
    value = fields.sent(source, target, body, **more).body.value
    return value[target.prompt]


def test_a_system_message_keeps_its_place() -> None:
    said = [{"role": "system", "content": "TOP"}, {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"}, {"role": "developer", "content": "MID"},
            {"role": "user", "content": "c"}]  # fmt: skip
    value = fields.sent(CHAT, MESSAGES, {"messages": said}).body.value
    assert value["system"] == "TOP"
    last = value["messages"][-1]
    assert [block["text"] for block in last["content"]] == ["<system>\nMID\n</system>", "c"]
    only = fields.sent(CHAT, MESSAGES, {"messages": said[:1]}).body.value
    assert only["messages"] == [{"role": "user", "content": "TOP"}]


def test_a_conversation_begins_with_a_user_and_ends_without_white_space() -> None:
    said = [{"role": "assistant", "content": "Hello. "}]
    first, last = _messages_of(CHAT, MESSAGES, {"messages": said})
    assert first["role"] == "user"
    assert first["content"].strip()
    assert last == {"role": "assistant", "content": "Hello."}


def _call(identity: str) -> dict[str, Any]:
    return {"id": identity, "type": "function", "function": {"name": "f", "arguments": "{}"}}


def _tool(identity: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": identity, "content": text}


_USER = {"role": "user", "content": "go"}


@pytest.mark.parametrize("target", [MESSAGES, RESPONSES], ids=lambda one: one.name)
@pytest.mark.parametrize(
    "said",
    [
        pytest.param([_USER, {"role": "assistant", "tool_calls": [_call("a"), _call("b")]},
                      {"role": "user", "content": "wait"}, _tool("b", "2"), _tool("a", "1")],
                     id="a user speaks first"),
        pytest.param([_USER, {"role": "assistant", "tool_calls": [_call("a")]},
                      {"role": "user", "content": "stop"}], id="no result"),
        pytest.param([_USER, {"role": "assistant", "tool_calls": [_call("a")]}], id="at the end"),
        pytest.param([_USER, _tool("x", "lost"), {"role": "assistant", "content": "b"}, _USER],
                     id="no call"),
        pytest.param([_USER, {"role": "assistant", "tool_calls": [_call("a")]}, _tool("a", "1"),
                      {"role": "assistant", "tool_calls": [_call("a")]}, _tool("a", "2")],
                     id="the same id again"),
        pytest.param([_USER, {"role": "assistant", "tool_calls": [_call("a"), _call("a")]},
                      _tool("a", "1"), _tool("a", "2")], id="the same id at once"),
        pytest.param([_USER, {"role": "assistant", "tool_calls": [_call("a")]}, _tool("a", "1"),
                      _tool("a", "again"), _USER], id="two results"),
        pytest.param([_USER, {"role": "assistant", "tool_calls": [_call("a")]},
                      {"role": "system", "content": "s"}, _tool("a", "1")], id="a system message"),
    ],
)  # fmt: skip
def test_each_call_has_its_result_directly_after_it(
    target: Endpoint, said: list[dict[str, Any]]
) -> None:
    sent = _messages_of(CHAT, target, {"messages": said})
    texts = str(sent)
    for message in said:
        assert message.get("content") is None or message["content"] in texts
    if target is RESPONSES:
        calls = [item["call_id"] for item in sent if item["type"] == "function_call"]
        outputs = [item["call_id"] for item in sent if item["type"] == "function_call_output"]
        assert sorted(calls) == sorted(outputs) == sorted(set(calls))
        return
    for place, turn in enumerate(sent):
        blocks = turn["content"] if isinstance(turn["content"], list) else []
        uses = [block["id"] for block in blocks if block["type"] == "tool_use"]
        after = sent[place + 1]["content"] if uses else []
        assert {block["tool_use_id"] for block in after[: len(uses)]} == {*uses}
        assert all(block["type"] != "tool_result" for block in after[len(uses) :])
    every = [b["id"] for t in sent if isinstance(t["content"], list) for b in t["content"]
             if b["type"] == "tool_use"]  # fmt: skip
    assert len(every) == len(set(every))
    assert [turn["role"] for turn in sent] == (["user", "assistant"] * len(sent))[: len(sent)]


@pytest.mark.parametrize(
    ("kind", "named", "key"),
    [("bash_20250124", "bash", "command"), ("memory_20250818", "memory", "path"),
     ("text_editor_20250728", "str_replace_based_edit_tool", "view_range"),
     ("computer_20250124", "computer", "coordinate")],
)  # fmt: skip
@pytest.mark.parametrize("target", [CHAT, RESPONSES], ids=lambda one: one.name)
def test_a_tool_of_anthropics_that_the_client_runs_is_offered(
    target: Endpoint, kind: str, named: str, key: str
) -> None:
    tool = {"type": kind, "name": named}
    (offered,) = fields.sent(MESSAGES, target, {"tools": [tool]}).body.value["tools"]
    function = offered.get("function", offered)
    assert function["name"] == named
    assert key in function["parameters"]["properties"]


@pytest.mark.parametrize(
    ("endpoint", "model", "name", "body", "kept", "gone"),
    [
        (MESSAGES, "claude-sonnet-4-5", "",
         _turn({"type": "text", "text": " \n"}, {"type": "text", "text": "a"}, role="assistant"),
         '"a"', "\\n"),
        (MESSAGES, "glm-5", "zai",
         _turn(_THOUGHT | {"signature": "Eu8BCkYIAR" * 8}, {"type": "text", "text": "a"},
               role="assistant"), '"a"', "Eu8B"),
        (MESSAGES, "glm-5", "zai",
         _turn(_THOUGHT | {"signature": "EqQBCg=="}, {"type": "text", "text": "a"},
               role="assistant"), '"a"', "EqQB"),
        (MESSAGES, "claude-sonnet-4-5", "",
         _turn(_THOUGHT, {"type": "text", "text": "a"}, role="assistant"), '"sig"', "\u2603"),
        (MESSAGES, "claude-sonnet-4-5", "", {"metadata": {"user_id": "p" * 300}}, "user_id", "ppp"),
        (CHAT, "gpt-4o", "openai", {"user": "p" * 65}, '"user"', "ppp"),
        (CHAT, "gpt-4o", "openai", {"user": "p" * 64}, "p" * 64, "\u2603"),
        (CHAT, "m", "", {"user": "p" * 65}, "p" * 65, "\u2603"),
        (RESPONSES, "gpt-5.6", "openai", {"input": [{"type": "function_call", "id": "fc_" * 30,
         "call_id": "c", "name": "f", "arguments": "{}"}]}, '"call_id"', "fc_fc"),
        (RESPONSES, "gpt-5.6", "openai", {"input": [{"type": "message", "id": "item_1",
         "role": "assistant", "content": []}]}, '"assistant"', "item_1"),
        (RESPONSES, "gpt-5.6", "openai", {"input": [{"type": "message", "id": "msg_1",
         "role": "assistant", "content": []}]}, "msg_1", "\u2603"),
        (RESPONSES, "grok-4", "xai", {"input": [{"type": "message", "id": "item_1",
         "role": "assistant", "content": []}]}, "item_1", "\u2603"),
        (RESPONSES, "grok-4", "xai", {"input": [
            {"type": "reasoning", "summary": [], "encrypted_content": "gAAAAB"},
            {"role": "user", "content": "a"}]}, '"a"', "gAAAAB"),
        (CHAT, "mistral-large", "mistral",
         {"messages": [{"role": "user", "content": [_CACHED]}]}, '"a"', "cache_control"),
        (CHAT, "gpt-4o", "openai", {"tools": [{"type": "function", "function": {
            "name": "f", "parameters": {"type": "object", "oneOf": [{"required": ["a"]}]}}}]},
         "oneOf: ", '"oneOf"'),
        (CHAT, "gemini-3-pro", "gemini", {"tools": [{"type": "function", "function": {
            "name": "f", "parameters": {"type": "object", "properties": {"not": {"const": "1"}},
                                        "$schema": "x"}}}]}, '"enum":["1"]', "$schema"),
        (CHAT, "gemini-3-pro", "gemini", _taking({"const": 1}), "{const: 1}", '"const"'),
        (CHAT, "gemini-3-pro", "gemini", _taking({"enum": ["a", None]}), "{enum: [", '"enum"'),
        (CHAT, "gemini-3-pro", "gemini", _taking({"type": "array"}),
         '{"type":"array","items":{"type":"string"}}', "\u2604"),
        (CHAT, "gpt-4o", "openai", _taking({"anyOf": [{"type": "array"}, {"type": "null"}]}),
         '{"type":"array","items":{}}', "\u2604"),
        (CHAT, "gpt-4o", "openai", _taking({"type": ["array", "null"]}), '"items":{}', "\u2604"),
        (CHAT, "gpt-4o", "openai", _taking({"type": "array", "prefixItems": [{}]}),
         '"prefixItems"', "\u2603"),
        (CHAT, "m", "", _taking({"type": "array"}), '{"type":"array"}', "\u2603"),
        (CHAT, "m", "", {"tools": [{"type": "function", "function": {
            "name": "f", "parameters": {"type": "object", "anyOf": []}}}]}, '"anyOf"', "\u2603"),
        (CHAT, "mistral-large", "mistral", {"messages": [{"role": "developer", "content": "a"}]},
         '"system"', "developer"),
        (CHAT, "glm-5", "zai", {"messages": [{"role": "developer", "content": "a"}]},
         '"system"', "developer"),
        (CHAT, "m", "", {"messages": [{"role": "developer", "content": "a"}]},
         "developer", "\u2603"),
        (MESSAGES, "glm-5", "zai", {"messages": [_USER, {"role": "system", "content": [_CACHED]}]},
         '{"role":"user","content":"<system>\\na\\n</system>"}', '"role":"system"'),
        (MESSAGES, "glm-5", "zai", {"messages": [_USER, {"role": "system", "content": [
            _CACHED, {"type": "image", "source": {"type": "url", "url": "u"}}]}]},
         '</system>"},{"type":"image"', '"role":"system"'),
        (CHAT, "glm-5", "zai", {"messages": [{"role": "developer", "content": "a", "n": 10**22}]},
         f'"n":{10**22}', "developer"),
        (MESSAGES, "claude-opus-5", "", {"messages": [_USER, {"role": "system", "content": "a"}]},
         '"role":"system"', "\u2603"),
        (CHAT, "mistral-large", "mistral", {"messages": [
            {"role": "tool", "tool_call_id": "a" * 9, "content": "b"}, _USER]},
         '{"role":"assistant","content":"Done."},{"role":"user"', "\u2604"),
        (MESSAGES, "glm-5", "zai", {"tools": [{"type": "bash_20250124", "name": "bash"}]},
         '"input_schema"', "bash_2025"),
        (MESSAGES, "claude-x", "", {"tools": [{"type": "bash_20250124", "name": "bash"}]},
         "bash_2025", "\u2603"),
        (MESSAGES, "glm-5", "zai", _turn({"type": "tool_result", "tool_use_id": "t", "content": [
            {"type": "tool_reference", "tool_name": "Plan"}]}), "The tool Plan is", "_reference"),
    ],
)  # fmt: skip
def test_a_body_is_fitted_to_its_provider_in_its_own_dialect(
    endpoint: Endpoint, model: str, name: str, body: Any, kept: str, gone: str
) -> None:
    outgoing = fields.sent(endpoint, endpoint, body, model, name)
    text = outgoing.body.raw.decode()
    assert kept in text
    assert gone not in text
    paths = [change["path"] for change in outgoing.body.changed if change["path"] != "/model"]
    assert bool(paths) == (gone != "\u2603")


def test_a_version_that_refuses_sampling_gets_none() -> None:
    body = {"temperature": 1.0, "top_p": 0.9, "top_k": 4}
    headers = {"anthropic-version": "2026-10-21"}
    own = fields.sent(MESSAGES, MESSAGES, body, headers=headers)
    assert not body.keys() & own.body.value.keys()
    assert set(own.dropped) == set(body)
    assert own.headers == headers
    older = fields.sent(MESSAGES, MESSAGES, body, headers={"anthropic-version": "2023-06-01"})
    assert body.items() <= older.body.value.items()
    translated = fields.sent(CHAT, MESSAGES, body, version="2026-10-21")
    assert not body.keys() & translated.body.value.keys()
    assert set(translated.dropped) == {"top_p", "top_k"}


_CITATIONS = [{"type": "char_location", "cited_text": "a", "document_index": 0}]
_PLAIN = {"type": "text", "media_type": "text/plain", "data": "Notes."}
_PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
_ASSISTANTS_FILES = [
    {"role": "user", "content": [{"type": "text", "text": "Hi", "citations": _CITATIONS},
                                 {"type": "document", "source": _PDF}]},
    {"role": "assistant", "content": [{"type": "text", "text": "So", "citations": _CITATIONS},
                                      {"type": "document", "source": _PLAIN, "title": "T"},
                                      {"type": "document", "source": _PDF}]},
    {"role": "assistant", "content": [{"type": "document", "source": _PDF}]},
    {"role": "user", "content": "And?"},
]  # fmt: skip


def test_a_version_that_refuses_an_assistants_documents_gets_their_text() -> None:
    body = {"messages": _ASSISTANTS_FILES}
    newer = {"anthropic-version": "2026-10-21"}
    own = fields.sent(MESSAGES, MESSAGES, body, headers=newer)
    asked, said, last = own.body.value["messages"]
    assert asked["content"] == [{"type": "text", "text": "Hi"}, _ASSISTANTS_FILES[0]["content"][1]]
    assert said["content"] == [
        _ASSISTANTS_FILES[1]["content"][0],
        {"type": "text", "text": "T\nNotes."},
    ]
    assert last == _ASSISTANTS_FILES[3]
    paths = [change["path"] for change in own.body.changed]
    assert [path for path in paths if path != "/model"] == [f"/messages/{n}" for n in range(3)]
    older = fields.sent(MESSAGES, MESSAGES, body, headers={"anthropic-version": "2023-06-01"})
    assert older.body.value["messages"] == _ASSISTANTS_FILES
    given = {"type": "file", "file": {"file_data": "data:text/plain;base64,Tm90ZXMu"}}
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [given]},
                {"role": "user", "content": "And?"}]  # fmt: skip
    translated = fields.sent(CHAT, MESSAGES, {"messages": messages}, version="2026-10-21")
    assert translated.body.value["messages"][1]["content"] == [{"type": "text", "text": "Notes."}]


@pytest.mark.parametrize(
    ("model", "effort", "bridged"),
    [("gpt-5.6", None, True), ("gpt-5.6-terra", "low", True), ("gpt-5.6", "none", False),
     ("gpt-5.4", None, False), ("gpt-5.4-mini", "low", True), ("gpt-5.2", "low", False),
     ("gpt-6", None, True), ("gpt-4o", None, False)],
)  # fmt: skip
def test_a_model_that_takes_tools_on_responses_alone_is_reached_there(
    model: str, effort: str | None, bridged: bool
) -> None:
    body = {"reasoning_effort": effort} if effort else {}
    outgoing = fields.sent(CHAT, CHAT, body, model, responses=True)
    assert outgoing.body.endpoint.name == (RESPONSES if bridged else CHAT).name
    reasons = [change["reason"] for change in outgoing.body.changed]
    assert ("this model takes tools only on the Responses API" in reasons) is bridged
    without = fields.sent(CHAT, CHAT, {**body, "tools": []}, model, responses=True)
    assert without.body.endpoint.name == CHAT.name
    lacking = fields.sent(CHAT, CHAT, body, model)
    assert lacking.body.endpoint.name == CHAT.name


_RAN = {
    "shell": ({"commands": ["ls"]}, "action", {"commands": ["ls"]},
              {"output": [{"stdout": "a.py", "stderr": "", "outcome": {"type": "exit"}}]}),
    "local_shell": ({"command": ["ls"]}, "action", {"type": "exec", "command": ["ls"], "env": {}},
                    {"output": "a.py"}),
    "apply_patch": ({"type": "delete_file", "path": "a.py"}, "operation",
                    {"type": "delete_file", "path": "a.py"},
                    {"status": "failed", "output": "no a.py"}),
    "tool_search": ({"query": "files"}, "arguments", {"query": "files"},
                    {"execution": "client",
                     "tools": [{"type": "function", "name": "a.py", "parameters": {}}]}),
}  # fmt: skip


@pytest.mark.parametrize("target", [CHAT, MESSAGES], ids=lambda one: one.name)
@pytest.mark.parametrize("kind", _RAN)
def test_a_tool_of_responses_that_the_client_runs_works_on_every_model(
    target: Endpoint, kind: str
) -> None:
    value, member, given, output = _RAN[kind]
    tool = {"type": kind, "execution": "client"} if kind == "tool_search" else {"type": kind}
    said = {"type": f"{kind}_call", "call_id": "c", "status": "completed", member: given}
    result = kind.removesuffix("_search") + ("_search_output" if kind == "tool_search"
                                             else "_call_output")  # fmt: skip
    items = [_USER, said, {"type": result, "call_id": "c", **output}]
    body = {"model": "m", "tools": [tool], "input": items}
    sent = fields.sent(RESPONSES, target, {"tools": [tool], "input": items}).body.value
    assert kind in str(sent["tools"][0])
    assert len(sent["tools"]) == 1 + (kind == "tool_search")
    assert "a.py" in str(sent["messages"][-1])
    block = {"type": "tool_use", "id": "d", "name": kind, "input": value}
    answer = ProviderResponse("", "m", 1, 1, "tool_use", content_blocks=(block,))
    call = read_request("openai.responses", body)
    whole = write_answer("openai.responses", answer, call, answer_id="r", created=1, model="m")
    (item,) = whole["output"]
    assert (item["type"], item["call_id"]) == (f"{kind}_call", "d")
    assert given.items() <= item[member].items()
    assert whole["tools"] == [tool]
    writer = stream_writer("openai.responses", call, answer_id="r", created=1, model="m")
    wire = writer.start() + b"".join(map(writer.event, stream_events(answer)))
    wire += writer.end(answer)
    done = [json.loads(line[6:]) for line in wire.splitlines() if line.startswith(b"data: ")]
    assert done[-1]["response"]["output"] == [item]


_DETAILS = [{"type": "reasoning.text", "text": "Hm.", "signature": "SEALED", "index": 0},
            {"type": "reasoning.encrypted", "data": "HIDDEN", "index": 1}]  # fmt: skip


@pytest.mark.parametrize("client", [MESSAGES, RESPONSES], ids=lambda one: one.name)
@pytest.mark.parametrize("streamed", [False, True])
def test_openrouters_details_return_to_openrouter_alone(client: Endpoint, streamed: bool) -> None:
    message = {"role": "assistant", "content": None, "reasoning": "Hm.",
               "reasoning_details": _DETAILS, "tool_calls": [_call("c")]}  # fmt: skip
    answer = {"id": "r", "model": "m", "choices": [{"index": 0, "finish_reason": "tool_calls",
                                                     "message": message}]}  # fmt: skip
    call = read_request(client.name, {"model": "m", "max_tokens": 9, **_start(client)})
    ids = {"answer_id": "a", "created": 1, "model": "m"}
    if streamed:
        reader, writer = Reading("openai.chat"), stream_writer(client.name, call, **ids)
        wire = writer.start()
        text = {"type": "reasoning.text", "index": 0}
        for delta in ({"reasoning": "H", "reasoning_details": [text | {"text": "H"}]},
                      {"reasoning": "m.", "reasoning_details": [text | {"text": "m."}]},
                      {"reasoning_details": [text | {"signature": "SEALED"}]},
                      {"reasoning_details": [_DETAILS[1]]},
                      {"tool_calls": [{"index": 0, **_call("c")}]}):  # fmt: skip
            chunk = {"id": "r", "choices": [{"index": 0, "delta": delta}]}
            wire += b"".join(map(writer.event, reader.feed(chunk)))
        wire += b"".join(map(writer.event, reader.finish()))
        wire += writer.end(ProviderResponse("", "m", 1, 1, "tool_use"))
        total = stream_sum(client.name)
        for line in wire.splitlines():
            if line.startswith(b"data: "):
                total.add("", line[6:])
        given = total.answer()
    else:
        given = write_answer(client.name, read_answer("openai.chat", answer), call, **ids)
    if client is MESSAGES:
        said: Any = [{"role": "assistant", "content": given["content"]}]
        body = {"messages": [_USER, *said]}
    else:
        body = {"input": [_USER, *given["output"]]}
    back = fields.sent(client, CHAT, body, "m", "openrouter").body.value["messages"][1]
    assert back["reasoning_details"] == _DETAILS
    for name, target in (("mistral", CHAT), ("", CHAT), ("", MESSAGES), ("openai", RESPONSES)):
        sent = fields.sent(client, target, body, name=name).body.raw
        assert b"SEALED" not in sent
        assert b"remit-openrouter" not in sent


def _start(endpoint: Endpoint) -> dict[str, Any]:
    return {"input": "go"} if endpoint is RESPONSES else {"messages": [_USER]}


@pytest.mark.parametrize(
    ("client", "target"),
    [(CHAT, MESSAGES), (MESSAGES, CHAT), (CHAT, RESPONSES)],
    ids=lambda one: one.name,
)
def test_a_limit_beyond_the_model_is_lowered(client: Endpoint, target: Endpoint) -> None:
    outgoing = fields.sent(client, target, {"max_tokens": 90_000}, largest=64_000)
    assert outgoing.body.output_limit == 64_000
    assert outgoing.dropped == ["max_tokens"]
    within = fields.sent(CHAT, MESSAGES, {"max_tokens": 90_000})
    assert within.body.value["max_tokens"] == 90_000
