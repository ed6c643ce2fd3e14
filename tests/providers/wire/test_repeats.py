"""Events that are added up by their text alone come to what reading each comes to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given, strategies as st

from remit.providers.sse import SseParser
from remit.providers.wire import Repeats, StreamSum, stream_sum

_TEXTS = st.one_of(
    st.text(max_size=8), st.sampled_from(["", "id-1", "assistant", "a/b", 'x", "y": "z', "\ud800"])
)


def _chat(text: Any, odd: int) -> dict[str, Any]:
    """A chunk; ``odd`` makes of it one that does more than to append a text, or seems to."""
    choice: dict[str, Any] = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    chunk = {"id": "id-1", "model": "a/b", "choices": [choice]}
    match odd:
        case 1:
            choice["delta"]["role"] = "assistant"
        case 2:
            choice["delta"]["tool_calls"] = [{"index": 0, "function": {"arguments": "{"}}]
        case 3:
            choice["index"] = 1
        case 4:
            choice["logprobs"] = {"content": [{"token": text}]}
        case 5:
            chunk["usage"] = {"prompt_tokens": 1, "completion_tokens": 2}
        case 6:
            choice["delta"]["content"] = None
        case 7:
            choice["finish_reason"] = "stop"
        case 8:
            chunk["choices"] = [choice, choice]
        case 9:
            choice["delta"]["reasoning_content"] = text
        case 10:
            choice["delta"]["content"] = [{"type": "text", "text": text}]
        case 11 | 12:
            choice["content_filter_results"] = {"hate": odd}
        case 13:
            choice["tags"] = ["a"]
    return chunk


def _message(text: Any, odd: int) -> dict[str, Any]:
    delta: dict[str, Any] = {"type": "text_delta", "text": text}
    event = {"type": "content_block_delta", "index": 0, "delta": delta}
    match odd:
        case 1:
            event["index"] = 1
        case 2:
            delta["citations"] = [text]
        case 3:
            delta["type"] = "thinking_delta"
        case 4:
            event = {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}
        case 5:
            event = {"type": "message_delta", "delta": {"stop_reason": text}, "usage": {}}
        case 6:
            delta["text"] = None
        case 7:
            del event["index"]
    return event


def _wire(events: list[tuple[dict[str, Any], int]]) -> Iterator[bytes]:
    """As servers write them, which differ in what they escape."""
    for event, written in events:
        data = json.dumps(event, ensure_ascii=written != 1).encode("utf-8", "surrogatepass")
        yield b"data: %b\n\n" % (data.replace(b"/", rb"\/") if written == 2 else data)


def _added(total: StreamSum, raw: bytes) -> Any:
    (event,) = SseParser().feed(raw)
    return event.data, total.add(event.name, event.data)


def _both(endpoint: str, wire: list[bytes]) -> int:
    """Add both ways; how many were added by their text alone."""
    plain, total, alone = stream_sum(endpoint), stream_sum(endpoint), 0
    repeats = Repeats(total)
    for raw in wire:
        _added(plain, raw)
        if (texts := repeats.texts_in(raw)) is not None:
            repeats.append(texts)
            alone += 1
        else:
            data, value = _added(total, raw)
            repeats.learn(raw, data, value)
        assert (total.pieces, total.size, total.text) == (plain.pieces, plain.size, plain.text)
    assert total.answer() == plain.answer()
    return alone


_ODD = st.sampled_from([0] * 12 + list(range(1, 14)))
_WRITTEN = st.sampled_from([0, 0, 0, 1, 2])


@given(st.lists(st.tuples(_TEXTS, _ODD, _WRITTEN), max_size=12))
def test_any_stream(said: list[tuple[str, int, int]]) -> None:
    _both("openai.chat", list(_wire([(_chat(text, odd), how) for text, odd, how in said])))
    _both(
        "anthropic.messages", list(_wire([(_message(text, odd), how) for text, odd, how in said]))
    )
