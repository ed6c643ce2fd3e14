"""Whole answers from each dialect to the others, held to the SDKs' own types."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from pydantic import BaseModel

from remit.providers import ProviderError, ProviderResponse
from remit.providers.dialects import (
    DialectError,
    ModelCall,
    read_answer,
    read_request,
    write_answer,
    write_request,
)
from remit.providers.wire import BodyError
from tests.providers.dialects import fields
from tests.providers.dialects.bodies import (
    ALL_ENDPOINTS,
    ANSWERS,
    ENDPOINTS,
    ODD,
    REQUESTS,
    SCHEMA,
    places,
    with_at,
    without,
)
from tests.support.soak import sample


def _written(client: str, answer: ProviderResponse) -> dict[str, Any]:
    from anthropic.types import Message
    from openai.types.chat import ChatCompletion
    from openai.types.responses import Response

    call = read_request(client, REQUESTS[client])
    written = write_answer(client, answer, call, answer_id="resp_7", created=5, model="mine")
    types: dict[str, type[BaseModel]] = {
        "openai.chat": ChatCompletion, "openai.responses": Response, "anthropic.messages": Message,
    }  # fmt: skip
    types[client].model_validate(written)
    return written


@pytest.mark.parametrize("provider", ENDPOINTS)
def test_usage_is_the_same_in_all_words_and_the_form_is_that_of_the_clients_sdk(
    provider: str,
) -> None:
    answer = read_answer(provider, ANSWERS[provider])
    assert (answer.output_tokens, answer.usage_reported) == (20, True)
    for client in ENDPOINTS:
        written = _written(client, answer)
        assert (written["id"], written["model"]) == ("resp_7", "mine")
        for each in (answer, read_answer(client, written)):
            assert (each.input_tokens, each.reasoning_tokens) == (100, 5)
            assert (each.cached_input_tokens, each.cache_write_tokens) == (60, 10)


REASONS = [
    ("stop", "stop", "completed", "end_turn"),
    ("length", "length", "incomplete", "max_tokens"),
    ("content_filter", "content_filter", "incomplete", "refusal"),
    ("tool_use", "tool_calls", "completed", "tool_use"),
]


@pytest.mark.parametrize(("reason", "chat", "responses", "messages"), REASONS)
def test_reasons_to_stop(reason: str, chat: str, responses: str, messages: str) -> None:
    block: dict[str, Any] = {"type": "text", "text": "a"}
    if reason == "tool_use":
        block = {"type": "tool_use", "id": "i", "name": "answer", "input": {}}
    answer = ProviderResponse("a", "m", 1, 1, reason, content_blocks=(block,))
    assert _written("openai.chat", answer)["choices"][0]["finish_reason"] == chat
    assert _written("openai.responses", answer)["status"] == responses
    assert _written("anthropic.messages", answer)["stop_reason"] == messages
    for client in ENDPOINTS:
        assert read_answer(client, _written(client, answer)).finish_reason == reason


@pytest.mark.parametrize("client", ENDPOINTS)
def test_calls_with_one_id_get_ids_of_their_own(client: str) -> None:
    calls = [{"id": "x", "type": "function", "function": {"name": "answer", "arguments": text}}
             for text in ('{"n":1}', '{"n":2}', '{"n":3}')]  # fmt: skip
    said = {"role": "assistant", "content": None, "tool_calls": calls}
    chat = {"id": "r", "choices": [{"index": 0, "finish_reason": "stop", "message": said}]}
    answer = read_answer("openai.chat", chat)
    again = read_answer(client, _written(client, answer))
    for each in (answer, again):
        assert [block["id"] for block in each.content_blocks] == ["x", "x_2", "x_3"]
        assert [block["input"]["n"] for block in each.content_blocks] == [1, 2, 3]
        assert each.finish_reason == "tool_use"


@pytest.mark.parametrize("client", ENDPOINTS)
@pytest.mark.parametrize("named", [{"name": ""}, {"name": None}, {}])
def test_a_call_without_a_name_reaches_the_client_which_can_send_it_back(
    client: str, named: dict[str, Any]
) -> None:
    calls = [
        {"id": identity, "type": "function", "function": {**called, "arguments": "{}"}}
        for identity, called in (("x", named), ("y", {"name": "answer"}))
    ]
    said = {"role": "assistant", "content": None, "tool_calls": calls}
    chat = {"id": "r", "choices": [{"index": 0, "finish_reason": "tool_calls", "message": said}]}
    answer = read_answer("openai.chat", chat)
    assert {block["name"] for block in answer.content_blocks} == {"", "answer"}
    again = read_answer(client, _written(client, answer))
    assert {block["name"] for block in again.content_blocks} == {"unnamed_tool", "answer"}


@pytest.mark.parametrize("named", [{"name": ""}, {"name": None}, {}])
def test_a_call_without_a_name_is_read_in_each_dialect(named: dict[str, Any]) -> None:
    block = {"type": "tool_use", "id": "x", "input": {}, **named}
    item = {"type": "function_call", "call_id": "x", "arguments": "{}", **named}
    part = {"functionCall": {"args": {}, **named}}
    for endpoint, answer in {
        "anthropic.messages": {"type": "message", "content": [block], "stop_reason": "tool_use"},
        "openai.responses": {"object": "response", "status": "completed", "output": [item]},
        "gemini.generate": {"candidates": [{"content": {"parts": [part]}, "finishReason": "STOP"}]},
    }.items():
        (read,) = read_answer(endpoint, answer).content_blocks
        assert (read["type"], read["name"]) == ("tool_use", "unnamed_tool"), endpoint


@pytest.mark.parametrize("client", ENDPOINTS)
def test_names_that_were_mapped_come_back(client: str) -> None:
    name = "a tool/" + "x" * 80
    body: dict[str, Any] = {
        "openai.chat": {
            "messages": [{"role": "user", "content": "Hi"}],
            "tools": [{"type": "function", "function": {"name": name, "parameters": SCHEMA}}],
        },
        "openai.responses": {
            "input": "Hi",
            "tools": [{"type": "function", "name": name, "parameters": SCHEMA}],
        },
        "anthropic.messages": {
            "messages": [{"role": "user", "content": "Hi"}],
            "tools": [{"name": name, "input_schema": SCHEMA}],
        },
    }[client]
    call = read_request(client, {"model": "m", "max_tokens": 9, **body})
    sent = write_request("anthropic.messages", call, model="m", max_output_tokens=9)
    block = {"type": "tool_use", "id": "i", "name": sent["tools"][0]["name"], "input": {}}
    answer = ProviderResponse("", "m", 1, 1, "tool_use", content_blocks=(block,))
    written = write_answer(client, answer, call, answer_id="i", created=1, model="m")
    assert str(written).count(name) == (2 if client == "openai.responses" else 1)
    assert sent["tools"][0]["name"] not in str(written)


def test_what_is_no_answer_is_said_so() -> None:
    for endpoint in ENDPOINTS:
        with pytest.raises(DialectError) as raised:
            read_answer(endpoint, {"id": "x"})
        assert raised.value.__cause__ is not raised.value  # A cycle would never end.
        with pytest.raises(ProviderError):
            read_answer(endpoint, {"type": "error", "error": {"message": "down"}})
    with pytest.raises(DialectError):
        read_answer("openai.embeddings", {})


def test_citations_of_converse_reach_other_clients() -> None:
    def cited(**location: Any) -> dict[str, Any]:
        return {"title": "T", "source": "S", "sourceContent": [{"text": "c"}], "location": location}

    listed = [
        cited(documentPage={"documentIndex": 0, "start": 1, "end": 2}),
        cited(searchResultLocation={"searchResultIndex": 1, "start": 0, "end": 1}),
        cited(web={"url": "https://a.example", "domain": "a.example"}),
        cited(documentChar={"documentIndex": 0}),
        cited(),
    ]
    block = {"citationsContent": {"content": [{"text": "said"}], "citations": listed}}
    whole = {"output": {"message": {"role": "assistant", "content": [block]}},
             "stopReason": "end_turn", "usage": {"inputTokens": 3, "outputTokens": 2}}  # fmt: skip
    answer = read_answer("bedrock.converse", whole)
    assert answer.content == "said"
    [text] = _written("anthropic.messages", answer)["content"]
    assert text["citations"] == [
        {"type": "page_location", "cited_text": "c", "document_title": "T", "file_id": None,
         "document_index": 0, "start_page_number": 1, "end_page_number": 2},
        {"type": "search_result_location", "cited_text": "c", "title": "T", "source": "S",
         "search_result_index": 1, "start_block_index": 0, "end_block_index": 1},
        {"type": "web_search_result_location", "cited_text": "c", "title": "T",
         "url": "https://a.example", "encrypted_index": ""},
    ]  # fmt: skip
    [message] = _written("openai.responses", answer)["output"]
    kinds = [each["type"] for each in message["content"][0]["annotations"]]
    assert kinds == ["file_citation", "file_citation", "url_citation"]


def test_a_call_that_was_cut_has_an_object_as_input() -> None:
    block = {"type": "tool_use", "id": "c", "name": "write", "input": {"_unparsed": '{"path": "a'}}
    answer = ProviderResponse("", "m", 1, 1, "length", content_blocks=(block,))
    call = ModelCall("m", [])
    whole = write_answer("anthropic.messages", answer, call, answer_id="a", created=1, model="m")
    assert whole["content"] == [block]
    assert whole["stop_reason"] == "max_tokens"
    chat = write_answer("openai.chat", answer, call, answer_id="a", created=1, model="m")
    (called,) = chat["choices"][0]["message"]["tool_calls"]
    assert called["function"]["arguments"] == '{"path": "a'


def test_calls_without_a_sound_input_keep_their_place_and_seal() -> None:
    """A call that ends late stays before the seal of the next."""
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": given},
         "extra_content": {"google": {"thought_signature": f"s{n}"}}}
        for n, given in enumerate(('{"cut', {"a": 1}, None))
    ]  # fmt: skip
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    answer = read_answer("openai.chat", {"choices": [{"index": 0, "message": message}]})
    assert [block.get("thought_signature") or block["id"] for block in answer.content_blocks] == [
        "s0", "c0", "s1", "c1", "s2", "c2",
    ]  # fmt: skip
    assert [block["input"] for block in answer.content_blocks[1::2]] == [
        {"_unparsed": '{"cut'}, {"a": 1}, {},
    ]  # fmt: skip


# -- No JSON in any place of a request or an answer makes another exception than the dialects' own -


def _variants(value: Any) -> list[Any]:
    variants = []
    for path in places(value):
        variants.append(without(value, path))
        variants += [with_at(value, path, odd) for odd in ODD]
    return variants


@pytest.mark.soak
@pytest.mark.parametrize("source", ALL_ENDPOINTS)
def test_a_request_of_any_shape_is_translated_or_refused(source: str) -> None:
    outcomes = {"translated": 0, "refused": 0}
    for body in [*sample(_variants(REQUESTS[source]), 350), *ODD]:
        try:
            call = read_request(source, body)
        except DialectError as error:
            outcomes["refused"] += 1
            assert error.message
            continue
        for target in ALL_ENDPOINTS:
            with contextlib.suppress(DialectError):
                written = write_request(target, call, model="claude-x", max_output_tokens=64)
                assert written["model"] == "claude-x"
                outcomes["translated"] += 1
    assert min(outcomes.values()) > 100


@pytest.mark.soak
@pytest.mark.parametrize("source", ALL_ENDPOINTS)
def test_an_answer_of_any_shape_is_translated_or_refused(source: str) -> None:
    translated = 0
    calls = [read_request(client, REQUESTS[client]) for client in ALL_ENDPOINTS]
    for body in [*sample(_variants(ANSWERS[source]), 200), *ODD]:
        try:
            answer = read_answer(source, body)
        except (DialectError, ProviderError):
            continue
        for call in calls:
            written = write_answer(
                call.endpoint, answer, call, answer_id="resp_1", created=1, model="m"
            )
            if call.endpoint != "bedrock.converse":  # Converse has no id.
                assert written.get("id", written.get("responseId")) == "resp_1"
            translated += 1
    assert translated > 100


_TARGETS = [("claude-x", ""), ("gemini-3", "gemini"), ("mistral-large", "mistral"),
            ("gpt-5.6", "openai"), ("m", "")]  # fmt: skip
_BODIES = [
    (source, model, name, path, odd)
    for source in ENDPOINTS
    for model, name in _TARGETS
    for path in places(REQUESTS[source])
    for odd in ODD
]


@pytest.mark.soak
def test_a_body_of_any_shape_is_fitted_to_its_provider_or_passed_on() -> None:
    endpoints = {endpoint.name: endpoint for endpoint in fields.ENDPOINTS.values()}
    for source, model, name, path, odd in sample(_BODIES, 400):
        body = with_at(REQUESTS[source], path, odd)
        endpoint = endpoints[source]
        with contextlib.suppress(ProviderError, BodyError):
            if isinstance(body, dict):
                headers = {"anthropic-version": "2026-10-21"}
                assert fields.sent(endpoint, endpoint, body, model, name, headers=headers)


@pytest.mark.parametrize("name", ["gemini", "openai"])
def test_a_schema_as_deep_as_a_body_may_be_is_passed_on(name: str) -> None:
    deep: dict[str, Any] = {"type": "object"}
    for _ in range(120):
        deep = {"properties": {"a": deep}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": deep}}]
    sent = fields.sent(fields.CHAT, fields.CHAT, {"tools": tools}, "m", name).body.value
    assert sent["tools"] == tools
