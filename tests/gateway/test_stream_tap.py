"""Events of a stream that are passed on as they came, and read later."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remit.gateway.stream import StreamTap
from remit.kernel.exchange import TextDelta
from remit.providers import WireChunk
from remit.providers.wire import stream_sum

_CHAT = "openai.chat"


class _Listener:
    """Takes what it is given."""

    def __init__(self) -> None:
        self.got: list[bytes] = []

    async def take(self, event: Any) -> bool:
        self.got.append(event.raw)
        return True

    def pass_on(self, raw: bytes) -> bool:
        self.got.append(raw)
        return True

    def release(self) -> bool:
        return True


def _event(content: str, **more: Any) -> bytes:
    chunk = {"id": "c", "choices": [{"index": 0, "delta": {"content": content}}], **more}
    return b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n"


async def _begun(listener: _Listener | None, *, asks_usage: bool = False) -> StreamTap:
    """A tap that has read the first event, ``one``."""
    tap = StreamTap(None, listener)
    tap.start()
    total = stream_sum(_CHAT)
    tap.listen(total, asks_usage=asks_usage)
    assert not tap.pass_on(_event("none is passed on before one was read"))
    raw = _event("one")
    value = total.add("", raw[6:-2])
    await tap.chunk(WireChunk(_CHAT, raw, "", value), begins=True)
    tap.may_pass_on()
    return tap


@pytest.mark.parametrize(
    "piece",
    [
        b"data: [DONE]\n\n",
        b'data: {"error":{"message":"overloaded"}}\n\n',
        b'data: {"\\u0065rror":{"message":"overloaded"}}\n\n',
        b'event: error\ndata: "overloaded"\n\n',
        b'data: {"type":"response.failed","response":{}}\n\n',
        _event("an error, or not"),
    ],
)
async def test_what_may_end_a_stream_is_read_first(piece: bytes) -> None:
    listener = _Listener()
    tap = await _begun(listener)
    assert not tap.pass_on(piece)
    assert listener.got == [_event("one")]
    assert tap.text == "one"


async def test_another_attempt_begins_with_nothing() -> None:
    tap = await _begun(_Listener())
    assert tap.pass_on(_event("two"))
    tap.start()
    assert not tap.pass_on(_event("three"))
    assert (tap.pieces, tap.text) == (0, "")


_KEPT = _event("a", usage=None, later={"usage": None})


_NESTED = b'data: {"choices":[{"index":0,"delta":{"content":"a","usage":null}}]}\n\n'


@pytest.mark.parametrize(
    ("came", "goes"),
    [
        (_event("a", usage=None), _event("a")),
        (_event("a", usage=None) + _event("b", usage=None), _event("a") + _event("b")),
        (_event(',"usage":null}'), _event(',"usage":null}')),
        (_event("a", usage={"prompt_tokens": 1}), None),
        (_KEPT, None),
        (_NESTED, None),
        (b': {"a":1,"usage":null}\n\n', None),
        (_event("a", usage=None).replace(b'"a"', b'"\xc3"'), None),
        (_event("a", usage=None).replace(b'"index":0', b'"index":'), None),
    ],
)
async def test_usage_that_only_remit_asked_for_is_not_passed_on(
    came: bytes, goes: bytes | None
) -> None:
    listener = _Listener()
    tap = await _begun(listener, asks_usage=True)
    assert tap.pass_on(came) is (goes is not None)
    assert listener.got[1:] == ([] if goes is None else [goes])


async def test_what_no_client_can_read_is_no_part_of_the_answer() -> None:
    tap = await _begun(_Listener())
    for text in ("two", "three"):
        assert tap.pass_on(_event(text))
    for raw in (
        _event("ghost").replace(b'"ghost"', b'\n"ghost"'),
        _event("ghost").replace(b'"ghost"', b'"ghost"\n'),
        b"\xef\xbb\xbf" + _event("ghost"),
    ):
        assert tap.pass_on(raw)
        assert tap.text == "onetwothree"


@pytest.mark.parametrize(
    ("dialect", "events"),
    [
        ("openai.responses", [b'data: {"type":"response.done","response":{"id":"r"}}\n\n']),
        ("openai.responses", [b'data: {"type":"response\\u002ecompleted"}\n\n']),
        ("anthropic.messages", [b'event: message\ndata: {"content":[]}\n\n']),
        ("anthropic.messages", [b'data: {"type":"response.failed"}\n\n']),
    ],
)
def test_every_event_that_ends_a_stream_is_seen(dialect: str, events: list[bytes]) -> None:
    pattern = stream_sum(dialect).at_once
    assert pattern is not None
    assert all(pattern.search(event) for event in events)


async def test_a_chunk_from_which_a_listener_of_text_hears_nothing_begins_no_answer() -> None:
    heard: list[str] = []
    tap = StreamTap(heard.append, None)
    tap.start()
    for events in ([], [TextDelta("one")]):
        assert not tap.was_passed_on
        await tap.chunk(WireChunk(_CHAT, b"", "", None, events=events), begins=True)
    assert tap.was_passed_on
    assert heard == ["one"]


async def test_a_sink_that_cannot_release_what_it_holds_is_called_again() -> None:
    class Older:
        got = 0

        async def take(self, event: Any) -> bool:
            self.got += 1
            return self.got > 1

        def pass_on(self, raw: bytes) -> bool:
            return False

    sink: Any = Older()
    tap = StreamTap(None, sink)
    tap.start()
    for expected in (False, True):
        await tap.chunk(WireChunk(_CHAT, _event("one"), "", None), begins=True)
        tap.release_held()
        assert tap.was_passed_on == expected
    assert sink.got == 2
