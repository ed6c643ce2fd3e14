"""Calls over HTTP as they are on record, in each dialect: shown in plain lines, whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remit.ledger import Content, LedgerClient
from remit.views import journey_page, journey_text, open_journey, prompt_journey
from remit.views.wire_text import answered, asked, said
from tests.views.story import SESSION, Story

DATA = "A" * 5000

CHAT: dict[str, Any] = {
    "wire": "openai.chat",
    "prompt": [
        {"role": "developer", "content": "Be short."},
        {"role": "user", "content": [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}},
        ]},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"x":1}'}},
            {"id": "c2", "type": "custom", "custom": {"name": "shell", "input": "ls -l"}},
        ]},
        {"role": "tool", "tool_call_id": "c1", "content": "a cat"},
        {"role": "user", "content": "And now?"},
    ],
    "answer": {"object": "chat.completion", "choices": [
        {"index": 0, "message": {
            "role": "assistant", "reasoning_content": "Hm.", "content": "A cat.",
            "refusal": "No more.",
            "annotations": [{"type": "url_citation",
                             "url_citation": {"title": "Cats", "url": "https://c.example"}}],
        }},
        {"index": 1, "message": {"role": "assistant", "content": "A dog.",
                                 "audio": {"id": "a", "data": DATA, "transcript": "woof"}}},
    ]},
}  # fmt: skip
RESPONSES: dict[str, Any] = {
    "wire": "openai.responses",
    "system": "Be short.",
    "prompt": [
        {"role": "user", "content": [{"type": "input_text", "text": "Look it up."}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "A plan."}],
         "encrypted_content": DATA},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "found"},
        {"type": "custom_tool_call_output", "call_id": "d", "output": [
            {"type": "input_text", "text": "one"}, {"type": "input_text", "text": "two"}]},
    ],
    "answer": {"object": "response", "output": [
        {"type": "reasoning", "summary": [], "encrypted_content": DATA},
        {"type": "custom_tool_call", "call_id": "e", "name": "apply_patch", "input": "*** Begin"},
        {"type": "web_search_call", "status": "completed"},
        {"type": "message", "role": "assistant", "content": [
            {"type": "output_text", "text": "Found.", "annotations": [
                {"type": "file_citation", "file_id": "f", "filename": "notes.md"}]},
            {"type": "refusal", "refusal": "Not that."},
        ]},
    ]},
}  # fmt: skip
MESSAGES: dict[str, Any] = {
    "wire": "anthropic.messages",
    "system": [{"type": "text", "text": "Be short.", "cache_control": {"type": "ephemeral"}}],
    "prompt": [
        {"role": "user", "content": "Look it up."},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "I look.", "signature": DATA},
            {"type": "redacted_thinking", "data": DATA},
            {"type": "tool_use", "id": "t", "name": "look", "input": {"x": 1}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t", "is_error": True,
             "content": [{"type": "text", "text": "gone"}]},
            {"type": "document", "source": {"type": "base64", "data": DATA}},
        ]},
    ],
    "answer": {"type": "message", "role": "assistant", "content": [
        {"type": "text", "text": "It is gone.", "citations": [
            {"type": "char_location", "cited_text": "gone", "document_title": "Doc"}]},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}},
    ]},
}  # fmt: skip
DIALECTS = [CHAT, RESPONSES, MESSAGES]


def test_chat() -> None:
    picture = "(5,022 characters of data)"
    assert said(CHAT) == [
        ("developer", "", "Be short."),
        ("user", "", "What is this?"),
        ("user", "image", {"type": "image_url", "image_url": {"url": picture}}),
        ("assistant", "calls look", '{"x":1}'),
        ("assistant", "calls shell", "ls -l"),
        ("tool", "result", "a cat"),
        ("user", "", "And now?"),
    ]
    assert answered(CHAT) == [
        ("assistant", "choice 0 thinking", "Hm."),
        ("assistant", "choice 0", "A cat."),
        ("assistant", "choice 0 refuses", "No more."),
        ("assistant", "choice 0 sources", "Cats https://c.example"),
        ("assistant", "choice 1", "A dog."),
        ("assistant", "choice 1 audio", "woof"),
    ]
    assert asked(CHAT) == "And now?"


def test_responses() -> None:
    assert said(RESPONSES) == [
        ("system", "", "Be short."),
        ("user", "", "Look it up."),
        ("assistant", "thinking", "A plan."),
        ("assistant", "calls look", "{}"),
        ("tool", "result", "found"),
        ("tool", "result", "one\ntwo"),
    ]
    assert answered(RESPONSES) == [
        ("assistant", "thinking", "(kept by the provider)"),
        ("assistant", "calls apply_patch", "*** Begin"),
        ("assistant", "web_search_call", {"type": "web_search_call", "status": "completed"}),
        ("assistant", "", "Found."),
        ("assistant", "sources", "notes.md f"),
        ("assistant", "refuses", "Not that."),
    ]
    assert said({"wire": "openai.responses", "prompt": "hi"}) == [("user", "", "hi")]


def test_messages() -> None:
    document = {"type": "base64", "data": "(5,000 characters of data)"}
    assert said(MESSAGES) == [
        ("system", "", "Be short."),
        ("user", "", "Look it up."),
        ("assistant", "thinking", "I look."),
        ("assistant", "thinking", "(kept by the provider)"),
        ("assistant", "calls look", {"x": 1}),
        ("tool", "failed result", "gone"),
        ("user", "document", {"type": "document", "source": document}),
    ]
    assert answered(MESSAGES) == [
        ("assistant", "", "It is gone."),
        ("assistant", "sources", "Doc gone"),
        ("assistant", "calls web_search", {"query": "x"}),
    ]


def test_completions_and_vectors() -> None:
    error = {"type": "error", "error": {"message": "overloaded"}}
    assert [line.role for line in answered({"answer": error, "outcome": "error"})] == ["provider"]
    assert answered({"answer": {"choices": [{"index": 0, "text": "more"}]}}) == [
        ("assistant", "", "more")
    ]
    vector = {"object": "embedding", "index": 0, "embedding": [0.5] * 1536}
    assert answered({"answer": {"object": "list", "data": [vector]}}) == [
        ("assistant", "data", {**vector, "embedding": "(1,536 values)"})
    ]


def _record(client: LedgerClient, call: dict[str, Any]) -> str:
    """The call as the gateway records it: every part as its exact text."""
    told: dict[str, Any] = {}
    for name, value in call.items():
        if name == "prompt" and isinstance(value, list):
            told[name] = Content.exact_list([json.dumps(item).encode() for item in value])
        else:
            told[name] = value if name == "wire" else Content.exact(json.dumps(value).encode())
    changed = [{"path": "/model", "reason": "gpt is a name for gpt-4o", "was": '"gpt"'}]
    parameters = Content.exact(b'{"messages":[], "model":"gpt-4o"}')
    more = {"changed": changed, "parameters": parameters}
    return Story(client).exchange(**{"response": "Its text.", **told, **more})


@pytest.mark.parametrize("call", DIALECTS, ids=lambda call: str(call["wire"]))
def test_trees_and_pages_show_the_call_whole(client: LedgerClient, call: dict[str, Any]) -> None:
    _record(client, call)
    tree = journey_text(
        open_journey(client, session_id=SESSION), colour=False, width=100, full=True
    )
    page = journey_page(prompt_journey(client, session_id=SESSION))
    text = "\n".join(tree)
    for line in (*said(call), *answered(call)):
        assert line.label in text
        assert line.label in page
        if isinstance(line.content, str):
            assert line.content.split("\n")[0] in text
            assert line.content.replace('"', "&#34;") in page
    assert DATA not in text + page
    assert "gpt is a name for gpt-4o" in page
    short = journey_text(open_journey(client, session_id=SESSION), colour=False, width=100)
    assert f"last of {len(said(call))} prompt messages, " in "\n".join(short)


def test_what_was_erased_or_is_not_asked_for_is_said(client: LedgerClient) -> None:
    exchange = _record(client, RESPONSES)
    bare = prompt_journey(client, session_id=SESSION, with_content=False)
    text = "\n".join(journey_text(bare, colour=False, width=100, full=True))
    assert text.count("[content not shown]") >= 3
    assert "[content not shown]" in journey_page(bare)
    client.erase(exchange, reason="r")
    journey = prompt_journey(client, session_id=SESSION)
    assert "[erased under LED-" in "\n".join(journey_text(journey, colour=False, width=100))
    assert "[erased under LED-" in journey_page(journey)


def test_an_answer_nested_deep_is_shown(client: LedgerClient) -> None:
    deep = b"[" * 700 + b"]" * 700
    Story(client).exchange(
        wire="openai.chat", prompt=Content.exact(deep), answer=Content.exact(b'{"x":%b}' % deep)
    )
    journey = prompt_journey(client, session_id=SESSION)
    assert "nested too deep" in "\n".join(journey_text(journey, colour=False, width=9999))
    assert "nested too deep" in journey_page(journey)
