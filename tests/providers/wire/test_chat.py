"""Chat Completions: what is read from an answer, and streams that add up to the same answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from remit.providers.wire import answer_facts, stream_sum
from tests.providers.wire.streams import added, chat_chunks, without_nulls

USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}


def _choice(index: int = 0, finish: str = "stop", **message: Any) -> dict[str, Any]:
    fields = {"role": "assistant", "content": None, "refusal": None, **message}
    return {"index": index, "message": fields, "logprobs": None, "finish_reason": finish}


def _answer(*choices: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "gpt-4o-mini-2024-07-18",
        "system_fingerprint": "fp_1",
        "service_tier": "default",
        "choices": list(choices),
        "usage": USAGE,
        **more,
    }


def _token(text: str) -> dict[str, Any]:
    return {"token": text, "logprob": -0.5, "bytes": list(text.encode()), "top_logprobs": []}


CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "read_file", "arguments": '{"path": "a.txt"}'},
}
CUSTOM = {
    "id": "call_2",
    "type": "custom",
    "custom": {"name": "shell", "input": "ls -l\n"},
}
ANNOTATION = {
    "type": "url_citation",
    "url_citation": {"start_index": 0, "end_index": 5, "title": "T", "url": "https://a.example"},
}
LOGPROBS = {"content": [_token("Hel"), _token("lo")], "refusal": None}
REFUSED = {"content": None, "refusal": [_token("No"), _token(".")]}

ANSWERS = {
    "text": _answer(_choice(content="Hello there.")),
    "not ascii": _answer(_choice(content="Grüße, 世界 🌍")),
    "cut off": _answer(_choice(finish="length", content="Hello")),
    "two tools": _answer(_choice(finish="tool_calls", tool_calls=[CALL, CUSTOM])),
    "text and a tool": _answer(_choice(finish="tool_calls", content="So:", tool_calls=[CALL])),
    "a function": _answer(_choice(finish="function_call", function_call=CALL["function"])),
    "refusal": _answer(_choice(refusal="I will not do that.")),
    "thinking": _answer(_choice(content="4", reasoning_content="2 and 2")),
    "citations": _answer(_choice(content="Hello", annotations=[ANNOTATION])),
    "two choices": _answer(_choice(content="One."), _choice(1, "length", content="Two")),
    "log probabilities": _answer({**_choice(content="Hello"), "logprobs": LOGPROBS}),
    "of a refusal": _answer({**_choice(refusal="No."), "logprobs": REFUSED}),
    "sound": _answer(
        _choice(audio={"id": "audio_1", "data": "UklGRg==", "transcript": "Hi.", "expires_at": 9})
    ),
    "unknown fields": _answer(
        _choice(content="x", mood={"name": "calm", "why": "no reason at all"}, flags=[1, 2])
    ),
    "filtered": _answer(_choice(finish="content_filter", content="")),
}


def names(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*map(names, value.values()))
    return set().union(*map(names, value)) if isinstance(value, list) else set()


# What OpenAI's own client holds of a stream, too; it knows no custom tools.
@pytest.mark.parametrize("name", sorted(set(ANSWERS) - {"two tools"}))
@pytest.mark.parametrize("width", [1, 4])
def test_the_clients_own_sum(name: str, width: int) -> None:
    chunks = chat_chunks(ANSWERS[name], width)
    state = ChatCompletionStreamState()
    for chunk in chunks[:-1]:
        list(state.handle_chunk(ChatCompletionChunk.construct(**_built(chunk))))
    theirs = state.current_completion_snapshot.to_dict()
    ours = added(stream_sum("openai.chat"), chunks)
    assert _comparable(ours) == _comparable(theirs)


def _built(chunk: bytes) -> dict[str, Any]:
    built: dict[str, Any] = json.loads(chunk)
    return built


def _comparable(answer: dict[str, Any]) -> Any:
    """Without what the client leaves in place or adds itself."""
    for choice in answer["choices"]:
        message = choice["message"]
        message.pop("parsed", None)
        for call in message.get("tool_calls") or ():
            call.pop("index", None)
            call["function"].pop("parsed_arguments", None)
    return without_nulls(answer)


def _sum(*chunks: Any) -> Any:
    total = stream_sum("openai.chat")
    for chunk in chunks:
        total.add("", chunk if isinstance(chunk, bytes) else json.dumps(chunk).encode())
    return total


def _delta(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def _calls(total: Any) -> Any:
    return total.answer()["choices"][0]["message"]["tool_calls"]


def test_names_that_a_server_repeats_are_not_doubled() -> None:
    total = _sum(*(
        _delta(role="assistant", tool_calls=[
            {**CALL, "index": 0, "function": {"name": "read_file", "arguments": piece}}
        ])
        for piece in ('{"pa', 'th": "', 'a.txt"}')
    ))  # fmt: skip
    assert _calls(total) == [CALL]
    assert total.answer()["choices"][0]["message"]["role"] == "assistant"


def test_calls_without_an_index_or_all_with_the_same() -> None:
    other = {**CALL, "id": "call_9"}
    expected = [CALL, other]
    assert _calls(_sum(_delta(tool_calls=[CALL, other]))) == expected
    assert _calls(_sum(_delta(tool_calls=[CALL]), _delta(tool_calls=[other]))) == expected
    same = [{"index": 0, **call} for call in expected]
    assert _calls(_sum(_delta(tool_calls=[same[0]]), _delta(tool_calls=[same[1]]))) == expected
    start = {**CALL, "function": {"name": "read_file", "arguments": '{"path": '}}
    rest = {"function": {"arguments": '"a.txt"}'}}
    assert _calls(_sum(_delta(tool_calls=[start]), _delta(tool_calls=[rest]))) == [CALL]


def test_only_what_has_a_finish_reason_has_ended() -> None:
    second = {"choices": [{"index": 1, "delta": {"content": "b"}, "finish_reason": None}]}
    total = _sum(_delta(content="a"), second, _delta("stop"))
    assert not total.ended
    second["choices"][0]["finish_reason"] = "stop"
    total.add("", json.dumps(second).encode())
    assert total.ended
    assert not total.is_last


def test_thoughts_that_come_twice_in_one_piece_count_once() -> None:
    details = [{"type": "reasoning.text", "index": 0, "format": "f", "text": "hmm"}]
    total = _sum(
        _delta(reasoning="hmm", reasoning_details=details),
        _delta(reasoning=" so", reasoning_details=[{**details[0], "text": " so"}]),
    )
    assert (total.pieces, total.size) == (2, 6)
    message = total.answer()["choices"][0]["message"]
    assert message["reasoning_details"] == [{**details[0], "text": "hmm so"}]


def test_completions_streamed() -> None:
    def chunk(text: str, at: int, finish: str | None = None, index: int = 0) -> dict[str, Any]:
        logprobs = {"tokens": [text], "token_logprobs": [-1.0], "text_offset": [at],
                    "top_logprobs": None}  # fmt: skip
        return {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m",
                "choices": [{"index": index, "text": text, "logprobs": logprobs,
                             "finish_reason": finish}]}  # fmt: skip

    total = stream_sum("openai.completions")
    for part in (chunk("On", 0), chunk("Tw", 0, index=1), chunk("e", 2, "stop"),
                 chunk("o", 2, "length", 1), {"choices": [], "usage": USAGE}):  # fmt: skip
        total.add("", json.dumps(part).encode())
    total.add("", b"[DONE]")
    answer = total.answer()
    assert answer["object"] == "text_completion"
    assert [choice["text"] for choice in answer["choices"]] == ["One", "Two"]
    assert answer["choices"][0]["logprobs"] == {
        "tokens": ["On", "e"], "token_logprobs": [-1.0, -1.0], "text_offset": [0, 2],
        "top_logprobs": None,
    }  # fmt: skip
    read = answer_facts("openai.completions", answer)
    assert (read.text, total.text, read.more_than_text) == ("One", "One", True)
    assert read.usage is not None
