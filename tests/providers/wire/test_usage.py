"""What is counted of an answer's usage: all of it, once, or nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from remit.providers.wire import Usage, answer_facts, stream_sum

MOST = 2**53 - 1


def _chat(usage: Any, text: str = "Hi", **message: Any) -> Usage | None:
    message = {"role": "assistant", "content": text, **message}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return answer_facts("openai.chat", {"choices": [choice], "usage": usage}).usage


def _messages(usage: Any, text: str = "Hi") -> Usage | None:
    content = [{"type": "text", "text": text}] if text else []
    return answer_facts("anthropic.messages", {"content": content, "usage": usage}).usage


def _responses(usage: Any, *items: dict[str, Any], **more: Any) -> Usage | None:
    said = {"type": "message", "content": [{"type": "output_text", "text": "Hi"}]}
    return answer_facts(
        "openai.responses", {"output": [said, *items], "usage": usage, **more}
    ).usage


def _told(usage: Usage | None, *names: str) -> Any:
    assert usage is not None
    named = names or ("input_tokens", "output_tokens")
    return tuple(getattr(usage, name) for name in named)


@pytest.mark.parametrize("wrong", [True, False, -1, 1.0, 7.5, "7", [], {}, [7], MOST + 1, 1e300])
def test_what_is_not_a_count_makes_all_of_it_unreported(wrong: Any) -> None:
    chat = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
    assert _told(_chat(chat)) == (5, 7)
    for name in chat:
        assert _chat({**chat, name: wrong}) is None
    for details, name in (
        ("prompt_tokens_details", "cached_tokens"),
        ("prompt_tokens_details", "cache_write_tokens"),
        ("completion_tokens_details", "reasoning_tokens"),
        ("completion_tokens_details", "audio_tokens"),
        ("server_tool_use", "web_search_requests"),
    ):
        assert _chat({**chat, details: {name: wrong}}) is None
        if wrong != {}:
            assert _chat({**chat, details: wrong}) is None
        assert _told(_chat({**chat, details: None})) == (5, 7)
        assert _told(_chat({**chat, details: {name: None}})) == (5, 7)
    messages = {"input_tokens": 5, "output_tokens": 7}
    for name in (*messages, "cache_read_input_tokens", "cache_creation_input_tokens"):
        assert _messages({**messages, name: wrong}) is None
    for details, name in (
        ("cache_creation", "ephemeral_5m_input_tokens"),
        ("cache_creation", "ephemeral_1h_input_tokens"),
        ("output_tokens_details", "thinking_tokens"),
        ("server_tool_use", "web_search_requests"),
    ):
        assert _messages({**messages, details: {name: wrong}}) is None
    assert _messages({**messages, "iterations": [{"input_tokens": wrong}]}) is None
    if wrong != []:
        assert _messages({**messages, "iterations": wrong}) is None
    responses = {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12}
    for name in responses:
        assert _responses({**responses, name: wrong}) is None
    assert _responses({**responses, "input_tokens_details": {"cached_tokens": wrong}}) is None


COUNTS = st.none() | st.integers(0, 9) | st.integers(0, 1000)


@settings(max_examples=500)
@given(COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS)
def test_no_count_of_a_chat_is_lost_or_taken_twice(
    prompt: Any, completion: Any, total: Any, cached: Any, written: Any, reasoning: Any
) -> None:
    told = {
        "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total,
        "prompt_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }  # fmt: skip
    usage = _chat(told)
    parts, thought = (cached or 0) + (written or 0), reasoning or 0
    if usage is None:
        # Nothing of it could be believed: never a reason where all of it agrees.
        assert not (prompt and completion and total == prompt + completion
                    and parts <= prompt and thought <= completion)  # fmt: skip
        return
    given, made = usage.input_tokens, usage.output_tokens
    assert given >= max(prompt, parts)
    assert made >= max(completion or 0, thought)
    assert given + made >= (total or 0)
    assert given in (prompt, prompt + parts)
    most = (completion or 0) + thought
    assert made <= max(most, (total or 0) - given)
    if total == prompt + (completion or 0) and thought <= (completion or 0):
        assert (given, made) == (prompt, completion)


@settings(max_examples=500)
@given(COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS)
def test_no_count_of_a_message_is_lost_or_taken_twice(
    given: Any, made: Any, cached: Any, written: Any, short: Any, long: Any
) -> None:
    usage = _messages(
        {
            "input_tokens": given, "output_tokens": made, "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": written,
            "cache_creation": {
                "ephemeral_5m_input_tokens": short, "ephemeral_1h_input_tokens": long,
            },
        }
    )  # fmt: skip
    wrote = max(written or 0, (short or 0) + (long or 0))
    if given is None or not made or not given + (cached or 0) + wrote:
        assert usage is None
        return
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (given + (cached or 0) + wrote, made)
    assert (usage.cache_write_tokens or 0) == wrote
    assert (usage.cache_write_short_tokens or 0) <= wrote


def test_zeros_beside_an_answer_are_not_believed() -> None:
    zeros = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    assert _chat(zeros) is None
    assert _chat({**zeros, "prompt_tokens": 5}) is None
    assert _chat({**zeros, "completion_tokens": 5}) is None
    assert _told(_chat({**zeros, "prompt_tokens": 5}, text="")) == (5, 0)
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert _chat({**zeros, "prompt_tokens": 5}, text="", tool_calls=[call]) is None
    assert _chat({**zeros, "prompt_tokens": 5}, text="", reasoning_content="hm") is None
    assert _chat({**zeros, "prompt_tokens": 5}, text="", refusal="no") is None
    assert _messages({"input_tokens": 0, "output_tokens": 5}) is None
    assert _messages({"input_tokens": 5, "output_tokens": 0}) is None
    assert _told(_messages({"input_tokens": 5, "output_tokens": 0}, text="")) == (5, 0)
    assert _told(_messages({"input_tokens": 0, "output_tokens": 5,
                            "cache_read_input_tokens": 9})) == (9, 5)  # fmt: skip
    assert _responses({"input_tokens": 5, "output_tokens": 0}) is None


def test_tools_that_a_responses_provider_ran() -> None:
    usage = {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12}
    search = {"type": "web_search_call", "action": {"type": "search"}}
    opened = {"type": "web_search_call", "action": {"type": "open_page"}}
    items = (search, search, opened, {"type": "file_search_call"}, {"type": "function_call"},
             {"type": "code_interpreter_call"}, {"type": "computer_call"},
             {"type": "shell_call", "environment": {"type": "local"}})  # fmt: skip
    read = _responses(usage, *items)
    assert read is not None
    assert read.server_tool_uses == {"web_search": 2, "file_search": 1, "code_interpreter": 1}
    billed = {
        "web_search": {"num_requests": 3},
        "image_gen": {"input_tokens": 0, "output_tokens": 0},
    }
    read = _responses(usage, *items, tool_usage=billed)
    assert read is not None
    assert read.server_tool_uses["web_search"] == 3
    told = {**usage, "server_tool_use": {"web_search_requests": 2}}
    read = _responses(told, *items)
    assert read is not None
    assert read.server_tool_uses["web_search"] == 2
    drawn = {"image_gen": {"input_tokens": 10, "output_tokens": 1000, "total_tokens": 1010}}
    read = _responses(usage, tool_usage=drawn)
    assert _told(read) == (15, 1007)
    assert _told(read, "image_input_tokens", "image_output_tokens") == (10, 1000)
    assert _responses(usage, tool_usage={"image_gen": {"input_tokens": "x"}}) is None


def test_a_container_is_billed_once_however_often_it_ran() -> None:
    usage = {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12}
    code = {"type": "code_interpreter_call", "container_id": "cntr_1"}
    place = {"type": "container_reference", "container_id": "cntr_3"}
    shell = {"type": "shell_call", "environment": place}
    other = {**code, "container_id": "cntr_2"}
    read = _responses(usage, code, code, other, shell, shell)
    assert read is not None
    assert read.server_tool_uses == {"code_interpreter": 2, "shell": 1}
    nameless = _responses(
        usage, {**code, "container_id": 7}, {"type": "code_interpreter_call"},
        {"type": "shell_call"}, {**shell, "environment": {**place, "container_id": None}},
    )  # fmt: skip
    assert nameless is not None
    assert nameless.server_tool_uses == {"code_interpreter": 2, "shell": 2}


def test_code_that_anthropic_ran_is_one_container() -> None:
    usage = {"input_tokens": 5, "output_tokens": 7}
    code = {"type": "server_tool_use", "id": "s", "name": "bash_code_execution", "input": {}}
    ran = {"type": "code_execution_tool_result", "tool_use_id": "s", "content": {}}
    fetch = {**code, "name": "web_fetch"}
    searched = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    for blocks, uses in (
        ((code, code), {"code_execution": 1}),
        ((ran,), {"code_execution": 1}),
        ((code, fetch), {"code_execution": 1}),
        ((code, {**code, "name": "web_search"}), {"web_search": 1, "code_execution": 1}),
        ((code, searched), {"web_search": 2, "code_execution": 1}),
    ):
        stated = {"server_tool_use": {"web_search_requests": 2}} if searched in blocks else {}
        answer = {"type": "message", "content": [*blocks], "usage": {**usage, **stated}}
        read = answer_facts("anthropic.messages", answer).usage
        assert read is not None
        assert read.server_tool_uses == uses


@pytest.mark.parametrize("name", [None, ["code_execution"]])
def test_a_tool_of_anthropics_that_cannot_be_told_makes_all_of_it_unreported(name: Any) -> None:
    use = {"type": "server_tool_use", "id": "s", "name": name, "input": {}}
    answer = {"content": [use], "usage": {"input_tokens": 5, "output_tokens": 7}}
    assert answer_facts("anthropic.messages", answer).usage is None


@pytest.mark.parametrize(
    "more",
    [
        {"output": {"0": {"type": "code_interpreter_call"}}}, {"output": "x"},
        {"output": [{"type": "", "role": ""}]}, {"tool_usage": 5}, {"tool_usage": []},
        {"tool_usage": {"web_search": 5}}, {"tool_usage": {"web_search": {"num_requests": "3"}}},
    ],
)  # fmt: skip
def test_uses_of_tools_that_cannot_be_read_make_all_of_it_unreported(more: Any) -> None:
    assert _responses({"input_tokens": 5, "output_tokens": 7, "total_tokens": 12}, **more) is None


USED = {"promptTokenCount": 9, "candidatesTokenCount": 2}


@pytest.mark.parametrize(
    ("name", "grounding", "searches"),
    [
        ("groundingMetadata", {"groundingChunks": [{"web": {}}, {"web": {}}]}, 1),
        ("groundingMetadata", {"web_search_queries": ["a", "b"]}, 2),
        ("grounding_metadata", {"web_search_queries": ["a"], "grounding_chunks": []}, 1),
    ],
)
def test_searches_of_gemini_count_without_queries_and_in_either_spelling(
    name: str, grounding: Any, searches: int
) -> None:
    candidate = {"content": {"parts": [{"text": "x"}]}, name: grounding}
    answer = {"candidates": [candidate], "usageMetadata": USED}
    total = stream_sum("gemini.generate")
    total.add("", json.dumps(answer).encode())
    for usage in (answer_facts("gemini.generate", answer).usage, total.usage):
        assert usage is not None
        assert usage.server_tool_uses == {"web_search": searches}


def test_an_event_with_unreadable_candidates_makes_all_of_it_unreported() -> None:
    total = stream_sum("gemini.generate")
    good = {"content": {"parts": [{"text": "x"}]}, "finishReason": "STOP"}
    for candidates in ({"groundingMetadata": {"webSearchQueries": ["a"]}}, [good]):
        event = {"candidates": candidates, "usageMetadata": USED}
        total.add("", json.dumps(event).encode())
    assert total.text == "x"
    assert total.usage is None


@pytest.mark.parametrize("repeats", [True, False])
def test_searches_and_maps_of_all_events_of_a_stream_count(repeats: bool) -> None:
    web, place = {"web": {"uri": "u"}}, {"maps": {"uri": "v"}}
    first = {"webSearchQueries": ["a", "b"], "groundingChunks": [place]}
    later = {"webSearchQueries": ["a", "b", "c"], "groundingChunks": [place, web]}
    if not repeats:
        later = {"webSearchQueries": ["c"], "groundingChunks": [web], "groundingSupports": []}
    used = {"promptTokenCount": 9, "candidatesTokenCount": 2}
    total = stream_sum("gemini.generate")
    for grounding in (first, later, {"webSearchQueries": None}):
        candidate = {"content": {"parts": [{"text": "x"}]}, "groundingMetadata": grounding}
        event = {"candidates": [candidate], "usageMetadata": used}
        total.add("", json.dumps(event).encode())
    assert total.usage is not None
    assert total.usage.server_tool_uses == {"web_search": 3, "google_maps": 1}
    (candidate,) = total.answer()["candidates"]
    assert candidate["groundingMetadata"]["groundingChunks"] == [place, web]


def test_rankings() -> None:
    ranked = {"results": [{"index": 0, "relevance_score": 0.9}]}
    assert answer_facts("openai.rerank", {**ranked, "usage": {"total_tokens": 9}}).usage == Usage(
        9, 0
    )
    units = answer_facts("openai.rerank", {**ranked, "meta": {"billed_units": {"search_units": 1}}})
    assert (units.usage, units.units) == (None, {"search_units": 1})
    tokens = {"tokens": {"input_tokens": 12, "output_tokens": 3}}
    assert answer_facts("openai.rerank", {**ranked, "meta": tokens}).usage == Usage(12, 3)
    for meta in (None, {}, [], {"billed_units": {"search_units": True}}, {"billed_units": 1}):
        read = answer_facts("openai.rerank", {**ranked, "meta": meta})
        assert (read.usage, read.units) == (None, {})


def test_thinking_beyond_the_output_is_not_believed() -> None:
    used = {"input_tokens": 5, "output_tokens": 7}
    assert _messages({**used, "output_tokens_details": {"thinking_tokens": 8}}) is None
    odd = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 8, "reasoning_tokens": 50}
    assert _told(_chat(odd)) == (5, 52)


def test_searches_that_only_the_blocks_show() -> None:
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    answer = {"content": [search, {**search, "name": "web_fetch"}, search],
              "usage": {"input_tokens": 5, "output_tokens": 7}}  # fmt: skip
    usage = answer_facts("anthropic.messages", answer).usage
    assert usage is not None
    assert usage.server_tool_uses == {"web_search": 2}


@pytest.mark.parametrize("name", [None, 5, [], {}, "x"])
def test_a_search_whose_name_cannot_be_read_is_billed(name: Any) -> None:
    search = {"type": "server_tool_use", "id": "s", "name": name, "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    used = {"input_tokens": 5, "output_tokens": 7}
    read = answer_facts("anthropic.messages", {"content": [search, found], "usage": used}).usage
    assert read is not None
    assert read.server_tool_uses == {"web_search": 1}


@pytest.mark.parametrize("kind", [5, None, [], {}, "x", "search"])
def test_only_the_known_actions_of_a_search_are_free(kind: Any) -> None:
    call = {"type": "web_search_call", "action": {"type": kind}}
    read = _responses({"input_tokens": 5, "output_tokens": 7, "total_tokens": 12}, call)
    assert read is not None
    assert read.server_tool_uses == {"web_search": 1}


def test_a_total_without_the_output_is_never_taken_for_a_cache() -> None:
    used = {"prompt_tokens": 5, "total_tokens": 8, "prompt_tokens_details": {"cached_tokens": 3}}
    assert _told(_chat(used)) == (5, 3)
    assert _told(_chat({**used, "completion_tokens": None})) == (5, 3)


@pytest.mark.parametrize("wrong", [5, ["priority"], {"type": 5}])
@pytest.mark.parametrize("name", ["service_tier", "inference_geo", "speed"])
def test_a_service_that_is_no_text_makes_all_of_it_unreported(name: str, wrong: Any) -> None:
    used = {"input_tokens": 5, "output_tokens": 7}
    assert _told(_messages({**used, name: None})) == (5, 7)
    assert _messages({**used, name: wrong}) is None
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hi"}}
    answer = {"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 7}}
    assert answer_facts("openai.chat", {**answer, name: wrong}).usage is None


def test_a_second_model_that_drew() -> None:
    drawn = {"data": [{}], "usage": {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12},
             "svg_usage": {"input_tokens": 10, "output_tokens": 20, "reasoning_tokens": 3,
                           "total_tokens": 30, "model": "m"}}  # fmt: skip
    assert _told(answer_facts("openai.images", drawn).usage) == (15, 27)
    assert (
        answer_facts("openai.images", {**drawn, "svg_usage": {"input_tokens": "x"}}).usage is None
    )
