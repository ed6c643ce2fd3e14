"""Whole answers from each dialect to the others, held to the SDKs' own types."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from remit.kernel.exchange import TextDelta
from remit.providers import ProviderError, ProviderResponse
from remit.providers.dialects import (
    DialectError,
    ModelCall,
    error_body,
    read_answer,
    read_request,
    write_answer,
    write_request,
)
from tests.providers.dialects.bodies import ANSWERS, ENDPOINTS, REQUESTS, SCHEMA, Reading


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


def test_messages_to_responses() -> None:
    answer = read_answer("anthropic.messages", ANSWERS["anthropic.messages"])
    written = _written("openai.responses", answer)
    kinds = [item["type"] for item in written["output"]]
    assert kinds == [
        "reasoning", "reasoning", "web_search_call", "message", "function_call", "custom_tool_call",
    ]  # fmt: skip
    assert [item["id"] for item in written["output"]] == [
        "rs_7_0", "rs_7_1", "ws_7_2", "msg_7_3", "fc_7_4", "ctc_7_5",
    ]  # fmt: skip
    thought = written["output"][0]
    assert thought["summary"] == [{"type": "summary_text", "text": "Hm."}]
    part = written["output"][3]["content"][0]
    assert part["text"] == "It is here."
    assert part["annotations"] == [
        {
            "type": "url_citation",
            "url": "https://example.org",
            "title": "T",
            "start_index": 6,
            "end_index": 11,
        },
        {"type": "file_citation", "file_id": "document_0", "filename": "a.pdf", "index": 11},
    ]
    assert written["output"][5]["input"] == "+a"
    asked = REQUESTS["openai.responses"]
    for key in ("instructions", "tools", "tool_choice", "metadata", "max_output_tokens", "text"):
        assert written[key] == asked[key]
    # What was sealed by the provider goes back to it.
    history = [{"role": "user", "content": "Hi"}, *written["output"][:2]]
    call = read_request("openai.responses", {"model": "m", "input": history})
    sent = write_request("anthropic.messages", call, model="m", max_output_tokens=9)
    assert sent["messages"][1]["content"] == ANSWERS["anthropic.messages"]["content"][:2]


def test_responses_to_messages_and_back() -> None:
    answer = read_answer("openai.responses", ANSWERS["openai.responses"])
    written = _written("anthropic.messages", answer)
    kinds = [block["type"] for block in written["content"]]
    assert kinds == [
        "thinking", "server_tool_use", "web_search_tool_result", "text", "tool_use", "tool_use",
    ]  # fmt: skip
    assert written["content"][3]["citations"][0]["cited_text"] == "See"
    assert written["stop_reason"] == "tool_use"
    history = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": written["content"]},
    ]
    body = {"model": "m", "max_tokens": 9, "messages": history}
    call = read_request("anthropic.messages", body)
    sent = write_request("openai.responses", call, model="m", max_output_tokens=9)
    assert sent["input"][1] == ANSWERS["openai.responses"]["output"][0]


def test_chat_to_the_others() -> None:
    answer = read_answer("openai.chat", ANSWERS["openai.chat"])
    output = _written("openai.responses", answer)["output"]
    assert output[0]["content"] == [{"type": "reasoning_text", "text": "Hm."}]
    assert output[1]["content"][0]["annotations"][0]["url"] == "https://example.org"
    assert output[3] == {
        "id": "ctc_7_3", "type": "custom_tool_call", "call_id": "call_2", "name": "patch",
        "input": "+a",
    }  # fmt: skip
    content = _written("anthropic.messages", answer)["content"]
    assert content[0] == {"type": "thinking", "thinking": "Hm.", "signature": ""}
    assert content[3]["input"] == {"input": "+a"}


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


def test_a_refusal_everywhere() -> None:
    block = {"type": "refusal", "refusal": "No."}
    answer = ProviderResponse("", "m", 1, 1, content_blocks=(block,))
    message = _written("openai.chat", answer)["choices"][0]["message"]
    assert (message["refusal"], message["content"]) == ("No.", None)
    part = _written("openai.responses", answer)["output"][0]["content"][0]
    assert part == {"type": "refusal", "refusal": "No."}
    written = _written("anthropic.messages", answer)
    assert written["content"] == [{"type": "text", "text": "No."}]
    assert written["stop_reason"] == "refusal"


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


_CITED = {"type": "char_location", "cited_text": "Hi", "document_index": 0,
          "document_title": None, "start_char_index": 0, "end_char_index": 2}  # fmt: skip
_MESSAGE: dict[str, Any] = {
    "id": "m", "type": "message", "role": "assistant", "model": "claude", "stop_sequence": None,
    "content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn",
    "usage": {"input_tokens": 1, "output_tokens": 1},
}  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [{"type": "file"}, {"type": 5}, {"role": "user"}, {"role": []}, {"content": "Hi"},
     {"content": None}, {"content": {}}, {"content": ["Hi"]}, {"content": [{}]},
     {"content": [{"type": ""}]}, {"content": [{"type": 5, "text": "Hi"}]},
     {"content": [{"type": "text"}]}, {"content": [{"type": "text", "text": 5}]},
     {"content": [{"type": "thinking", "signature": "s"}]},
     {"content": [{"type": "tool_use", "id": "t", "input": {}}]},
     {"content": [{"type": "redacted_thinking"}]}, {"stop_reason": 5}, {"stop_sequence": {}},
     {"id": 5}, {"model": ["claude"]},
     {"content": [{"type": "text", "text": "Hi", "citations": {}}]},
     {"content": [{"type": "text", "text": "Hi", "citations": ["x"]}]},
     *({"content": [{"type": "text", "text": "Hi", "citations": [{**_CITED, **wrong}]}]}
       for wrong in ({"type": 5}, {"type": None}, {"cited_text": []}, {"document_index": "0"},
                     {"document_title": 5}, {"start_char_index": 0.5}, {"end_char_index": True},
                     {"file_id": {}}, {"url": 5}, {"encrypted_index": 5}, {"source": []})),
     {"content": [{"type": "thinking", "thinking": "Hm.", "signature": 5}]},
     {"content": [{"type": "server_tool_use", "id": 5, "name": "web_search", "input": {}}]},
     {"content": [{"type": "server_tool_use", "id": "s", "name": [], "input": {}}]},
     {"content": [{"type": "web_search_tool_result", "tool_use_id": 5, "content": []}]},
     {"content": [{"type": "web_search_tool_result", "tool_use_id": "s", "content": ["x"]}]},
     {"content": [{"type": "web_search_tool_result", "tool_use_id": "s",
                   "content": [{"url": 5}]}]}],
    ids=str,
)  # fmt: skip
def test_a_message_that_breaks_the_schema_is_no_answer(wrong: dict[str, Any]) -> None:
    assert read_answer("anthropic.messages", _MESSAGE).content == "Hi"
    with pytest.raises(DialectError, match="does not have the API's form"):
        read_answer("anthropic.messages", {**_MESSAGE, **wrong})
    if "content" in wrong:
        return
    began = {**_MESSAGE, "content": [], "stop_reason": None, **wrong}
    with pytest.raises(DialectError, match="does not have the API's form"):
        Reading("anthropic.messages").feed({"type": "message_start", "message": began})


_NOTE = {"url": "https://a.b", "title": "A", "start_index": 0, "end_index": 2}


@pytest.mark.parametrize(
    "wrong",
    [{"role": 5}, {"refusal": {}}, {"refusal": 5}, {"annotations": {}}, {"tool_calls": {"a": 1}},
     {"content": 5}, {"finish_reason": 5}, {"finish_reason": ["stop"]},
     *({"annotations": [{"type": "url_citation", "url_citation": {**_NOTE, **wrong}}]}
       for wrong in ({"url": 5}, {"title": []}, {"start_index": "0"}, {"end_index": 2.5}))],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_that_breaks_the_schema_is_no_answer(wrong: dict[str, Any], stream: bool) -> None:
    def read(finish_reason: Any = "stop", **wrong: Any) -> str:
        message = {"role": "assistant", "content": "Hi", **wrong}
        held = {"delta" if stream else "message": message, "finish_reason": finish_reason}
        answer = {"id": "c", "model": "m", "choices": [{"index": 0, **held}]}
        if not stream:
            return read_answer("openai.chat", answer).content
        reader = Reading("openai.chat")
        events = [*reader.feed(answer), *reader.finish()]
        return "".join(event.text for event in events if isinstance(event, TextDelta))

    note = {"type": "url_citation", "url_citation": _NOTE}
    assert read(annotations=[note, {"type": "other"}], refusal=None, tool_calls=None) == "Hi"
    with pytest.raises(DialectError, match="does not have the API's form"):
        read(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [{"id": 5}, {"status": 5}, {"role": []},
     {"content": [{"type": "output_text", "text": "Hi", "annotations": ["x"]}]},
     *({"content": [{"type": "output_text", "text": "Hi",
                     "annotations": [{"type": "url_citation", **_NOTE, **wrong}]}]}
       for wrong in ({"type": None}, {"url": 5}, {"title": []}, {"start_index": "0"}))],
    ids=str,
)  # fmt: skip
def test_an_item_that_breaks_the_schema_is_no_answer(wrong: dict[str, Any]) -> None:
    part = {"type": "output_text", "text": "Hi", "annotations": [{"type": "url_citation", **_NOTE}]}
    item = {"type": "message", "id": "m", "status": "completed", "role": "assistant",
            "content": [part]}  # fmt: skip
    answer = {"id": "r", "object": "response", "status": "completed", "output": [item]}
    assert read_answer("openai.responses", answer).content == "Hi"
    for broken in ({"output": [{**item, **wrong}]}, {"status": ["completed"]}, {"model": 5}):
        with pytest.raises(DialectError, match="does not have the API's form"):
            read_answer("openai.responses", {**answer, **broken})


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


def test_errors_in_each_shape() -> None:
    assert error_body("anthropic.messages", 429, "rate_limited", "Slow.") == {
        "type": "error",
        "error": {"type": "rate_limit_error", "message": "Slow."},
    }
    for endpoint in ("openai.chat", "openai.responses"):
        assert error_body(endpoint, 429, "budget_exhausted", "Spent.", "model") == {
            "error": {
                "message": "Spent.",
                "type": "insufficient_quota",
                "param": "model",
                "code": "budget_exhausted",
            }
        }


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


def test_choices_are_read_in_the_order_of_the_answer() -> None:
    choices = [{"index": n, "message": {"content": str(n)}} for n in (1, 0)]
    assert read_answer("openai.chat", {"choices": choices}).content == "1"


def test_an_end_for_calls_without_a_call_is_the_end_of_the_turn() -> None:
    said = {"role": "assistant", "content": "a"}
    chat = {"id": "r", "choices": [{"index": 0, "finish_reason": "tool_calls", "message": said}]}
    answer = read_answer("openai.chat", chat)
    assert _written("anthropic.messages", answer)["stop_reason"] == "end_turn"
