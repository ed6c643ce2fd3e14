"""The Messages API: what is read from an answer, and streams that add up to the same answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import RawMessageStreamEvent
from pydantic import TypeAdapter

from remit.providers.dialects import read_answer
from remit.providers.wire import answer_facts, stream_sum
from tests.providers.wire.streams import added, message_events, without_nulls

USAGE = {
    "input_tokens": 12,
    "cache_creation_input_tokens": 100,
    "cache_read_input_tokens": 1000,
    "cache_creation": {"ephemeral_5m_input_tokens": 60, "ephemeral_1h_input_tokens": 40},
    "output_tokens": 34,
    "service_tier": "standard",
}


def _answer(*blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5-20250929",
        "content": list(blocks),
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": USAGE,
        **more,
    }


TEXT = {"type": "text", "text": "Grüße, 世界."}
TOOL = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a.txt", "n": 1.5}}
CITATION = {
    "type": "char_location",
    "cited_text": "x",
    "document_index": 0,
    "document_title": "T",
    "start_char_index": 0,
    "end_char_index": 1,
    "file_id": None,
}
SEARCH = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "web_search",
    "input": {"query": "weather"},
}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [
        {
            "type": "web_search_result",
            "url": "https://a.example",
            "title": "A",
            "encrypted_content": "abc",
            "page_age": None,
        },
        {
            "type": "web_search_result",
            "url": "https://b.example",
            "title": "B",
            "encrypted_content": "def",
            "page_age": "1 day",
        },
    ],
}

ANSWERS = {
    "text": _answer(TEXT),
    "nothing": _answer(usage={**USAGE, "output_tokens": 2}),
    "two texts": _answer(TEXT, {"type": "text", "text": "More."}),
    "a tool": _answer(TEXT, TOOL, stop_reason="tool_use"),
    "a tool without input": _answer({**TOOL, "input": {}}, stop_reason="tool_use"),
    "thinking": _answer({"type": "thinking", "thinking": "Hmm, so", "signature": "EqQB"}, TEXT),
    "hidden thinking": _answer({"type": "redacted_thinking", "data": "EmwKAh"}, TEXT),
    "citations": _answer({**TEXT, "citations": [CITATION, {**CITATION, "document_index": 1}]}),
    "a search": _answer(
        SEARCH,
        FOUND,
        {**TEXT, "citations": None},
        usage={**USAGE, "server_tool_use": {"web_search_requests": 2, "web_fetch_requests": 0}},
    ),
    "refusal": _answer(stop_reason="refusal", usage={**USAGE, "output_tokens": 1}),
    "container": _answer(TEXT, container={"id": "c_1", "expires_at": "2026-01-01T00:00:00Z"}),
    "unknown": _answer({"type": "hologram", "shape": {"x": 1}}, TEXT, mood="calm"),
}


_event: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)


@pytest.mark.parametrize("name", sorted(set(ANSWERS) - {"unknown"}))
@pytest.mark.parametrize("width", [1, 4])
def test_the_clients_own_sum(name: str, width: int) -> None:
    events = message_events(ANSWERS[name], width)
    theirs: Any = None
    buffers: dict[int, bytes] = {}
    for kind, data in events:
        if kind != "ping":
            theirs = accumulate_event(
                event=_event.validate_json(data), current_snapshot=theirs, json_bufs=buffers
            )
    ours = added(stream_sum("anthropic.messages"), events)
    assert without_nulls(ours) == without_nulls(json.loads(theirs.to_json()))


def _sum(*events: dict[str, Any]) -> Any:
    total = stream_sum("anthropic.messages")
    for event in events:
        total.add(str(event.get("type", "")), json.dumps(event).encode())
    return total


START = {
    "type": "message_start",
    "message": {**_answer(), "stop_reason": None, "usage": {**USAGE, "output_tokens": 1}},
}


STOP = {"type": "message_stop"}


def _start(index: int, block: dict[str, Any]) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def _delta(index: int | None, kind: str, **delta: Any) -> dict[str, Any]:
    event = {"type": "content_block_delta", "delta": {"type": kind, **delta}}
    return event if index is None else {**event, "index": index}


def test_a_stream_that_breaks_off() -> None:
    total = _sum(START, _start(0, {"type": "text", "text": ""}), _delta(0, "text_delta", text="Hö"))
    assert not total.ended
    assert (total.text, total.pieces, total.size) == ("Hö", 1, 3)
    assert total.usage.input_tokens == 1112
    # What had been made by the start is not what was made.
    assert "output_tokens" not in total.answer()["usage"]
    assert answer_facts("anthropic.messages", total.answer()).usage is None


def test_output_that_is_only_counted_at_the_start_is_not_counted() -> None:
    total = _sum(START, _start(0, TEXT), {"type": "message_delta", "delta": {}, "usage": {}}, STOP)
    assert total.ended
    assert total.usage is None


def test_a_citation_in_a_text_that_was_not_begun_leaves_the_text_empty() -> None:
    total = _sum(_delta(0, "citations_delta", citation=CITATION))
    assert total.answer()["content"] == [{"type": "text", "text": "", "citations": [CITATION]}]


def test_compaction_replaces() -> None:
    total = _sum(
        START,
        _start(0, {"type": "compaction", "content": None}),
        _delta(0, "compaction_delta", content="Summary", encrypted_content="x"),
    )
    assert total.answer()["content"] == [
        {"type": "compaction", "content": "Summary", "encrypted_content": "x"}
    ]


def test_what_a_whole_answer_says() -> None:
    read = answer_facts("anthropic.messages", ANSWERS["two texts"])
    assert read.text == TEXT["text"] + "More."
    assert (read.model, read.request_id) == ("claude-sonnet-4-5-20250929", "msg_1")
    more = {
        name
        for name, answer in ANSWERS.items()
        if answer_facts("anthropic.messages", answer).more_than_text
    }
    assert more == set(ANSWERS) - {"text", "nothing", "two texts", "refusal"}
    for reason, finish in {
        "end_turn": "stop",
        "stop_sequence": "stop",
        "max_tokens": "length",
        "tool_use": "tool_use",
        "refusal": "content_filter",
        "pause_turn": "length",
        "new": "stop",
        "model_context_window_exceeded": "length",
    }.items():
        answer = _answer(TEXT, stop_reason=reason)
        for read in (answer_facts, read_answer):
            assert read("anthropic.messages", answer).finish_reason == finish


@pytest.mark.parametrize("is_list", [True, False])
def test_uses_of_tools_are_unknown_in_content_that_is_no_list(is_list: bool) -> None:
    block = {"type": "text", "text": "x"}
    answer = {
        "usage": {"input_tokens": 3, "output_tokens": 5},
        "content": [block] if is_list else block,
    }
    assert (answer_facts("anthropic.messages", answer).usage is not None) == is_list
