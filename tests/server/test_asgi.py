"""Model calls through ASGI alone, and what a relay gives of a stream that an attempt had begun."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any, cast

import msgspec
import pytest

from remit.gateway import Dispatched
from remit.kernel.errors import RemitError
from remit.providers import Body, WireChunk
from remit.providers.dialects import stream_reader
from remit.providers.wire import CHAT, RESPONSES, stream_sum
from remit.server.extensions import Relay, Request
from remit.server.request import AsgiRequest
from tests.server.running import prompt

_CHAT, _MESSAGES = "openai.chat", "anthropic.messages"
_FAILS: dict[str, list[dict[str, Any]]] = {
    "an error": [{"error": {"message": "overloaded", "type": "server_error"}}],
    "another dialect": [{"type": "message_start", "message": {"id": "m", "usage": {}}}],
    "what is no event": [{"choices": 1}],
}


class _Client:
    full = False

    def __init__(self) -> None:
        self.wire = b""

    def begin(self, status: int, headers: Any) -> None:
        assert status == 200

    def write(self, data: bytes) -> None:
        self.wire += data

    end = write


def _relay(endpoint: Any, body: Any) -> tuple[_Client, Relay]:
    client = _Client()
    return client, Relay(Body.read(endpoint, json.dumps(body).encode()), cast("Request", client))


def _chunk(endpoint: str, value: Any, *, is_translated: bool = False) -> WireChunk:
    """An event as the gateway passes it, with its neutral form for a client of another dialect."""
    data = json.dumps(value).encode()
    total = stream_sum(endpoint)
    total.add("", data, value)
    events: list[Any] | None = [] if is_translated else None
    if is_translated:
        with contextlib.suppress(RemitError):
            events = stream_reader(endpoint, total).feed(value)
    raw = b"data: %b\n\n" % data
    return WireChunk(endpoint, raw, "", value, total=total, events=events)


async def test_what_came_together_with_an_error_has_begun_the_answer() -> None:
    client, relay = _relay(CHAT, prompt(stream=True))
    await relay.take(Dispatched("LED-1"))
    comment = WireChunk(_CHAT, b": working\n\n", "", None, more=True, has_data=False)
    await relay.take(comment)  # the gateway knows that it begins nothing
    await relay.take(Dispatched("LED-2"))
    said = {"id": "c", "choices": [{"index": 0, "delta": {"content": "hello"}}]}
    chunk = msgspec.structs.replace(_chunk(_CHAT, said), more=True)
    assert await relay.take(chunk)  # or another attempt's answer would come behind it
    error = {"error": {"message": "overloaded"}}
    await relay.take(msgspec.structs.replace(_chunk(_CHAT, error), is_last=True))
    assert client.wire == comment.raw + chunk.raw


async def test_sound_that_begins_like_a_comment_has_begun_the_answer() -> None:
    client, relay = _relay(CHAT, prompt(stream=True))
    await relay.take(Dispatched("LED-1"))
    assert await relay.take(WireChunk(_CHAT, b":\x00", "", None, content_type="audio/mpeg"))
    assert client.wire == b":\x00"


@pytest.mark.parametrize("fails", _FAILS)
async def test_another_attempt_is_translated_from_its_beginning(fails: str) -> None:
    client, relay = _relay(RESPONSES, {"model": "m", "input": "hi", "stream": True})
    await relay.take(Dispatched("LED-1"))
    for value in _FAILS[fails]:
        endpoint = _MESSAGES if "type" in value else _CHAT
        began = await relay.take(_chunk(endpoint, value, is_translated=True))
        assert not began
    await relay.take(Dispatched("LED-2"))
    said = {"id": "c", "choices": [{"index": 0, "delta": {"content": "hello"}}]}
    assert await relay.take(_chunk(_CHAT, said, is_translated=True))
    assert b"hello" in client.wire
    assert b"response.created" in client.wire


async def test_a_stream_without_its_record_has_no_end() -> None:
    client, relay = _relay(CHAT, prompt(stream=True))
    await relay.take(Dispatched("LED-1"))
    said = {"id": "c", "choices": [{"index": 0, "delta": {"content": "hi"}}]}
    await relay.take(_chunk(_CHAT, said))
    await relay.take(WireChunk(_CHAT, b"data: [DONE]\n\n", "", None, is_last=True))
    relay.break_off(503, "record_unavailable", "The record cannot be written just now.")
    assert b"[DONE]" not in client.wire.split(b"record_unavailable")[0]
    assert client.wire.count(b"record_unavailable") == 1


@pytest.mark.parametrize("fails", [False, True])
async def test_held_events_are_sent_in_order_by_a_slow_server(fails: bool) -> None:
    sent: list[str] = []

    async def send(message: Any) -> None:
        for _ in range(9):
            await asyncio.sleep(0)
        sent.append(message["type"])

    async def handler(request: Request) -> None:
        relay = Relay(Body.read(CHAT, json.dumps(prompt(stream=True)).encode()), request)
        await relay.take(Dispatched("LED-1"))
        await relay.take(_chunk(_CHAT, {"choices": [{"index": 0, "delta": {"role": "assistant"}}]}))
        assert relay.release()
        await asyncio.sleep(0)
        if fails:
            raise ValueError
        said = {"choices": [{"index": 0, "delta": {"content": "hello"}}]}
        await relay.take(_chunk(_CHAT, said))

    request = AsgiRequest({"path": "/", "headers": []}, asyncio.Future, send)  # type: ignore[arg-type]
    with pytest.raises(ValueError) if fails else contextlib.nullcontext():
        await request.serve(handler)
    expected = [] if fails else ["http.response.start", *["http.response.body"] * 2]
    assert sent == expected
    for _ in range(50):
        await asyncio.sleep(0)
    assert sent == expected  # nothing is sent later
