"""Answers of any shape: nothing raises, and no usage is made up."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from remit.providers.wire import answer_facts, is_other_form, stream_sum
from tests.providers.dialects.bodies import ANSWERS
from tests.providers.wire import test_chat, test_messages, test_responses
from tests.providers.wire.streams import (
    added,
    chat_chunks,
    converse_events,
    gemini_events,
    message_events,
    response_events,
)

ENDPOINTS = (
    "openai.chat", "openai.completions", "openai.responses", "anthropic.messages",
    "anthropic.count_tokens", "openai.embeddings", "openai.moderations", "openai.images",
    "openai.rerank", "openai.transcriptions", "openai.speech", "openai.unheard_of",
    "gemini.generate", "gemini.count_tokens", "bedrock.converse",
)  # fmt: skip
FINISHES = {"stop", "length", "tool_use", "content_filter"}
OTHERS = {name: ANSWERS[name] for name in ("gemini.generate", "bedrock.converse")}

NAMES = st.sampled_from(
    sorted(
        {
            *test_chat.names(test_chat.ANSWERS),
            *test_chat.names(test_messages.ANSWERS),
            *test_chat.names(test_responses.ANSWERS),
            *test_chat.names(OTHERS),
            *("contentBlockIndex", "start", "cacheDetails"),
            *("promptFeedback", "blockReason", "metadata"),
            *("delta", "error", "item", "part", "output_index", "content_index", "item_id"),
            *("tool_usage", "web_search", "image_gen", "num_requests", "content_block"),
            *("iterations", "data", "results", "meta", "billed_units", "search_units", "seconds"),
            *("partial_json", "citation", "reasoning", "reasoning_details", "x_groq"),
        }
    )
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-2, 3)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | NAMES
    | st.sampled_from(
        ["message", "output_text", "text_delta", "input_json_delta", "citations_delta",
         "content_block_start", "content_block_delta", "message_start", "message_delta",
         "response.output_item.added", "response.output_item.done", "response.completed",
         "response.output_text.delta", "response.output_text.done", "web_search_call",
         "response.content_part.added", "response.function_call_arguments.delta", "compaction",
         "response.reasoning_summary_text.delta", "response.output_text.annotation.added"]
    )
)  # fmt: skip
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=20,
)


def _check(read: Any) -> None:
    assert type(read.text) is str
    assert type(read.model) is str
    assert type(read.request_id) is str
    assert read.finish_reason in FINISHES
    assert type(read.more_than_text) is bool
    if read.usage is not None:
        _check_usage(read.usage)


def _check_usage(usage: Any) -> None:
    for count in (usage.input_tokens, usage.output_tokens):
        assert type(count) is int
        assert 0 <= count < 2**53
    for name in usage.__slots__:
        if name.endswith("_tokens") and name != "counts_tokens":
            count = getattr(usage, name)
            assert count is None or (type(count) is int and 0 <= count < 2**53)
    assert all(type(times) is int and times > 0 for times in usage.server_tool_uses.values())


def _check_stream(endpoint: str, events: list[tuple[str, bytes]]) -> None:
    total = stream_sum(endpoint)
    for name, data in events:
        total.add(name, data)
        assert type(total.is_last) is bool
    answer = total.answer()
    assert type(answer) is dict
    json.dumps(answer)
    assert type(total.text) is str
    assert type(total.ended) is bool
    assert total.pieces >= 0 <= total.size
    if (usage := total.usage) is not None:
        _check_usage(usage)
    _check(answer_facts(endpoint, answer))
    assert total.answer() == answer


# Making an example takes longer than reading it: each is read for every endpoint.
@settings(max_examples=200)
@given(value=VALUES)
def test_any_answer(value: Any) -> None:
    for endpoint in ENDPOINTS:
        _check(answer_facts(endpoint, value))
        assert type(is_other_form(endpoint, value)) is bool


@settings(max_examples=200)
@given(events=st.lists(st.tuples(st.just("") | NAMES, VALUES), max_size=6))
def test_any_stream(events: list[tuple[str, Any]]) -> None:
    sent = [(name, json.dumps(value).encode()) for name, value in events]
    for endpoint in ENDPOINTS:
        _check_stream(endpoint, sent)


def _holes(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    if isinstance(value, dict):
        for key, each in value.items():
            found += _holes(each, (*path, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            found += _holes(each, (*path, index))
    return found


def _spoilt(value: Any, random: Random, other: Any) -> Any:
    """A copy with one value, at any depth, replaced or gone."""
    path = random.choice(_holes(value))
    if not path:
        return other
    spoilt = copy.deepcopy(value)
    at = spoilt
    for step in path[:-1]:
        at = at[step]
    if random.random() < 0.3:
        del at[path[-1]]
    else:
        at[path[-1]] = other
    return spoilt


_ANSWERS = (
    ("openai.chat", test_chat.ANSWERS, chat_chunks),
    ("anthropic.messages", test_messages.ANSWERS, message_events),
    ("openai.responses", test_responses.ANSWERS, response_events),
)


STREAMS = [
    *((endpoint, [each if isinstance(each, tuple) else ("", each) for each in cut(answer, 4)])
      for endpoint, answers, cut in _ANSWERS for answer in answers.values()),
    ("gemini.generate", gemini_events(OTHERS["gemini.generate"])),
    ("bedrock.converse", converse_events(OTHERS["bedrock.converse"], 4)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("endpoint", "whole", "cut"),
    [
        pytest.param(endpoint, answer, cut, id=f"{endpoint} {name}")
        for endpoint, answers, cut in _ANSWERS
        for name, answer in answers.items()
    ],
)
@pytest.mark.parametrize("width", [1, 3, 1000, 0])
def test_streamed_is_whole(endpoint: str, whole: Any, cut: Any, width: int) -> None:
    """Also an answer that comes whole where a stream was asked for: width 0."""
    total = stream_sum(endpoint)
    assert added(total, cut(whole, width) if width else [json.dumps(whole).encode()]) == whole
    assert total.ended
    assert total.is_last or (width, endpoint) == (0, "openai.chat")
    assert total.text == answer_facts(endpoint, whole).text
    assert total.usage == answer_facts(endpoint, whole).usage
    assert total.usage is not None
    assert total.pieces or (endpoint, bool(width)) != ("openai.responses", True)


@settings(max_examples=400)
@given(st.sampled_from(STREAMS), st.randoms(use_true_random=False), VALUES)
def test_a_stream_with_wrong_values(
    stream: tuple[str, list[tuple[str, bytes]]], random: Random, other: Any
) -> None:
    endpoint, events = stream
    events = list(events)
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(events))
        name, data = events[at]
        if data == b"[DONE]" or random.random() < 0.2:
            del events[at]
        else:
            spoilt = _spoilt(json.loads(data), random, other)
            events[at] = (name, json.dumps(spoilt).encode())
        if not events:
            break
    _check_stream(endpoint, events)


def test_a_long_stream_takes_time_in_proportion() -> None:
    choice = {
        "index": 0, "delta": {"content": "x" * 8}, "token_ids": [1, 2],
        "logprobs": {"content": [{"token": "x"}], "refusal": None},
    }  # fmt: skip
    piece = json.dumps({"choices": [choice]}).encode()
    total = stream_sum("openai.chat")
    for _ in range(100_000):
        total.add("", piece)
    assert total.size == len(total.text) == 800_000
    assert len(total.answer()["choices"][0]["token_ids"]) == 200_000
    said = {"type": "response.output_text.delta", "output_index": 0, "content_index": 0,
            "delta": "x" * 8, "logprobs": [{"token": "x"}]}  # fmt: skip
    total = stream_sum("openai.responses")
    for _ in range(100_000):
        total.add("", json.dumps(said).encode())
    assert total.size == len(total.text) == 800_000


_USED = {"input_tokens": 1000, "output_tokens": 500, "total_tokens": 1500}
BILLED: dict[str, tuple[str, dict[str, Any]]] = {
    "responses": ("openai.responses", {
        "service_tier": "priority", "status": "completed", "usage": _USED,
        "output": [test_responses.SEARCH, test_responses.CODE,
                   {"type": "file_search_call", "id": "f"},
                   {"role": "assistant", "type": None, "content": []}],
        "tool_usage": {"web_search": {"num_requests": 2}, "image_gen": _USED},
    }),
    "messages": ("anthropic.messages", {
        "usage": {**_USED, "service_tier": "priority"},
        "content": [{"type": "server_tool_use", "name": "code_execution"},
                    {"type": "code_execution_tool_result", "content": {}}],
    }),
    "gemini": ("gemini.generate", {
        "candidates": [{"content": {"parts": [{"text": "x"}]}, "groundingMetadata": {
            "webSearchQueries": ["a", "b"], "groundingChunks": [{"web": {}}, {"maps": {}}]}}],
        "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 5},
    }),
    "converse": ("bedrock.converse", {
        "output": {"message": {"role": "assistant", "content": [{"text": "x"}]}},
        "usage": {"inputTokens": 9, "outputTokens": 5, "cacheWriteInputTokens": 50,
                  "cacheDetails": [{"ttl": "5m", "inputTokens": 20},
                                   {"ttl": "1h", "inputTokens": 10},
                                   {"ttl": "1h", "inputTokens": 20}]},
        "serviceTier": {"type": "priority"},
    }),
}  # fmt: skip
_FREE = ("action", "content", "name", "webSearchQueries")
"""Members whose values are text of the model, or name the tool in two places."""


@pytest.mark.parametrize("name", BILLED)
def test_an_answer_with_a_value_of_the_wrong_type_is_not_billed_less(name: str) -> None:
    endpoint, answer = BILLED[name]
    whole = answer_facts(endpoint, answer).usage
    assert whole is not None
    paths = [path for path in _holes(answer) if path and path[-1] not in _FREE]
    assert len(paths) > 8
    for path in paths:
        for other in (7.5, True, -1, ["x"], [None], {"x": 1}):
            spoilt = copy.deepcopy(answer)
            at: Any = spoilt
            for step in path[:-1]:
                at = at[step]
            if type(at[path[-1]]) is type(other) is dict:
                continue
            at[path[-1]] = other
            read = answer_facts(endpoint, spoilt).usage
            if read is None or is_other_form(endpoint, spoilt):
                continue
            assert read.served == whole.served, (path, other)
            assert read.cache_write_long_tokens == whole.cache_write_long_tokens, (path, other)
            assert read.input_tokens >= whole.input_tokens, (path, other)
            assert read.output_tokens >= whole.output_tokens, (path, other)
            fewer = whole.server_tool_uses.items() - read.server_tool_uses.items()
            assert not fewer, (path, other)
