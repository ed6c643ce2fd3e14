"""The Responses API: what is read from an answer, and streams that add up to the same answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remit.providers.wire import answer_facts, stream_sum
from tests.providers.wire.streams import added, response_events

USAGE = {
    "input_tokens": 36,
    "input_tokens_details": {"cached_tokens": 10, "cache_write_tokens": 5},
    "output_tokens": 87,
    "output_tokens_details": {"reasoning_tokens": 20},
    "total_tokens": 123,
}


def _answer(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_700_000_000,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": "gpt-5-mini-2025-08-07",
        "output": list(items),
        "parallel_tool_calls": True,
        "tools": [],
        "usage": USAGE,
        **more,
    }


def _text(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": [], **more}


def _message(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant",
            "content": list(parts)}  # fmt: skip


CALL = {"id": "fc_1", "type": "function_call", "status": "completed", "call_id": "call_1",
        "name": "read", "arguments": '{"path":"a.txt"}'}  # fmt: skip
CUSTOM = {"id": "ctc_1", "type": "custom_tool_call", "call_id": "call_2", "name": "shell",
          "input": "ls -l"}  # fmt: skip
SEARCH = {"id": "ws_1", "type": "web_search_call", "status": "completed",
          "action": {"type": "search", "query": "weather"}}  # fmt: skip
OPENED = {"id": "ws_2", "type": "web_search_call", "status": "completed",
          "action": {"type": "open_page", "url": "https://a.example"}}  # fmt: skip
CODE = {"id": "ci_1", "type": "code_interpreter_call", "status": "completed", "code": "1+1",
        "container_id": "cntr_1", "outputs": None}  # fmt: skip
THOUGHT = {"id": "rs_1", "type": "reasoning", "encrypted_content": None,
           "summary": [{"type": "summary_text", "text": "So"},
                       {"type": "summary_text", "text": "and so"}]}  # fmt: skip
OPEN_THOUGHT = {"id": "rs_2", "type": "reasoning", "summary": [],
                "content": [{"type": "reasoning_text", "text": "Hmm"}]}  # fmt: skip
CITATION = {"type": "url_citation", "start_index": 0, "end_index": 2, "title": "T", "url": "u"}
TOKEN = {"token": "Hello", "logprob": -0.5, "bytes": [72], "top_logprobs": []}

ANSWERS = {
    "text": _answer(_message(_text("Grüße, 世界."))),
    "two texts": _answer(_message(_text("One. "), _text("Two."))),
    "a tool": _answer(_message(_text("So:")), CALL),
    "a custom tool": _answer(CUSTOM),
    "thinking": _answer(THOUGHT, _message(_text("4"))),
    "open thinking": _answer(OPEN_THOUGHT, _message(_text("4"))),
    "citations": _answer(SEARCH, OPENED, _message(_text("Hello", annotations=[CITATION]))),
    "log probabilities": _answer(_message(_text("Hello", logprobs=[TOKEN]))),
    "refusal": _answer(_message({"type": "refusal", "refusal": "I will not."})),
    "code": _answer(CODE, _message(_text("2"))),
    "cut off": _answer(
        _message(_text("Hel")),
        status="incomplete",
        incomplete_details={"reason": "max_output_tokens"},
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_without_the_last_event_the_output_still_adds_up(name: str) -> None:
    whole = ANSWERS[name]
    total = stream_sum("openai.responses")
    answer = added(total, response_events(whole, 3)[:-1])
    assert not total.ended
    assert answer["output"] == whole["output"]
    assert total.text == answer_facts("openai.responses", whole).text
    assert total.usage is None


@pytest.mark.parametrize("output", [None, []])
def test_a_last_event_without_the_output(output: Any) -> None:
    whole = ANSWERS["a tool"]
    events = response_events(whole, 3)[:-1]
    last = {"type": "response.completed", "response": {**whole, "output": output}}
    total = stream_sum("openai.responses")
    assert added(total, [*events, ("response.completed", json.dumps(last).encode())]) == whole
    assert total.usage is not None


@pytest.mark.parametrize("last", [[], {"type": "message", "content": []}])
def test_a_container_that_the_last_event_leaves_out_is_billed(last: Any) -> None:
    usage = {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12}
    runs = [{"type": "code_interpreter_call", "id": each, "container_id": each} for each in "ab"]
    total = stream_sum("openai.responses")
    for index, item in enumerate(runs):
        event = {"type": "response.output_item.done", "output_index": index, "item": item}
        total.add("", json.dumps(event).encode())
    response = {"status": "completed", "output": [runs[1], last] if last else [], "usage": usage}
    event = {"type": "response.completed", "response": response}
    total.add("", json.dumps(event).encode())
    assert total.usage is not None
    assert total.usage.server_tool_uses == {"code_interpreter": 2}
    assert total.answer()["output"] == (runs if not last else [*runs, last])


@pytest.mark.parametrize("place", [{"output_index": 0}, {}])
@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize(
    ("tool", "events"),
    [
        ("code_interpreter", ("_call.in_progress", "_call.interpreting", "_call.completed")),
        ("code_interpreter", ("_call.in_progress", "_call_code.done")),
        ("web_search", ("_call.searching",)),
        ("image_generation", ("_call.generating", "_call.partial_image")),
        ("shell", ("_call_command.added", "_call_command.delta", "_call_output_content.done")),
    ],
)
def test_a_use_of_a_tool_that_only_its_progress_shows_is_billed(
    place: dict[str, int], listed: bool, tool: str, events: tuple[str, ...]
) -> None:
    usage = {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12}
    total = stream_sum("openai.responses")
    for name in events:
        event = {"type": f"response.{tool}{name}", "item_id": "ci_1", **place}
        total.add("", json.dumps(event).encode())
    assert total.pieces == 1
    use = {"type": f"{tool}_call", "id": "ci_1"}
    said = {"type": "message", "id": "m", "content": []}
    response = {"status": "completed", "usage": usage, "output": [use, said] if listed else [said]}
    total.add("", json.dumps({"type": "response.completed", "response": response}).encode())
    assert total.usage is not None
    assert total.usage.server_tool_uses == {tool: 1}
    assert total.answer()["output"] == [use, said]


def test_an_item_that_cannot_be_read_makes_the_usage_of_a_stream_unreported() -> None:
    total = stream_sum("openai.responses")
    for event in (
        {"type": "response.output_item.done", "output_index": 0, "item": None},
        {"type": "response.output_text.delta", "output_index": 0, "delta": "x"},
        {"type": "response.completed", "response": {
            "status": "completed", "output": [], "usage": ANSWERS["a tool"]["usage"]}},
    ):  # fmt: skip
        total.add("", json.dumps(event).encode())
    assert total.usage is None
